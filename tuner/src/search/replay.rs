//! [`Replay`]: an objective that answers from measurements that were made before.
//!
//! Guarantees: each timing is the median of samples drawn, with repeats, from those of the record, so that a replayed
//! search meets the noise of the measurement; the draws depend on the seed alone.

use super::random::Random;
use super::session::median;
use super::{Objective, Points, Seen};
use crate::document::Record;
use crate::value::Configuration;

/// The samples of a case's configurations, the default first.
#[derive(Debug, Clone)]
pub struct Replay {
    configurations: Vec<Configuration>,
    samples: Vec<Option<Vec<f64>>>,
    random: Random,
}

impl Replay {
    /// Of the records of one case; `None` if the default is not among them.
    pub fn from_records(records: &[&Record], seed: u64) -> Option<Self> {
        let default = records.iter().position(|record| record.is_default)?;
        let others = records.iter().enumerate().filter(|(index, _)| *index != default).map(|(_, r)| *r);
        let ordered: Vec<&Record> = std::iter::once(records[default]).chain(others).collect();
        let samples = |record: &&Record| {
            record.is_usable().then(|| record.timing.as_ref().map(|t| t.samples_us.clone())).flatten()
        };
        Some(Self {
            configurations: ordered.iter().map(|record| record.configuration.clone()).collect(),
            samples: ordered.iter().map(samples).collect(),
            random: Random::new(seed),
        })
    }

    /// The candidates.
    pub fn points(&self) -> Points {
        Points::of(&self.configurations)
    }

    /// A candidate's configuration.
    pub fn configuration(&self, candidate: usize) -> &Configuration {
        &self.configurations[candidate]
    }

    /// The median of all samples of a candidate; infinite if it could not be used.
    pub fn truth(&self, candidate: usize) -> f64 {
        self.samples[candidate].as_deref().map_or(f64::INFINITY, median)
    }

    /// The least of all medians.
    pub fn best(&self) -> f64 {
        (0..self.samples.len()).map(|candidate| self.truth(candidate)).fold(f64::INFINITY, f64::min)
    }
}

impl Objective for Replay {
    fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<Seen> {
        let random = &mut self.random;
        let samples = &self.samples;
        let mut draw = |samples: &Vec<f64>| {
            let drawn: Vec<f64> = samples.iter().map(|_| samples[random.below(samples.len())]).collect();
            median(&drawn)
        };
        let times = |candidate: &usize| match &samples[*candidate] {
            Some(samples) => Seen::Times((0..rounds).map(|_| draw(samples)).collect()),
            None => Seen::Unusable,
        };
        candidates.iter().map(times).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use crate::document::tests::record;
    use crate::search::{Budget, Strategy, search};

    #[test]
    fn a_replay_answers_from_the_samples_and_only_of_what_was_correct() {
        let mut records = [
            record("copy", 256, 5.0, Outcome::Correct),
            record("copy", 128, 10.0, Outcome::Correct),
            record("copy", 512, 1.0, Outcome::Wrong),
        ];
        for record in &mut records {
            let us = record.median_us().unwrap_or(1.0);
            if let Some(timing) = &mut record.timing {
                timing.samples_us = (0..9).map(|i| us * (1.0 + f64::from(i - 4) / 100.0)).collect();
            }
        }
        let records: Vec<&Record> = records.iter().collect();
        let mut replay = Replay::from_records(&records, 3).unwrap();
        assert_eq!(replay.configuration(0).number("block").unwrap(), 128, "the default is the first");
        assert_eq!((replay.truth(0), replay.best()), (10.0, 5.0));
        assert!(replay.truth(2).is_infinite());
        let seen = replay.measure(&[0, 2], 50);
        let Seen::Times(times) = &seen[0] else { panic!("{seen:?}") };
        assert!(times.iter().all(|us| (9.6..=10.4).contains(us)) && times.iter().any(|us| *us != times[0]));
        assert_eq!(seen[1], Seen::Unusable);
        let points = replay.points();
        let found = search(&points, &[], Strategy::Exhaustive, Budget::default(), 1, &mut replay);
        assert_eq!((found.winner, found.timings), (Some(1), 3));
        assert!(Replay::from_records(&records[..1], 3).is_none());
    }
}
