//! [`Misuse`]: a range ended out of order, on another thread, or twice.

use crate::ranges::label::Label;

/// A misuse of ranges, reported to listeners and as a `tracing` warning. Recorded ranges are kept.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::ranges::{Event, Listener, Misuse, listen, nvtx};
///
/// struct Misuses(Arc<Mutex<Vec<String>>>);
///
/// impl Listener for Misuses {
///     fn event(&self, _: &Event<'_>) {}
///
///     fn misuse(&self, misuse: &Misuse) {
///         self.0.lock().unwrap().push(misuse.to_string());
///     }
/// }
///
/// let misuses = Arc::new(Mutex::new(Vec::new()));
/// let _listening = listen(Misuses(misuses.clone()));
/// nvtx::range_pop();
/// assert!(misuses.lock().unwrap()[0].contains("which has no pushed range"));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A range was ended before a range nested in it.
    #[error(
        "range {ended} ended on thread {thread} while the inner range {open} was still open; end the inner range \
         first"
    )]
    OutOfOrder {
        /// The range that was ended.
        ended: Box<Label>,
        /// The innermost open range nested in the ended range.
        open: Box<Label>,
        /// ID of the thread.
        thread: u64,
    },
    /// A range was popped on a thread without a pushed range.
    #[error(
        "`range_pop` was called on thread {thread}, which has no pushed range; push and pop on the same thread, or use \
         `range_start` and `range_end`"
    )]
    NothingPushed {
        /// ID of the thread.
        thread: u64,
    },
    /// A range was ended that was not started, or had already ended.
    #[error(
        "`range_end` was called on thread {thread} for range {id}, which is not open; the range has already ended, \
         or `range!` or `range_push` started it"
    )]
    NotStarted {
        /// ID of the range.
        id: u64,
        /// ID of the thread.
        thread: u64,
    },
}
