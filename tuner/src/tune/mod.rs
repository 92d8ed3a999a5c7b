//! A tuning run: searches for the fastest configuration of every kernel, type and size in a plan.
//!
//! Every configuration is checked before it is timed. A configuration that is incorrect, fails or crashes is recorded
//! as such and never wins. The winner is checked once more after all trials. The default is always measured first.
//! After the search, the configuration that launches currently use is also measured; it is replaced only if the winner
//! is faster. The winner is stored in the launch store of the device, where launches look it up. Sizes that share an
//! entry in the store use the winner of the largest size. An interrupted run reports the configurations that it has
//! measured; a trial that was cut short is reported only if the configuration has no other trial. Winners of cases that
//! were not finished are not stored.

mod keep;
mod objective;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::document::{ProbeResult, Record};
use crate::error::{Error, Result};
use crate::harness::Harness;
use crate::run::{Plan, PlannedCase};
use crate::search::{Points, USUAL_TRIALS, search};
use crate::value::Configuration;

use keep::Code;
use objective::Measuring;

/// Options of the search.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// Maximum number of trials per kernel, type and size; `None` means [`USUAL_TRIALS`].
    pub trials: Option<usize>,
    /// True if the probes of the suite are timed together with the cases.
    pub probes: bool,
}

/// Progress event of a tuning run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A configuration was measured.
    Measured {
        /// Case of the configuration.
        case: &'a PlannedCase<'a>,
        /// Record of the configuration with all trials so far.
        record: &'a Record,
        /// Number of trials for the case so far.
        trials: usize,
    },
    /// A case (kernel, type and size) was finished or stopped early.
    Done {
        /// The finished case.
        case: &'a PlannedCase<'a>,
        /// Result of the case.
        tuned: &'a Tuned,
    },
    /// Results of the probes at the end of the run, even if the run is incomplete.
    Probed(&'a [ProbeResult]),
    /// A problem that is reported once, such as a file that cannot be written or a winner that is not stored.
    Note(&'a str),
}

/// Result for one kernel, type and size.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// Records in order. The winner is marked ([`Record::is_winner`]).
    pub records: Vec<Record>,
    /// For each record, the median of its trials' medians, in microseconds; `None` for a record without a time.
    pub medians_us: Vec<Option<f64>>,
    /// Index of the winner in `records`; `None` if no configuration was usable.
    pub winner: Option<usize>,
    /// Number of trials.
    pub made: usize,
    /// True if the search was completed.
    pub is_complete: bool,
}

impl Tuned {
    /// Returns the record of the winner.
    pub fn winner(&self) -> Option<&Record> {
        self.records.get(self.winner?)
    }

    /// Returns the record of the default.
    pub fn default_record(&self) -> Option<&Record> {
        self.records.iter().find(|record| record.is_default)
    }

    /// Returns the speedup of the winner over the default, or `None` if either of them has no time.
    pub fn gain(&self) -> Option<f64> {
        let default = self.records.iter().position(|record| record.is_default)?;
        Some((*self.medians_us.get(default)?)? / self.winner_us()?)
    }

    /// Returns the time of the winner in microseconds.
    pub fn winner_us(&self) -> Option<f64> {
        *self.medians_us.get(self.winner?)?
    }
}

/// Totals of a tuning run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of trials.
    pub made: usize,
    /// Number of winners, from this run or an earlier one, that launches now use. If sizes share a winner, it counts
    /// only once.
    pub kept: usize,
    /// True if the run was stopped early.
    pub interrupted: bool,
}

