//! Waits of the host for streams, and of streams for other streams and events.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::Stream;
use super::captures::{CaptureSink, Captures};
use super::clock::{Clock, Timeline, Timestamp};
use crate::device::health::Quiet;
use crate::device::observe::{Awaited, AwaitedBuffer, Operation, site};
use crate::driver::{EventHandle, StreamHandle};
use crate::error::{Error, GraphError, Result};

/// Reason, for error messages, why waiting for a capturing stream is impossible.
const NOTHING_RUNS: &str =
    "captured work does not run until the graph is launched; wait after the graph launch";

impl Stream {
    /// Waits for all work enqueued so far. When the call returns, even with an error, none of that work is still
    /// running. There are two exceptions, in which the call fails without waiting: in a [host
    /// function](Stream::host_function), and on an adopted stream that its owner has destroyed.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or the findings of a [check](crate::check).
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = site();
        self.wait()?;
        self.device().check_findings()
    }

    /// Like [`Self::synchronize`], but leaves findings for the next call that reports them.
    pub(crate) fn wait(&self) -> Result<()> {
        let (device, core) = (self.device(), self.core());
        device.check_process()?;
        self.check_not_capturing("Stream::synchronize", NOTHING_RUNS)?;
        let watch = self.watch(|| Operation::Synchronize(Awaited::Stream));
        let closed = core.clock.close();
        // Waits even if the device is lost, because the work may use memory that the caller is about to free.
        let mut waited = self.call(|driver, context| driver.stream_synchronize(context, core.handle));
        if device.is_lost() {
            // The device may have been marked lost before the wait began. In that case, the first error is returned.
            let _quiet = waited.is_err().then(Quiet::begin);
            let again = device.call_lost(|driver, context| driver.stream_synchronize(context, core.handle));
            waited = waited.and(again);
        }
        watch.done(waited)?;
        device.0.health.check(device.id())?;
        device.0.health.finished(self.id());
        closed.finish();
        Ok(())
    }

    /// Waits until no work enqueued on the stream is running, regardless of the device's state. Captured work is
    /// ignored. Does not wait in a [host function](Stream::host_function), nor for an adopted stream that its owner has
    /// destroyed.
    #[cold]
    pub(crate) fn wait_idle(&self) {
        let _quiet = Quiet::begin();
        let (device, handle) = (self.device(), self.handle());
        if device.is_forked() {
            return;
        }
        loop {
            let captures = self.capture_count();
            if !Captures::is_capturing(captures) {
                // Errors are ignored: they were already reported, or the caller reports another error.
                let _ = self.call(|driver, context| driver.stream_synchronize(context, handle));
                if device.is_lost() {
                    let _ = device.call_lost(|driver, context| driver.stream_synchronize(context, handle));
                }
            } else if let Some(before) = self.before_capture() {
                let _ = device.call_lost(|driver, context| driver.event_synchronize(context, before.event));
                // Work enqueued while the capture started may come after that position. It has invalidated the graph,
                // but waiting for the stream is impossible before the capture ends.
                while self.is_invalidated() && self.capture_count() == captures {
                    std::thread::sleep(Duration::from_micros(100));
                }
            } else {
                // The capture is about to end.
                std::thread::yield_now();
                continue;
            }
            if self.capture_count() == captures {
                return;
            }
        }
    }

    /// Returns true if all work enqueued so far has run.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or the findings of a [check](crate::check).
    pub fn query(&self) -> Result<bool> {
        self.device().check_process()?;
        self.check_not_capturing("Stream::query", NOTHING_RUNS)?;
        let core = self.core();
        let closed = core.clock.close();
        let done = self.call(|driver, context| driver.stream_query(context, core.handle))?;
        if done {
            self.device().0.health.finished(self.id());
            closed.finish();
            self.device().check_findings()?;
        }
        Ok(done)
    }

    /// Waits for all work enqueued so far, for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Error::Timeout`], which names the kernels that may still be running, if the work has not finished in
    /// time; the work then continues. Returns the fault if a kernel faulted.
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

    /// Makes later work on this stream wait for all work enqueued so far on another stream, which may belong to another
    /// device. If the other stream is capturing, this stream joins the capture, as described for [`Self::wait_event`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::wait_event`].
    #[track_caller]
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        let _site = site();
        if self == other {
            return Ok(());
        }
        self.check_driver(other.device(), "waiting for a stream", "the other stream")?;
        match (self.capture_sink(), other.capture_sink()) {
            (_, Some(_)) if !self.device().ptr_eq(other.device()) => {
                Err(Error::Graph(GraphError::NotCapturable {
                    call: "Stream::wait_stream",
                    instead: "a graph belongs to one device; capture only on streams of that device",
                }))
            }
            (own, Some(capture)) => {
                let (event, closed) = other.record_captured(&*capture)?;
                self.wait_captured(own, &capture, event, &closed)
            }
            (Some(_), None) => {
                Err(Error::Graph(GraphError::OutsideCapture { what: "the other stream's work was enqueued" }))
            }
            (None, None) => self.wait_for_running(other, None, None),
        }
    }

    /// Makes the stream wait for a position in a capture; `own` is this stream's capture.
    pub(crate) fn wait_captured(
        &self,
        own: Option<Arc<dyn CaptureSink>>,
        capture: &Arc<dyn CaptureSink>,
        event: EventHandle,
        closed: &Timestamp,
    ) -> Result<()> {
        match own {
            None => Arc::clone(capture).join(self, closed, event),
            Some(own) if Arc::ptr_eq(&own, capture) => {
                capture.wait_event(self, event)?;
                self.captured_clock().learn(closed);
                Ok(())
            }
            Some(_) => {
                Err(Error::Graph(GraphError::OutsideCapture { what: "that takes part in another capture" }))
            }
        }
    }

    /// Records an event at the current position of this stream, which is capturing.
    fn record_captured(&self, capture: &dyn CaptureSink) -> Result<(EventHandle, Timestamp)> {
        let event = self.order_event(&self.captures().order)?;
        let closed = self.captured_clock().close();
        self.observed(|| Operation::EventRecord { event }, || capture.record_event(self, event))?;
        Ok((event, closed))
    }

    /// Makes later captured work on this stream wait for another stream of the same capture, whose lock the caller must
    /// hold. `buffer` is the buffer whose uses are synchronized.
    pub(crate) fn wait_for_captured(&self, other: &Stream, buffer: Option<AwaitedBuffer>) -> Result<()> {
        let event = other.order_event(&other.captures().order)?;
        let closed = other.captured_clock().close();
        let handle = other.handle();
        other.observed(
            || Operation::EventRecord { event },
            || other.call(|driver, context| driver.event_record(context, event, handle)),
        )?;
        self.wait_handle(event, Some(handle), buffer)?;
        self.captured_clock().learn(&closed);
        Ok(())
    }

    /// Makes later work on this stream wait for running work enqueued on another stream. If the other stream is
    /// capturing, this stream waits for the work before the capture; `epoch` is then the last epoch to wait for
    /// (`None`: all). `buffer` is the buffer whose uses are synchronized; `None` if the program requested the wait.
    ///
    /// # Errors
    /// Returns [`GraphError::CaptureUnderway`] if the required work may have been enqueued while the capture started,
    /// or any [driver error](crate::Error::Driver).
    pub(crate) fn wait_for_running(
        &self,
        other: &Stream,
        epoch: Option<u64>,
        buffer: Option<AwaitedBuffer>,
    ) -> Result<()> {
        loop {
            let captures = other.capture_count();
            if Captures::is_capturing(captures) {
                let Some(before) = other.before_capture() else {
                    // The capture is about to start or end.
                    std::thread::yield_now();
                    continue;
                };
                if epoch.is_none_or(|epoch| epoch > before.closed.id().1) {
                    return Err(GraphError::CaptureUnderway.into());
                }
                self.wait_handle(before.event, Some(other.handle()), buffer)?;
                self.running_clock().learn(&before.closed);
                return Ok(());
            }
            let closed = other.running_clock().close();
            let mut order = other.core().order.lock().unwrap_or_else(PoisonError::into_inner);
            let event = match *order {
                Some(event) => event,
                None => *order.insert(other.call(|driver, context| driver.event_create(context, false))?),
            };
            let handle = other.handle();
            other.observed(
                || Operation::EventRecord { event },
                || other.call(|driver, context| driver.event_record(context, event, handle)),
            )?;
            if other.capture_count() != captures {
                // The event may have been recorded into a newly started capture.
                continue;
            }
            self.wait_handle(event, Some(handle), buffer)?;
            self.running_clock().learn(&closed);
            return Ok(());
        }
    }

    pub(crate) fn wait_handle(
        &self,
        event: EventHandle,
        on: Option<StreamHandle>,
        buffer: Option<AwaitedBuffer>,
    ) -> Result<()> {
        let stream = self.handle();
        self.observed(
            || Operation::EventWait { event, on, buffer },
            || self.call(|driver, context| driver.stream_wait_event(context, stream, event)),
        )
    }

    /// Returns an event stored by the stream, creating it on first use.
    fn order_event(&self, kept: &OnceLock<EventHandle>) -> Result<EventHandle> {
        if let Some(&event) = kept.get() {
            return Ok(event);
        }
        let event = self.device().call(|driver, context| driver.event_create(context, false))?;
        if let Err(event) = kept.set(event) {
            let (driver, context) = self.device().raw();
            // SAFETY: another thread has stored its event first, so this handle is unused.
            unsafe { driver.event_destroy(context, event) }
        }
        Ok(kept.get().copied().unwrap_or(event))
    }

    /// Returns true if later work on this stream is known to follow the other stream's work up to `epoch`.
    pub(crate) fn comes_after(&self, other: &Stream, epoch: u64, time: Timeline) -> bool {
        self == other || other.clock(time).is_done(epoch) || self.clock(time).has_waited(other.id(), epoch)
    }

    /// Returns the epoch of work that was just enqueued, as described in [`clock`](super::clock).
    #[inline]
    pub(crate) fn epoch(&self, time: Timeline) -> u64 {
        self.clock(time).now()
    }

    #[inline]
    fn clock(&self, time: Timeline) -> &Clock {
        match time {
            Timeline::Running => &self.core().clock,
            Timeline::Captured => &self.core().captured_clock,
        }
    }

    pub(crate) fn running_clock(&self) -> &Clock {
        self.clock(Timeline::Running)
    }

    pub(crate) fn captured_clock(&self) -> &Clock {
        self.clock(Timeline::Captured)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Capture;
    use crate::device::Device;
    use crate::driver::CaptureMode;
    use warpsmith_emulated::EmulatedDriver;

    /// One thread captures on a stream while other threads repeatedly wait for the stream's running work.
    #[test]
    fn waits_for_running_work_join_no_capture() {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
        let [captured, first, second] = [(); 3].map(|()| Stream::new(&device).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for waiting in [&first, &second] {
                let (captured, done) = (&captured, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        match waiting.wait_for_running(captured, None, None) {
                            Ok(()) => waiting.synchronize().unwrap(),
                            Err(error) => {
                                assert!(matches!(error, Error::Graph(_)), "{error}");
                            }
                        }
                    }
                });
            }
            let start = Instant::now();
            let ended =
                (0..20_000).take_while(|_| start.elapsed() < Duration::from_secs(5)).try_for_each(|_| {
                    let capture = Capture::begin(&captured, CaptureMode::Relaxed)?;
                    capture.end().map(drop)
                });
            done.store(true, Ordering::Relaxed);
            ended.unwrap();
        });
    }
}
