//! [`Session`]: state of a search, with the number of trials that are left.

use super::{CandidateResult, Found, MIN_GAIN, Objective, Points};

/// State of a candidate.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    Nothing,
    Times(Vec<f64>),
    Unusable,
}

/// State of one search.
pub struct Session<'a> {
    pub points: &'a Points,
    objective: &'a mut dyn Objective,
    /// Maximum number of trials.
    most: usize,
    known: Vec<Known>,
    trials: usize,
    measured: Vec<usize>,
    /// Candidates of the last race, each with its times in the race.
    race: Vec<(usize, Vec<f64>)>,
}

impl<'a> Session<'a> {
    pub fn new(points: &'a Points, most: usize, objective: &'a mut dyn Objective) -> Self {
        let known = vec![Known::Nothing; points.len()];
        Self {
            points,
            objective,
            most: most.max(1),
            known,
            trials: 0,
            measured: Vec::new(),
            race: Vec::new(),
        }
    }

    /// Returns the number of trials that are left. Before the first trial, this is at least one.
    pub fn left(&self) -> usize {
        if self.objective.is_ended() { 0 } else { self.most.saturating_sub(self.trials) }
    }

    /// Returns the median of a candidate's times so far.
    pub fn estimate(&self, candidate: usize) -> Option<f64> {
        match &self.known[candidate] {
            Known::Times(times) => Some(median(times)),
            Known::Nothing | Known::Unusable => None,
        }
    }

    /// Returns true if a candidate has not been measured yet.
    pub fn is_new(&self, candidate: usize) -> bool {
        self.known[candidate] == Known::Nothing
    }

    /// Returns the candidates that have not been measured yet.
    pub fn new_ones(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.points.len()).filter(|&candidate| self.is_new(candidate))
    }

    /// Returns the candidates that have been timed, each with its time, fastest first.
    pub fn ranking(&self) -> Vec<(usize, f64)> {
        let timed = self.measured.iter().filter_map(|&c| Some((c, self.estimate(c)?)));
        let mut ranking: Vec<(usize, f64)> = timed.collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }

    /// Times a candidate once. Returns the median of all the candidate's times so far, or `None` if the candidate has
    /// no times.
    pub fn time(&mut self, candidate: usize) -> Option<f64> {
        self.race(&[candidate], 1);
        self.estimate(candidate)
    }

    /// Times a candidate, unless it has already been measured. Returns the median of its times, or `None` if it has no
    /// times.
    pub fn time_once(&mut self, candidate: usize) -> Option<f64> {
        if self.is_new(candidate) { self.time(candidate) } else { self.estimate(candidate) }
    }

    /// Times candidates in alternation, up to the limit of trials, skipping unusable ones.
    pub fn race(&mut self, candidates: &[usize], rounds: usize) {
        let usable = candidates.iter().copied().filter(|&c| self.known[c] != Known::Unusable);
        let candidates: Vec<usize> = usable.take(self.left() / rounds.max(1)).collect();
        if candidates.is_empty() {
            return;
        }
        let seen = self.objective.measure(&candidates, rounds);
        let mut results = Vec::with_capacity(candidates.len());
        for (&candidate, seen) in candidates.iter().zip(seen) {
            if self.is_new(candidate) {
                self.measured.push(candidate);
            }
            match seen {
                CandidateResult::Times(times) if !times.is_empty() => {
                    self.trials += times.len();
                    results.push((candidate, times.clone()));
                    match &mut self.known[candidate] {
                        Known::Times(known) => known.extend(times),
                        known => *known = Known::Times(times),
                    }
                }
                // The run was stopped before this candidate was timed for the first time.
                CandidateResult::Times(_) => {
                    if self.is_new(candidate) {
                        self.measured.pop();
                    }
                }
                CandidateResult::Unusable => {
                    self.trials += 1;
                    self.known[candidate] = Known::Unusable;
                }
            }
        }
        if results.len() > 1 {
            self.race = results;
        }
    }

    /// Returns the result of the search. Candidates of the last race are compared by their alternating times in that
    /// race, and all other candidates by all of their times. A candidate that is not faster than the default according
    /// to all times cannot win, because in a short race, a single disturbed trial of the default would make all other
    /// candidates look fast.
    pub fn found(self) -> Found {
        let in_race = |candidate: usize| self.race.iter().find(|(c, _)| *c == candidate);
        let time = |candidate: usize| match in_race(candidate) {
            Some((_, times)) if self.known[candidate] != Known::Unusable => Some(median(times)),
            _ => self.estimate(candidate),
        };
        let raced: Vec<usize> = self.race.iter().map(|(c, _)| *c).filter(|&c| time(c).is_some()).collect();
        let pool = if raced.is_empty() { &self.measured } else { &raced };
        let most = self.estimate(0).map_or(f64::INFINITY, |default| default * (1.0 - MIN_GAIN));
        let fastest = pool
            .iter()
            .filter(|&&candidate| candidate == 0 || self.estimate(candidate).is_some_and(|us| us <= most))
            .filter_map(|&candidate| Some((candidate, time(candidate)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let winner = match (fastest, time(0)) {
            (Some((_, us)), Some(default)) if us > default * (1.0 - MIN_GAIN) => Some(0),
            (fastest, _) => fastest.map(|(candidate, _)| candidate),
        };
        Found { winner, trials: self.trials, measured: self.measured }
    }
}

/// Returns the median of the times, or infinity if the list is empty.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::INFINITY,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
