//! Searching a space for its fastest configuration, apart from how one is measured.
//!
//! It descends from the default, then times the candidates of which a model of all times expects most, then races the best
//! and the default.
//!
//! Guarantees: the first candidate, the heuristic default, is measured first and is among those the winner is chosen
//! from. A search requests at most the limit of timings, where a second timing of a candidate counts again. A
//! candidate that could not be used never wins and is not measured again. A search requests the same candidates
//! whenever it gets the same answers. Another than the default wins only if it takes [`LEAST_GAIN`] less, in
//! the last race and by all timings.
//!
//! ```
//! use warpsmith_tuner::search::{CandidateResult, Objective, Points, search};
//!
//! /// Blocks of 256 take the least time.
//! struct Model(Vec<f64>);
//! impl Objective for Model {
//!     fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult> {
//!         candidates.iter().map(|&candidate| CandidateResult::Times(vec![self.0[candidate]; rounds])).collect()
//!     }
//! }
//!
//! let blocks = ["block=64", "block=128", "block=256", "block=512"].map(|text| text.parse().unwrap());
//! let found = search(&Points::of(&blocks), &[], 8, &mut Model(vec![10.0, 9.0, 7.0, 8.0]));
//! assert_eq!((found.winner, found.timings <= 8), (Some(2), true));
//! ```

mod descent;
mod points;
mod session;
mod surrogate;

pub use points::Points;
use session::Session;
pub(crate) use session::median;
use surrogate::Surrogate;

/// The gain over the default, as a share of its time, that another configuration needs to win: 0.5 %.
pub const LEAST_GAIN: f64 = 0.005;

/// The timings of a search unless a limit is given.
pub const USUAL_TIMINGS: usize = 32;

/// Candidates in the last race, the default among them.
const RACERS: usize = 3;
/// Their rounds.
const ROUNDS: usize = 2;
/// Candidates within this share of the best take part.
const NEAR: f64 = 0.03;
/// No more candidates are tried when none is expected to gain this share of the time.
const LEAST_EXPECTED: f64 = 0.0001;

/// The outcome of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum CandidateResult {
    /// Its time in each of the requested rounds, in any unit. Fewer than requested where the run was ended.
    Times(Vec<f64>),
    /// It is wrong, failed or crashed.
    Unusable,
}

/// Measures candidates.
pub trait Objective {
    /// Times each candidate `rounds` times, each once before any of them once more: A B C C B A. The answers are in the
    /// order of the candidates.
    fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult>;

    /// Whether the search should end with what there is.
    fn is_ended(&self) -> bool {
        false
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The fastest candidate; the first one unless another is [`LEAST_GAIN`] faster. `None` if none could be used.
    pub winner: Option<usize>,
    /// The timings that were made.
    pub timings: usize,
    /// Candidates that were measured, in order, each once.
    pub measured: Vec<usize>,
}

/// Looks for the fastest of the candidates, of which the first is the default. `hints` are candidates that were good for
/// something similar: they are measured right after it. At least the default is timed, and at most `most` timings are made.
pub fn search(points: &Points, hints: &[usize], most: usize, objective: &mut dyn Objective) -> Found {
    if points.is_empty() {
        return Found { winner: None, timings: 0, measured: Vec::new() };
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

/// Descends from the best so far, then times what the model expects most, and descends from there if it is better. Leaves
/// timings for the race.
fn try_candidates(session: &mut Session<'_>) {
    let reserve = (RACERS * ROUNDS).min(session.left() / 4);
    let start = session.ranking().first().map_or(0, |&(candidate, _)| candidate);
    descent::descend(session, start, reserve + 1);
    let mut reach = Vec::new();
    while session.left() > reserve {
        let ranking = session.ranking();
        let best = ranking.first().map_or(f64::INFINITY, |&(_, best)| best);
        let Some(next) = most_expected(session, &ranking, &mut reach) else { break };
        if session.time(next).is_some_and(|us| us < best) {
            descent::descend(session, next, reserve + 1);
        }
    }
}

/// The new candidate that the model expects to gain most; without a model, one that differs least from the default.
fn most_expected(session: &Session<'_>, ranking: &[(usize, f64)], reach: &mut Vec<usize>) -> Option<usize> {
    let model = Surrogate::fit(session.points, ranking, reach);
    let (Some(model), Some(&(_, best))) = (model, ranking.first()) else {
        return session.new_ones().min_by_key(|&candidate| session.points.differences(0, candidate));
    };
    let expected = session.new_ones().map(|c| (c, model.improvement(c, best.ln())));
    let (candidate, gain) = expected.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (gain > LEAST_EXPECTED).then_some(candidate)
}

/// Times the best and the default in turn, while there are timings left.
fn race(session: &mut Session<'_>) {
    let ranking = session.ranking();
    let Some(&(_, least)) = ranking.first() else { return };
    let mut racers: Vec<usize> =
        ranking.iter().filter(|r| r.1 <= least * (1.0 + NEAR)).map(|r| r.0).collect();
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
