//! [`Pending`]: a copy that was enqueued, with the host memory that it uses.

use std::fmt;

use crate::error::{Error, Result};
use crate::event::Event;

/// A copy that was enqueued. It has the host memory until it is done.
///
/// Dropping it lets the copy run on; the memory is kept until then.
#[must_use = "the host memory comes back from `wait`"]
pub struct Pending<H> {
    memory: H,
    /// Recorded after the copy.
    event: Event,
}

/// A copy that was not done. The host memory comes back, with any content if it was the target.
pub struct CopyFailed<H> {
    /// What went wrong.
    pub error: Error,
    /// What was moved into the copy.
    pub memory: H,
}

impl<H> Pending<H> {
    pub(super) fn new(memory: H, event: Event) -> Self {
        Self { memory, event }
    }

    /// The event recorded after the copy: for other streams to wait for.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn is_done(&self) -> Result<bool> {
        self.event.query()
    }

    /// Waits until the copy is done, and gives the host memory back.
    ///
    /// # Errors
    /// A fault of a kernel that was running, with the memory.
    pub fn wait(self) -> std::result::Result<H, CopyFailed<H>> {
        match self.event.synchronize() {
            Ok(()) => Ok(self.memory),
            Err(error) => Err(CopyFailed { error, memory: self.memory }),
        }
    }
}

impl<H> fmt::Debug for Pending<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", std::any::type_name::<H>())
    }
}

impl<H> fmt::Debug for CopyFailed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<H> fmt::Display for CopyFailed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<H> std::error::Error for CopyFailed<H> {}

impl<H> From<CopyFailed<H>> for Error {
    fn from(failed: CopyFailed<H>) -> Self {
        failed.error
    }
}
