//! [`Event`]: a marker in a stream.

use std::time::Duration;

use warpsmith_runtime as runtime;

use crate::context;
use crate::error::{CudaError, CudaResult, DropResult, explained};
use crate::stream::Stream;

bitflags::bitflags! {
    /// Flags of an event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct EventFlags: u32 {
        /// The event measures time.
        const DEFAULT = 0x0;
        /// Threads block, instead of spinning, while they wait for the event. This flag has no effect.
        const BLOCKING_SYNC = 0x1;
        /// The event does not record a time and is therefore cheaper.
        const DISABLE_TIMING = 0x2;
        /// Another process can use the event. This flag causes an error.
        const INTERPROCESS = 0x4;
    }
}

/// Status of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// The work that precedes the event is complete.
    Ready,
    /// The work that precedes the event is not complete.
    NotReady,
}

/// Marker in a stream.
#[derive(Debug)]
pub struct Event {
    inner: runtime::Event,
}

impl Event {
    /// Creates an event on the current device of the thread.
    ///
    /// # Errors
    /// Returns [`CudaError::NotSupported`] for [`EventFlags::INTERPROCESS`]; [`CudaError::InvalidContext`] if there is
    /// no current context.
    pub fn new(flags: EventFlags) -> CudaResult<Event> {
        if flags.contains(EventFlags::INTERPROCESS) {
            return Err(explained(
                CudaError::NotSupported,
                "events of other processes are not provided: synchronize the processes on the host",
            ));
        }
        let device = context::current()?;
        let inner = match flags.contains(EventFlags::DISABLE_TIMING) {
            true => runtime::Event::new(&device)?,
            false => runtime::Event::timed(&device)?,
        };
        Ok(Event { inner })
    }

    /// Records the event after the work already enqueued in the stream.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidHandle`] if the stream belongs to another device.
    pub fn record(&self, stream: &Stream) -> CudaResult<()> {
        Ok(self.inner.record(stream.runtime())?)
    }

    /// Returns whether the work that precedes the event is complete.
    ///
    /// # Errors
    /// Returns a fault in the work that precedes the event.
    pub fn query(&self) -> CudaResult<EventStatus> {
        Ok(if self.inner.query()? { EventStatus::Ready } else { EventStatus::NotReady })
    }

    /// Waits until the work that precedes the event is complete.
    ///
    /// # Errors
    /// Returns a fault in the work that precedes the event.
    pub fn synchronize(&self) -> CudaResult<()> {
        Ok(self.inner.synchronize()?)
    }

    /// Returns the time from `start` to this event, in milliseconds.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidHandle`] if either event does not record times or has not been recorded;
    /// [`CudaError::NotReady`] if the work is not complete yet.
    pub fn elapsed_time_f32(&self, start: &Event) -> CudaResult<f32> {
        Ok((self.inner.elapsed_us(&start.inner)? / 1000.0) as f32)
    }

    /// Returns the time from `start` to this event.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::elapsed_time_f32`].
    pub fn elapsed(&self, start: &Event) -> CudaResult<Duration> {
        Ok(Duration::from_secs_f64(self.inner.elapsed_us(&start.inner)?.max(0.0) / 1e6))
    }

    /// Returns the corresponding event of the runtime.
    pub fn runtime(&self) -> &runtime::Event {
        &self.inner
    }

    pub(crate) fn make_wait(&self, stream: &runtime::Stream) -> CudaResult<()> {
        Ok(stream.wait_event(&self.inner)?)
    }

    /// Drops the event.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn drop(event: Event) -> DropResult<Event> {
        std::mem::drop(event);
        Ok(())
    }
}
