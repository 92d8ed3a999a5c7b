//! Streams: queues of work on a device.
//!
//! Ordering. Work on one stream runs in the order it was enqueued. Work on two streams is ordered only by an
//! [`Event`] recorded on one and waited for on the other; buffers do that by themselves when they are used on
//! another stream than before. Nothing is ordered with CUDA's legacy default stream.
//!
//! A stream lives as long as a handle of it or a buffer that was last used on it. Dropping the last handle lets
//! enqueued work run on.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::driver::{Context, DevicePtr, Driver, EventHandle, StreamHandle};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::allocator::{self, Allocation, Arena};

/// A queue of work on a device. Cheap to clone; usable from any thread.
///
/// ```
/// use warpsmith_runtime::{Device, Stream};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::emulated(0)?;
/// let stream = Stream::new(&device)?;
/// let start = stream.record()?;
/// let end = stream.record()?;
/// stream.synchronize()?;
/// assert!(end.elapsed_us(&start)? >= 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Shared>);

/// Aligned so that two streams, whose handles are counted by two threads, share no cache line.
#[repr(align(128))]
struct Shared {
    device: Device,
    /// `None` for the device's default stream, whose state the device owns.
    own: Option<StreamCore>,
}

/// A stream's state. Whoever owns it calls [`StreamCore::destroy`].
#[derive(Debug)]
pub(crate) struct StreamCore {
    handle: StreamHandle,
    /// Unlike the handle, never used again in this process.
    id: u64,
    /// Made when another stream first has to wait for this one. It is recorded anew for each wait: a wait
    /// counts from the last record before it, and a later record on the same stream only covers more.
    order: OnceLock<EventHandle>,
    /// Where the stream's memory comes from, once it has allocated.
    arena: OnceLock<Arc<Arena>>,
    scratch: Mutex<Vec<Scratch>>,
}

/// Memory that a stream keeps for one purpose.
#[derive(Debug)]
struct Scratch {
    purpose: &'static str,
    bytes: usize,
    memory: Allocation,
}