/// Searches for the fastest configuration of every case in a plan. If `stop` is set, the run ends after the current
/// samples; `each` is called with every event.
///
/// ```
/// use std::sync::Arc;
///
/// use warpsmith_runtime::Device;
/// use warpsmith_tuner::benchmark::Suite;
/// use warpsmith_tuner::measure::{Effort, Mode};
/// use warpsmith_tuner::run::{Plan, Request};
/// use warpsmith_tuner::tune::{Event, Tuning, tune};
///
/// // A program's own benchmarks.
/// let suite = Suite { benchmarks: Vec::new(), left_out: Vec::new(), probes: |_| Ok(Vec::new()) };
/// let kernels = suite.benchmarks.iter().map(|benchmark| benchmark.name().to_owned()).collect();
/// let (dtypes, sizes, axes) = (Vec::new(), vec![1 << 20], Vec::new());
/// let request = Request { kernels, dtypes, sizes, axes, mode: Mode::Cold, effort: Effort::NORMAL, seed: None };
/// let plan = Plan::new(&suite, &Device::open("cpu")?, &request)?;
/// let totals = tune(&plan, &Tuning::default(), &Arc::default(), &mut |event| {
///     if let Event::Done { case, tuned } = event
///         && let Some(winner) = tuned.winner()
///     {
///         println!("{}: {}", case.describe(), winner.configuration);
///     }
/// })?;
/// assert_eq!(totals.made, 0);
/// # Ok::<(), warpsmith_tuner::error::Error>(())
/// ```
///
/// # Errors
/// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors) for the buffers of a case, or [`Error::Lost`]
/// if a configuration crashes the device. `each` has been called with every event that preceded the error.
pub fn tune(
    plan: &Plan<'_>,
    tuning: &Tuning,
    stop: &Arc<AtomicBool>,
    each: &mut dyn FnMut(Event<'_>),
) -> Result<Totals> {
    let mut harness = Harness::new(plan, tuning.probes, stop);
    let totals = all(plan, tuning, stop, &mut harness, each);
    each(Event::Probed(&harness.reached()));
    totals
}

fn all<'p>(
    plan: &'p Plan<'p>,
    tuning: &Tuning,
    stop: &AtomicBool,
    harness: &mut Harness<'p>,
    each: &mut dyn FnMut(Event<'_>),
) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut winners: Vec<(&PlannedCase<'_>, Configuration)> = Vec::new();
    for planned in &plan.cases {
        if stop.load(Ordering::Relaxed) {
            totals.interrupted = true;
            break;
        }
        let code = Code::of(plan.device(), planned.benchmark.image())?;
        let points = Points::of(&planned.configurations);
        let hint = nearest(&winners, planned);
        let kept = keep::kept(plan, planned, &code);
        let mut measuring = Measuring::new(plan, planned, harness, stop, each);
        let found = search(&points, &hint, tuning.trials.unwrap_or(USUAL_TRIALS), &mut measuring);
        let winner = measuring.confirm(found.winner, kept);
        let (tuned, error) = measuring.finish(winner);
        harness.close(planned, error.is_none() && tuned.made > 0);
        if let Some(problem) = harness.problem() {
            each(Event::Note(&format!("probes could not be measured: {problem}")));
        }
        totals.made += tuned.made;
        totals.interrupted |= !tuned.is_complete;
        if let Some(winner) = tuned.winner().filter(|_| tuned.is_complete) {
            winners.push((planned, winner.configuration.clone()));
            match keep::winner(plan, planned, &code, &tuned, kept) {
                Ok(is_kept) => totals.kept += usize::from(is_kept),
                Err(problem) => each(Event::Note(&problem)),
            }
        }
        each(Event::Done { case: planned, tuned: &tuned });
        if let Some(error) = error {
            return Err(error);
        }
    }
    Ok(totals)
}

/// Returns the configuration that won at the nearest size of the same kernel and type, as the index of a candidate of
/// the case.
fn nearest(winners: &[(&PlannedCase<'_>, Configuration)], planned: &PlannedCase<'_>) -> Vec<usize> {
    let same = winners
        .iter()
        .filter(|(case, _)| (case.benchmark.name(), case.dtype) == (planned.benchmark.name(), planned.dtype));
    let near = same.min_by_key(|(case, _)| case.n.max(1).ilog2().abs_diff(planned.n.max(1).ilog2()));
    let place =
        |configuration: &Configuration| planned.configurations.iter().position(|c| c == configuration);
    near.and_then(|(_, configuration)| place(configuration)).into_iter().collect()
}

/// Returns the error for a configuration that has crashed the device of this process.
fn lost(planned: &PlannedCase<'_>, configuration: &Configuration, problem: &str) -> Error {
    Error::Lost {
        case: planned.describe(),
        configuration: configuration.to_string(),
        problem: problem.to_owned(),
    }
}
