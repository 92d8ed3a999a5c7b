//! The interface for crates built on this one: bindings of libraries, communicators, importers of foreign memory.
//!
//! Guarantees: work enqueued here is ordered with every other use of its buffers, becomes part of a graph on a stream that
//! is being captured, and keeps the buffers' memory until it has run, as launches and copies do.
//!
//! | wanted | use |
//! | --- | --- |
//! | work on a stream, ordered by the buffers that it reads and writes | [`Stream::enqueue`] with [`BufferUse`]s |
//! | the same, done by the host (on the emulated device) | [`Stream::enqueue_host`] |
//! | something kept as long as a graph that uses it | [`Stream::keep_in_capture`] |
//! | a decision that depends on whether the stream is being captured | [`Stream::with_stable_capture_state`] |
//! | a workspace | [`Stream::with_scratch`] |
//! | a buffer of memory that other code allocated | [`DeviceBuffer::from_raw`](crate::DeviceBuffer::from_raw) |
//! | the same, of memory that may be withdrawn | [`DeviceBuffer::from_raw_while`](crate::DeviceBuffer::from_raw_while) |
//! | a buffer's memory for other code, or of another type | [`DeviceBuffer::into_raw`](crate::DeviceBuffer::into_raw), [`leak`](crate::DeviceBuffer::leak), [`cast`](crate::DeviceBuffer::cast) |
//! | memory of the host for kernels | [`PinnedBuffer::into_mapped`](crate::PinnedBuffer::into_mapped), [`MappedBuffer::register`](crate::MappedBuffer::register) |
//! | state for each device: handles, plans, caches | [`Device::extension`] |
//! | calls of a library that need the device's context, without work on a stream | [`Device::with_context`], [`Device::bind`] |
//! | errors of one's own in the one error | [`Error::extension`] |
//! | every launch, copy, allocation, event and wait, as a profiler sees them | [`observe`] |
//!
//! # Observers
//!
//! An [`Observer`] is called at the beginning and at the end of each operation, on the thread that does it. A program without
//! observers pays one load for it.
//!
//! | [`Operation`] | when | also known |
//! | --- | --- | --- |
//! | [`Launch`](Operation::Launch), [`GraphLaunch`](Operation::GraphLaunch) | a kernel or a graph is enqueued or captured | symbol, configuration, how it was chosen |
//! | [`CaptureBegin`](Operation::CaptureBegin), [`CaptureEnd`](Operation::CaptureEnd), [`GraphAdd`](Operation::GraphAdd), [`GraphInstantiate`](Operation::GraphInstantiate) | a graph is made | the graph, the executable |
//! | [`Copy`](Operation::Copy), [`Memset`](Operation::Memset) | likewise | addresses, bytes, direction |
//! | [`HostFunction`](Operation::HostFunction), [`Extension`](Operation::Extension) | likewise, by [`Stream::enqueue`] and by libraries | the Rust function's path, or the [name](Stream::enqueue_named) |
//! | [`EventRecord`](Operation::EventRecord), [`EventWait`](Operation::EventWait) | by the program, or inserted because buffers need the order | the event, the stream, the buffer |
//! | [`Synchronize`](Operation::Synchronize) | the host waits for a device, stream or event | which |
//! | [`Allocate`](Operation::Allocate), [`Free`](Operation::Free) | of device memory and page-locked memory | bytes, address, pool, whether the cache had it |
//!
//! Each has a number, the device, the stream (and whether it is captured), the time of both calls, the source line of the
//! program ([`site`]) and whether it succeeded.
//! Questions ([`Stream::query`]) and the events by which the allocators find free memory are not reported.
//!
//! An observer must not use devices in a callback, since locks of the runtime may be held: calls fail there with
//! [`Error::InObserver`], and what is dropped there is dropped by another thread.
//!
//! # Example
//!
//! ```
//! use warpsmith_runtime::seam::Access;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let device = Device::emulated(0)?;
//! let stream = Stream::new(&device)?;
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
//! let mut y = DeviceBuffer::<f32>::uninit(&stream, 2)?;
//! let (from, to) = (x.as_device_ptr().0 as *const f32, y.as_device_ptr().0 as *mut f32);
//! let (from, to) = (from.addr(), to.addr());
//! let uses = [x.as_slice().used(Access::Read), y.as_mut_slice().used()];
//! // SAFETY: the closure reads `x` and writes `y`, as the uses say, and nothing else; on the emulated device their
//! // addresses are addresses of the process.
//! unsafe {
//!     stream.enqueue_host(&uses, move || {
//!         let (from, to) = (from as *const f32, to as *mut f32);
//!         (0..2).for_each(|i| to.add(i).write(2.0 * from.add(i).read()));
//!     })?;
//! }
//! assert_eq!(y.to_host()?, [2.0, 4.0]);
//! # Ok(())
//! # }
//! ```

use std::any::{Any, type_name_of_val};
use std::sync::Arc;

use crate::device::Device;
use crate::driver::{HostAccess, HostWork, LibraryCalls, StreamHandle};
use crate::error::{Error, Result};
use crate::memory::storage::{self, Kind};
use crate::stream::Stream;

