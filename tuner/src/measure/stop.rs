//! When a configuration has been measured enough.

use serde::{Deserialize, Serialize};

use crate::stats::{FEWEST, median_interval, relative_uncertainty, summarise};

/// When a configuration has been measured enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// The least number of samples, whatever they take.
    pub least: usize,
    /// The greatest number of samples.
    pub most: usize,
    /// The time of the samples in microseconds after which no more are taken.
    pub budget_us: f64,
    /// The relative uncertainty of the median that is enough: half of its 95 % confidence interval was no wider before the
    /// last fifth of the samples. With 0 only the number of samples and the budget count.
    pub precision: f64,
    /// Launches in a sample; absent for the number that lasts [`SHORT_US`](super::SHORT_US). Timings that are
    /// compared have the same number, so that the cost of a sample itself is the same share of each. A launch so slow that
    /// the sample would last ten times as long as it needs to has fewer.
    pub launches: Option<u32>,
}

impl Effort {
    /// The usual effort: no fewer samples than have an interval, half a percent of uncertainty.
    pub const NORMAL: Effort =
        Effort { least: FEWEST, most: 100, budget_us: 100_000.0, precision: 0.005, launches: None };
    /// A first look.
    pub const QUICK: Effort =
        Effort { least: 3, most: 20, budget_us: 20_000.0, precision: 0.01, ..Effort::NORMAL };

    /// Exactly `count` samples, whatever they take.
    pub const fn samples(count: usize) -> Effort {
        Effort { least: count, most: count, budget_us: f64::INFINITY, precision: 0.0, launches: None }
    }

    /// No more samples than an interval needs once they took `us` microseconds.
    ///
    /// ```
    /// use warpsmith_tuner::measure::Effort;
    ///
    /// let effort = Effort::samples(100).with_budget(50_000.0);
    /// assert_eq!((effort.least, effort.most, effort.budget_us), (6, 100, 50_000.0));
    /// ```
    #[must_use]
    pub fn with_budget(self, us: f64) -> Effort {
        Effort { least: self.least.min(FEWEST), budget_us: us, ..self }
    }
}

/// The reason why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The median is known precisely enough.
    Precision,
    /// The most samples were taken.
    Samples,
    /// The time was spent, or the clock was low for too long.
    Budget,
    /// The run was ended.
    Interrupted,
}

/// How far the sampling of a configuration is.
#[derive(Debug)]
pub(super) struct Progress {
    effort: Effort,
    /// The final number of samples, once the median was known precisely enough.
    goal: Option<usize>,
}

impl Progress {
    pub(super) fn new(effort: Effort) -> Self {
        Self { effort, goal: None }
    }

    /// The maximum of further samples, when there are `count`.
    pub(super) fn most_missing(&self, count: usize) -> usize {
        self.goal.unwrap_or(self.effort.most).min(self.effort.most).max(1).saturating_sub(count)
    }

    /// Whether the samples so far, in the order in which they were taken and which took `spent_us` with those that were
    /// thrown away, are enough, and why.
    ///
    /// Once the median is known precisely enough, a quarter more are taken: sampling that always ended when the interval
    /// happened to be narrow would have the median in it less often than it says.
    pub(super) fn enough(&mut self, samples: &[f64], spent_us: f64) -> Option<StopReason> {
        let Effort { least, most, budget_us, .. } = self.effort;
        let count = samples.len();
        if count < least.max(1) && count < most.max(1) {
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
        // The cheap estimate first, which takes samples for independent.
        precision > 0.0
            && relative_uncertainty(samples) <= precision
            && median_interval(samples)
                .zip(summarise(samples))
                .is_some_and(|(interval, summary)| interval.half_width() <= precision * summary.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort { least: 10, most: 500, budget_us: 1e6, precision: 0.005, launches: None };

    /// The number of these samples that suffices, and why.
    fn ends(effort: Effort, mut sample: impl FnMut(usize) -> f64) -> (usize, StopReason) {
        let (mut progress, mut samples, mut spent) = (Progress::new(effort), Vec::new(), 0.0);
        loop {
            assert!(progress.most_missing(samples.len()) > 0);
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
    fn the_least_samples_are_taken_whatever_they_cost() {
        let short = Effort { budget_us: 1.0, ..EFFORT };
        assert_eq!(ends(short, |index| 100.0 + index as f64), (10, StopReason::Budget));
        assert_eq!(ends(Effort { least: 0, most: 0, ..short }, |_| 100.0), (1, StopReason::Samples));
    }

    #[test]
    fn a_drifting_median_is_not_precise() {
        // Slow waves of 2 %: the order statistics alone would call it precise after some hundred samples.
        let wave = |index: usize| 100.0 + (index as f64 / 60.0).sin();
        let samples: Vec<f64> = (0..400).map(wave).collect();
        let effort = Effort { precision: 0.0015, ..EFFORT };
        assert!(relative_uncertainty(&samples) <= effort.precision, "{}", relative_uncertainty(&samples));
        assert!(!Progress::new(effort).is_precise(&samples));
    }
}
