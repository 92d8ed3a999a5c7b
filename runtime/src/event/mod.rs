//! Events: markers in a stream, for synchronization and timing.
//!
//! An event can be recorded any number of times on streams of its device. Queries and waits refer to its last
//! recording. Each device pools its events: a dropped event returns to the pool even while streams still wait for it.
//!
//! Events ([`Reached`]) and streams ([`Stream::completed`]) can be awaited.

mod future;
mod reactor;
mod shared;
mod wait;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::future::{Completed, Reached};
pub(crate) use self::reactor::Waiter;
pub use self::shared::SharedEvent;
use crate::device::Device;
use crate::device::observe::{self, Awaited, Operation, site};
use crate::driver::EventHandle;
use crate::error::{Error, GraphError, Result};
use crate::stream::Stream;
use crate::stream::captures::CaptureSink;
use crate::stream::clock::{Done, Timestamp};

/// A marker in a stream.
///
/// ```
/// use warpsmith_runtime::{Device, Stream};
///
/// let device = Device::emulated(0)?;
/// let (first, second) = (Stream::from_pool(&device)?, Stream::from_pool(&device)?);
/// let event = first.record_event()?;
/// second.wait_event(&event)?; // later work on `second` waits for all work on `first` so far
/// event.synchronize()?;
/// assert!(event.query()?);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Event {
    device: Device,
    handle: EventHandle,
    is_timed: bool,
    last: Mutex<Option<Record>>,
}

/// The last recording of an event.
#[derive(Debug)]
pub(crate) enum Record {
    /// A recording outside a capture, with a timestamp that identifies the work preceding it.
    Own(Timestamp),
    /// A recording in a capture, which becomes part of a graph and is reached only when that graph is launched.
    Captured(Arc<dyn CaptureSink>, Timestamp),
}

