//! The extension API, for crates built on this one: library bindings, communicators, importers of foreign memory.
//!
//! Guarantees: work enqueued here is ordered with every other use of its buffers. On a stream that is being captured,
//! it becomes part of the graph. It keeps the buffers' memory alive until it has run, as launches and copies do.
//!
//! | purpose | use |
//! | --- | --- |
//! | work on a stream, ordered by the buffers that it reads and writes | [`Stream::enqueue`] with [`BufferUse`]s |
//! | the same, run by the host (on the emulated device) | [`Stream::enqueue_host`] |
//! | an object kept alive by each graph that uses it | [`Stream::keep_in_capture`] |
//! | a decision that depends on whether the stream is being captured | [`Stream::with_stable_capture_state`] |
//! | a workspace | [`Stream::with_scratch`] |
//! | a buffer of memory that other code allocated | [`DeviceBuffer::from_raw`](crate::DeviceBuffer::from_raw) |
//! | the same, for host memory on an emulated device | [`DeviceBuffer::from_host_raw`](crate::DeviceBuffer::from_host_raw) |
//! | the same, for memory that may be withdrawn | [`DeviceBuffer::from_raw_while`](crate::DeviceBuffer::from_raw_while) |
//! | a buffer's memory handed to other code, or reinterpreted as another type | [`DeviceBuffer::into_raw`](crate::DeviceBuffer::into_raw), [`leak`](crate::DeviceBuffer::leak), [`cast`](crate::DeviceBuffer::cast) |
//! | host memory that kernels access | [`PinnedBuffer::into_mapped`](crate::PinnedBuffer::into_mapped), [`MappedBuffer::register`](crate::MappedBuffer::register) |
//! | per-device state: handles, plans, caches | [`Device::extension`] |
//! | library calls that need the device's context but enqueue no work on a stream | [`Device::with_context`], [`Device::bind`] |
//! | a crate's own error type inside [`Error`] | [`Error::extension`] |
//! | every launch, copy, allocation, event and wait, as a profiler sees them | [`observe`] |
//!
//! # Observers
//!
//! An [`Observer`] is called at the start and at the end of each operation, on the thread that performs it. Without
//! observers, an operation costs one extra load.
//!
//! | [`Operation`] | when | also known |
//! | --- | --- | --- |
//! | [`Launch`](Operation::Launch), [`GraphLaunch`](Operation::GraphLaunch) | a kernel or a graph is enqueued or captured | symbol, configuration, how the configuration was chosen |
//! | [`CaptureBegin`](Operation::CaptureBegin), [`CaptureEnd`](Operation::CaptureEnd), [`GraphAdd`](Operation::GraphAdd), [`GraphInstantiate`](Operation::GraphInstantiate) | a graph is captured, built or instantiated | the graph, the executable |
//! | [`Copy`](Operation::Copy), [`Memset`](Operation::Memset) | a copy or memset is enqueued or captured | addresses, bytes, direction |
//! | [`HostFunction`](Operation::HostFunction), [`Extension`](Operation::Extension) | work is enqueued or captured by [`Stream::enqueue`] and by libraries | the Rust function's path, or the [name](Stream::enqueue_named) |
//! | [`EventRecord`](Operation::EventRecord), [`EventWait`](Operation::EventWait) | the program records or waits, or the runtime inserts the pair to order buffer uses | the event, the stream, the buffer |
//! | [`Synchronize`](Operation::Synchronize) | the host waits for a device, stream or event | the target of the wait |
//! | [`Allocate`](Operation::Allocate), [`Free`](Operation::Free) | device or page-locked memory is allocated or freed | bytes, address, pool, whether the cache served the request |
//!
//! Each operation has an ID, the device, the stream (and whether it is being captured) and the time of both calls. It
//! also has the source line of the program ([`site`]) and whether the operation succeeded. Queries ([`Stream::query`])
//! and the events that the allocators use to find free memory are not reported.
//!
//! An observer must not use devices in a callback, because the runtime may hold locks. Calls that would use a device
//! fail there with [`Error::InObserver`], and values dropped there are dropped by another thread.
//!
//! # Example
//!
//! ```
//! use warpsmith_runtime::extension::Access;
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
pub use crate::device::flags::is_any_stream_capturing;
pub use crate::device::graph_nodes::{GraphNode, GraphNodes, GraphWork};
pub use crate::device::observe::{
    Awaited, AwaitedBuffer, CopyDirection, Ended, MemoryKind, Observation, Observed, ObservedStream,
    Observer, Operation, Site, observe, site,
};
pub use crate::driver::host_function::{drop_elsewhere, is_running as in_host_function};
pub use crate::memory::storage::BufferUse;
pub use crate::memory::usage::Access;

impl Stream {
    /// Enqueues the caller's own work on a CUDA device. `work` receives the stream's handle, with the device's context
    /// current on this thread, and enqueues on that stream.
    ///
    /// The work runs after all conflicting earlier uses of the same bytes (a read after writes, a write after every
    /// use), and later uses follow it. Each buffer's memory is kept until the work has run. On a stream that is being
    /// captured, the work becomes part of the graph, which keeps the memory. If `work` fails, the uses count
    /// nevertheless, since part of the work may have been enqueued.
    ///
    /// # Errors
    /// The error that `work` returns; [`Error::DeviceLost`], [`Error::Forked`];
    /// [`GraphError`](crate::GraphError) when the capture of the stream or of a buffer does not allow the work.
    ///
    /// # Safety
    /// `work` enqueues on that stream only and does not wait. The enqueued work accesses only device memory of `uses`,
    /// with the access that each declares, and memory that the caller orders and keeps alive by other means. If any use
    /// is a write, no two uses overlap.
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

    /// Enqueues a host function call, ordered as [`Self::enqueue`] describes. In a graph it is called once per launch.
    /// It must not call the driver or wait.
    ///
    /// On the emulated device, this replaces work that a library would do on a GPU: device addresses are addresses of
    /// the process there.
    ///
    /// # Errors
    /// As [`Self::enqueue`].
    ///
    /// # Safety
    /// The function accesses only device memory of `uses`, with the access that each declares. If any use is a write,
    /// no two uses overlap.
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
        // SAFETY: the work stays within the uses, as the caller promises. Their memory is not freed before the work has
        // run, nor while a graph with this work can be launched.
        storage::enqueue(uses.iter(), self, Kind::Copy(name), |driver, context| unsafe {
            self.observed(|| Operation::Extension { name }, || driver.host_work(context, handle, work))
        })
    }

    /// Keeps `item` alive as long as the graph if the stream is being captured; otherwise drops `item` without calling
    /// it.
    pub fn keep_in_capture(&self, item: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        if let Some(capturing) = self.capturing() {
            capturing.keep(item());
        }
    }
}

impl Device {
    /// Makes the device's context current on the calling thread, for library calls, until the result is dropped.
    /// Meanwhile the thread's capture mode is relaxed (`cudaStreamCaptureModeRelaxed`): graph captures do not restrict
    /// its calls. A lost device is bound too, so that a library's objects on it can be destroyed.
    ///
    /// # Errors
    /// [`Error::Forked`]; any [driver error](crate::Error::Driver).
    pub fn bind(&self) -> Result<LibraryCalls> {
        self.check_process()?;
        let (driver, context) = self.raw();
        Ok(driver.bind(context)?)
    }

    /// Calls `work` with the device's context current, as [`Self::bind`] does, unless the device is lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::Forked`]; the error that `work` returns. If it reports that the context was
    /// stopped, the device is lost.
    pub fn with_context<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.call(|driver, context| {
            let _calls = driver.bind(context)?;
            work()
        })
    }
}
