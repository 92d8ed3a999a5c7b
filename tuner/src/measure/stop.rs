//! Stopping rule, which determines when a configuration has been measured often enough.

use serde::{Deserialize, Serialize};

use crate::stats::{FEWEST, median_interval, relative_uncertainty, summarize};

/// Stopping rule, which determines when a configuration has been measured often enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Minimum number of samples, which are taken even if they take a long time.
    pub minimum: usize,
    /// Maximum number of samples.
    pub most: usize,
    /// Maximum total time of the samples, in microseconds.
    pub budget_us: f64,
    /// Relative uncertainty of the median at which sampling may stop: half the width of the median's 95 % confidence
    /// interval, divided by the median. Once this uncertainty is reached, a quarter more samples are taken. If the
    /// value is 0, only the number of samples and the budget matter.
    pub precision: f64,
    /// Number of launches per sample; `None` for as many as are needed for a duration of [`SHORT_US`](super::SHORT_US).
    /// To compare timings, use the same number for all of them, so that each launch bears the same share of a sample's
    /// overhead. If a launch is so slow that the sample would last ten times its minimum duration, fewer launches are
    /// used.
    pub launches: Option<u32>,
}

impl Effort {
    /// Default effort: at least as many samples as an interval requires, and an uncertainty of half a percent.
    pub const NORMAL: Effort =
        Effort { minimum: FEWEST, most: 100, budget_us: 100_000.0, precision: 0.005, launches: None };
    /// Effort for a quick estimate.
    pub const QUICK: Effort =
        Effort { minimum: 3, most: 20, budget_us: 20_000.0, precision: 0.01, ..Effort::NORMAL };

    /// Takes exactly `count` samples, even if they take a long time.
    pub const fn samples(count: usize) -> Effort {
        Effort { minimum: count, most: count, budget_us: f64::INFINITY, precision: 0.0, launches: None }
    }
}

/// Reason why sampling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The uncertainty of the median is sufficiently small.
    Precision,
    /// The maximum number of samples was reached.
    Samples,
    /// The time budget was exhausted, or the clock was low for too long.
    Budget,
    /// The run was interrupted.
    Interrupted,
}

/// Sampling progress of a configuration.
#[derive(Debug)]
pub(super) struct Progress {
    effort: Effort,
    /// Final number of samples, which is set when the uncertainty of the median has become sufficiently small.
    goal: Option<usize>,
}

impl Progress {
    pub(super) fn new(effort: Effort) -> Self {
        Self { effort, goal: None }
    }

    /// Returns the maximum number of samples that may still follow after `count` samples.
    pub(super) fn max_missing(&self, count: usize) -> usize {
        self.goal.unwrap_or(self.effort.most).min(self.effort.most).max(1).saturating_sub(count)
    }

    /// Returns the reason why sampling may stop, or `None` if more samples are needed. `samples` must be in the order
    /// in which they were taken; `spent_us` includes rejected samples.
    ///
    /// When the uncertainty of the median has become sufficiently small, a quarter more samples are taken. Otherwise,
    /// sampling would stop whenever the interval happens to be narrow, and the interval would contain the true median
    /// less often than 95 % of the time.
    pub(super) fn enough(&mut self, samples: &[f64], spent_us: f64) -> Option<StopReason> {
        let Effort { minimum, most, budget_us, .. } = self.effort;
        let count = samples.len();
        if count < minimum.max(1) && count < most.max(1) {
            return None;
        }
        if self.goal.is_none() && self.is_precise(samples) {
            self.goal = Some(count + count.div_ceil(4));
        }
        let spent = spent_us >= budget_us;
        match self.goal {
            Some(goal) if count >= goal || spent || count >= most => Some(StopReason::Precision),
            _ if count >= most => Some(StopReason::Samples),
            _ if spent => Some(StopReason::Budget),
            _ => None,
        }
    }

    fn is_precise(&self, samples: &[f64]) -> bool {
        let precision = self.effort.precision;
        // The cheap estimate is computed first. It assumes independent samples.
        precision > 0.0
            && relative_uncertainty(samples) <= precision
            && median_interval(samples)
                .zip(summarize(samples))
                .is_some_and(|(interval, summary)| interval.half_width() <= precision * summary.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort =
        Effort { minimum: 10, most: 500, budget_us: 1e6, precision: 0.005, launches: None };

    /// Returns how many of these samples are sufficient, and the reason for stopping.
    fn ends(effort: Effort, mut sample: impl FnMut(usize) -> f64) -> (usize, StopReason) {
        let (mut progress, mut samples, mut spent) = (Progress::new(effort), Vec::new(), 0.0);
        loop {
            assert!(progress.max_missing(samples.len()) > 0);
            let us = sample(samples.len());
            spent += us;
            samples.push(us);
            if let Some(reason) = progress.enough(&samples, spent) {
                return (samples.len(), reason);
            }
        }
    }

    #[test]
    fn sampling_ends_for_its_reason() {
        let same = |_| 100.0;
        let wide = |index: usize| 100.0 + (index * 37 % 100) as f64;
        assert_eq!(ends(EFFORT, same), (13, StopReason::Precision));
        assert_eq!(ends(EFFORT, wide), (500, StopReason::Samples));
        assert_eq!(ends(Effort { precision: 0.0, ..EFFORT }, same), (500, StopReason::Samples));
        assert_eq!(ends(Effort::samples(7), same), (7, StopReason::Samples));
        let short = Effort { budget_us: 2000.0, ..EFFORT };
        assert_eq!(ends(short, |index| if index % 2 == 0 { 100.0 } else { 110.0 }), (20, StopReason::Budget));
    }

    #[test]
    fn a_quarter_more_is_taken_within_the_limits() {
        let most = Effort { most: 11, ..EFFORT };
        assert_eq!(ends(most, |_| 100.0), (11, StopReason::Precision));
        let budget = Effort { budget_us: 1150.0, ..EFFORT };
        assert_eq!(ends(budget, |_| 100.0), (12, StopReason::Precision));
    }

    #[test]
    fn the_minimum_of_samples_is_taken_whatever_it_costs() {
        let short = Effort { budget_us: 1.0, ..EFFORT };
        assert_eq!(ends(short, |index| 100.0 + index as f64), (10, StopReason::Budget));
        assert_eq!(ends(Effort { minimum: 0, most: 0, ..short }, |_| 100.0), (1, StopReason::Samples));
    }

    #[test]
    fn a_drifting_median_is_not_precise() {
        // The samples contain slow waves of 2 % from peak to peak. According to order statistics alone, the median
        // would seem precise after about a hundred samples.
        let wave = |index: usize| 100.0 + (index as f64 / 60.0).sin();
        let samples: Vec<f64> = (0..400).map(wave).collect();
        let effort = Effort { precision: 0.0015, ..EFFORT };
        assert!(relative_uncertainty(&samples) <= effort.precision, "{}", relative_uncertainty(&samples));
        assert!(!Progress::new(effort).is_precise(&samples));
    }
}
