//! [`Local`]: checks and times configurations of a case in this process, with the [`Instruments`] of the run.
//!
//! Guarantees: `bench` and `tune` measure with this and nothing else. A run has one stream and one stopwatch, on which its
//! probes are timed, too, at the start and the end of every case and after every [`EVERY`] timings between.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warpsmith_runtime::{Device, Stream};

use crate::benchmark::{Suite, Work};
use crate::case::Case;
use crate::document::{Measured, Outcome, ProbeResult};
use crate::error::{Error, Result};
use crate::measure::{Effort, Mode, Stopwatch};
use crate::probe::{EVERY, Probes};
use crate::run::{PlannedCase, seed};
use crate::value::Configuration;
use crate::verify::Check;

/// What a run measures with.
pub(crate) struct Instruments {
    stream: Stream,
    watch: Stopwatch,
    probes: Probes,
    /// Timings of the case since its probes were timed; none if they were not.
    since: Option<usize>,
    /// What went wrong with the probes, of which there are none any more.
    problem: Option<Error>,
}

impl Instruments {
    /// On a stream of their own, with the probes of a suite, if it is given and they can be made. Timings end once `stop` is
    /// set.
    pub fn new(device: &Device, suite: Option<&Suite>, stop: &Arc<AtomicBool>) -> Result<Self> {
        let stream = Stream::new(device)?;
        let mut watch = Stopwatch::new(&stream)?;
        watch.set_stop(stop);
        let (probes, problem) = match suite.map(|suite| Probes::new(suite, &stream)) {
            Some(Ok(probes)) => (probes, None),
            Some(Err(error)) => (Probes::none(), Some(error)),
            None => (Probes::none(), None),
        };
        Ok(Self { stream, watch, probes, since: None, problem })
    }

    /// Where they measure.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// A timing of `work` follows: times its probes before it, if it is time to.
    fn count(&mut self, work: &Work, effort: Effort) {
        if self.since.is_none_or(|since| since >= EVERY) {
            self.probe(work, effort);
            self.since = Some(0);
        }
        self.since = self.since.map(|since| since + 1);
    }

    /// Times the probes that `work` is held against. When that fails there are no more of them.
    pub fn probe(&mut self, work: &Work, effort: Effort) {
        if let Err(error) = self.probes.time(work, &mut self.watch, effort) {
            self.probes.release();
            self.problem = Some(error);
        }
    }

    /// What the probes need for `work` in microseconds, by their latest times.
    pub fn limit_us(&self, work: &Work) -> Option<f64> {
        self.probes.limit_us(work)
    }

    /// What the probes reached.
    pub fn reached(&self) -> Vec<ProbeResult> {
        self.probes.results()
    }

    /// What went wrong with the probes, once.
    pub fn problem(&mut self) -> Option<Error> {
        self.problem.take()
    }
}

/// A case that is ready, and what its configurations were found to be.
pub(crate) struct Local {
    instruments: Instruments,
    case: Box<dyn Case>,
    work: Work,
    mode: Mode,
    /// With as many launches in a sample as the case's first timing has.
    effort: Effort,
    checked: HashMap<Configuration, Check>,
}

impl Local {
    /// Makes a case ready. Probes give way to what is to be measured.
    pub fn open(
        mut instruments: Instruments,
        planned: &PlannedCase<'_>,
        mode: Mode,
        effort: Effort,
    ) -> Result<Self> {
        let case = match planned.prepare(&instruments.stream, seed()) {
            Err(error) if instruments.probes.release() => {
                drop(error);
                planned.prepare(&instruments.stream, seed())?
            }
            prepared => prepared?,
        };
        instruments.since = None;
        Ok(Self { instruments, case, work: planned.work, mode, effort, checked: HashMap::new() })
    }

    /// What it measures with.
    pub fn instruments(&mut self) -> &mut Instruments {
        &mut self.instruments
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// That of a device that is lost.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.instruments.stream.synchronize()?)
    }

    /// Its instruments, for another case on the same device; `None` if that is lost.
    pub fn into_instruments(self) -> Option<Instruments> {
        let is_lost = self.instruments.device().is_lost();
        (!is_lost).then_some(self.instruments)
    }

    /// Checks a configuration unless that was done, times it if it is correct, and checks it once more. What goes wrong is
    /// the configuration's outcome: [`Outcome::Crashed`] if the device is lost.
    pub fn measure(&mut self, configuration: &Configuration) -> Measured {
        let effort = Effort { launches: None, ..self.effort };
        self.instruments.count(&self.work, effort);
        self.outcome_of(|local| local.check_and_time(configuration))
    }

    /// Checks a configuration, whether that was done or not, and times nothing.
    pub fn check_again(&mut self, configuration: &Configuration) -> Measured {
        self.outcome_of(|local| {
            local.case.select(configuration)?;
            Ok(found(local.check(configuration)?, ""))
        })
    }

    fn outcome_of(&mut self, work: impl FnOnce(&mut Self) -> Result<Measured>) -> Measured {
        work(self).unwrap_or_else(|error| {
            let is_lost = self.instruments.device().is_lost();
            let outcome = if is_lost { Outcome::Crashed } else { Outcome::Failed };
            Measured { outcome, problem: error.to_string(), max_error: None, timing: None, probe_us: None }
        })
    }

    /// Checks what is selected.
    fn check(&mut self, configuration: &Configuration) -> Result<Check> {
        let check = self.case.check()?;
        self.checked.insert(configuration.clone(), check);
        Ok(check)
    }

    fn check_and_time(&mut self, configuration: &Configuration) -> Result<Measured> {
        let known = self.checked.get(configuration).copied();
        let check = match known {
            Some(check) => check,
            None => {
                self.case.select(configuration)?;
                self.check(configuration)?
            }
        };
        if !check.correct() {
            return Ok(found(check, ""));
        }
        let timing = self.instruments.watch.time(&mut *self.case, configuration, self.mode, self.effort)?;
        self.effort.launches.get_or_insert(timing.launches_per_sample);
        // Work that is still queued may fail; then it is this configuration that did.
        self.synchronize()?;
        if known.is_none() {
            // Its first launch may be right alone.
            let after = self.check(configuration)?;
            if !after.correct() {
                return Ok(found(after, "after it was timed: "));
            }
        }
        Ok(Measured { timing: Some(timing), ..found(check, "") })
    }
}

/// What a check says of a configuration; a problem begins with `when`.
fn found(check: Check, when: &str) -> Measured {
    Measured {
        outcome: if check.correct() { Outcome::Correct } else { Outcome::Wrong },
        problem: check.problem().map_or_else(String::new, |problem| format!("{when}{problem}")),
        max_error: Some(check.max_error).filter(|error| error.is_finite()),
        timing: None,
        probe_us: None,
    }
}
