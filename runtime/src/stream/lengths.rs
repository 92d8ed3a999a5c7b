//! [`Lengths`]: recent durations of waits for a stream's work, from which the end of a wait is predicted. The type also
//! records the wake-up latency of waiters, which determines how long before the predicted end a waiter is woken.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Number of remembered waits. Waits are predictable if a program repeats a cycle of up to this many waits.
const REMEMBERED: usize = 4;
/// Lead of the wake-up over the predicted end of a wait: initial, minimum and maximum. A fraction of the
/// wait's duration is added.
const LEADS: (Duration, Duration, Duration) =
    (Duration::from_micros(60), Duration::from_micros(20), Duration::from_micros(250));
/// Time after the predicted end at which polling stops. A fraction of the wait's duration is added.
const LAG: Duration = Duration::from_micros(25);
const SHARE: u32 = 128;
/// Duration above which waits are not remembered, because their wake-up delay is negligible.
const LONGEST: Duration = Duration::from_millis(100);

/// Durations of waits for a stream's work; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// Durations in nanoseconds; 0 in entries that are not used yet.
    lengths: [AtomicU32; REMEMBERED],
    noted: AtomicU32,
    /// High quantile of the wake-up latency in nanoseconds; 0 if unknown.
    waking: AtomicU32,
}

impl Lengths {
    /// Records the duration of a wait.
    pub fn note(&self, length: Duration) {
        if length <= LONGEST {
            let place = self.noted.fetch_add(1, Ordering::Relaxed) as usize % REMEMBERED;
            self.lengths[place].store(length.as_nanos() as u32, Ordering::Relaxed);
        }
    }

    /// Records how late after its scheduled wake-up a future was polled.
    pub fn note_waking(&self, took: Duration) {
        let took = took.min(LEADS.2).as_nanos() as u32;
        let known = self.waking.load(Ordering::Relaxed);
        let next =
            if took > known { known + (took - known).div_ceil(2) } else { known - (known - took) / 64 };
        self.waking.store(next, Ordering::Relaxed);
    }

    /// Returns how long before the predicted end a future is woken, with a margin because wake-up latency varies.
    fn lead(&self) -> Duration {
        match self.waking.load(Ordering::Relaxed) {
            0 => LEADS.0,
            waking => (Duration::from_nanos(waking.into()) * 3 / 2 + LEADS.1).min(LEADS.2),
        }
    }

    /// Predicts the total duration of a wait that has already lasted `waited`. The result is at most `waited` if the
    /// wait is likely to end now, and `None` if it has lasted longer than all remembered waits.
    pub fn likely_end(&self, waited: Duration) -> Option<Duration> {
        let lengths =
            self.lengths.iter().map(|length| Duration::from_nanos(length.load(Ordering::Relaxed).into()));
        let ahead = lengths.filter(|length| !length.is_zero() && waited < *length + LAG + *length / SHARE);
        ahead.map(|length| length.saturating_sub(self.lead() + length / SHARE)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_last_waits_are_foreseen() {
        let us = Duration::from_micros;
        let lengths = Lengths::default();
        assert_eq!(lengths.likely_end(us(0)), None);
        for length in [us(77), us(6400), us(640), us(12_800), us(640)] {
            lengths.note(length);
        }
        lengths.note(LONGEST * 2);
        for (waited, end) in [(0, 575), (585, 575), (669, 575), (671, 6290), (6474, 6290), (6476, 12_640)] {
            assert_eq!(lengths.likely_end(us(waited)), Some(us(end)), "{waited}");
        }
        assert_eq!(lengths.likely_end(us(12_926)), None);
    }

    #[test]
    fn slow_waking_begins_earlier() {
        let us = Duration::from_micros;
        let lengths = Lengths::default();
        lengths.note(us(1280));
        let (mut lead, mut leads) = (us(0), Vec::new());
        for (took, times) in [(100, 20), (5, 1000), (10_000, 20)] {
            (0..times).for_each(|_| lengths.note_waking(us(took)));
            lead = us(1270) - lengths.likely_end(us(0)).expect("a wait was noted");
            leads.push(lead.as_micros());
        }
        assert_eq!(leads, [170, 27, 250], "{lead:?}");
    }
}
