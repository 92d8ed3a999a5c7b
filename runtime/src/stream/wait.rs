//! Waiting: of the host for a stream, of a stream for another and for events.

use std::time::{Duration, Instant};

use super::Stream;
use crate::error::{Error, Result};
use crate::event::{Event, Record};

impl Stream {
    /// Waits for everything enqueued so far. When this returns, whatever the result, none of it runs any more; but in a
    /// [host function](Stream::host_function), and on an adopted stream that its owner destroyed, it only fails.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn synchronize(&self) -> Result<()> {
        let (device, core) = (self.device(), self.core());
        device.check_process()?;
        let closed = core.clock.close();
        // On a lost device too: what runs there may use memory that the caller is about to free.
        let mut waited = self.call(|driver, context| driver.stream_synchronize(context, core.handle));
        if device.is_lost() {
            // It may have been found to be lost before anything was waited for.
            let again = device.call_lost(|driver, context| driver.stream_synchronize(context, core.handle));
            waited = waited.and(again);
        }
        waited?;
        device.0.health.check(device.id())?;
        device.0.health.finished(self.id());
        closed.finish();
        Ok(())
    }

    /// Whether everything enqueued so far has run.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn query(&self) -> Result<bool> {
        self.device().check_process()?;
        let core = self.core();
        let closed = core.clock.close();
        let done = self.call(|driver, context| driver.stream_query(context, core.handle))?;
        if done {
            self.device().0.health.finished(self.id());
            closed.finish();
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

    /// Records an event after everything enqueued so far, for ordering: it takes no time.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record_event(&self) -> Result<Event> {
        Event::recorded(self, false)
    }

    /// Records an event after everything enqueued so far that also takes the time, for [`Event::elapsed_us`].
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn record_timed_event(&self) -> Result<Event> {
        Event::recorded(self, true)
    }

    /// Makes later work on this stream wait for the last record of an event, which may be of another device. An event
    /// that was never recorded is not waited for.
    ///
    /// # Errors
    /// [`Error::DifferentDevices`] for a CUDA and an emulated device; whatever the driver reports.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        self.check_driver(event.device(), "waiting for an event", "the event")?;
        let last = event.last();
        let Some(record) = &*last else { return Ok(()) };
        let (stream, event) = (self.handle(), event.raw());
        self.call(|driver, context| driver.stream_wait_event(context, stream, event))?;
        if let Record::Own(closed) = record {
            self.core().clock.learn(closed);
        }
        Ok(())
    }

    /// Makes later work on this stream wait for everything enqueued so far on another, which may be of another
    /// device.
    ///
    /// # Errors
    /// [`Error::DifferentDevices`] for a CUDA and an emulated device; whatever the driver reports.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        if self == other {
            return Ok(());
        }
        self.check_driver(other.device(), "waiting for a stream", "the other stream")?;
        let core = other.core();
        let closed = core.clock.close();
        let event = match core.order.get() {
            Some(&event) => event,
            None => {
                let event = other.device().call(|driver, context| driver.event_create(context, false))?;
                core.order.set(event).unwrap_or_else(|event| {
                    let (driver, context) = other.device().driver();
                    // SAFETY: another thread was faster, so nobody else has this handle.
                    unsafe { driver.event_destroy(context, event) }
                });
                core.order.get().copied().unwrap_or(event)
            }
        };
        other.call(|driver, context| driver.event_record(context, event, core.handle))?;
        let stream = self.handle();
        self.call(|driver, context| driver.stream_wait_event(context, stream, event))?;
        self.core().clock.learn(&closed);
        Ok(())
    }

    /// Whether later work on this stream is known to come after work of another in that epoch.
    pub(crate) fn comes_after(&self, other: &Stream, epoch: u64) -> bool {
        self == other || other.core().clock.is_done(epoch) || self.core().clock.has_waited(other.id(), epoch)
    }

    /// The epoch of work that was just enqueued: see [`clock`](super::clock).
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.core().clock.now()
    }

    pub(crate) fn clock(&self) -> &super::clock::Clock {
        &self.core().clock
    }
}
