//! Simulated time. A model returns the duration of work, independently of the machine.
//!
//! Clocks are in microseconds and start at 0. Recording an event reads the clock of its stream.
//! `EmulatedDriverBuilder::simulated_time` documents the rules.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpu_spec::KernelSpec;

use super::action::{Action, fault};
use super::context::EmulatedContext;
use super::recorder::{Ran, Recorder, Trail};
use super::testing::Testing;
use warpsmith_driver::activity::now;
use warpsmith_driver::{FaultKind, LaunchConfig};

/// Work that takes simulated time. All other work takes no time.
#[derive(Debug, Clone, Copy)]
pub enum SimulatedWork<'a> {
    /// A launch of a kernel.
    Kernel {
        /// Kernel that is launched.
        spec: &'static KernelSpec,
        /// Launch configuration.
        config: &'a LaunchConfig,
    },
    /// A copy, including pitched copies.
    Copy {
        /// Number of bytes copied.
        bytes: u64,
    },
    /// A memset.
    Set {
        /// Number of bytes that are set.
        bytes: u64,
    },
}

/// Launch configuration of work without device threads.
const NO_THREADS: LaunchConfig = LaunchConfig::new([0; 3], [0; 3], 0);

/// Records that an action has run.
pub(super) fn record(ran: Ran<'_>, device: u32, action: &Action, times: (u64, u64)) {
    match action {
        Action::Launch(call) => {
            let kernel = call.kernel();
            ran.kernel(device, (kernel.symbol, kernel.static_shared), &call.config(), times);
        }
        // On a GPU, this work consists of library kernels.
        Action::HostWork(work) => ran.kernel(device, (work.name(), 0), &NO_THREADS, times),
        Action::Copy { .. } | Action::Rows(_) | Action::Set { .. } | Action::Host(_) => {
            if let Some(transfer) = action.transfer() {
                ran.transfer(device, transfer, times);
            }
        }
    }
}

/// Model that returns the duration of work in microseconds.
type TimeFn = dyn Fn(&SimulatedWork<'_>) -> f64 + Send + Sync;

/// Time model of a driver, which also determines whether kernels run.
#[derive(Clone)]
pub(super) struct TimeModel {
    time: Arc<TimeFn>,
    /// True if kernels take their simulated time without running.
    idle: bool,
    /// Host clock in microseconds, stored as the bits of a float, because the bits of non-negative floats compare like
    /// the floats themselves.
    host_us: Arc<AtomicU64>,
    _testing: Testing,
}

impl TimeModel {
    #[cfg(feature = "testing")]
    pub(super) fn new(time: impl Fn(&SimulatedWork<'_>) -> f64 + Send + Sync + 'static) -> Self {
        Self { time: Arc::new(time), idle: false, host_us: Arc::default(), _testing: () }
    }

    /// Returns the time model for a new driver, with all clocks at 0.
    pub(super) fn started(self, idle: bool) -> Self {
        Self { idle, host_us: Arc::default(), ..self }
    }

    fn host_now_us(&self) -> f64 {
        f64::from_bits(self.host_us.load(Ordering::Acquire))
    }

    /// Returns the host clock in nanoseconds.
    pub(super) fn host_now_ns(&self) -> u64 {
        nanoseconds(self.host_now_us())
    }

    /// Advances the host clock after a wait for work that finished at this time.
    pub(super) fn host_waited_until(&self, us: f64) {
        self.host_us.fetch_max(us.max(0.0).to_bits(), Ordering::AcqRel);
    }
}

impl fmt::Debug for TimeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeModel").field("idle", &self.idle).finish_non_exhaustive()
    }
}

fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Clock of a stream and recorder of its work. The clock advances only if there is a time model.
#[derive(Debug)]
pub(super) struct Timeline {
    model: Option<TimeModel>,
    now_us: Mutex<f64>,
    recorder: Arc<Recorder>,
}

impl Timeline {
    pub(super) fn new(model: Option<TimeModel>, recorder: Arc<Recorder>) -> Self {
        Self { model, now_us: Mutex::new(0.0), recorder }
    }

    /// Returns the host clock in microseconds and the trail of the call, for work that is enqueued now.
    pub(super) fn enqueued(&self) -> (f64, Option<Trail>) {
        (self.model.as_ref().map_or(0.0, TimeModel::host_now_us), self.recorder.trail())
    }

    /// Returns the current time for records, in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        if self.model.is_some() { nanoseconds(self.now_us()) } else { now() }
    }

    /// Returns true if kernels take their simulated time without running.
    pub(super) fn is_idle(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.idle)
    }

    pub(super) fn now_us(&self) -> f64 {
        *self.now_us.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the clock to the time at which the awaited mark was reached.
    pub(super) fn wait_until(&self, us: f64) {
        let mut now = self.now_us.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.max(us);
    }

    /// Advances the clock by work that has run. A negative or NaN duration counts as zero, and a panic in the model
    /// makes the context unusable.
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

    /// Runs an action and advances the clock by its duration. A kernel of an idle driver only advances the clock.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Action::run`].
    pub(super) unsafe fn run(&self, action: &Action, context: &EmulatedContext, ran: Ran<'_>) {
        let start = if ran.is_recorded() { self.now_ns() } else { 0 };
        // SAFETY: guaranteed by the caller.
        unsafe { self.do_action(action, context) };
        if ran.is_recorded() {
            record(ran, context.ordinal, action, (start, self.now_ns()));
        }
    }

    /// Advances the clock by the duration of a launch that does not run.
    pub(super) fn run_idly(
        &self,
        spec: &'static KernelSpec,
        config: &LaunchConfig,
        context: &EmulatedContext,
        ran: Ran<'_>,
    ) {
        let start = if ran.is_recorded() { self.now_ns() } else { 0 };
        self.pass(&SimulatedWork::Kernel { spec, config }, context);
        if ran.is_recorded() {
            let kernel = (spec.symbol, spec.static_shared);
            ran.kernel(context.ordinal, kernel, config, (start, self.now_ns()));
        }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Action::run`].
    unsafe fn do_action(&self, action: &Action, context: &EmulatedContext) {
        if !(self.is_idle() && matches!(action, Action::Launch(_))) {
            // SAFETY: guaranteed by the caller.
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
