//! What gives the samples that `compare` takes in turns: configurations in this process, or another process.
//!
//! Guarantees: a side remembers whether the device's clock stayed low while any of its samples were taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::case::Case;
use crate::compare::Side;
use crate::error::{Error, Result};
use crate::measure::{Entrant, Mode, Stopwatch};
use crate::value::Configuration;
use crate::worker::Remote;

/// Samples that are taken of both sides before one of them is asked for.
const CHUNK: usize = 20;

/// A case whose two sides are sampled in turns in this process.
pub struct Duel<'a> {
    /// What times them.
    pub stopwatch: &'a mut Stopwatch,
    /// What is launched.
    pub case: &'a mut dyn Case,
    /// Their configurations.
    pub sides: [&'a Configuration; 2],
    /// What is timed.
    pub mode: Mode,
    /// Samples that were taken and not asked for yet.
    pub taken: [VecDeque<f64>; 2],
    /// Whether the clock stayed low in any of the timings.
    pub is_throttled: bool,
}

impl Duel<'_> {
    /// The next samples of a side: those of the other that were taken next to them are kept for it.
    pub fn take(&mut self, side: usize, samples: usize) -> Result<Vec<f64>> {
        while self.taken[side].len() < samples {
            let entrants =
                self.sides.map(|configuration| Entrant { case: 0, configuration, mode: self.mode });
            let timings = self.stopwatch.interleave(&mut [&mut *self.case], &entrants, CHUNK)?;
            for (taken, timing) in self.taken.iter_mut().zip(timings) {
                self.is_throttled |= timing.throttled;
                taken.extend(timing.samples_us);
            }
        }
        Ok(self.taken[side].drain(..samples).collect())
    }
}

/// One side of a duel, by its place.
pub struct DuelSide<'a, 'b>(pub &'a RefCell<Duel<'b>>, pub usize);

impl Side for DuelSide<'_, '_> {
    fn take(&mut self, samples: usize) -> Result<Vec<f64>> {
        self.0.borrow_mut().take(self.1, samples)
    }

    fn is_throttled(&self) -> bool {
        // Both are taken in turns: a clock is low for both.
        self.0.borrow().is_throttled
    }
}

/// A side that another process measures.
pub struct RemoteSide {
    /// The process.
    pub remote: Remote,
    /// What the case is called.
    pub case: String,
    /// How it is launched.
    pub configuration: Configuration,
    /// Launches in a sample of both sides.
    pub launches: Rc<Cell<Option<u32>>>,
    /// Whether the clock stayed low in any of the timings.
    pub is_throttled: bool,
}

impl Side for RemoteSide {
    fn take(&mut self, samples: usize) -> Result<Vec<f64>> {
        if let Some(launches) = self.launches.get() {
            self.remote.set_launches(launches);
        }
        let measured = self.remote.measure(&self.configuration, Some(samples))?;
        self.launches.set(self.launches.get().or(self.remote.launches()));
        match measured.timing {
            Some(timing) if !timing.samples_us.is_empty() => {
                self.is_throttled |= timing.throttled;
                Ok(timing.samples_us)
            }
            _ => {
                let (case, configuration) = (&self.case, &self.configuration);
                Err(Error::Worker {
                    program: self.remote.program().path.clone(),
                    reason: format!("measured nothing of {case} {configuration}: {}", measured.problem),
                })
            }
        }
    }

    fn is_throttled(&self) -> bool {
        self.is_throttled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use warpsmith_runtime::driver::emulated::EmulatedDriver;
    use warpsmith_runtime::{Device, DeviceBuffer, Stream};

    use super::*;
    use crate::compare::{Change, Contender, Pair, Plan, interleaved};
    use crate::measure::Guard;
    use crate::verify::Check;

    /// Sets bytes, whatever the configuration.
    struct Fill(Stream, DeviceBuffer<u8>);

    impl Case for Fill {
        fn copies(&self) -> usize {
            1
        }
        fn select(&mut self, _: &Configuration) -> Result<()> {
            Ok(())
        }
        fn launch(&mut self, _: usize) -> Result<()> {
            Ok(self.0.memset(&mut self.1, 1)?)
        }
        fn check(&mut self) -> Result<Check> {
            unreachable!("what is compared here was checked before")
        }
    }

    #[test]
    fn rows_of_a_slowed_device_say_so_and_others_do_not() {
        let driver = EmulatedDriver::builder().simulated_time(|_| 200.0).build();
        let mhz = Arc::new(AtomicU32::new(1980));
        let now = Arc::clone(&mhz);
        driver.on_sm_clock(0, move || Some(now.load(Ordering::Relaxed)));
        let stream = Stream::new(&Device::with_driver(driver, 0).unwrap()).unwrap();
        let mut case = Fill(stream.clone(), DeviceBuffer::zeros(&stream, 64).unwrap());
        let mut stopwatch = Stopwatch::new(&stream).unwrap();
        stopwatch.set_guard(Guard { rest: Duration::ZERO, ..Guard::default() });
        let configurations: [Configuration; 2] = ["block=64", "block=128"].map(|text| text.parse().unwrap());
        let mut compared = || {
            let duel = RefCell::new(Duel {
                stopwatch: &mut stopwatch,
                case: &mut case,
                sides: configurations.each_ref(),
                mode: Mode::Cold,
                taken: Default::default(),
                is_throttled: false,
            });
            let (mut old, mut new) = (DuelSide(&duel, 0), DuelSide(&duel, 1));
            let pair = Pair {
                kernel: "fill".to_owned(),
                dtype: "u8".to_owned(),
                n: 64,
                mode: Mode::Cold,
                old: Contender { configuration: configurations[0].clone(), side: &mut old },
                new: Contender { configuration: configurations[1].clone(), side: &mut new },
            };
            let found = interleaved(&mut [pair], &Plan::default()).unwrap();
            let row = &found.rows[0];
            (row.old.throttled, row.new.throttled, row.change, found.notes)
        };
        assert_eq!(compared(), (false, false, Change::Same, Vec::new()));
        mhz.store(1400, Ordering::Relaxed);
        let (old, new, change, notes) = compared();
        assert_eq!(change, Change::Ambiguous);
        assert!(old && new && notes.len() == 1 && notes[0].contains("clocks were low"), "{notes:?}");
    }
}