pub use crate::device::WeakDevice;
pub use crate::device::drivers::{DRIVER_HOOKS, open_devices};
pub use crate::device::fork::is_any_stream_capturing;
pub use crate::device::graph_nodes::{GraphNode, GraphNodes, GraphWork};
pub use crate::device::observe::{
    Awaited, AwaitedBuffer, CopyDirection, Ended, MemoryKind, Observation, Observed, ObservedStream,
    Observer, Operation, Site, observe, site,
};
pub use crate::driver::host_function::{drop_elsewhere, is_running as in_host_function};
pub use crate::memory::storage::BufferUse;
pub use crate::memory::usage::Access;

impl Stream {
    /// Enqueues work of the caller's on a CUDA device: `work` gets the stream's handle, with the device's context current
    /// on this thread, and enqueues on that stream.
    ///
    /// The work runs after the uses of the same bytes that it must follow (a read after writes, a write after everything),
    /// and later uses follow it. Each buffer's memory is kept until it has run. On a stream that is being captured it
    /// becomes part of the graph, which keeps the memory. When `work` fails, the uses count nevertheless, since part of
    /// the work may have been enqueued.
    ///
    /// # Errors
    /// What `work` returns; a lost device, [`Error::Forked`];
    /// [`GraphError`](crate::GraphError) when the capture of the stream or of a buffer does not allow the work.
    ///
    /// # Safety
    /// `work` enqueues on that stream alone, waits for nothing, and what it enqueues accesses no device memory but that
    /// of `uses`, in the way each says, and memory that the caller orders and keeps by other means. Where one of the uses
    /// is a write, no two of them overlap.
    #[track_caller]
    pub unsafe fn enqueue<E: Into<Error>>(
        &self,
        uses: &[BufferUse<'_>],
        work: impl FnOnce(StreamHandle) -> Result<(), E>,
    ) -> Result<()> {
        let _site = site();
        // SAFETY: passed on from the caller.
        unsafe { self.enqueue_named(type_name_of_val(&work), uses, work) }
    }

    /// As [`Self::enqueue`], with a name for observers.
    ///
    /// # Errors
    /// As [`Self::enqueue`].
    ///
    /// # Safety
    /// As [`Self::enqueue`].
    #[track_caller]
    pub unsafe fn enqueue_named<E: Into<Error>>(
        &self,
        name: &'static str,
        uses: &[BufferUse<'_>],
        work: impl FnOnce(StreamHandle) -> Result<(), E>,
    ) -> Result<()> {
        let _site = site();
        let handle = self.handle();
        storage::enqueue(uses.iter(), self, Kind::Copy(name), |driver, context| {
            let _calls = driver.bind(context)?;
            self.observed(|| Operation::Extension { name }, || work(handle).map_err(Into::into))
        })
    }

    /// Enqueues a call of a function on the host, ordered as [`Self::enqueue`] says. In a graph it is called once for each
    /// launch. It must not call the driver or wait.
    ///
    /// On the emulated device this is how work that would be a library's on a GPU is done: addresses of device memory are
    /// addresses of the process there.
    ///
    /// # Errors
    /// As [`Self::enqueue`].
    ///
    /// # Safety
    /// The function accesses no device memory but that of `uses`, in the way each says. Where one of the uses is a
    /// write, no two of them overlap.
    #[track_caller]
    pub unsafe fn enqueue_host(
        &self,
        uses: &[BufferUse<'_>],
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        let _site = site();
        // SAFETY: passed on from the caller.
        unsafe { self.enqueue_host_named(type_name_of_val(&work), uses, work) }
    }

    /// As [`Self::enqueue_host`], with a name for observers.
    ///
    /// # Errors
    /// As [`Self::enqueue`].
    ///
    /// # Safety
    /// As [`Self::enqueue_host`].
    #[track_caller]
    pub unsafe fn enqueue_host_named(
        &self,
        name: &'static str,
        uses: &[BufferUse<'_>],
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        let _site = site();
        let handle = self.handle();
        let accesses = uses.iter().map(|used| HostAccess {
            ptr: used.storage.ptr().offset(used.range.start),
            bytes: used.range.len(),
            write: used.access == Access::Write,
        });
        let work = HostWork::new(name, accesses.collect(), Box::new(work));
        // SAFETY: the work stays inside the uses, by the caller's promise. Their memory is not freed before the work has
        // run, nor while a graph with this work can be launched.
        storage::enqueue(uses.iter(), self, Kind::Copy(name), |driver, context| unsafe {
            self.observed(|| Operation::Extension { name }, || driver.host_work(context, handle, work))
        })
    }

    /// On a stream that is being captured: keeps `item` as long as the graph. Otherwise it drops it.
    pub fn keep_in_capture(&self, item: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        if let Some(capturing) = self.capturing() {
            capturing.keep(item());
        }
    }
}

impl Device {
    /// Makes the device's context the calling thread's current one, for a library's calls, until the result is dropped.
    /// Captures of graphs forbid the thread nothing meanwhile. A lost device is bound too, so that what a library has
    /// there can be destroyed.
    ///
    /// # Errors
    /// [`Error::Forked`]; whatever the driver reports.
    pub fn bind(&self) -> Result<LibraryCalls> {
        self.check_process()?;
        let (driver, context) = self.raw();
        Ok(driver.bind(context)?)
    }

    /// Calls `work` with the device's context current, as [`Self::bind`] does, unless the device is lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::Forked`]; what `work` returns, which loses the device when it says that the context
    /// was stopped.
    pub fn with_context<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.call(|driver, context| {
            let _calls = driver.bind(context)?;
            work()
        })
    }
}
