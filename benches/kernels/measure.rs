//! Times a case. All sides are interleaved in the same loop, after each of them has been checked.

use warpsmith::ops::{self, Config, GridRule};
use warpsmith::prelude::*;

use crate::cases::Case;
use crate::check::check;
use crate::data::Data;
use crate::ours::{self, Operand, Ours};
use crate::peers::{Libraries, Peer};

type Failure = Box<dyn std::error::Error>;

/// Approximate duration of a batch, which is also used in the search for the best configuration.
const BATCH_US: f64 = 2000.0;
const SEARCH_US: f64 = 400.0;
/// Number of batches per side.
const BATCHES: usize = 15;
/// Number of the fastest configurations from the search that are timed again, with the same batches as the compared
/// sides.
const FINALISTS: usize = 2;

/// Median times in microseconds per launch; `None` for a side that does not exist.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Times {
    pub ours: Option<f64>,
    /// Time in the best configuration, which can be the default.
    pub best: Option<f64>,
    pub best_config: Option<String>,
    /// Time of an equivalent function or operator of a user.
    pub own: Option<f64>,
    pub cub: Option<f64>,
    /// Error in CUB's result.
    pub cub_fault: Option<String>,
}

/// Implementation that is timed.
enum Side {
    Ours(Ours),
    Cub(Peer),
}

/// Sides of a case.
struct Bench<'a, T: Operand> {
    stream: &'a Stream,
    case: &'a Case,
    data: Data<T>,
}

impl<T: Operand> Bench<'_, T> {
    /// Enqueues one launch. Fails if the side does not support it.
    fn launch(&mut self, side: &Side, set: usize) -> Result<(), Failure> {
        match side {
            Side::Cub(peer) => peer.launch(self.stream, self.case, &self.data, set),
            Side::Ours(ours) => match T::launch(self.stream, *ours, self.case, &mut self.data, set) {
                Some(launched) => Ok(launched?),
                None => Err("there is no such operation".into()),
            },
        }
    }

    /// Fails unless the results of a launch are correct.
    fn check(&mut self, side: &Side) -> Result<(), Failure> {
        self.data.reset(self.case)?;
        self.launch(side, 0)?;
        check(self.case, &self.data, matches!(side, Side::Cub(_)))
    }

    /// Returns the average microseconds per launch of several launches between two events.
    fn batch(&mut self, side: &Side, launches: usize) -> Result<f64, Failure> {
        let (start, end) = (Event::timed(self.stream.device())?, Event::timed(self.stream.device())?);
        start.record(self.stream)?;
        for launch in 0..launches {
            self.launch(side, launch % self.data.sets)?;
        }
        end.record(self.stream)?;
        end.synchronize()?;
        Ok(end.elapsed_us(&start)? / launches as f64)
    }

    /// Returns the fastest configurations in short batches.
    fn finalists(&mut self, default_us: f64) -> Result<Vec<Config>, Failure> {
        let Some(kernel) = ours::kernel(self.case.operation) else { return Ok(Vec::new()) };
        let launches = ((SEARCH_US / default_us) as usize).clamp(1, 200);
        let mut timed = Vec::new();
        for variant in ops::variants(kernel, self.case.dtype.name()) {
            for block in [64, 128, 256, 512].into_iter().filter(|block| *block <= variant.max_block) {
                for grid in ["auto", "waves:1", "waves:2", "waves:4", "waves:8"] {
                    let grid: GridRule = grid.parse()?;
                    let config = Config { block, grid, items: variant.items, vector: variant.vector };
                    let side = Side::Ours(Ours::Operation(Some(config)));
                    // Configurations that cannot be launched are skipped.
                    if self.batch(&side, 1).is_ok() {
                        timed.push((self.batch(&side, launches)?, config));
                    }
                }
            }
        }
        timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(timed.into_iter().take(FINALISTS).map(|(_, config)| config).collect())
    }
}

/// Checks and times all sides of a case. Fails if our results are incorrect.
pub fn measure<T: Operand>(
    stream: &Stream,
    case: &Case,
    libraries: Option<&Libraries>,
) -> Result<Times, Failure> {
    let is_emulated = stream.device().is_emulated();
    let mut bench = Bench { stream, case, data: Data::<T>::new(stream, case)? };
    let mut times = Times::default();
    let mut sides = vec![Side::Ours(Ours::Operation(None))];
    bench.check(&sides[0])?;
    if T::launch(stream, Ours::Own, case, &mut bench.data, 0).transpose()?.is_some() {
        sides.push(Side::Ours(Ours::Own));
        bench.check(&sides[1])?;
    }
    let peer = libraries.map(|libraries| libraries.find(stream, case, &bench.data)).transpose()?.flatten();
    if let Some(peer) = peer {
        let side = Side::Cub(peer);
        match bench.launch(&side, 0) {
            Ok(()) => {
                times.cub_fault = bench.check(&side).err().map(|fault| fault.to_string());
                sides.push(side);
            }
            Err(error) => times.cub_fault = Some(error.to_string()),
        }
    }
    bench.batch(&sides[0], 3)?;
    let ours_us = bench.batch(&sides[0], 3)?;
    if !is_emulated {
        let finalists = bench.finalists(ours_us)?;
        sides.extend(finalists.into_iter().map(|config| Side::Ours(Ours::Operation(Some(config)))));
    }
    let mut samples = vec![Vec::new(); sides.len()];
    let mut launches = vec![1; sides.len()];
    for (side, launches) in sides.iter().zip(&mut launches).filter(|_| !is_emulated) {
        bench.batch(side, 3)?;
        *launches = ((BATCH_US / bench.batch(side, 3)?) as usize).clamp(1, 2000);
    }
    for _ in 0..if is_emulated { 1 } else { BATCHES } {
        for (i, side) in sides.iter().enumerate() {
            samples[i].push(bench.batch(side, launches[i])?);
        }
    }
    for (side, mut samples) in sides.iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        let median = samples[samples.len() / 2];
        match side {
            Side::Cub(_) => times.cub = Some(median),
            Side::Ours(Ours::Own) => times.own = Some(median),
            Side::Ours(Ours::Operation(None)) => times.ours = Some(median),
            Side::Ours(Ours::Operation(Some(config))) => {
                if times.best.is_none_or(|best| median < best) {
                    times.best = Some(median);
                    times.best_config = Some(config.to_string());
                }
            }
        }
    }
    if let (Some(best), Some(ours)) = (times.best, times.ours)
        && best >= ours
    {
        (times.best, times.best_config) = (Some(ours), Some("default".to_owned()));
    }
    Ok(times)
}
