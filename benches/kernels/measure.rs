//! Times a case. All sides are interleaved in the same loop, after each of them has been checked.

use warpsmith::prelude::*;

use crate::cases::Case;
use crate::check::check;
use crate::data::Data;
use crate::ours::Operand;
use crate::peers::{Libraries, Peer};

type Failure = Box<dyn std::error::Error>;

/// Approximate duration of a batch.
const BATCH_US: f64 = 2000.0;
/// Number of batches per side.
const BATCHES: usize = 15;

/// Median times in microseconds per launch; `None` for a side that does not exist.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Times {
    pub ours: Option<f64>,
    pub cub: Option<f64>,
    /// Error in CUB's result.
    pub cub_fault: Option<String>,
}

/// Implementation that is timed.
enum Side {
    Ours,
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
            Side::Ours => match T::launch(self.stream, self.case, &mut self.data, set) {
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
    let mut sides = vec![Side::Ours];
    bench.check(&sides[0])?;
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
            Side::Ours => times.ours = Some(median),
        }
    }
    Ok(times)
}
