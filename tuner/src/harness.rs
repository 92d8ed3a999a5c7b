//! [`Harness`]: checks and times the configurations of a plan.
//!
//! `bench` and `tune` measure only through this type. A run uses one stream and one stopwatch. The stopwatch also times
//! the probes: at the start and end of every case, and after every [`EVERY`] timings in between. All timings of a case
//! use the same number of launches per sample as its first timing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warpsmith_runtime::Stream;

use crate::case::Case;
use crate::document::{Measured, Outcome, ProbeResult};
use crate::error::{Error, Result};
use crate::measure::{Effort, Stopwatch};
use crate::probe::{EVERY, Probes};
use crate::run::{Plan, PlannedCase};
use crate::value::Configuration;
use crate::verify::Check;

/// Measures cases one after another. Nothing is allocated before the first measurement.
pub(crate) struct Harness<'a> {
    plan: &'a Plan<'a>,
    has_probes: bool,
    stop: &'a Arc<AtomicBool>,
    instruments: Option<Instruments>,
    ready: Option<Ready>,
    /// Error from a probe. After an error, probes are no longer timed.
    problem: Option<Error>,
}

struct Instruments {
    stream: Stream,
    watch: Stopwatch,
    probes: Probes,
}

/// A case that has been prepared, with the checks of its configurations.
struct Ready {
    case: Box<dyn Case>,
    effort: Effort,
    checked: HashMap<Configuration, Check>,
    /// Number of timings since the probes were last timed.
    since: usize,
}

impl<'a> Harness<'a> {
    /// Creates a harness, which also times the probes of the suite if `has_probes` is true. Timings end as soon as
    /// `stop` is set.
    pub fn new(plan: &'a Plan<'a>, has_probes: bool, stop: &'a Arc<AtomicBool>) -> Self {
        Self { plan, has_probes, stop, instruments: None, ready: None, problem: None }
    }

    /// Frees the prepared case, if any. If `is_probed` is true, first times the probes of the case once more.
    pub fn close(&mut self, planned: &PlannedCase<'_>, is_probed: bool) {
        if self.ready.take().is_some() && is_probed {
            self.probe(planned);
        }
        self.instruments.take_if(|instruments| instruments.stream.device().is_lost());
    }

    /// Returns the time, in microseconds, that the probes would need for the work of a case, according to their latest
    /// timings.
    pub fn limit_us(&self, planned: &PlannedCase<'_>) -> Option<f64> {
        self.instruments.as_ref()?.probes.limit_us(&planned.work)
    }

    /// Returns the results of the probes.
    pub fn reached(&self) -> Vec<ProbeResult> {
        self.instruments.as_ref().map_or_else(Vec::new, |instruments| instruments.probes.results())
    }

    /// Takes the error that a probe returned, if any.
    pub fn problem(&mut self) -> Option<Error> {
        self.problem.take()
    }

    /// Waits for all work on the stream.
    ///
    /// # Errors
    /// Returns an error if the device is lost.
    pub fn synchronize(&self) -> Result<()> {
        self.instruments.as_ref().map_or(Ok(()), |instruments| Ok(instruments.stream.synchronize()?))
    }

    /// Checks a configuration, unless it has already been checked. If the configuration is correct, times it and then
    /// checks it once more. A configuration that is rejected or fails is an outcome rather than an error. If the device
    /// is lost, the outcome is [`Outcome::Crashed`].
    ///
    /// # Errors
    /// Returns an error if the case cannot be prepared.
    pub fn measure(&mut self, planned: &PlannedCase<'_>, configuration: &Configuration) -> Result<Measured> {
        self.open(planned)?;
        if self.ready.as_ref().is_some_and(|ready| ready.since >= EVERY) {
            self.probe(planned);
        }
        Ok(self.outcome_of(|instruments, ready, plan| {
            ready.since += 1;
            let known = ready.checked.get(configuration).copied();
            let check = match known {
                Some(check) => check,
                None => {
                    ready.case.select(configuration)?;
                    ready.check(configuration)?
                }
            };
            if !check.correct() {
                return Ok(found(check, "", plan.seed()));
            }
            let case = &mut *ready.case;
            let timing = instruments.watch.time(case, configuration, plan.mode(), ready.effort)?;
            ready.effort.launches.get_or_insert(timing.launches_per_sample);
            // Work that is still queued can fail. In this case, the failure belongs to this configuration.
            instruments.stream.synchronize()?;
            if known.is_none() {
                // The check is repeated, because a configuration may be correct only in its first launch.
                let after = ready.check(configuration)?;
                if !after.correct() {
                    return Ok(found(after, "after it was timed: ", plan.seed()));
                }
            }
            Ok(Measured { timing: Some(timing), ..found(check, "", plan.seed()) })
        }))
    }

