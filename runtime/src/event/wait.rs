//! Recording events on streams, and waiting for events.

use super::{Event, Record};
use crate::device::observe::site;
use crate::error::{Error, GraphError, Result};
use crate::stream::Stream;

impl Stream {
    /// Records an event without a timestamp after all work enqueued so far.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn record_event(&self) -> Result<Event> {
        let _site = site();
        Event::recorded(self, false)
    }

    /// Records an event with a timestamp after all work enqueued so far, for [`Event::elapsed_us`].
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn record_timed_event(&self) -> Result<Event> {
        let _site = site();
        Event::recorded(self, true)
    }

    /// Makes later work on this stream wait for the last recording of an event, which may belong to another device. An
    /// event that was never recorded does not delay the stream.
    ///
    /// If the event was recorded in a capture, this stream joins the capture until it ends. Before the capture ends,
    /// its origin stream must wait for this stream.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`] if only one of the two devices is emulated, [`GraphError::OutsideCapture`]
    /// if the stream is being captured and the event was not recorded in the same capture,
    /// [`GraphError::CaptureEnded`], or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let _site = site();
        self.check_driver(event.device(), "waiting for an event", "the event")?;
        let last = event.last();
        match (&*last, self.capture_sink()) {
            (None, _) => Ok(()),
            (Some(Record::Captured(capture, closed)), own) => {
                self.wait_captured(own, capture, event.raw(), closed)
            }
            (Some(_), Some(_)) => {
                Err(Error::Graph(GraphError::OutsideCapture { what: "the event was recorded" }))
            }
            (Some(Record::Own(closed)), None) => {
                self.wait_handle(event.raw(), None, None)?;
                self.running_clock().learn(closed);
                Ok(())
            }
        }
    }
}
