//! Events: marks in a stream, for ordering and for time.

use std::fmt;

use crate::device::Device;
use crate::driver::EventHandle;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// A mark in a stream, made by [`Stream::record`]. It is recorded once and takes its time there.
pub struct Event {
    device: Device,
    handle: EventHandle,
}

impl Event {
    pub(crate) fn record(stream: &Stream) -> Result<Self> {
        let device = stream.device().clone();
        let handle = device.call(|driver, context| driver.event_create(context, true))?;
        let event = Self { device, handle };
        let stream = stream.handle();
        event.device.call(|driver, context| driver.event_record(context, handle, stream))?;
        Ok(event)
    }

    /// The device it was recorded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn handle(&self) -> EventHandle {
        self.handle
    }

    /// Whether its stream has come to it.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn query(&self) -> Result<bool> {
        self.device.call(|driver, context| driver.event_query(context, self.handle))
    }

    /// Waits until its stream has come to it.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn synchronize(&self) -> Result<()> {
        self.device.call(|driver, context| driver.event_synchronize(context, self.handle))
    }

    /// Microseconds from `earlier` to this event, on the device's clock.
    ///
    /// # Errors
    /// [`Error::NoElapsedTime`] when one of them was not reached yet or they are of different devices.
    pub fn elapsed_us(&self, earlier: &Event) -> Result<f64> {
        if !self.device.ptr_eq(&earlier.device) {
            return Err(Error::NoElapsedTime("the events are of different devices"));
        }
        if !earlier.query()? || !self.query()? {
            return Err(Error::NoElapsedTime("an event was not reached yet; synchronize first"));
        }
        self.device.call(|driver, context| driver.event_elapsed(context, earlier.handle, self.handle))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let (driver, context) = self.device.driver();
        // SAFETY: this value owns the handle and goes away. Waits already enqueued keep what they wait for.
        unsafe { driver.event_destroy(context, self.handle) };
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x} on {})", self.handle.0, self.device.id())
    }
}
