//! Deadlines from durations that programs choose, and the time beyond one.

use std::time::{Duration, Instant};

/// What an instant can always be later by: longer than any program runs.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86400);
/// The time for a last word in the store.
const LAST_WORD: Duration = Duration::from_secs(1);

/// `start` plus the timeout; plus a century if the clock cannot represent the sum.
pub fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + CENTURY)
}

/// Now plus the timeout, as [`after`].
pub fn within(timeout: Duration) -> Instant {
    after(Instant::now(), timeout)
}

/// A deadline that leaves at least a second: for what says why another one was missed.
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