    /// Checks a configuration without timing it, even if it has already been checked.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::measure`].
    pub fn check_again(
        &mut self,
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
    ) -> Result<Measured> {
        self.open(planned)?;
        Ok(self.outcome_of(|_, ready, plan| {
            ready.case.select(configuration)?;
            Ok(found(ready.check(configuration)?, "", plan.seed()))
        }))
    }

    fn outcome_of(
        &mut self,
        work: impl FnOnce(&mut Instruments, &mut Ready, &Plan<'_>) -> Result<Measured>,
    ) -> Measured {
        let result = match (&mut self.instruments, &mut self.ready) {
            (Some(instruments), Some(ready)) => work(instruments, ready, self.plan),
            _ => Err(Error::NothingSelected),
        };
        result.unwrap_or_else(|error| {
            let outcome = if self.plan.device().is_lost() { Outcome::Crashed } else { Outcome::Failed };
            Measured { outcome, problem: error.to_string(), max_error: None, timing: None }
        })
    }

    /// Times the probes of a case. After a failure, no further probe is timed.
    fn probe(&mut self, planned: &PlannedCase<'_>) {
        let Some(Instruments { watch, probes, .. }) = &mut self.instruments else { return };
        if let Err(error) = probes.time(&planned.work, watch, self.plan.effort()) {
            probes.release();
            self.problem = Some(error);
        }
        if let Some(ready) = &mut self.ready {
            ready.since = 0;
        }
    }

    /// Prepares a case, unless it has already been prepared. If the case needs the memory of the probes, the probes are
    /// freed.
    fn open(&mut self, planned: &PlannedCase<'_>) -> Result<()> {
        if self.ready.is_some() {
            return Ok(());
        }
        if self.instruments.is_none() {
            let stream = Stream::new(self.plan.device())?;
            let mut watch = Stopwatch::new(&stream)?;
            watch.set_stop(self.stop);
            let mut probes = Probes::none();
            if self.has_probes {
                match Probes::new(self.plan.suite(), &stream) {
                    Ok(made) => probes = made,
                    Err(error) => self.problem = Some(error),
                }
            }
            self.instruments = Some(Instruments { stream, watch, probes });
        }
        let Some(Instruments { stream, probes, .. }) = &mut self.instruments else { return Ok(()) };
        let case = match planned.prepare(stream, self.plan.seed()) {
            Err(_) if probes.release() => planned.prepare(stream, self.plan.seed())?,
            prepared => prepared?,
        };
        let effort = self.plan.effort();
        self.ready = Some(Ready { case, effort, checked: HashMap::new(), since: EVERY });
        Ok(())
    }
}

impl Ready {
    /// Checks the selected configuration.
    fn check(&mut self, configuration: &Configuration) -> Result<Check> {
        let check = self.case.check()?;
        self.checked.insert(configuration.clone(), check);
        Ok(check)
    }
}

/// Converts a check to a measurement result. The message of a problem starts with `when` and names the seed.
fn found(check: Check, when: &str, seed: u64) -> Measured {
    Measured {
        outcome: if check.correct() { Outcome::Correct } else { Outcome::Incorrect },
        problem: check
            .problem()
            .map_or_else(String::new, |problem| format!("{when}{problem} (--seed {seed})")),
        max_error: Some(check.max_error).filter(|error| error.is_finite()),
        timing: None,
    }
}
