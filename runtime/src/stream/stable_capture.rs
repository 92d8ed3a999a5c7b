//! [`Stream::with_stable_capture_state`]: work that depends on whether its stream is being captured.
//!
//! Guarantees: if a capture of the stream begins or ends while such work runs, its graph is invalid when the work returns.

use super::Stream;
use crate::error::{Error, GraphError};

impl Stream {
    /// Calls `work`, which does one thing on a stream that is being captured and another on one that is not. The state
    /// that it has seen must not change before it has enqueued its work.
    ///
    /// # Errors
    /// What `work` returns; [`GraphError::Invalidated`] if another thread has begun or ended a capture of the stream
    /// meanwhile. Then the graph of that capture is invalid too.
    #[inline]
    pub fn with_stable_capture_state<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let captures = self.capture_count();
        self.stable_since(captures, work())
    }

    /// The result of such work, begun at this [count](Self::capture_count).
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
