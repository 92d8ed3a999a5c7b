//! [`Measuring`]: a case as the objective of a search.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Event, Tuned, lost};
use crate::document::{Measured, Outcome, Record};
use crate::error::{Error, Result};
use crate::harness::Harness;
use crate::measure::{Mode, StopReason};
use crate::run::{Plan, PlannedCase};
use crate::search::{CandidateResult, MIN_GAIN, Objective, median};

/// Case that is being searched.
pub struct Measuring<'a, 'p> {
    planned: &'a PlannedCase<'p>,
    mode: Mode,
    harness: &'a mut Harness<'p>,
    stop: &'a AtomicBool,
    each: &'a mut dyn FnMut(Event<'_>),
    records: Vec<Record>,
    /// For each candidate, the index of its record.
    places: HashMap<usize, usize>,
    made: usize,
    /// For each record, the medians of its trials.
    medians: Vec<Vec<f64>>,
    /// Error that stopped the search.
    error: Option<Error>,
}

impl<'a, 'p> Measuring<'a, 'p> {
    pub fn new(
        plan: &Plan<'_>,
        planned: &'a PlannedCase<'p>,
        harness: &'a mut Harness<'p>,
        stop: &'a AtomicBool,
        each: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        Self {
            planned,
            mode: plan.mode(),
            harness,
            stop,
            each,
            records: Vec::new(),
            places: HashMap::new(),
            made: 0,
            medians: Vec::new(),
            error: None,
        }
    }

    /// Returns the result, and the error that stopped the search, if any.
    pub fn finish(mut self, winner: Option<usize>) -> (Tuned, Option<Error>) {
        let winner = winner.and_then(|candidate| self.places.get(&candidate).copied());
        if let Some(place) = winner {
            self.records[place].is_winner = true;
        }
        let is_complete = !self.is_ended();
        let medians_us =
            self.medians.iter().map(|medians| Some(median(medians)).filter(|us| us.is_finite())).collect();
        let Self { records, made, error, .. } = self;
        (Tuned { records, medians_us, winner, made, is_complete }, error)
    }

    /// Confirms the winner. The winner is compared with the configuration that launches currently use (`kept`), which
    /// is timed unless the search has already done so. If the device was throttled during their trials, the winner and
    /// the default are timed once more. After all trials, the winner is checked once more. If it is then incorrect, the
    /// failure is recorded, and the next configuration becomes the winner.
    pub fn confirm(&mut self, winner: Option<usize>, kept: Option<usize>) -> Option<usize> {
        let mut winner = self.timed_again(winner, kept)?;
        while !self.is_ended() && !self.is_correct_again(winner) {
            winner = self.fastest()?;
        }
        Some(winner)
    }

    /// Times `kept`, unless the search has already done so. If the device was throttled during their trials, times
    /// `kept`, the winner and the default once more. Returns the winner according to all trials: the default, unless
    /// the records show that another configuration is faster.
    fn timed_again(&mut self, winner: Option<usize>, kept: Option<usize>) -> Option<usize> {
        let mut is_new = false;
        for candidate in [Some(0), winner, kept].into_iter().flatten() {
            let is_timed = self.places.contains_key(&candidate) || kept != Some(candidate);
            if !self.is_ended() && (!is_timed || self.is_throttled(candidate)) {
                is_new = true;
                if let Err(error) = self.time(candidate) {
                    self.error = Some(error);
                }
            }
        }
        // The search has selected the winner from the candidates that it timed.
        let timed =
            [kept.filter(|_| is_new), winner].into_iter().flatten().filter_map(|c| Some((c, self.us(c)?)));
        match (self.us(0), timed.min_by(|a, b| a.1.total_cmp(&b.1))) {
            (Some(default), Some((_, us))) if us > default * (1.0 - MIN_GAIN) => Some(0),
            (default, fastest) => fastest.map(|(candidate, _)| candidate).or(default.map(|_| 0)),
        }
    }

    /// Returns the median of a candidate's trials, provided that the candidate is usable.
    fn us(&self, candidate: usize) -> Option<f64> {
        let place = *self.places.get(&candidate)?;
        let us = median(&self.medians[place]);
        (self.records[place].is_usable() && us.is_finite()).then_some(us)
    }

    /// Returns the fastest candidate according to the medians of all its trials. This is the default, unless another
    /// candidate is faster by [`MIN_GAIN`].
    fn fastest(&self) -> Option<usize> {
        let usable = self.places.keys().filter_map(|&candidate| Some((self.us(candidate)?, candidate)));
        let (fastest, candidate) = usable.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        Some(match self.us(0) {
            Some(default) if fastest > default * (1.0 - MIN_GAIN) => 0,
            _ => candidate,
        })
    }

