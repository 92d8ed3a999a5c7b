//! Events: markers in a stream, for ordering and timing.
//!
//! An event is recorded on streams of its device, any number of times; queries and waits refer to its last record.
//! Events come from a pool of the device and return to it when they are dropped, even while streams still wait for
//! them.
//!
//! An event can be awaited, and so can a stream ([`Stream::completed`]): see [`Reached`].

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
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::emulated(0)?;
/// let (first, second) = (Stream::from_pool(&device)?, Stream::from_pool(&device)?);
/// let event = first.record_event()?;
/// second.wait_event(&event)?; // later work on `second` comes after all work on `first` so far
/// event.synchronize()?;
/// assert!(event.query()?);
/// # Ok(())
/// # }
/// ```
pub struct Event {
    device: Device,
    handle: EventHandle,
    is_timed: bool,
    last: Mutex<Option<Record>>,
}

/// A record of an event.
#[derive(Debug)]
pub(crate) enum Record {
    /// Record outside a capture, with the work that has run when the record is reached.
    Own(Timestamp),
    /// Record in a capture: it is part of a graph, and no stream reaches it otherwise.
    Captured(Arc<dyn CaptureSink>, Timestamp),
}

impl Event {
    /// An event for ordering, from the device's pool. It records no timestamp.
    ///
    /// # Errors
    /// Any [driver error](crate::Error::Driver).
    pub fn new(device: &Device) -> Result<Self> {
        Self::from_pool(device, false)
    }

    /// An event that records a timestamp, from the device's pool.
    ///
    /// # Errors
    /// Any [driver error](crate::Error::Driver).
    pub fn timed(device: &Device) -> Result<Self> {
        Self::from_pool(device, true)
    }

    /// Returns an event from the pool, recorded on the stream.
    #[inline]
    pub(crate) fn recorded(stream: &Stream, timed: bool) -> Result<Self> {
        let mut event = Self::from_pool(stream.device(), timed)?;
        let record = event.enqueue(stream)?;
        *event.last.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(event)
    }

    /// Closes the stream's epoch, and then enqueues the record.
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
            // The record may have become part of the capture.
            return Err(GraphError::CaptureUnderway.into());
        }
        Ok(Record::Own(closed))
    }

    fn from_pool(device: &Device, is_timed: bool) -> Result<Self> {
        let handle = device.0.events.take(device, is_timed)?;
        Ok(Self { device: device.clone(), handle, is_timed, last: Mutex::default() })
    }

    /// Records the event after everything enqueued on a stream so far.
    ///
    /// # Errors
    /// [`Error::EventOfOtherDevice`]; any [driver error](crate::Error::Driver).
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

    /// The device on whose streams the event is recorded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The driver's handle. It is valid while the event lives.
    ///
    /// # Safety
    /// The handle is used to wait for and query the event, but not to record it. The runtime does not see a record made
    /// through the handle, and would take it for another one.
    pub unsafe fn handle(&self) -> EventHandle {
        self.handle
    }

    pub(crate) fn raw(&self) -> EventHandle {
        self.handle
    }

    /// The last record. It cannot change while the guard lives.
    pub(crate) fn last(&self) -> MutexGuard<'_, Option<Record>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the event's stream has reached the last record. An event that was never recorded counts as
    /// reached.
    ///
    /// # Errors
    /// A fault of a kernel that was running; a finding of a [check](crate::check).
    pub fn query(&self) -> Result<bool> {
        self.is_reached("Event::query")
    }

    /// Same as [`Self::query`], for an error that names another call.
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

    /// The stream and epoch of the last record, and the completion state of the stream's work. Later epochs of the
    /// stream are reached later.
    fn place(&self) -> Option<((u64, u64), Arc<Done>)> {
        match &*self.last() {
            Some(Record::Own(closed)) => Some((closed.id(), Arc::clone(closed.done()))),
            _ => None,
        }
    }

    /// Waits until the event's stream has reached the last record. An event that was never recorded is not waited for.
    ///
    /// # Errors
    /// A fault of a kernel that was running; a finding of a [check](crate::check).
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = site();
        self.wait()?;
        self.device.check_findings()
    }

    /// Same as [`Self::synchronize`], but findings stay for the next call that reports them.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.check_process()?;
        let asked = match &*self.last() {
            None => return Ok(()),
            Some(record) => {
                record.check("Event::synchronize")?;
                record.id()
            }
        };
        // Without the lock: other threads may record and query meanwhile.
        let watch =
            observe::begin(&self.device, || (None, Operation::Synchronize(Awaited::Event(self.handle))));
        watch.done(self.device.call(|driver, context| driver.event_synchronize(context, self.handle)))?;
        // If there is a newer record by now, the wait may have been for that one.
        if let Some(record) = self.last().as_ref().filter(|record| record.id() == asked) {
            record.reached();
        }
        Ok(())
    }

    /// Microseconds from `earlier` to this event, on the device's clock.
    ///
    /// # Errors
    /// [`Error::NoElapsedTime`] for events that record no timestamp, were not recorded, were not reached yet, or are on
    /// different devices.
    pub fn elapsed_us(&self, earlier: &Event) -> Result<f64> {
        self.device.check_process()?;
        let both = |holds: fn(&Event) -> bool| holds(self) && holds(earlier);
        let why = |text| Err(Error::NoElapsedTime(text));
        if !self.device.ptr_eq(&earlier.device) {
            return why("the events are of different devices; record both on one");
        }
        if !both(|event| event.is_timed) {
            return why(
                "an event takes no time; make it with `Event::timed` or `Stream::record_timed_event`",
            );
        }
        if !both(|event| event.last().is_some()) {
            return why("an event was not recorded; record both first");
        }
        if !earlier.query()? || !self.query()? {
            return why("an event was not reached yet; synchronize first");
        }
        self.device.call(|driver, context| driver.event_elapsed(context, earlier.handle, self.handle))
    }
}

impl Record {
    /// Identity of the record; `None` in a capture.
    fn id(&self) -> Option<(u64, u64)> {
        match self {
            Record::Own(closed) => Some(closed.id()),
            Record::Captured(..) => None,
        }
    }

    /// Fails for a record that no stream reaches.
    fn check(&self, call: &'static str) -> Result<()> {
        match self {
            Record::Own(_) => Ok(()),
            Record::Captured(..) => Err(Error::Graph(GraphError::NotCapturable {
                call,
                instead: "the event was recorded in a capture, which does not run; record it on a stream that runs",
            })),
        }
    }

    /// Records the work that has run because the record was reached.
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
