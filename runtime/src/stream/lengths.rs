//! [`Lengths`]: how long a stream's work was awaited recently, which predicts the end of a wait, and how long it took to
//! wake who awaited it, which says how long before that end it is to be woken.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How many waits are remembered: a program's waits for up to this number of pieces of work in turn are predicted.
const REMEMBERED: usize = 4;
/// How long before the predicted end of a wait a future is woken: at first, at least and at most. Plus a share of the length.
const LEADS: (Duration, Duration, Duration) =
    (Duration::from_micros(60), Duration::from_micros(20), Duration::from_micros(250));
/// How long after the predicted end polling ends, plus a share of the length.
const LAG: Duration = Duration::from_micros(25);
const SHARE: u32 = 128;
/// Longer waits are not remembered: their delay is negligible.
const LONGEST: Duration = Duration::from_millis(100);

/// See the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// In nanoseconds; 0 for none yet.
    lengths: [AtomicU32; REMEMBERED],
    noted: AtomicU32,
    /// Nanoseconds that waking takes: a high quantile. 0 if not known yet.
    waking: AtomicU32,
}

impl Lengths {
    /// Notes how long a wait was.
    pub fn note(&self, length: Duration) {
        if length <= LONGEST {
            let place = self.noted.fetch_add(1, Ordering::Relaxed) as usize % REMEMBERED;
            self.lengths[place].store(length.as_nanos() as u32, Ordering::Relaxed);
        }
    }

    /// Notes how long after the time for it a future was polled.
    pub fn note_waking(&self, took: Duration) {
        let took = took.min(LEADS.2).as_nanos() as u32;
        let known = self.waking.load(Ordering::Relaxed);
        let next =
            if took > known { known + (took - known).div_ceil(2) } else { known - (known - took) / 64 };
        self.waking.store(next, Ordering::Relaxed);
    }

    /// How long before the predicted end a future is woken: more than waking mostly takes, since it varies.
    fn lead(&self) -> Duration {
        match self.waking.load(Ordering::Relaxed) {
            0 => LEADS.0,
            waking => (Duration::from_nanos(waking.into()) * 3 / 2 + LEADS.1).min(LEADS.2),
        }
    }

    /// From when a wait that has lasted this long is likely to end; at the earliest, and not later than now if it is likely now.
    /// `None` if it has lasted longer than all before.
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
