//! Deadlines for the timeouts that programs choose, and grace time after a deadline.

use std::time::{Duration, Instant};

/// Offset that can be added to any instant. It is longer than any program runs.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86400);
/// Grace time for reading a failure's cause from the store.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Returns `start` plus the timeout, or plus a century if the clock cannot represent the sum.
pub fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + CENTURY)
}

/// Returns the current time plus the timeout, computed by [`after`].
pub fn within(timeout: Duration) -> Instant {
    after(Instant::now(), timeout)
}

/// Returns the deadline, or one second from now if that is later. It is used to read why another deadline was missed.
pub fn with_last_word(deadline: Instant) -> Instant {
    deadline.max(within(LAST_WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_is_too_long() {
        let start = Instant::now();
        assert_eq!(after(start, Duration::from_secs(3)), start + Duration::from_secs(3));
        assert!(after(start, Duration::MAX) >= start + CENTURY);
        assert!(within(Duration::MAX) > start + CENTURY / 2);
    }

    #[test]
    fn a_last_word_has_a_second() {
        let now = Instant::now();
        assert!(with_last_word(now) >= now + LAST_WORD);
        let later = now + Duration::from_secs(60);
        assert_eq!(with_last_word(later), later);
    }
}
