//! Which samples a slowed device took.
//!
//! The clock at each sample is held against the best that the run has seen to last: the highest median of any
//! [`WINDOW`] readings in a row. A clock that was low from the start is not detected so; the driver's reason why its
//! clocks are low is queried once a timing ([`is_slowdown`]).

use std::collections::VecDeque;
use std::time::Duration;

/// Readings of the clock whose median counts.
const WINDOW: usize = 15;
/// Readings from which on there is a median to hold others against.
const FEWEST: usize = 5;
/// Samples that are taken again while the clock has been low since the timing before.
const STILL_LOW: u32 = 10;

/// Whether a reason for low clocks, in NVML's words, is heat or a fault of the power supply. Idling, a limit of the clocks
/// that was set, and keeping within the power limit are usual, and their clocks are those that the device has.
pub(super) fn is_slowdown(reason: &str) -> bool {
    matches!(
        reason,
        "hw_slowdown" | "hw_thermal_slowdown" | "sw_thermal_slowdown" | "hw_power_brake_slowdown"
    )
}

/// When a sample counts as taken by a slowed device, and what is done then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// The least share of the run's best clock, as the median of some readings, that a sample must have.
    pub share: f64,
    /// The samples of a timing that are taken again at most. When more are of a low clock, they are kept, and the timing is
    /// throttled.
    pub most_rejected: u32,
    /// How long the device rests after a low clock was seen.
    pub rest: Duration,
}

impl Default for Guard {
    /// 95 %, 60 samples, 5 ms.
    fn default() -> Self {
        Self { share: 0.95, most_rejected: 60, rest: Duration::from_millis(5) }
    }
}

/// The clocks of a run.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) guard: Guard,
    recent: VecDeque<u32>,
    best: u32,
    /// Whether the last timing was throttled.
    still_low: bool,
}

impl Clocks {
    /// Records a reading.
    pub(super) fn read(&mut self, mhz: u32) {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(mhz);
        if self.recent.len() >= FEWEST {
            let mut sorted: Vec<u32> = self.recent.iter().copied().collect();
            sorted.sort_unstable();
            self.best = self.best.max(sorted[sorted.len() / 2]);
        }
    }

    /// Whether a sample at this clock is one of a device that is not slowed, by what has been seen so far.
    pub(super) fn accepts(&self, mhz: Option<u32>) -> bool {
        mhz.is_none_or(|mhz| f64::from(mhz) >= self.guard.share * f64::from(self.best))
    }

    /// The number of samples of a timing that are taken again.
    pub(super) fn most_rejected(&self) -> u32 {
        if self.still_low { STILL_LOW.min(self.guard.most_rejected) } else { self.guard.most_rejected }
    }

    /// A timing has ended.
    pub(super) fn ended(&mut self, throttled: bool) {
        self.still_low = throttled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_low_below_the_lasting_best() {
        let mut clocks = Clocks::default();
        assert!(clocks.accepts(Some(1)), "nothing to hold it against");
        (0..20).for_each(|_| clocks.read(1000));
        assert!(clocks.accepts(Some(950)) && !clocks.accepts(Some(949)) && clocks.accepts(None));
        (0..7).for_each(|_| clocks.read(2000));
        assert!(clocks.accepts(Some(950)), "a peak does not last");
        clocks.read(2000);
        assert!(!clocks.accepts(Some(1899)) && clocks.accepts(Some(1900)));
        (0..100).for_each(|_| clocks.read(1000));
        assert!(!clocks.accepts(Some(1000)), "the best stays");
    }

    #[test]
    fn heat_and_power_faults_are_slowdowns() {
        for reason in ["hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"]
        {
            assert!(is_slowdown(reason), "{reason}");
        }
        for reason in ["gpu_idle", "sw_power_cap", "applications_clocks_setting", "sync_boost"] {
            assert!(!is_slowdown(reason), "{reason}");
        }
    }

    #[test]
    fn a_lasting_low_clock_rejects_fewer_samples() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.most_rejected(), 60);
        clocks.ended(true);
        assert_eq!(clocks.most_rejected(), 10);
        clocks.ended(false);
        assert_eq!(clocks.most_rejected(), 60);
    }
}
