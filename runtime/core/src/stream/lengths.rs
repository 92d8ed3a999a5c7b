//! [`Lengths`]: how long a stream's work was awaited recently, which predicts the end of a wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How many waits are remembered: a program's waits for up to this number of pieces of work in turn are predicted.
const REMEMBERED: usize = 4;
/// How long before the predicted end of a wait polling begins, and how long after it polling ends, plus a share of its
/// length.
const LEAD: Duration = Duration::from_micros(50);
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
}

impl Lengths {
    /// Notes how long a wait was.
    pub fn note(&self, length: Duration) {
        if length <= LONGEST {
            let place = self.noted.fetch_add(1, Ordering::Relaxed) as usize % REMEMBERED;
            self.lengths[place].store(length.as_nanos() as u32, Ordering::Relaxed);
        }
    }

    /// From when a wait that has lasted this long is likely to end; at the earliest, and not later than now if it is likely now.
    /// `None` if it has lasted longer than all before.
    pub fn likely_end(&self, waited: Duration) -> Option<Duration> {
        let lengths =
            self.lengths.iter().map(|length| Duration::from_nanos(length.load(Ordering::Relaxed).into()));
        let ahead = lengths.filter(|length| !length.is_zero() && waited < *length + LAG + *length / SHARE);
        ahead.map(|length| length.saturating_sub(LEAD + length / SHARE)).min()
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
        for (waited, end) in [(0, 585), (585, 585), (669, 585), (671, 6300), (6474, 6300), (6476, 12_650)] {
            assert_eq!(lengths.likely_end(us(waited)), Some(us(end)), "{waited}");
        }
        assert_eq!(lengths.likely_end(us(12_926)), None);
    }
}
