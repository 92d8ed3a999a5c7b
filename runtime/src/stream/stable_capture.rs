//! [`Stream::with_stable_capture_state`]: work that depends on whether its stream is being captured.
//!
//! If a capture of the stream starts or ends while the closure runs, the graph of that capture is invalid when the
//! closure returns.

use super::Stream;
use crate::error::{Error, GraphError};

impl Stream {
    /// Calls `work`, whose behavior may depend on whether the stream is being captured, and reports if the capture
    /// state changed during the call.
    ///
    /// # Errors
    /// Returns the error that `work` returns, or [`GraphError::Invalidated`] if another thread started or ended a
    /// capture of the stream during the call, in which case that capture's graph is invalid too.
    #[inline]
    pub fn with_stable_capture_state<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let captures = self.capture_count();
        self.stable_since(captures, work())
    }

    /// Returns `result`, unless the capture state has changed since `captures` was [read](Self::capture_count).
    #[inline]
    pub(crate) fn stable_since<R, E: From<Error>>(
        &self,
        captures: u64,
        result: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.capture_count() == captures {
            return result;
        }
        self.invalidate_captures();
        result.and(Err(Error::Graph(GraphError::Invalidated).into()))
    }
}