impl Event {
    /// Creates an event for synchronization, which records no timestamp.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn new(device: &Device) -> Result<Self> {
        Self::from_pool(device, false)
    }

    /// Creates an event for timing, which records a timestamp.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn timed(device: &Device) -> Result<Self> {
        Self::from_pool(device, true)
    }

    /// Takes an event from the pool and records it on the stream.
    #[inline]
    pub(crate) fn recorded(stream: &Stream, timed: bool) -> Result<Self> {
        let mut event = Self::from_pool(stream.device(), timed)?;
        let record = event.enqueue(stream)?;
        *event.last.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(event)
    }

    /// Ends the stream's current epoch and then records the event.
    #[inline]
    fn enqueue(&self, stream: &Stream) -> Result<Record> {
        let captures = stream.capture_count();
        let handle = stream.handle();
        if let Some(capture) = stream.capture_sink() {
            let closed = stream.captured_clock().close();
            stream.observed(
                || Operation::EventRecord { event: self.handle },
                || capture.record_event(stream, self.handle),
            )?;
            return Ok(Record::Captured(capture, closed));
        }
        let closed = stream.running_clock().close();
        stream.observed(
            || Operation::EventRecord { event: self.handle },
            || stream.call(|driver, context| driver.event_record(context, self.handle, handle)),
        )?;
        if stream.capture_count() != captures {
            // The event may have been recorded into the capture.
            return Err(GraphError::CaptureUnderway.into());
        }
        Ok(Record::Own(closed))
    }

    fn from_pool(device: &Device, is_timed: bool) -> Result<Self> {
        let handle = device.0.events.take(device, is_timed)?;
        Ok(Self { device: device.clone(), handle, is_timed, last: Mutex::default() })
    }

    /// Records the event after all work enqueued on a stream so far.
    ///
    /// # Errors
    /// Returns [`Error::EventOfOtherDevice`] or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        self.device.check_process()?;
        if !self.device.ptr_eq(stream.device()) {
            return Err(Error::EventOfOtherDevice { event: self.device.id(), stream: stream.device().id() });
        }
        let mut last = self.last();
        *last = None;
        *last = Some(self.enqueue(stream)?);
        Ok(())
    }

    /// Returns the device on whose streams the event can be recorded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the driver's handle. The handle is valid as long as the event exists.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, Event};
    ///
    /// let device = Device::emulated(0)?;
    /// let event = device.default_stream().record_event()?;
    /// // SAFETY: the event is not recorded through the handle.
    /// let handle = unsafe { event.handle() };
    /// println!("pass {handle:?} to `cuStreamWaitEvent`");
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// The handle must be used only to query and wait for the event, not to record it: the runtime would not notice the
    /// recording and would mistake it for an earlier one.
    pub unsafe fn handle(&self) -> EventHandle {
        self.handle
    }

    pub(crate) fn raw(&self) -> EventHandle {
        self.handle
    }

    /// Returns the last recording, which cannot change while the guard exists.
    pub(crate) fn last(&self) -> MutexGuard<'_, Option<Record>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the event's last recording has been reached, or if the event was never recorded.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or the findings of a [check](crate::check).
    pub fn query(&self) -> Result<bool> {
        self.is_reached("Event::query")
    }

    /// Like [`Self::query`], but error messages name `call`.
    fn is_reached(&self, call: &'static str) -> Result<bool> {
        self.device.check_process()?;
        let last = self.last();
        let Some(record) = &*last else { return Ok(true) };
        record.check(call)?;
        let done = self.device.call(|driver, context| driver.event_query(context, self.handle))?;
        if done {
            record.reached();
            self.device.check_findings()?;
        }
        Ok(done)
    }

    /// Returns the stream and epoch of the last recording, and the stream's completion state. A stream reaches its
    /// epochs in ascending order.
    fn place(&self) -> Option<((u64, u64), Arc<Done>)> {
        match &*self.last() {
            Some(Record::Own(closed)) => Some((closed.id(), Arc::clone(closed.done()))),
            _ => None,
        }
    }

    /// Waits until the event's last recording is reached. Returns immediately if the event was never recorded.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or the findings of a [check](crate::check).
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = site();
        self.wait()?;
        self.device.check_findings()
    }

    /// Like [`Self::synchronize`], but leaves findings for the next call that reports them.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.check_process()?;
        let asked = match &*self.last() {
            None => return Ok(()),
            Some(record) => {
                record.check("Event::synchronize")?;
                record.id()
            }
        };
        // The lock is not held during the wait, so that other threads can record and query the event.
        let watch =
            observe::begin(&self.device, || (None, Operation::Synchronize(Awaited::Event(self.handle))));
        watch.done(self.device.call(|driver, context| driver.event_synchronize(context, self.handle)))?;
        // If the event has been recorded again, the wait may have been for the new recording.
        if let Some(record) = self.last().as_ref().filter(|record| record.id() == asked) {
            record.reached();
        }
        Ok(())
    }

    /// Returns the time from `earlier` to this event in microseconds, measured on the device.
    ///
    /// # Errors
    /// Returns [`Error::NoElapsedTime`] if an event records no timestamp, was never recorded or has not been reached,
    /// or if the events belong to different devices.
    pub fn elapsed_us(&self, earlier: &Event) -> Result<f64> {
        self.device.check_process()?;
        let both = |holds: fn(&Event) -> bool| holds(self) && holds(earlier);
        let why = |text| Err(Error::NoElapsedTime(text));
        if !self.device.ptr_eq(&earlier.device) {
            return why("the events belong to different devices; record both on the same device");
        }
        if !both(|event| event.is_timed) {
            return why(
                "an event was created without timing; create it with `Event::timed` or `Stream::record_timed_event`",
            );
        }
        if !both(|event| event.last().is_some()) {
            return why("an event was not recorded; record both first");
        }
        if !earlier.query()? || !self.query()? {
            return why("an event has not completed yet; synchronize first");
        }
        self.device.call(|driver, context| driver.event_elapsed(context, earlier.handle, self.handle))
    }
}

impl Record {
    /// Returns the ID of the recording; `None` if it was made in a capture.
    fn id(&self) -> Option<(u64, u64)> {
        match self {
            Record::Own(closed) => Some(closed.id()),
            Record::Captured(..) => None,
        }
    }

    /// Returns an error for a recording in a capture, because no stream ever reaches it.
    fn check(&self, call: &'static str) -> Result<()> {
        match self {
            Record::Own(_) => Ok(()),
            Record::Captured(..) => Err(Error::Graph(GraphError::NotCapturable {
                call,
                instead: "the event was recorded in a capture, which does not run work; record it on a stream that \
                          is not being captured",
            })),
        }
    }

    /// Updates the stream's completion state once the recording has been reached.
    fn reached(&self) {
        if let Record::Own(closed) = self {
            closed.finish();
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.device.is_forked() {
            self.device.0.events.put(self.handle, self.is_timed);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x} on {})", self.handle.0, self.device.id())
    }
}
