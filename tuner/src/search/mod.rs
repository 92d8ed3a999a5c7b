//! Searching a space for its fastest configuration, apart from how one is measured.
//!
//! Guarantees: the first candidate, the heuristic default, is measured first and is among those the winner is chosen
//! from. A search requests at most the limit of timings, where a second timing of a candidate counts again. A
//! candidate that could not be used never wins and is not measured again. A search requests the same candidates
//! whenever it gets the same answers. Another than the default wins only if it takes [`LEAST_GAIN`] less, in
//! the last race and by all timings.
//!
//! ```
//! use warpsmith_tuner::search::{Objective, Points, CandidateResult, Strategy, search};
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
//! let found = search(
//!     &Points::of(&blocks),
//!     &[],
//!     Strategy::Auto,
//!     Some(8),
//!     1,
//!     &mut Model(vec![10.0, 9.0, 7.0, 8.0]),
//! );
//! assert_eq!((found.winner, found.timings <= 8), (Some(2), true));
//! ```

mod auto;
mod descent;
mod points;
mod session;
mod surrogate;

pub use points::Points;
use session::Session;
pub(crate) use session::median;

/// The gain over the default, as a share of its time, that another configuration needs to win: 0.5 %.
pub const LEAST_GAIN: f64 = 0.005;

/// The timings that [`Strategy::Auto`] makes when nothing limits it.
pub const USUAL_TIMINGS: usize = 32;

/// How candidates are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "command", derive(clap::ValueEnum))]
pub enum Strategy {
    /// A descent from the default, then the candidates of which a model of all times expects most, then a race of the best
    /// and the default: 32 timings unless a limit is given
    #[default]
    Auto,
    /// Every candidate once, in order
    Exhaustive,
    /// Candidates in a random order, each once
    Random,
}

impl Strategy {
    /// All of them, the default first.
    pub const ALL: [Strategy; 3] = [Strategy::Auto, Strategy::Exhaustive, Strategy::Random];
}

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
/// something similar: they are measured right after it. At least the default is timed, and at most `most` timings are made
/// ([`USUAL_TIMINGS`] of [`Strategy::Auto`] and unlimited of the others if absent).
pub fn search(
    points: &Points,
    hints: &[usize],
    strategy: Strategy,
    most: Option<usize>,
    seed: u64,
    objective: &mut dyn Objective,
) -> Found {
    if points.is_empty() {
        return Found { winner: None, timings: 0, measured: Vec::new() };
    }
    let most = most.or((strategy == Strategy::Auto).then_some(USUAL_TIMINGS));
    let mut session = Session::new(points, most.unwrap_or(usize::MAX), objective);
    session.time(0);
    for &hint in hints.iter().filter(|&&hint| hint < points.len()) {
        session.time_once(hint);
    }
    match strategy {
        Strategy::Auto => auto::run(&mut session),
        Strategy::Exhaustive => {
            for candidate in 1..points.len() {
                session.time_once(candidate);
            }
        }
        Strategy::Random => {
            let mut candidates: Vec<usize> = (1..points.len()).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut candidates);
            for candidate in candidates {
                session.time_once(candidate);
            }
        }
    }
    session.found()
}
