//! Detection of samples that were taken while the device was throttled.
//!
//! The clock at each sample is compared with the best sustained clock of the run: the highest median of any [`WINDOW`]
//! consecutive readings. This comparison cannot detect a clock that was low from the start. Therefore, the reasons that
//! the driver reports for low clocks are also queried, once per timing ([`is_slowdown`]).

use std::collections::VecDeque;
use std::time::Duration;

/// Number of consecutive clock readings that contribute to a median.
const WINDOW: usize = 15;
/// Minimum number of readings from which a median is computed.
const FEWEST: usize = 5;
/// Maximum number of samples that are retaken if the clock has stayed low since the preceding timing.
const STILL_LOW: u32 = 10;

/// Returns true if a reason for low clocks, as named by NVML, is heat or a power supply fault. Idling, a configured
/// clock limit and the power cap are normal and do not mean that the device is throttled.
pub(super) fn is_slowdown(reason: &str) -> bool {
    matches!(
        reason,
        "hw_slowdown" | "hw_thermal_slowdown" | "sw_thermal_slowdown" | "hw_power_brake_slowdown"
    )
}

/// Rule that determines which samples count as throttled, and how to react to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// Minimum clock of a sample, as a fraction of the run's best clock, which is a median of several readings.
    pub share: f64,
    /// Maximum number of samples that are retaken per timing. If the clock is low for more samples, they are kept, and
    /// the timing is marked as throttled.
    pub max_rejected: u32,
    /// Time that the device rests after a low clock has been detected.
    pub rest: Duration,
}

impl Default for Guard {
    /// Returns the default rule: 95 %, 60 samples and 5 ms.
    fn default() -> Self {
        Self { share: 0.95, max_rejected: 60, rest: Duration::from_millis(5) }
    }
}

/// Clock readings of a run.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) guard: Guard,
    recent: VecDeque<u32>,
    best: u32,
    /// True if the preceding timing was throttled.
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

    /// Returns true if a sample taken at this clock is accepted as not throttled, according to the readings so far.
    pub(super) fn accepts(&self, mhz: Option<u32>) -> bool {
        mhz.is_none_or(|mhz| f64::from(mhz) >= self.guard.share * f64::from(self.best))
    }

    /// Returns the maximum number of samples that are retaken per timing.
    pub(super) fn max_rejected(&self) -> u32 {
        if self.still_low { STILL_LOW.min(self.guard.max_rejected) } else { self.guard.max_rejected }
    }

    /// Records the end of a timing.
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
        assert_eq!(clocks.max_rejected(), 60);
        clocks.ended(true);
        assert_eq!(clocks.max_rejected(), 10);
        clocks.ended(false);
        assert_eq!(clocks.max_rejected(), 60);
    }
}