impl StreamCore {
    pub(crate) fn create(driver: &dyn Driver, context: Context) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let handle = driver.stream_create(context, 0)?;
        Ok(Self {
            handle,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            order: OnceLock::new(),
            arena: OnceLock::new(),
            scratch: Mutex::default(),
        })
    }

    pub(crate) fn destroy(&self, driver: &dyn Driver, context: Context) {
        if let Some(&event) = self.order.get() {
            // SAFETY: the owner is being dropped, so nobody uses the event's handle again.
            unsafe { driver.event_destroy(context, event) };
        }
        // SAFETY: as above, for the stream's handle.
        unsafe { driver.stream_destroy(context, self.handle) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(core) = &mut self.own {
            let scratch = std::mem::take(core.scratch.get_mut().unwrap_or_else(PoisonError::into_inner));
            if let Some(arena) = core.arena.get() {
                for Scratch { memory, .. } in scratch {
                    // SAFETY: the stream goes away, so nobody enqueues work with its scratch memory again.
                    let freed = unsafe { allocator::free_at_end(&self.device, arena, memory, core.handle) };
                    self.device.0.health.record_drop(freed);
                }
            }
            self.device.0.memory.retire(&self.device, core.id, core.handle);
            let (driver, context) = self.device.driver();
            core.destroy(&**driver, context);
        }
    }
}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn new(device: &Device) -> Result<Self> {
        let core = device.call(|driver, context| StreamCore::create(driver, context))?;
        Ok(Self(Arc::new(Shared { device: device.clone(), own: Some(core) })))
    }

    pub(crate) fn of_default(device: Device) -> Self {
        Self(Arc::new(Shared { device, own: None }))
    }

    fn core(&self) -> &StreamCore {
        self.0.own.as_ref().unwrap_or(&self.0.device.0.default_stream)
    }

    /// The stream's device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver's handle. It is valid while a handle of the stream lives.
    pub fn handle(&self) -> StreamHandle {
        self.core().handle
    }

    /// Identifies the stream among all streams that this process ever made.
    pub fn id(&self) -> u64 {
        self.core().id
    }

    /// Waits for everything enqueued so far. When this returns, whatever the result, none of it runs any more.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn synchronize(&self) -> Result<()> {
        let (device, handle) = (&self.device().0, self.handle());
        // On a lost device too: what runs there may use memory that the caller is about to free.
        self.device().call_lost(|driver, context| driver.stream_synchronize(context, handle))?;
        device.health.check(device.id)?;
        device.health.finished(self.id());
        Ok(())
    }

    /// Whether everything enqueued so far has run.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn query(&self) -> Result<bool> {
        let handle = self.handle();
        let done = self.device().call(|driver, context| driver.stream_query(context, handle))?;
        if done {
            self.device().0.health.finished(self.id());
        }
        Ok(done)
    }

    /// Waits for everything enqueued so far, but not longer than `timeout`.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the kernels that may still be running; the work goes on. A fault of a kernel
    /// that was running.
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while !self.query()? {
            let waited = start.elapsed();
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(Error::Timeout {
                    device: self.device().id(),
                    waited_ms: waited.as_millis() as u64,
                    kernels: self.device().0.health.kernels_of(self.id()),
                });
            };
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Records a new event after everything enqueued so far.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record(&self) -> Result<Event> {
        Event::record(self)
    }

    /// Makes later work on this stream wait for an event.
    ///
    /// # Errors
    /// [`Error::DifferentDevices`] for an event of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.check_device(event.device(), || ("waiting for an event".to_owned(), "the event".to_owned()))?;
        let (stream, event) = (self.handle(), event.handle());
        self.device().call(|driver, context| driver.stream_wait_event(context, stream, event))
    }

    /// Makes later work on this stream wait for everything enqueued so far on another of the same device.
    pub(crate) fn wait_for(&self, other: &Stream) -> Result<()> {
        let (stream, core) = (self.handle(), other.core());
        self.device().call(|driver, context| {
            let event = match core.order.get() {
                Some(&event) => event,
                None => {
                    let event = driver.event_create(context, false)?;
                    core.order.set(event).unwrap_or_else(|event| {
                        // SAFETY: another thread was faster, so nobody else has this handle.
                        unsafe { driver.event_destroy(context, event) }
                    });
                    core.order.get().copied().unwrap_or(event)
                }
            };
            driver.event_record(context, event, core.handle)?;
            driver.stream_wait_event(context, stream, event)
        })
    }

    pub(crate) fn arena(&self) -> &OnceLock<Arc<Arena>> {
        &self.core().arena
    }

    /// Runs `work` with memory of at least `bytes` that the stream keeps for `purpose` from one call to the next,
    /// for kernels that need some of their own. `work` is also told whether the memory is new, with any content;
    /// else it is as earlier work on the stream left it. Nobody else has it meanwhile.
    ///
    /// It is given up for new memory when a call asks for more or when `work` fails, and freed with the stream.
    /// `work` must not come back to here on the same stream.
    ///
    /// # Errors
    /// As [`Memory::allocate_raw`](crate::memory::Memory::allocate_raw); what `work` returns.
    ///
    /// # Safety
    /// `work` enqueues work with the memory on this stream only, and lets nobody use the address afterwards.
    #[track_caller]
    pub unsafe fn with_scratch<R, E: From<Error>>(
        &self,
        purpose: &'static str,
        bytes: usize,
        work: impl FnOnce(DevicePtr, bool) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let lock = || self.core().scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |scratch: &[Scratch]| scratch.iter().position(|scratch| scratch.purpose == purpose);
        let mut scratch = lock();
        let large_enough = |scratch: &[Scratch]| find(scratch).filter(|index| scratch[*index].bytes >= bytes);
        let mut surplus = None;
        if large_enough(&scratch).is_none() {
            // Without the lock: an allocation may call what the user registered.
            drop(scratch);
            let memory = allocator::allocate_default(self, bytes)?;
            scratch = lock();
            surplus = match (large_enough(&scratch), find(&scratch)) {
                // Another thread was faster.
                (Some(_), _) => Some(memory),
                (None, Some(index)) => Some(std::mem::replace(&mut scratch[index].memory, memory)),
                (None, None) => {
                    scratch.push(Scratch { purpose, bytes: 0, memory });
                    None
                }
            };
        }
        let Some(index) = find(&scratch) else { return work(DevicePtr::NULL, true) };
        // Until `work` is done, its content is not known to be what the next call expects.
        let known = std::mem::replace(&mut scratch[index].bytes, 0);
        let new = known < bytes;
        let done = work(scratch[index].memory.ptr(), new);
        if done.is_ok() {
            scratch[index].bytes = known.max(bytes);
        }
        drop(scratch);
        if let Some(surplus) = surplus {
            // SAFETY: it was allocated on this stream, used on no other, and has no place any more.
            let freed = unsafe { allocator::free(self, surplus, &[]) };
            self.device().0.health.record_drop(freed);
        }
        done
    }

    /// Fails unless `device` is this stream's; `what` gives the operation and the thing that is elsewhere.
    pub(crate) fn check_device(
        &self,
        device: &Device,
        what: impl FnOnce() -> (String, String),
    ) -> Result<()> {
        if device.ptr_eq(self.device()) {
            return Ok(());
        }
        let (operation, what) = what();
        Err(Error::DifferentDevices { operation, what, found: device.id(), expected: self.device().id() })
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.id(), self.device().id())
    }
}
