//! [`Rig`]: what measures the cases of a tuning run, in this process or in another.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::document::ProbeResult;
use crate::error::{Error, Result};
use crate::local::{Instruments, Local};
use crate::run::{Plan, PlannedCase, seed};
use crate::value::Configuration;
use crate::worker::{CaseRequest, Measured, Program, Remote};

/// What measures. A case is made ready when the first of its configurations is to be measured.
pub struct Rig<'a> {
    plan: &'a Plan<'a>,
    probes: bool,
    stop: &'a Arc<AtomicBool>,
    /// The other process, if one measures.
    remote: Option<Remote>,
    state: State,
}

enum State {
    /// No case is ready; with the instruments of the one before.
    Idle(Option<Box<Instruments>>),
    /// A case is ready in this process.
    Local(Box<Local>),
    /// A case is ready in another; with what times probes in this one, if there are any.
    Remote(Option<Box<Instruments>>),
}

impl<'a> Rig<'a> {
    /// Measures in this process, or by a program.
    pub fn new(
        plan: &'a Plan<'a>,
        isolation: Option<Program>,
        probes: bool,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut remote = isolation.map(Remote::start).transpose()?;
        if let Some(remote) = &mut remote {
            remote.set_stop(stop);
        }
        Ok(Self { plan, probes, stop, remote, state: State::Idle(None) })
    }

    /// The other process.
    pub fn remote(&mut self) -> Option<&mut Remote> {
        self.remote.as_mut()
    }

    /// Whether a crash is that of another process.
    pub fn survives_crashes(&self) -> bool {
        self.remote.is_some()
    }

    /// Ends the case that is ready, if one is.
    pub fn close(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Idle(None)) {
            State::Local(local) => State::Idle(local.into_instruments().map(Box::new)),
            State::Idle(kept) | State::Remote(kept) => State::Idle(kept),
        };
    }

    /// Has a configuration checked and timed.
    pub fn measure(&mut self, planned: &PlannedCase<'_>, configuration: &Configuration) -> Result<Measured> {
        let effort = self.plan.effort();
        self.open(planned)?;
        match (&mut self.state, &mut self.remote) {
            (State::Local(local), _) => Ok(local.measure(configuration, effort)),
            (State::Remote(probing), Some(remote)) => {
                if let Some(probing) = probing {
                    probing.count(&planned.work, effort);
                }
                remote.measure(configuration, None)
            }
            _ => Err(Error::NothingSelected),
        }
    }

    /// Has a configuration checked, whether it was or not.
    pub fn check_again(
        &mut self,
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
    ) -> Result<Measured> {
        self.open(planned)?;
        match (&mut self.state, &mut self.remote) {
            (State::Local(local), _) => Ok(local.check_again(configuration)),
            (State::Remote(_), Some(remote)) => remote.check_again(configuration),
            _ => Err(Error::NothingSelected),
        }
    }

    /// Times the probes that a case is held against once more, at its end.
    pub fn probe(&mut self, planned: &PlannedCase<'_>) {
        let effort = self.plan.effort();
        if let Some(instruments) = self.instruments() {
            instruments.probe(&planned.work, effort);
        }
    }

    /// What the probes that were timed last need for a case's work.
    pub fn limit_us(&mut self, planned: &PlannedCase<'_>) -> Option<f64> {
        self.instruments()?.limit_us(&planned.work)
    }

    /// What the probes reached.
    pub fn reached(&mut self) -> Vec<ProbeResult> {
        self.instruments().map_or_else(Vec::new, |instruments| instruments.reached())
    }

    /// What went wrong with the probes; told once.
    pub fn problem(&mut self) -> Option<Error> {
        self.instruments()?.problem()
    }

    fn instruments(&mut self) -> Option<&mut Instruments> {
        match &mut self.state {
            State::Idle(kept) | State::Remote(kept) => kept.as_deref_mut(),
            State::Local(local) => Some(local.instruments()),
        }
    }

    fn open(&mut self, planned: &PlannedCase<'_>) -> Result<()> {
        let State::Idle(kept) = &mut self.state else { return Ok(()) };
        let (plan, kept) = (self.plan, kept.take());
        match &mut self.remote {
            None => {
                let instruments = match kept {
                    Some(kept) => *kept,
                    None => instruments(plan, self.probes, self.stop)?,
                };
                let local = Local::open(instruments, planned, plan.mode(), plan.effort())?;
                self.state = State::Local(Box::new(local));
            }
            Some(remote) => {
                let mut probing = match kept {
                    None if self.probes => Some(Box::new(instruments(plan, true, self.stop)?)),
                    kept => kept,
                };
                if let Some(probing) = &mut probing {
                    probing.begin_case();
                }
                self.state = State::Remote(probing);
                remote.open(&request(plan, planned))?;
            }
        }
        Ok(())
    }
}

fn instruments(plan: &Plan<'_>, probes: bool, stop: &Arc<AtomicBool>) -> Result<Instruments> {
    let instruments = Instruments::new(plan.device(), stop)?;
    Ok(if probes { instruments.with_probes(plan.suite()) } else { instruments })
}

fn request(plan: &Plan<'_>, planned: &PlannedCase<'_>) -> CaseRequest {
    CaseRequest {
        device: plan.device().id().to_string(),
        kernel: planned.benchmark.name().to_owned(),
        dtype: planned.dtype.to_owned(),
        n: planned.n,
        copies: planned.copies,
        seed: seed(),
        mode: plan.mode(),
        effort: plan.effort(),
    }
}
