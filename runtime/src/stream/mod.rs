//! Streams: queues of work on a device.
//!
//! **Ordering.** Work on one stream runs in the order in which it was enqueued. Work on two streams is ordered only by
//! an [`Event`](crate::Event) that one stream records and the other waits for. When a buffer is used on a different
//! stream than before, the runtime inserts both operations, unless the program has already ordered the streams. Work is
//! not synchronized with CUDA's legacy default stream.
//!
//! **Threads.** Any number of threads can use a stream. Their calls are serialized.
//!
//! **Lifetimes.** A stream created with [`Stream::new`] lives until the last handle to it and the last buffer used on
//! it are dropped. Dropping the last handle does not cancel enqueued work. The default stream and the pool streams live
//! as long as the device. An adopted stream is owned by other code.
//!
//! | module | contents |
//! | --- | --- |
//! | `core` | a stream's state, its handles, and its destruction |
//! | `clock`, `lengths` | known ordering between streams, and durations of waits, tracked without driver calls |
//! | `captures` | capture state of streams |
//! | `stable_capture` | work that depends on the stream's capture state |
//! | `wait` | waits of streams for streams or events, and of the host for streams |
//! | `pool` | the default stream, the pools and the adopted streams of a device |
//! | `current` | the thread's current stream of each device, and guards |
//! | `launch_hook` | callbacks that are called before each launch of a graph |
//! | `handles`, `round_robin` | handle counting; round-robin selection |

pub(crate) mod captures;
pub(crate) mod clock;
pub(crate) mod core;
mod current;
mod handles;
pub(crate) mod launch_hook;
pub(crate) mod lengths;
pub(crate) mod pool;
mod round_robin;
mod stable_capture;
mod sync;
mod wait;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;

pub use self::captures::CaptureId;
use self::captures::Holds;
pub(crate) use self::core::StreamCore;
use self::core::{Ownership, Shared};
pub use self::current::StreamGuard;
use crate::device::Device;
use crate::device::observe::{self, CopyDirection, ObservedStream, On, Operation, Watch, site};
use crate::driver::{CaptureStatus, Context, Driver, GraphFunction, StreamHandle};
use crate::error::{Error, GraphError, Result, code};

/// A queue of work on a device. Cheap to clone; usable from any thread.
///
/// ```
/// use warpsmith_runtime::{Device, Stream};
///
/// let device = Device::emulated(0)?;
/// let stream = Stream::new(&device)?;
/// let start = stream.record_timed_event()?;
/// let end = stream.record_timed_event()?;
/// stream.synchronize()?;
/// assert!(end.elapsed_us(&start)? >= 0.0);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Stream(NonNull<Shared>);

// SAFETY: a handle provides only shared access to `Shared`, whose fields are `Send` and `Sync`; handles are counted
// atomically.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Clone for Stream {
    #[inline]
    fn clone(&self) -> Self {
        self.shared().handles().add();
        Self(self.0)
    }
}

impl Drop for Stream {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle is being dropped.
        unsafe { Shared::remove_handle(self.0) }
    }
}

