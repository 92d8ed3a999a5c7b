//! Activity recording of emulated devices.
//!
//! Calls are recorded on the thread that makes them. Work is recorded after it has run, on the thread of its stream.
//!
//! With simulated time, records contain simulated times. Host calls take no simulated time, so identical programs
//! produce identical records.

use std::sync::Arc;

use super::EmulatedDriver;
use super::control::Call;
use super::graph::{Plan, PlanStep};
use super::recorder::{Ran, Trail, pop_part, push_part};
use super::simulated::record;
use warpsmith_driver::activity::{
    ActivityDriver, ActivityLoss, ActivityOptions, ActivityResult, ActivitySink, ActivityStarted,
    ActivityWait, now,
};
use warpsmith_driver::{FunctionHandle, LaunchConfig, StreamHandle};

/// A recorded call in progress, which ends when this value is dropped.
#[must_use]
pub(super) struct Begun<'a> {
    driver: &'a EmulatedDriver,
    trail: Trail,
    call: Call,
    start: u64,
    /// Correlation ID of the enclosing call; 0 if no call encloses this one.
    around: u64,
}

impl Drop for Begun<'_> {
    #[cold]
    fn drop(&mut self) {
        let times = (self.start, self.driver.activity_clock());
        self.trail.end_call(self.around, times, self.call.name());
    }
}

impl Begun<'_> {
    /// Returns the information for recording work that the call enqueues on a stream.
    fn ran(&self, stream: StreamHandle) -> Ran<'_> {
        Ran::new(Some(&self.trail), stream.0 as u32)
    }
}

impl EmulatedDriver {
    /// Returns the current time on the clock that the records use, in nanoseconds.
    fn activity_clock(&self) -> u64 {
        self.time.as_ref().map_or_else(now, |time| time.host_now_ns())
    }

    /// Starts a call that enqueues work or waits. If a recording is active, the call is recorded when the returned
    /// value is dropped.
    #[inline]
    pub(super) fn called(&self, call: Call) -> Option<Begun<'_>> {
        if self.recorder.is_on() { self.called_recorded(call) } else { None }
    }

    /// Like [`Self::called`], but for calls that neither enqueue work nor wait.
    #[inline]
    pub(super) fn called_aside(&self, call: Call) -> Option<Begun<'_>> {
        if self.recorder.is_on() && self.recorder.has_all_calls() { self.called_recorded(call) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn called_recorded(&self, call: Call) -> Option<Begun<'_>> {
        let (trail, around) = self.recorder.begin_call()?;
        Some(Begun { driver: self, trail, call, start: self.activity_clock(), around })
    }

    /// Advances the host's simulated clock after a wait for work that finished at simulated time `us`.
    pub(super) fn waited_until(&self, us: f64) {
        if let Some(time) = &self.time {
            time.host_waited_until(us);
        }
    }

    /// Runs `wait` and records it as a host wait.
    pub(super) fn host_waits<R>(
        &self,
        kind: ActivityWait,
        (device, stream): (u32, u32),
        wait: impl FnOnce() -> R,
    ) -> R {
        if !self.recorder.is_on() {
            return wait();
        }
        let start = self.activity_clock();
        let result = wait();
        if let Some(trail) = self.recorder.trail() {
            Ran::new(Some(&trail), stream).host_waited(device, kind, (start, self.activity_clock()));
        }
        result
    }

    /// Records a launch that an idle driver without simulated time accepts without running it.
    pub(super) fn launched_idly(
        &self,
        called: &Begun<'_>,
        place: (u32, StreamHandle),
        function: FunctionHandle,
        config: &LaunchConfig,
    ) {
        let Ok((kernel, _)) = self.code.kernel_of(Call::Launch, function) else { return };
        let kernel = (kernel.symbol, kernel.static_shared);
        called.ran(place.1).kernel(place.0, kernel, config, (called.start, called.start));
    }

    /// Like [`Self::launched_idly`], but records a graph launch.
    pub(super) fn graph_launched_idly(
        &self,
        called: &Begun<'_>,
        (device, stream): (u32, StreamHandle),
        graph: u32,
        plan: &Plan,
    ) {
        nodes(plan, called.ran(stream).in_graph(graph), device, called.start);
    }
}

/// Records graph nodes with zero duration, except nodes inside conditional nodes.
fn nodes(plan: &Plan, ran: Ran<'_>, device: u32, now: u64) {
    for node in &plan.nodes {
        match &node.step {
            PlanStep::Work(piece) => record(ran.at_node(node.handle), device, &piece.action, (now, now)),
            PlanStep::Child(child) => nodes(child, ran, device, now),
            PlanStep::Empty | PlanStep::Conditional { .. } => {}
        }
    }
}

impl ActivityDriver for EmulatedDriver {
    fn activity_start(
        &self,
        options: &ActivityOptions,
        sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<ActivityStarted> {
        self.recorder.start(sink, options.all_calls)?;
        let time = if self.time.is_some() { "simulated" } else { "real" };
        Ok(ActivityStarted { source: format!("the emulated device, {time} time") })
    }

    fn activity_stop(&self) -> ActivityResult<ActivityLoss> {
        self.recorder.stop();
        Ok(ActivityLoss::default())
    }

    fn activity_now(&self) -> u64 {
        self.activity_clock()
    }

    fn activity_is_simulated(&self) -> bool {
        self.time.is_some()
    }

    fn activity_push(&self, id: u64) {
        push_part(id);
    }

    fn activity_pop(&self) {
        pop_part();
    }
}
