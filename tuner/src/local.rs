//! [`Local`]: checks and times configurations of a case in this process, with the [`Instruments`] of the run.
//!
//! Guarantees: `bench`, `tune` and workers measure with this and nothing else. A run has one stream and one stopwatch, on
//! which its probes are timed, too, at the start and the end of every case and after every [`EVERY`] timings between: what
//! one command says of a configuration, another says, as far as the device does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use warpsmith_runtime::{Device, Stream};

use crate::benchmark::{Suite, Work};
use crate::case::Case;
use crate::document::{Outcome, ProbeResult};
use crate::error::{Error, Result};
use crate::measure::{Effort, Mode, Stopwatch};
use crate::probe::{EVERY, Probes};
use crate::run::{PlannedCase, seed};
use crate::value::Configuration;
use crate::verify::Check;
use crate::worker::Measured;

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
    /// Without probes, on a stream of their own. Timings end once `stop` is set.
    pub fn new(device: &Device, stop: &Arc<AtomicBool>) -> Result<Self> {
        let stream = Stream::new(device)?;
        let mut watch = Stopwatch::new(&stream)?;
        watch.set_stop(stop);
        Ok(Self { stream, watch, probes: Probes::none(), since: None, problem: None })
    }

    /// With the probes of a suite, if they can be made.
    pub fn with_probes(mut self, suite: &Suite) -> Self {
        match Probes::new(suite, &self.stream) {
            Ok(probes) => self.probes = probes,
            Err(error) => self.problem = Some(error),
        }
        self
    }

    /// The stream that all cases are on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Where they measure.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Timings from now on are of another case.
    pub fn begin_case(&mut self) {
        self.watch.begin_case();
        self.since = None;
    }

    /// A timing of `work` follows: times its probes before it, if it is time to.
    pub fn count(&mut self, work: &Work, effort: Effort) {
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

    /// What went wrong with the probes; told once.
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
        Ok(Self::new(instruments, case, planned.work, mode, effort))
    }

    /// Of a case on the instruments' stream.
    pub fn new(
        mut instruments: Instruments,
        case: Box<dyn Case>,
        work: Work,
        mode: Mode,
        effort: Effort,
    ) -> Self {
        instruments.begin_case();
        Self { instruments, case, work, mode, effort, checked: HashMap::new() }
    }

    /// How long configurations are timed.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Takes samples of so many launches from now on.
    pub fn set_launches(&mut self, launches: u32) {
        self.instruments.watch.begin_case_with(self.mode, launches);
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
    pub fn measure(&mut self, configuration: &Configuration, effort: Effort) -> Measured {
        self.instruments.count(&self.work, self.effort);
        self.outcome_of(|local| local.check_and_time(configuration, effort))
    }

    /// Checks a configuration, whether that was done or not, and times nothing.
    pub fn check_again(&mut self, configuration: &Configuration) -> Measured {
        self.outcome_of(|local| {
            local.case.select(configuration)?;
            Ok(found(local.check(configuration)?, ""))
        })
    }

    fn outcome_of(&mut self, work: impl FnOnce(&mut Self) -> Result<Measured>) -> Measured {
        let started = Instant::now();
        let result = work(self);
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(measured) => Measured { seconds, ..measured },
            Err(error) => {
                let is_lost = self.instruments.device().is_lost();
                let outcome = if is_lost { Outcome::Crashed } else { Outcome::Failed };
                Measured { outcome, problem: error.to_string(), max_error: None, timing: None, seconds }
            }
        }
    }

    /// Checks what is selected.
    fn check(&mut self, configuration: &Configuration) -> Result<Check> {
        let check = self.case.check()?;
        self.checked.insert(configuration.clone(), check);
        Ok(check)
    }

    fn check_and_time(&mut self, configuration: &Configuration, effort: Effort) -> Result<Measured> {
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
        let timing = self.instruments.watch.time(&mut *self.case, configuration, self.mode, effort)?;
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
        seconds: 0.0,
    }
}
