//! The extension API, for crates built on this one: library bindings, communicators, importers of foreign memory.
//!
//! Work enqueued through this API is ordered with respect to every other use of its buffers. On a capturing stream, the
//! work becomes part of the graph. As with launches and copies, the buffers' memory stays allocated until the work has
//! run.
//!
//! | purpose | use |
//! | --- | --- |
//! | work on a stream, synchronized by the buffers it reads and writes | [`Stream::enqueue`] with [`BufferUse`]s |
//! | a host function on a stream, synchronized in the same way (on the emulated device) | [`Stream::enqueue_host`] |
//! | an object that must outlive the graphs that use it | [`Stream::keep_in_capture`] |
//! | code that depends on whether the stream is capturing | [`Stream::with_stable_capture_state`] |
//! | a workspace | [`Stream::with_scratch`] |
//! | a buffer over memory allocated by other code | [`DeviceBuffer::from_raw`](crate::DeviceBuffer::from_raw) |
//! | a buffer over external host memory, on an emulated device | [`DeviceBuffer::from_host_raw`](crate::DeviceBuffer::from_host_raw) |
//! | a buffer over external memory that its owner may revoke | [`DeviceBuffer::from_raw_while`](crate::DeviceBuffer::from_raw_while) |
//! | a buffer's memory passed to other code, or reinterpreted as another type | [`DeviceBuffer::into_raw`](crate::DeviceBuffer::into_raw), [`leak`](crate::DeviceBuffer::leak), [`cast`](crate::DeviceBuffer::cast) |
//! | host memory that kernels access | [`PinnedBuffer::into_mapped`](crate::PinnedBuffer::into_mapped), [`MappedBuffer::register`](crate::MappedBuffer::register) |
//! | per-device state: handles, plans, caches | [`Device::extension`] |
//! | library calls that need the device's context but enqueue no work | [`Device::with_context`], [`Device::bind`] |
//! | a crate's own error type inside [`Error`] | [`Error::extension`] |
//! | reports of every launch, copy, allocation, event and wait, for a profiler | [`observe`] |
//!
//! # Observers
//! An [`Observer`] is called at the start and end of each operation, on the thread that performs it. Without observers,
//! each operation costs one extra load.
//!
//! | [`Operation`] | reported when | details |
//! | --- | --- | --- |
//! | [`Launch`](Operation::Launch), [`GraphLaunch`](Operation::GraphLaunch) | a kernel or a graph is enqueued or captured | kernel symbol, configuration and its source |
//! | [`CaptureBegin`](Operation::CaptureBegin), [`CaptureEnd`](Operation::CaptureEnd), [`GraphAdd`](Operation::GraphAdd), [`GraphInstantiate`](Operation::GraphInstantiate) | a graph is captured, built or instantiated | the graph, the executable |
//! | [`Copy`](Operation::Copy), [`Memset`](Operation::Memset) | a copy or memset is enqueued or captured | addresses, bytes, direction |
//! | [`HostFunction`](Operation::HostFunction), [`Extension`](Operation::Extension) | work is enqueued or captured through [`Stream::enqueue`] | the Rust function's path, or the [name](Stream::enqueue_named) |
//! | [`EventRecord`](Operation::EventRecord), [`EventWait`](Operation::EventWait) | the program records an event or makes a stream wait, or the runtime does both to order buffer uses | the event, the stream, the buffer |
//! | [`Synchronize`](Operation::Synchronize) | the host waits for a device, stream or event | the target of the wait |
//! | [`Allocate`](Operation::Allocate), [`Free`](Operation::Free) | device or page-locked memory is allocated or freed | bytes, address, pool, cache hit |
//!
//! Each report also contains the operation's ID, device, stream and capture state, its start and end time, its source
//! line ([`site`]), and whether it succeeded. Queries ([`Stream::query`]) and the events by which allocators detect
//! free memory are not reported.
//!
//! A callback must not use devices, because the runtime may hold locks. Calls that would use a device return
//! [`Error::InObserver`], and values that the callback drops are destroyed by another thread.
//!
//! # Example
//!
//! ```
//! use warpsmith_runtime::extension::Access;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! let device = Device::emulated(0)?;
//! let stream = Stream::new(&device)?;
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
//! let mut y = DeviceBuffer::<f32>::uninit(&stream, 2)?;
//! let (from, to) = (x.as_device_ptr().0 as *const f32, y.as_device_ptr().0 as *mut f32);
//! let (from, to) = (from.addr(), to.addr());
//! let uses = [x.as_slice().used(Access::Read), y.as_mut_slice().used()];
//! // SAFETY: the closure only reads `x` and writes `y`, as declared; on the emulated device, their
//! // addresses are process addresses.
//! unsafe {
//!     stream.enqueue_host(&uses, move || {
//!         let (from, to) = (from as *const f32, to as *mut f32);
//!         (0..2).for_each(|i| to.add(i).write(2.0 * from.add(i).read()));
//!     })?;
//! }
//! assert_eq!(y.to_host()?, [2.0, 4.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
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
    /// Enqueues custom work on a CUDA device. `work` receives the stream's handle and is called with the device's
    /// context current.
    ///
    /// The enqueued work waits for all earlier conflicting uses of the same bytes: reads wait for earlier writes, and
    /// writes wait for all earlier uses. Later conflicting uses wait for this work. Each buffer's memory stays
    /// allocated until the work has run. On a capturing stream, the work becomes part of the graph, which keeps the
    /// memory allocated. The uses are recorded even if `work` fails, because part of the work may have been enqueued.
    ///
    /// ```no_run
    /// use warpsmith_runtime::{Device, DeviceBuffer, Error};
    ///
    /// # unsafe fn cublas_sscal(_: warpsmith_runtime::driver::StreamHandle, _: usize, _: f32, _: u64) {}
    /// let stream = Device::cuda(0)?.default_stream();
    /// let mut x = DeviceBuffer::from_host(&stream, &[1.0_f32, 2.0])?;
    /// let (address, len) = (x.as_device_ptr().0, x.len());
    /// // SAFETY: the library enqueues one kernel on the stream, which writes only `x`.
    /// unsafe {
    ///     stream.enqueue(&[x.as_mut_slice().used()], |handle| {
    ///         cublas_sscal(handle, len, 2.0, address);
    ///         Ok::<(), Error>(())
    ///     })?;
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// The example needs a GPU. The [module's example](crate::extension#example) runs on the emulated device.
    ///
    /// # Errors
    /// Returns the error that `work` returns, [`Error::DeviceLost`], [`Error::Forked`], or a
    /// [`GraphError`](crate::GraphError) if a capture of the stream or of a buffer does not permit the work.
    ///
    /// # Safety
    /// `work` must enqueue work only on that stream and must not wait. The enqueued work must access only the device
    /// memory of `uses`, with the access that each use declares, and memory that the caller orders and keeps alive by
    /// other means. If any use is a write, no two uses may overlap.
    #[track_caller]
    pub unsafe fn enqueue<E: Into<Error>>(
        &self,
        uses: &[BufferUse<'_>],
        work: impl FnOnce(StreamHandle) -> Result<(), E>,
    ) -> Result<()> {
        let _site = site();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.enqueue_named(type_name_of_val(&work), uses, work) }
    }

    /// Like [`Self::enqueue`], but reports the work to observers under the given name.
    ///
    /// See the example of [`Self::enqueue`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::enqueue`].
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::enqueue`].
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

    /// Enqueues a host function call, ordered like work enqueued with [`Self::enqueue`]. In a graph, the function is
    /// called once per launch. The function must not call the driver or block.
    ///
    /// On the emulated device, the function replaces work that a library would run on a GPU, and device addresses are
    /// process addresses.
    ///
    /// See the [example](crate::extension#example).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::enqueue`].
    ///
    /// # Safety
    /// The function must access only the device memory of `uses`, with the access that each use declares. If any use is
    /// a write, no two uses may overlap.
    #[track_caller]
    pub unsafe fn enqueue_host(
        &self,
        uses: &[BufferUse<'_>],
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        let _site = site();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.enqueue_host_named(type_name_of_val(&work), uses, work) }
    }

    /// Like [`Self::enqueue_host`], but reports the call to observers under the given name.
    ///
    /// See the [example](crate::extension#example).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::enqueue`].
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::enqueue_host`].
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
        // SAFETY: the caller guarantees that the work accesses only the declared uses. Their memory is not freed before
        // the work has run, nor while a graph that contains the work can be launched.
        storage::enqueue(uses.iter(), self, Kind::Copy(name), |driver, context| unsafe {
            self.observed(|| Operation::Extension { name }, || driver.host_work(context, handle, work))
        })
    }

    /// If the stream is capturing, calls `item` and keeps the returned value alive as long as the graph. Otherwise
    /// drops `item` without calling it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use warpsmith_runtime::{Device, Graph, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let plan = Arc::new([1, 2, 3]);
    /// // Work that uses the plan is enqueued here.
    /// let graph = Graph::capture(&stream, || {
    ///     stream.keep_in_capture(|| plan.clone());
    ///     Ok::<_, warpsmith_runtime::Error>(())
    /// })?;
    /// assert_eq!(Arc::strong_count(&plan), 2);
    /// drop(graph);
    /// assert_eq!(Arc::strong_count(&plan), 1);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn keep_in_capture(&self, item: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        if let Some(capturing) = self.capturing() {
            capturing.keep(item());
        }
    }
}

impl Device {
    /// Makes the device's context current on the calling thread, for library calls, until the returned guard is
    /// dropped. While the guard exists, the thread's capture mode is relaxed (`cudaStreamCaptureModeRelaxed`), so graph
    /// captures do not restrict its calls. This also works on a lost device, so that library objects can be destroyed.
    ///
    /// ```
    /// let device = warpsmith_runtime::Device::emulated(0)?;
    /// let calls = device.bind()?;
    /// // Calls of a library that uses the current context.
    /// drop(calls);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Forked`] or any [driver error](crate::Error::Driver).
    pub fn bind(&self) -> Result<LibraryCalls> {
        self.check_process()?;
        let (driver, context) = self.raw();
        Ok(driver.bind(context)?)
    }

    /// Calls `work` with the device's context current, like [`Self::bind`], unless the device is lost.
    ///
    /// ```
    /// let device = warpsmith_runtime::Device::emulated(0)?;
    /// // The closure calls a library that uses the current context.
    /// let handle = device.with_context(|| Ok(7))?;
    /// assert_eq!(handle, 7);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`], [`Error::Forked`], or the error that `work` returns. If that error means that the
    /// context is unusable, the device is marked lost.
    pub fn with_context<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.call(|driver, context| {
            let _calls = driver.bind(context)?;
            work()
        })
    }
}
