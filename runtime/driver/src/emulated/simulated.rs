//! Simulated time: a model says how long work takes, whatever it takes on the machine.
//!
//! Every stream has a clock in microseconds, which starts at 0. Work advances the clock of its stream by the time that the
//! model returns. A wait sets it to the time of the event if that is later. Recording an event reads it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use gpu_spec::KernelSpec;

use super::action::{Action, fault};
use super::context::EmulatedContext;
use super::testing::Testing;
use crate::{FaultKind, LaunchConfig};

/// Work that takes simulated time. Other work takes none.
#[derive(Debug, Clone, Copy)]
pub enum SimulatedWork<'a> {
    /// A launch of a kernel.
    Kernel {
        /// The kernel.
        spec: &'static KernelSpec,
        /// Its shape.
        config: &'a LaunchConfig,
    },
    /// A copy, of rows too.
    Copy {
        /// Bytes that are copied.
        bytes: u64,
    },
    /// Setting bytes to a value.
    Set {
        /// Bytes that are set.
        bytes: u64,
    },
}

/// Says how many microseconds work takes.
type TimeFn = dyn Fn(&SimulatedWork<'_>) -> f64 + Send + Sync;

/// The model of a driver, and whether its kernels run.
#[derive(Clone)]
pub(super) struct TimeModel {
    time: Arc<TimeFn>,
    /// Whether kernels take their time without running.
    idle: bool,
    _testing: Testing,
}

impl TimeModel {
    #[cfg(feature = "testing")]
    pub(super) fn new(time: impl Fn(&SimulatedWork<'_>) -> f64 + Send + Sync + 'static) -> Self {
        Self { time: Arc::new(time), idle: false, _testing: () }
    }

    pub(super) fn idle(self, idle: bool) -> Self {
        Self { idle, ..self }
    }
}

impl fmt::Debug for TimeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeModel").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// The clock of a stream, which does not move without a model.
#[derive(Debug)]
pub(super) struct Timeline {
    model: Option<TimeModel>,
    now_us: Mutex<f64>,
}

impl Timeline {
    pub(super) fn new(model: Option<TimeModel>) -> Self {
        Self { model, now_us: Mutex::new(0.0) }
    }

    /// Whether kernels take their time without running.
    pub(super) fn is_idle(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.idle)
    }

    pub(super) fn now_us(&self) -> f64 {
        *self.now_us.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time at which the target of a wait was reached.
    pub(super) fn wait_until(&self, us: f64) {
        let mut now = self.now_us.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.max(us);
    }

    /// Work has run. A time that is negative or not a number counts as none; a model that panics stops the context.
    pub(super) fn pass(&self, work: &SimulatedWork<'_>, context: &EmulatedContext) {
        let Some(model) = &self.model else { return };
        match catch_unwind(AssertUnwindSafe(|| (model.time)(work))) {
            Ok(us) if us.is_finite() => {
                *self.now_us.lock().unwrap_or_else(PoisonError::into_inner) += us.max(0.0);
            }
            Ok(_) => {}
            Err(_) => context.poison(fault(FaultKind::Other, "the model of simulated time panicked")),
        }
    }

    /// Does what an action does, and takes its time; of a kernel that is not to run, only its time.
    ///
    /// # Safety
    /// As for [`Action::run`].
    pub(super) unsafe fn run(&self, action: &Action, context: &EmulatedContext) {
        if !(self.is_idle() && matches!(action, Action::Launch(_))) {
            // SAFETY: passed on from the caller.
            unsafe { action.run(context) };
        }
        let config;
        let work = match action {
            Action::Copy { bytes, .. } => SimulatedWork::Copy { bytes: *bytes as u64 },
            Action::Rows(rows) => SimulatedWork::Copy { bytes: rows.bytes() as u64 },
            Action::Set { bytes, .. } => SimulatedWork::Set { bytes: *bytes as u64 },
            Action::Launch(call) => {
                config = call.config();
                SimulatedWork::Kernel { spec: call.kernel(), config: &config }
            }
            Action::Host(_) | Action::HostWork(_) => return,
        };
        self.pass(&work, context);
    }
}