    /// Returns true if a configuration that was correct earlier is still correct.
    fn is_correct_again(&mut self, candidate: usize) -> bool {
        let (Some(&place), configuration) =
            (self.places.get(&candidate), &self.planned.configurations[candidate])
        else {
            return true;
        };
        let found = match self.harness.check_again(self.planned, configuration) {
            Ok(measured) if measured.outcome == Outcome::Correct => return true,
            Ok(measured) => measured,
            Err(error) => {
                self.error = Some(error);
                return true;
            }
        };
        let problem = format!("after all trials: {}", found.problem);
        if found.outcome == Outcome::Crashed {
            self.error = Some(lost(self.planned, configuration, &problem));
        }
        let record = &mut self.records[place];
        (record.outcome, record.max_error, record.timing) = (found.outcome, found.max_error, None);
        record.problem = problem;
        self.medians[place].clear();
        false
    }

    fn is_throttled(&self, candidate: usize) -> bool {
        let record = self.places.get(&candidate).map(|&place| &self.records[place]);
        record.and_then(|record| record.timing.as_ref()).is_some_and(|timing| timing.throttled)
    }

    /// Returns the index of a candidate's record, adding the record if it does not exist.
    fn place(&mut self, candidate: usize) -> usize {
        *self.places.entry(candidate).or_insert_with(|| {
            let record = self.planned.record(&self.planned.configurations[candidate]);
            self.records.push(Record { mode: self.mode, ..record });
            self.medians.push(Vec::new());
            self.records.len() - 1
        })
    }

    /// Records a trial that was cut short, provided that the candidate has no other trial. The trial neither counts nor
    /// wins.
    fn show(&mut self, candidate: usize, measured: Measured) {
        if self.places.contains_key(&candidate) {
            return;
        }
        let place = self.place(candidate);
        let record = &mut self.records[place];
        (record.outcome, record.problem) = (measured.outcome, measured.problem);
        (record.max_error, record.timing) = (measured.max_error, measured.timing);
        record.probe_us = self.harness.limit_us(self.planned);
    }

    /// Times a candidate once. Returns `None` if the candidate is no longer usable.
    fn time(&mut self, candidate: usize) -> Result<Option<f64>> {
        let configuration = &self.planned.configurations[candidate];
        let measured = match self.harness.measure(self.planned, configuration) {
            // The case was not prepared, because the run was stopped.
            Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(None),
            measured => measured?,
        };
        if measured.timing.as_ref().is_some_and(|timing| timing.stop == StopReason::Interrupted) {
            // The samples are too few to count, but they are useful to a reader.
            self.show(candidate, measured);
            return Ok(None);
        }
        self.made += 1;
        let probe_us = self.harness.limit_us(self.planned);
        let median_us = measured.median_us();
        let Measured { outcome, problem, max_error, timing } = measured;
        let place = self.place(candidate);
        let record = &mut self.records[place];
        (record.outcome, record.problem, record.max_error) = (outcome, problem, max_error);
        let medians = &mut self.medians[place];
        match (&mut record.timing, timing) {
            // A time from a throttled device is used only if no other time exists.
            (Some(known), Some(more)) if known.throttled == more.throttled => {
                medians.extend(median_us);
                record.probe_us = probe_us.or(record.probe_us);
                known.add(more);
            }
            (Some(known), Some(_)) if !known.throttled => {}
            (known, more @ Some(_)) => {
                *medians = median_us.into_iter().collect();
                *known = more;
                record.probe_us = probe_us;
            }
            (_, None) => {}
        }
        (self.each)(Event::Measured { case: self.planned, record, trials: self.made });
        if outcome == Outcome::Crashed {
            return Err(lost(self.planned, configuration, &record.problem));
        }
        Ok(median_us.filter(|_| outcome == Outcome::Correct))
    }
}

impl Objective for Measuring<'_, '_> {
    fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult> {
        let mut seen = vec![CandidateResult::Times(Vec::with_capacity(rounds)); candidates.len()];
        for round in 0..rounds {
            // The order alternates, so that a steady drift of the device affects all candidates equally.
            let mut order: Vec<usize> = (0..candidates.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for place in order {
                let CandidateResult::Times(times) = &mut seen[place] else { continue };
                if self.is_ended() {
                    continue;
                }
                match self.time(candidates[place]) {
                    Ok(Some(us)) => times.push(us),
                    // The run was stopped during this trial. The earlier times remain valid.
                    Ok(None) if self.is_ended() => {}
                    Ok(None) => seen[place] = CandidateResult::Unusable,
                    Err(error) => {
                        if matches!(error, Error::Lost { .. }) {
                            seen[place] = CandidateResult::Unusable;
                        }
                        self.error = Some(error);
                    }
                }
            }
        }
        seen
    }

    fn is_ended(&self) -> bool {
        self.error.is_some() || self.stop.load(Ordering::Relaxed)
    }
}
