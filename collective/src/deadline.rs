//! Deadlines for timeouts of any length and the grace period after a deadline.

use std::time::{Duration, Instant};

/// Duration that can be added to any instant without overflow. It exceeds the running time of any program.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86400);
/// Grace period for reading the cause of a failure from the store.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Returns `start` plus the timeout, or plus a century if the clock cannot represent the sum.
pub fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + CENTURY)
}

/// Returns the deadline for a timeout that starts now; see [`after`].
pub fn within(timeout: Duration) -> Instant {
    after(Instant::now(), timeout)
}

/// Returns the deadline, or the time one second from now if that is later. After a missed `deadline`, the result is the
/// deadline for reading the cause of the failure.
pub fn with_last_word(deadline: Instant) -> Instant {
    deadline.max(within(LAST_WORD))
}
