//! [`Stream::with_steady_capture`]: work that decides by whether its stream is being captured.
//!
//! Guarantees: a graph in which something was captured by a decision that did not hold any more cannot be launched once
//! that work has returned.

use super::Stream;
use crate::error::{Error, GraphError};

impl Stream {
    /// Calls `work`, which does one thing on a stream that is being captured and another on one that is not: what it has
    /// found must still be so when it enqueues.
    ///
    /// # Errors
    /// What `work` returns; [`GraphError::Tainted`] when another thread has begun or ended a capture of the stream
    /// meanwhile. Then the graph of that capture fails with it too.
    #[inline]
    pub fn with_steady_capture<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let captures = self.capture_count();
        self.steady_since(captures, work())
    }

    /// The result of such work, begun at this [count](Self::capture_count).
    #[inline]
    pub(crate) fn steady_since<R, E: From<Error>>(
        &self,
        captures: u64,
        result: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.capture_count() == captures {
            return result;
        }
        self.taint_captures();
        result.and(Err(Error::Graph(GraphError::Tainted).into()))
    }
}
