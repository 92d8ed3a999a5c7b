//! [`Local`]: checks and times configurations of a case in this process.

use std::collections::HashMap;
use std::time::Instant;

use warpsmith_runtime::Stream;

use crate::case::Case;
use crate::document::Outcome;
use crate::error::Result;
use crate::measure::{Effort, Entrant, Mode, Stopwatch, Timing};
use crate::value::Configuration;
use crate::verify::Check;
use crate::worker::Measured;

/// A case that is ready, and what its configurations were found to be.
pub(crate) struct Local {
    stream: Stream,
    watch: Stopwatch,
    case: Box<dyn Case>,
    mode: Mode,
    effort: Effort,
    checked: HashMap<Configuration, Check>,
}

impl Local {
    pub fn new(
        stream: Stream,
        mut watch: Stopwatch,
        case: Box<dyn Case>,
        mode: Mode,
        effort: Effort,
    ) -> Self {
        watch.begin_case();
        Self { stream, watch, case, mode, effort, checked: HashMap::new() }
    }

    /// How long configurations are timed.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Takes samples of so many launches from now on.
    pub fn set_launches(&mut self, launches: u32) {
        self.watch.begin_case_with(self.mode, launches);
    }

    /// Stream and stopwatch, for another case on the same device; `None` if that is lost.
    pub fn into_stopwatch(self) -> Option<(Stream, Stopwatch)> {
        let is_lost = self.stream.device().is_lost();
        (!is_lost).then_some((self.stream, self.watch))
    }

    /// Checks a configuration unless that was done, times it if it is correct, and checks it once more. What goes wrong is the configuration's
    /// outcome: [`Outcome::Crashed`] if the device is lost.
    pub fn measure(&mut self, configuration: &Configuration, effort: Effort) -> Measured {
        let started = Instant::now();
        let result = self.check_and_time(configuration, effort);
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(measured) => Measured { seconds, ..measured },
            Err(error) => {
                let is_lost = self.stream.device().is_lost();
                let outcome = if is_lost { Outcome::Crashed } else { Outcome::Failed };
                Measured { outcome, problem: error.to_string(), max_error: None, timing: None, seconds }
            }
        }
    }

    /// Times configurations that were found to be right by samples taken in turns; the slowest of them takes about so many
    /// microseconds. `None` if one of them fails, or none was taken.
    pub fn in_turns(&mut self, configurations: &[&Configuration], slowest_us: f64) -> Option<Vec<Measured>> {
        let started = Instant::now();
        if configurations.iter().any(|c| !self.checked.get(*c).is_some_and(Check::correct)) {
            return None;
        }
        let Effort { least, most, budget_us, .. } = self.effort;
        let rounds = ((budget_us / slowest_us.max(1.0)) as usize).clamp(least.max(1), most.max(least).max(1));
        let mode = self.mode;
        let entrants: Vec<Entrant<'_>> =
            configurations.iter().map(|configuration| Entrant { case: 0, configuration, mode }).collect();
        let timings = self.watch.interleave(&mut [&mut *self.case], &entrants, rounds).ok()?;
        self.stream.synchronize().ok()?;
        let seconds = started.elapsed().as_secs_f64() / configurations.len() as f64;
        let measured = |(configuration, timing): (&&Configuration, Timing)| {
            let check = self.checked.get(*configuration)?;
            let max_error = Some(check.max_error).filter(|error| error.is_finite());
            let is_timed = !timing.samples_us.is_empty();
            let (outcome, problem, timing) = (Outcome::Correct, String::new(), Some(timing));
            is_timed.then_some(Measured { outcome, problem, max_error, timing, seconds })
        };
        configurations.iter().zip(timings).map(measured).collect()
    }

    fn check_and_time(&mut self, configuration: &Configuration, effort: Effort) -> Result<Measured> {
        let is_new = !self.checked.contains_key(configuration);
        let check = match self.checked.get(configuration) {
            Some(check) => *check,
            None => {
                self.case.select(configuration)?;
                let check = self.case.check()?;
                self.checked.insert(configuration.clone(), check);
                check
            }
        };
        let max_error = Some(check.max_error).filter(|error| error.is_finite());
        let problem = check.problem().unwrap_or_default();
        if !check.correct() {
            let outcome = Outcome::Wrong;
            return Ok(Measured { outcome, problem, max_error, timing: None, seconds: 0.0 });
        }
        let timing = self.watch.time(&mut *self.case, configuration, self.mode, effort)?;
        // Work that is still queued may fail; then it is this configuration that did.
        self.stream.synchronize()?;
        if is_new {
            // Its first launch may be right alone.
            let check = self.case.check()?;
            self.checked.insert(configuration.clone(), check);
            if !check.correct() {
                let problem = format!("after it was timed: {}", check.problem().unwrap_or_default());
                let max_error = Some(check.max_error).filter(|error| error.is_finite());
                return Ok(Measured {
                    outcome: Outcome::Wrong,
                    problem,
                    max_error,
                    timing: None,
                    seconds: 0.0,
                });
            }
        }
        let outcome = Outcome::Correct;
        Ok(Measured { outcome, problem, max_error, timing: Some(timing), seconds: 0.0 })
    }
}
