//! [`Session`]: what a search knows so far, and the budget it has left.

use super::{Budget, Found, LEAST_GAIN, Objective, Points, Seen};

/// What is known of a candidate.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    Nothing,
    Times(Vec<f64>),
    Unusable,
}

/// One search.
pub struct Session<'a> {
    pub points: &'a Points,
    objective: &'a mut dyn Objective,
    budget: Budget,
    known: Vec<Known>,
    timings: usize,
    /// Seconds that there were after the first timing.
    first_seconds: f64,
    measured: Vec<usize>,
    /// The candidates of the last race, and the times in it.
    race: Vec<(usize, Vec<f64>)>,
}

impl<'a> Session<'a> {
    pub fn new(points: &'a Points, budget: Budget, objective: &'a mut dyn Objective) -> Self {
        let known = vec![Known::Nothing; points.len()];
        Self {
            points,
            objective,
            budget,
            known,
            timings: 0,
            first_seconds: 0.0,
            measured: Vec::new(),
            race: Vec::new(),
        }
    }

    /// Timings that are left; at least one before the first.
    pub fn left(&self) -> usize {
        if self.objective.is_ended() {
            return 0;
        }
        if self.timings == 0 {
            return self.budget.timings.unwrap_or(usize::MAX).max(1);
        }
        let by_timings =
            self.budget.timings.map_or(usize::MAX, |timings| timings.saturating_sub(self.timings));
        by_timings.min(self.budget.seconds.map_or(usize::MAX, |seconds| self.left_in(seconds)))
    }

    /// How many timings go into what is left of so many seconds, if they take as long as those before.
    fn left_in(&self, seconds: f64) -> usize {
        let spent = self.objective.seconds();
        if spent >= seconds {
            return 0;
        }
        // The first one takes longer: it makes the case ready. While there is no other, one more is tried.
        let (each, least) = match self.timings {
            1 => (spent, 1),
            timings => ((spent - self.first_seconds) / (timings - 1) as f64, 0),
        };
        if each > 0.0 { (((seconds - spent) / each) as usize).max(least) } else { usize::MAX }
    }

    /// The median of a candidate's times so far.
    pub fn estimate(&self, candidate: usize) -> Option<f64> {
        match &self.known[candidate] {
            Known::Times(times) => Some(median(times)),
            Known::Nothing | Known::Unusable => None,
        }
    }

    /// Whether nothing is known of a candidate.
    pub fn is_new(&self, candidate: usize) -> bool {
        self.known[candidate] == Known::Nothing
    }

