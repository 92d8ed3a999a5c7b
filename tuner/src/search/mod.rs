//! Searches a space for its fastest configuration, regardless of how configurations are measured.
//!
//! The search first descends from the default. It then times the candidates for which a model, fitted to all times so
//! far, predicts the largest gain. Finally, the best candidates race against each other and the default.
//!
//! The first candidate, which is the heuristic default, is measured first, and the winner is selected from a set that
//! includes it. A search requests no more trials than the limit, including repeated trials of the same candidate. An
//! unusable candidate never wins and is not measured again. The search is deterministic: if the results are the same,
//! the requests are the same. A candidate other than the default wins only if it is faster than the default by
//! [`MIN_GAIN`], both in the last race and according to all trials.
//!
//! ```
//! use warpsmith_tuner::search::{CandidateResult, Objective, Points, search};
//!
//! /// Blocks of 256 take the minimum time.
//! struct Model(Vec<f64>);
//! impl Objective for Model {
//!     fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult> {
//!         candidates.iter().map(|&candidate| CandidateResult::Times(vec![self.0[candidate]; rounds])).collect()
//!     }
//! }
//!
//! let blocks = ["block=64", "block=128", "block=256", "block=512"].map(|text| text.parse().unwrap());
//! let found = search(&Points::of(&blocks), &[], 8, &mut Model(vec![10.0, 9.0, 7.0, 8.0]));
//! assert_eq!((found.winner, found.trials <= 8), (Some(2), true));
//! ```

mod descent;
mod points;
mod session;
mod surrogate;

pub use points::Points;
use session::Session;
pub(crate) use session::median;
use surrogate::Surrogate;

/// Minimum gain over the default that a candidate needs to win, as a fraction of the default's time: 0.5 %.
pub const MIN_GAIN: f64 = 0.005;

/// Default limit on the number of trials in a search.
pub const USUAL_TRIALS: usize = 32;

/// Number of candidates in the last race, including the default.
const RACERS: usize = 3;
/// Number of rounds in the last race.
const ROUNDS: usize = 2;
/// A candidate takes part in the race if its time is within this fraction of the best time.
const NEAR: f64 = 0.03;
/// The search stops trying candidates when no candidate has an expected gain of at least this fraction of the time.
const MIN_EXPECTED: f64 = 0.0001;

/// Outcome of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum CandidateResult {
    /// Times of the requested rounds, in any unit. There are fewer times than rounds if the run was stopped early.
    Times(Vec<f64>),
    /// The result was incorrect, or the launch failed or crashed.
    Unusable,
}

/// Measures candidates.
pub trait Objective {
    /// Times each candidate in `rounds` rounds of alternating order (A B C C B A). The results are in the order of the
    /// candidates.
    fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult>;

    /// Returns true if the search must end with the results obtained so far.
    fn is_ended(&self) -> bool {
        false
    }
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Fastest candidate. The winner is the first candidate, unless another one is faster by [`MIN_GAIN`]. `None` if no
    /// candidate was usable.
    pub winner: Option<usize>,
    /// Number of trials.
    pub trials: usize,
    /// Candidates that have been measured, in order and without repetitions.
    pub measured: Vec<usize>,
}

/// Searches for the fastest candidate; the first candidate is the default. `hints` are candidates that were good in a
/// similar case; they are measured directly after the default. At least the default is timed, and no more than `most`
/// trials are requested.
pub fn search(points: &Points, hints: &[usize], most: usize, objective: &mut dyn Objective) -> Found {
    if points.is_empty() {
        return Found { winner: None, trials: 0, measured: Vec::new() };
    }
    let mut session = Session::new(points, most, objective);
    session.time(0);
    for &hint in hints.iter().filter(|&&hint| hint < points.len()) {
        session.time_once(hint);
    }
    try_candidates(&mut session);
    race(&mut session);
    session.found()
}

/// Descends from the best candidate found so far. After that, repeatedly times the candidate with the largest expected
/// gain, and descends from it if it is better. Reserves trials for the race.
fn try_candidates(session: &mut Session<'_>) {
    let reserve = (RACERS * ROUNDS).min(session.left() / 4);
    let start = session.ranking().first().map_or(0, |&(candidate, _)| candidate);
    descent::descend(session, start, reserve + 1);
    let mut reach = Vec::new();
    while session.left() > reserve {
        let ranking = session.ranking();
        let best = ranking.first().map_or(f64::INFINITY, |&(_, best)| best);
        let Some(next) = max_expected(session, &ranking, &mut reach) else { break };
        if session.time(next).is_some_and(|us| us < best) {
            descent::descend(session, next, reserve + 1);
        }
    }
}

/// Returns the unmeasured candidate with the largest expected gain. Without a model, returns an unmeasured candidate
/// that differs from the default as little as possible.
fn max_expected(session: &Session<'_>, ranking: &[(usize, f64)], reach: &mut Vec<usize>) -> Option<usize> {
    let model = Surrogate::fit(session.points, ranking, reach);
    let (Some(model), Some(&(_, best))) = (model, ranking.first()) else {
        return session.new_ones().min_by_key(|&candidate| session.points.differences(0, candidate));
    };
    let expected = session.new_ones().map(|c| (c, model.improvement(c, best.ln())));
    let (candidate, gain) = expected.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (gain > MIN_EXPECTED).then_some(candidate)
}

/// Times the best candidates and the default in alternation, as long as trials are left.
fn race(session: &mut Session<'_>) {
    let ranking = session.ranking();
    let Some(&(_, minimum)) = ranking.first() else { return };
    let mut racers: Vec<usize> =
        ranking.iter().filter(|r| r.1 <= minimum * (1.0 + NEAR)).map(|r| r.0).collect();
    racers.truncate(RACERS);
    if !racers.contains(&0) && session.estimate(0).is_some() {
        racers.truncate(RACERS - 1);
        racers.push(0);
    }
    if racers.len() < 2 {
        return;
    }
    let rounds = (session.left() / racers.len()).min(ROUNDS);
    if rounds > 0 {
        session.race(&racers, rounds);
    }
}
