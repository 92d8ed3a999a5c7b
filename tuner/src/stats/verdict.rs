//! What a comparison says.

use std::fmt;

use super::Interval;

/// What a ratio of times, new by old, says about the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is faster by more than the threshold.
    Faster,
    /// It is slower by more than the threshold.
    Slower,
    /// It differs by less than the threshold.
    Same,
    /// The samples do not tell.
    Ambiguous,
}

impl Verdict {
    /// Judges a ratio of times, new by old, by its confidence interval and the `threshold` (0.01 is 1 %) from which on
    /// a change counts: a verdict other than [`Verdict::Ambiguous`] holds for the whole interval. Being faster counts
    /// from `1 / (1 + threshold)` on, so that exchanging new and old exchanges the verdicts.
    ///
    /// ```
    /// use warpsmith_tuner::stats::{Interval, Verdict};
    ///
    /// assert_eq!(Verdict::of(Interval { low: 1.012, high: 1.03 }, 0.01), Verdict::Slower);
    /// assert_eq!(Verdict::of(Interval { low: 1.0, high: 1.03 }, 0.01), Verdict::Ambiguous);
    /// ```
    pub fn of(ratio: Interval, threshold: f64) -> Self {
        let (slower, faster) = (1.0 + threshold, 1.0 / (1.0 + threshold));
        if ratio.low > slower {
            Self::Slower
        } else if ratio.high < faster {
            Self::Faster
        } else if ratio.low >= faster && ratio.high <= slower {
            Self::Same
        } else {
            Self::Ambiguous
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Ambiguous => "ambiguous",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(low: f64, high: f64) -> Verdict {
        Verdict::of(Interval { low, high }, 0.01)
    }

    #[test]
    fn the_whole_interval_must_agree() {
        assert_eq!(of(1.011, 1.2), Verdict::Slower);
        assert_eq!(of(0.8, 0.98), Verdict::Faster);
        assert_eq!(of(0.995, 1.005), Verdict::Same);
        for (low, high) in [(1.0, 1.02), (0.98, 1.0), (0.9, 1.1), (1.01, 1.02), (0.98, 0.995)] {
            assert_eq!(of(low, high), Verdict::Ambiguous, "{low} {high}");
        }
        assert_eq!(of(f64::NAN, f64::NAN), Verdict::Ambiguous);
    }

    #[test]
    fn exchanging_both_sides_exchanges_the_verdicts() {
        for (low, high) in [(1.0101, 1.0102), (1.002, 1.0099), (1.0, 1.02), (0.97, 1.03)] {
            let exchanged = match of(1.0 / high, 1.0 / low) {
                Verdict::Faster => Verdict::Slower,
                Verdict::Slower => Verdict::Faster,
                same => same,
            };
            assert_eq!(of(low, high), exchanged, "{low} {high}");
        }
    }
}