    /// Candidates of which nothing is known.
    pub fn new_ones(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.points.len()).filter(|&candidate| self.is_new(candidate))
    }

    /// Candidates that were timed, with their times, the fastest first.
    pub fn ranking(&self) -> Vec<(usize, f64)> {
        let timed = self.measured.iter().filter_map(|&c| Some((c, self.estimate(c)?)));
        let mut ranking: Vec<(usize, f64)> = timed.collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }

    /// Times a candidate; its time of all timings so far, if it has one.
    pub fn time(&mut self, candidate: usize) -> Option<f64> {
        self.race(&[candidate], 1);
        self.estimate(candidate)
    }

    /// Times a candidate unless it is known.
    pub fn time_once(&mut self, candidate: usize) -> Option<f64> {
        if self.is_new(candidate) { self.time(candidate) } else { self.estimate(candidate) }
    }

    /// Times candidates in turn, as many as the budget allows and can be used; gives those that were, with their times in
    /// this race, the fastest first.
    pub fn race(&mut self, candidates: &[usize], rounds: usize) -> Vec<(usize, f64)> {
        let usable = candidates.iter().copied().filter(|&c| self.known[c] != Known::Unusable);
        let candidates: Vec<usize> = usable.take(self.left() / rounds.max(1)).collect();
        if candidates.is_empty() {
            return Vec::new();
        }
        let is_first = self.timings == 0;
        let seen = self.objective.measure(&candidates, rounds);
        if is_first {
            self.first_seconds = self.objective.seconds();
        }
        let mut results = Vec::with_capacity(candidates.len());
        for (&candidate, seen) in candidates.iter().zip(seen) {
            if self.is_new(candidate) {
                self.measured.push(candidate);
            }
            match seen {
                Seen::Times(times) if !times.is_empty() => {
                    self.timings += times.len();
                    results.push((candidate, times.clone()));
                    match &mut self.known[candidate] {
                        Known::Times(known) => known.extend(times),
                        known => *known = Known::Times(times),
                    }
                }
                // Ended before its first time.
                Seen::Times(_) => {
                    if self.is_new(candidate) {
                        self.measured.pop();
                    }
                }
                Seen::Unusable => {
                    self.timings += 1;
                    self.known[candidate] = Known::Unusable;
                }
            }
        }
        let mut ranking: Vec<(usize, f64)> = results.iter().map(|(c, times)| (*c, median(times))).collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        if results.len() > 1 {
            self.race = results;
        }
        ranking
    }

    /// The winner. Those that raced last are compared by their times in that race, which were taken in turn; others by all
    /// their times. One that all times do not show to be faster than the default does not win: in a short race one disturbed
    /// timing of the default makes everything look fast.
    pub fn found(self) -> Found {
        let in_race = |candidate: usize| self.race.iter().find(|(c, _)| *c == candidate);
        let time = |candidate: usize| match in_race(candidate) {
            Some((_, times)) if self.known[candidate] != Known::Unusable => Some(median(times)),
            _ => self.estimate(candidate),
        };
        let raced: Vec<usize> = self.race.iter().map(|(c, _)| *c).filter(|&c| time(c).is_some()).collect();
        let pool = if raced.is_empty() { &self.measured } else { &raced };
        let most = self.estimate(0).map_or(f64::INFINITY, |default| default * (1.0 - LEAST_GAIN));
        let fastest = pool
            .iter()
            .filter(|&&candidate| candidate == 0 || self.estimate(candidate).is_some_and(|us| us <= most))
            .filter_map(|&candidate| Some((candidate, time(candidate)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let winner = match (fastest, time(0)) {
            (Some((_, us)), Some(default)) if us > default * (1.0 - LEAST_GAIN) => Some(0),
            (fastest, _) => fastest.map(|(candidate, _)| candidate),
        };
        Found { winner, timings: self.timings, measured: self.measured }
    }
}

/// The median; infinite of nothing.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::INFINITY,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The first timing takes four seconds, every other one; all candidates are as fast.
    #[derive(Default)]
    struct Slow {
        timings: usize,
        is_ended: Cell<bool>,
    }

    impl Objective for Slow {
        fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<Seen> {
            self.timings += candidates.len() * rounds;
            candidates.iter().map(|_| Seen::Times(vec![1.0; rounds])).collect()
        }
        fn seconds(&self) -> f64 {
            if self.timings == 0 { 0.0 } else { 3.0 + self.timings as f64 }
        }
        fn is_ended(&self) -> bool {
            self.is_ended.get()
        }
    }

    fn points() -> Points {
        Points::of(&[0, 1, 2, 3, 4, 5, 6, 7].map(|value| format!("block={value}").parse().unwrap()))
    }

    fn seconds(seconds: f64) -> Budget {
        Budget { timings: None, seconds: Some(seconds) }
    }

    #[test]
    fn seconds_last_for_as_many_timings_as_the_later_ones_took() {
        let (points, mut slow) = (points(), Slow::default());
        let mut session = Session::new(&points, seconds(10.0), &mut slow);
        assert_eq!(session.left(), usize::MAX, "nothing says yet how long a timing takes");
        session.time(0);
        assert_eq!(session.left(), 1, "four of ten seconds, and six are one more of four");
        session.time(1);
        assert_eq!(session.left(), 5, "the second took one");
        assert_eq!(session.race(&[2, 3], 2).len(), 2);
        assert_eq!((session.left(), session.timings), (1, 6));
        assert!(session.race(&[4, 5], 2).is_empty(), "there is not even time for one of them twice");
        session.time(4);
        assert_eq!(session.left(), 0);
        assert_eq!(session.time(5), None);
        assert_eq!((session.found().timings, slow.timings), (7, 7));
    }

    #[test]
    fn one_timing_is_tried_after_a_long_first_one_unless_the_seconds_are_over() {
        for (budget, left) in [(4.5, 1), (4.0, 0), (0.0, 0)] {
            let (points, mut slow) = (points(), Slow::default());
            let mut session = Session::new(&points, seconds(budget), &mut slow);
            session.time(0);
            assert_eq!(session.left(), left, "{budget} s");
        }
    }

    #[test]
    fn the_narrower_of_timings_and_seconds_counts_and_a_search_that_ended_has_none_left() {
        let (points, mut slow) = (points(), Slow::default());
        let budget = Budget { timings: Some(3), ..seconds(10.0) };
        let mut session = Session::new(&points, budget, &mut slow);
        assert_eq!(session.left(), 3);
        session.time(0);
        session.time(1);
        assert_eq!(session.left(), 1, "three timings, of which two were made");
        let (mut slow, budget) = (Slow::default(), Budget { timings: Some(100), ..seconds(10.0) });
        let mut session = Session::new(&points, budget, &mut slow);
        session.time(0);
        session.time(1);
        assert_eq!(session.left(), 5);
        let mut slow = Slow::default();
        slow.is_ended.set(true);
        assert_eq!(Session::new(&points, seconds(10.0), &mut slow).left(), 0);
    }
}
