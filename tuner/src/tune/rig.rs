//! [`Rig`]: the instruments of a tuning run, and the case that is ready.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::document::{Measured, ProbeResult};
use crate::error::{Error, Result};
use crate::local::{Instruments, Local};
use crate::run::{Plan, PlannedCase};
use crate::value::Configuration;

/// Measures cases. A case is made ready when the first of its configurations is measured.
pub struct Rig<'a> {
    plan: &'a Plan<'a>,
    probes: bool,
    stop: &'a Arc<AtomicBool>,
    /// Those of the case before, while none is ready.
    idle: Option<Instruments>,
    ready: Option<Local>,
}

impl<'a> Rig<'a> {
    pub fn new(plan: &'a Plan<'a>, probes: bool, stop: &'a Arc<AtomicBool>) -> Self {
        Self { plan, probes, stop, idle: None, ready: None }
    }

    /// Frees the case that is ready, if one is.
    pub fn close(&mut self) {
        if let Some(local) = self.ready.take() {
            self.idle = local.into_instruments();
        }
    }

    /// Checks and times a configuration.
    pub fn measure(&mut self, planned: &PlannedCase<'_>, configuration: &Configuration) -> Result<Measured> {
        Ok(self.open(planned)?.measure(configuration))
    }

    /// Checks a configuration again.
    pub fn check_again(
        &mut self,
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
    ) -> Result<Measured> {
        Ok(self.open(planned)?.check_again(configuration))
    }

    /// Times the probes of a case once more, at its end.
    pub fn probe(&mut self, planned: &PlannedCase<'_>) {
        let effort = self.plan.effort();
        if let Some(instruments) = self.instruments() {
            instruments.probe(&planned.work, effort);
        }
    }

    /// The time that the latest probes need for a case's work, in microseconds.
    pub fn limit_us(&mut self, planned: &PlannedCase<'_>) -> Option<f64> {
        self.instruments()?.limit_us(&planned.work)
    }

    /// What the probes reached.
    pub fn reached(&mut self) -> Vec<ProbeResult> {
        self.instruments().map_or_else(Vec::new, |instruments| instruments.reached())
    }

    /// What went wrong with the probes, once.
    pub fn problem(&mut self) -> Option<Error> {
        self.instruments()?.problem()
    }

    fn instruments(&mut self) -> Option<&mut Instruments> {
        self.ready.as_mut().map(Local::instruments).or(self.idle.as_mut())
    }

    fn open(&mut self, planned: &PlannedCase<'_>) -> Result<&mut Local> {
        let local = match self.ready.take() {
            Some(local) => local,
            None => {
                let suite = self.probes.then_some(self.plan.suite());
                let instruments = match self.idle.take() {
                    Some(idle) => idle,
                    None => Instruments::new(self.plan.device(), suite, self.stop)?,
                };
                Local::open(instruments, planned, self.plan.mode(), self.plan.effort())?
            }
        };
        Ok(self.ready.insert(local))
    }
}
