//! [`Local`]: checks and times configurations of a case in this process.

use std::collections::HashMap;
use std::time::Instant;

use warpsmith_runtime::Stream;

use crate::case::Case;
use crate::document::Outcome;
use crate::error::Result;
use crate::measure::{Effort, Mode, Stopwatch};
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
    pub fn new(stream: Stream, watch: Stopwatch, case: Box<dyn Case>, mode: Mode, effort: Effort) -> Self {
        Self { stream, watch, case, mode, effort, checked: HashMap::new() }
    }

    /// How long configurations are timed.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Stream and stopwatch, for another case on the same device; `None` if that is lost.
    pub fn into_stopwatch(self) -> Option<(Stream, Stopwatch)> {
        let is_lost = self.stream.device().is_lost();
        (!is_lost).then_some((self.stream, self.watch))
    }

    /// Checks a configuration unless that was done, and times it if it is correct. What goes wrong is the configuration's
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

    fn check_and_time(&mut self, configuration: &Configuration, effort: Effort) -> Result<Measured> {
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
        let outcome = Outcome::Correct;
        Ok(Measured { outcome, problem, max_error, timing: Some(timing), seconds: 0.0 })
    }
}