impl Stream {
    /// Creates a new stream with the lowest priority; unlike a pooled stream, it is not shared.
    ///
    /// The driver takes about 15 microseconds to create a stream; [`Stream::from_pool`] returns an existing one.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn new(device: &Device) -> Result<Self> {
        let core = device.call(|driver, context| StreamCore::create(driver, context, 0))?;
        Ok(Self(Shared::boxed(device.clone(), Ownership::Handles, core)))
    }

    /// Returns the [default stream](Device::default_stream) of the [best device](Device::best), for programs that use
    /// one device.
    ///
    /// ```
    /// use warpsmith_runtime::{DeviceBuffer, Stream};
    ///
    /// let stream = Stream::best()?;
    /// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
    /// println!("{x:?}");
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Device::best`].
    pub fn best() -> Result<Self> {
        Ok(Device::best()?.default_stream())
    }

    #[inline]
    fn shared(&self) -> &Shared {
        // SAFETY: this handle keeps the state alive.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn core(&self) -> &StreamCore {
        &self.shared().core
    }

    /// Returns the stream's device.
    #[inline]
    pub fn device(&self) -> &Device {
        self.shared().device()
    }

    /// Returns the driver's handle. The handle is valid while a [`Stream`] for it exists.
    #[inline]
    pub fn handle(&self) -> StreamHandle {
        self.core().handle
    }

    /// Returns the stream's ID, unique among all streams that this process has ever created or adopted.
    #[inline]
    pub fn id(&self) -> u64 {
        self.core().id
    }

    /// Returns the stream's priority. Lower numbers are more urgent; 0 is the least urgent.
    pub fn priority(&self) -> i32 {
        self.core().priority
    }

    /// Enqueues a host function, which runs on a driver thread. Later work on the stream waits until it has returned.
    ///
    /// The function must not use devices: the driver rejects calls that enqueue, allocate or wait. Nor may it wait for
    /// a thread that uses devices, because that thread may be waiting for the stream. Typical uses are sending on a
    /// channel, storing to an atomic, and computing on the host. Buffers, streams and devices that the function drops
    /// are destroyed by another thread. A panic in the function is caught and discarded. If a fault stops the device
    /// first, the function is dropped without being called.
    /// ```
    /// let stream = warpsmith_runtime::Device::emulated(0)?.default_stream();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// stream.host_function(move || sender.send("done").unwrap_or(()))?;
    /// assert_eq!(receiver.recv(), Ok("done"));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let _site = site();
        self.check_not_capturing(
            "Stream::host_function",
            "a graph can be launched repeatedly, but this function can be called only once; use \
             `Stream::graph_function`",
        )?;
        let handle = self.handle();
        self.observed(
            || Operation::HostFunction,
            || self.call(|driver, context| driver.host_function(context, handle, Box::new(function))),
        )
    }

    /// Adds a host function to the graph being captured on this stream. The function is called once per launch and must
    /// follow the rules of [`Self::host_function`].
    ///
    /// # Errors
    /// Returns [`GraphError::NotCapturing`] if the stream is not being captured, or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn graph_function(&self, function: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let _site = site();
        match self.capture_sink() {
            Some(capture) => capture.host_function(self, GraphFunction::new(function)),
            None => Err(Error::Graph(GraphError::NotCapturing { call: "Stream::graph_function" })),
        }
    }

    /// Returns true for a shared stream of the device (the default stream or a pool stream), or for one of CUDA's own
    /// streams.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared().ownership == Ownership::Device || (!self.device().is_emulated() && self.handle().0 <= 2)
    }

    /// Returns an error if other code is capturing this stream, because the runtime would reuse memory that the graph
    /// still uses.
    pub(crate) fn check_not_captured_elsewhere(&self, call: &'static str) -> Result<()> {
        let is_foreign = matches!(self.shared().ownership, Ownership::Adopted(_) | Ownership::Borrowed);
        // CUDA's own streams are never captured, and the runtime tracks its own captures.
        if !is_foreign || self.is_shared() || self.capture_count() % 2 == 1 {
            return Ok(());
        }
        let status = self.device().call(|driver, context| driver.capture_status(context, self.handle()))?;
        match status {
            CaptureStatus::None => Ok(()),
            _ => Err(Error::Graph(GraphError::CapturedElsewhere { call })),
        }
    }

    /// Calls the driver for work on this stream, like [`Device::call`]. A capture of the stream can detect the call.
    #[inline]
    pub(crate) fn call<R, E: Into<Error>>(
        &self,
        call: impl FnOnce(&dyn Driver, Context) -> Result<R, E>,
    ) -> Result<R> {
        match self.shared().ownership {
            // A stream of the device is never captured.
            Ownership::Device => self.device().call(call),
            Ownership::Handles | Ownership::Borrowed => self.call_counted(|| self.device().call(call)),
            Ownership::Adopted(number) => self.call_counted(|| self.call_adopted(number, call)),
        }
    }

    /// Runs a driver call and counts it as described in [`captures`].
    #[inline]
    fn call_counted<R>(&self, call: impl FnOnce() -> R) -> R {
        let (_pending, is_capturing) = self.captures().call();
        if !is_capturing || Holds::is_there() {
            return call();
        }
        let capture = self.capture_sink();
        let _held = capture.as_ref().map(|capture| capture.hold());
        call()
    }

    /// Calls the driver for an operation on this stream and reports the operation to observers.
    #[inline(always)]
    pub(crate) fn observed<'a, R, E>(
        &'a self,
        operation: impl FnOnce() -> Operation<'a>,
        call: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        observe::around(self.device(), || (Some(self.as_observed()), operation()), call)
    }

    /// Returns the stream in the form that observers receive.
    fn as_observed(&self) -> On {
        let is_capturing = self.is_capturing();
        let capture = self.capture_sink().map(|capture| capture as _);
        On { stream: ObservedStream { id: self.id(), handle: self.handle(), is_capturing }, capture }
    }

    /// Like [`Self::observed`], but for a copy.
    #[inline(always)]
    pub(crate) fn observed_copy<R, E>(
        &self,
        direction: CopyDirection,
        from: u64,
        to: u64,
        bytes: usize,
        call: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        self.observed(|| Operation::Copy { direction, from, to, bytes }, call)
    }

    /// Reports the start of an operation on this stream to observers.
    #[inline]
    pub(crate) fn watch<'a>(&'a self, operation: impl FnOnce() -> Operation<'a>) -> Watch<'a> {
        observe::begin(self.device(), || (Some(self.as_observed()), operation()))
    }

    /// Like [`Self::call`], but for an adopted stream, whose owner may have destroyed it.
    #[cold]
    fn call_adopted<R, E: Into<Error>>(
        &self,
        number: u64,
        call: impl FnOnce(&dyn Driver, Context) -> Result<R, E>,
    ) -> Result<R> {
        let device = self.device();
        let destroyed = || Error::StreamDestroyed { device: device.id() };
        device.check()?;
        let (driver, context) = device.raw();
        // For a destroyed stream, the driver reports either a destroyed context or an unknown handle. Neither error
        // makes the device unusable.
        match driver.stream_unique_id(context, self.handle()) {
            Ok(now) if now == number => device.call(call),
            Ok(_) => Err(destroyed()),
            Err(error) => match error.code() {
                Some(code::INVALID_HANDLE | code::CONTEXT_IS_DESTROYED | code::INVALID_VALUE) => {
                    Err(destroyed())
                }
                _ => device.call(|_, _| Err::<R, _>(error)),
            },
        }
    }

    /// Returns an error unless `device` is this stream's device. The closure `what` returns the operation and the
    /// object that the message names.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`].
    pub fn check_device(&self, device: &Device, what: impl FnOnce() -> (String, String)) -> Result<()> {
        if device.ptr_eq(self.device()) {
            return Ok(());
        }
        Err(self.elsewhere(device, what(), "copy it there first"))
    }

    /// Like [`Self::check_device`], but for objects that cannot be copied; `remedy` names the alternative.
    pub(crate) fn check_home(
        &self,
        device: &Device,
        what: impl FnOnce() -> (String, String),
        remedy: &'static str,
    ) -> Result<()> {
        if device.ptr_eq(self.device()) { Ok(()) } else { Err(self.elsewhere(device, what(), remedy)) }
    }

    /// Returns the error for an object of another device that was used on this stream.
    fn elsewhere(&self, device: &Device, (operation, what): (String, String), remedy: &'static str) -> Error {
        let (found, expected) = (device.id(), self.device().id());
        Error::DifferentDevices { operation, what, found, beside: "the stream", expected, remedy }
    }

    /// Returns an error unless `device` has the same driver as this stream's device, because streams cannot wait across
    /// drivers.
    pub(crate) fn check_driver(&self, device: &Device, operation: &str, what: &str) -> Result<()> {
        device.check_process()?;
        if Arc::ptr_eq(&device.0.driver, &self.device().0.driver) {
            return Ok(());
        }
        let remedy = "a stream cannot wait for a stream of another driver; synchronize on the host";
        Err(self.elsewhere(device, (operation.to_owned(), what.to_owned()), remedy))
    }
}

impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.id(), self.device().id())
    }
}
