//! What emulated devices did and when.
//!
//! Calls are recorded on the thread that makes them, work when it has run, on the thread of its stream. Every record goes to
//! the sink at once. Work that was enqueued before the recording began is not recorded.
//!
//! With simulated time the records have that time. Host calls take none of it, so equal programs make equal records.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::EmulatedDriver;
use super::action::Action;
use super::control::Call;
use super::graph::{Plan, PlanStep};
use super::stream::Queue;
use crate::activity::{
    Activity, ActivityDriver, ActivityError, ActivityLoss, ActivityOptions, ActivityPlace, ActivityResult,
    ActivitySink, ActivityStarted, ActivityWait,
};
use crate::{FunctionHandle, LaunchConfig, StreamHandle};

thread_local! {
    /// The correlation of the call that this thread makes; 0 outside of calls, and where nothing records.
    static CORRELATION: Cell<u64> = const { Cell::new(0) };
    /// The parts of the program that this thread is in, the innermost last.
    static PARTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Nanoseconds since 1970.
pub(super) fn real_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// How many recordings were started.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// The calling thread by the system's number.
fn thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    // In a forked process the same thread has another number, and nothing records before it starts to itself.
    let started = STARTED.load(Ordering::Relaxed);
    match NUMBER.get() {
        (number, at) if at == started => number,
        _ => {
            let number = system_thread();
            NUMBER.set((number, started));
            number
        }
    }
}

#[cfg(target_os = "linux")]
fn system_thread() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() as u64 }
}

#[cfg(not(target_os = "linux"))]
fn system_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The recorder of a driver.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    on: AtomicBool,
    recording: RwLock<Option<Arc<Recording>>>,
}

impl Recorder {
    /// One relaxed load.
    #[inline]
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn recording(&self) -> Option<Arc<Recording>> {
        self.recording.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(&self, sink: Arc<dyn ActivitySink>) -> ActivityResult<()> {
        let mut recording = self.recording.write().unwrap_or_else(PoisonError::into_inner);
        if recording.is_some() {
            return Err(ActivityError::Recording);
        }
        *recording = Some(Arc::new(Recording { sink: RwLock::new(Some(sink)), calls: AtomicU64::new(0) }));
        STARTED.fetch_add(1, Ordering::Relaxed);
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        let recording = self.recording.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(recording) = recording {
            // Records that are being made hold the lock.
            let sink = recording.sink.write().unwrap_or_else(PoisonError::into_inner).take();
            drop(sink);
        }
    }

    /// What ties the work that this thread enqueues now to its call.
    pub(super) fn trail(&self) -> Option<Trail> {
        let correlation = CORRELATION.get();
        if correlation == 0 { None } else { Some(Trail { recording: self.recording()?, correlation }) }
    }
}

/// One recording.
struct Recording {
    /// `None` after its end.
    sink: RwLock<Option<Arc<dyn ActivitySink>>>,
    /// The last correlation.
    calls: AtomicU64,
}

impl Recording {
    fn record(&self, activity: &Activity<'_>) {
        if let Some(sink) = &*self.sink.read().unwrap_or_else(PoisonError::into_inner) {
            sink.record(activity);
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// The recording of a piece of work, and the call that enqueued it.
#[derive(Debug)]
pub(super) struct Trail {
    recording: Arc<Recording>,
    correlation: u64,
}

/// Where work runs that may be recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran<'a> {
    trail: Option<&'a Trail>,
    stream: u32,
    graph: u32,
    node: u64,
}

impl<'a> Ran<'a> {
    /// On a stream.
    pub(super) fn new(trail: Option<&'a Trail>, stream: u32) -> Self {
        Self { trail, stream, graph: 0, node: 0 }
    }

    /// As a node of an executable.
    pub(super) fn in_graph(self, graph: u32) -> Self {
        Self { graph, ..self }
    }

    pub(super) fn at_node(self, node: u64) -> Self {
        Self { node, ..self }
    }

    pub(super) fn is_recorded(self) -> bool {
        self.trail.is_some()
    }

    fn place(self, device: u32) -> ActivityPlace {
        let correlation = self.trail.map_or(0, |trail| trail.correlation);
        ActivityPlace { device, stream: self.stream, correlation, graph: self.graph, node: self.node }
    }

    fn record(self, activity: &Activity<'_>) {
        if let Some(trail) = self.trail {
            trail.recording.record(activity);
        }
    }

    /// A launch ran.
    pub(super) fn kernel(
        self,
        device: u32,
        (symbol, static_shared): (&str, u32),
        config: &LaunchConfig,
        (start, end): (u64, u64),
    ) {
        let LaunchConfig { grid, block, shared_bytes, .. } = *config;
        self.record(&Activity::Kernel {
            start,
            end,
            place: self.place(device),
            symbol,
            grid,
            block,
            registers: 0,
            static_shared,
            dynamic_shared: shared_bytes,
        });
    }

    /// An action ran.
    pub(super) fn action(self, device: u32, action: &Action, (start, end): (u64, u64)) {
        match action {
            Action::Launch(call) => {
                let kernel = call.kernel();
                self.kernel(device, (kernel.symbol, kernel.static_shared), &call.config(), (start, end));
            }
            Action::Copy { .. } | Action::Set { .. } | Action::Rows(_) => {
                if let Some((kind, bytes)) = action.transfer() {
                    self.record(&Activity::Transfer { start, end, place: self.place(device), kind, bytes });
                }
            }
            Action::Host(_) | Action::HostWork(_) => {}
        }
    }

    /// A stream waited for an event.
    pub(super) fn waited(self, device: u32, (start, end): (u64, u64)) {
        let (place, kind) = (self.place(device), ActivityWait::StreamForEvent);
        self.record(&Activity::Wait { start, end, place, kind });
    }
}

/// A call that is recorded. It ends when this is dropped.
#[must_use]
pub(super) struct Begun<'a> {
    driver: &'a EmulatedDriver,
    recording: Arc<Recording>,
    call: Call,
    correlation: u64,
    start: u64,
    /// The correlation of the call around it; 0 for none.
    around: u64,
}

impl Drop for Begun<'_> {
    #[cold]
    fn drop(&mut self) {
        CORRELATION.set(self.around);
        let Self { driver, recording, correlation, start, .. } = self;
        let (correlation, start, end) = (*correlation, *start, driver.activity_clock());
        let function = self.call.name();
        recording.record(&Activity::Call { start, end, thread: thread(), correlation, function });
        // A call at the end of the process is outside of all parts: the thread has none any more.
        let part = PARTS.try_with(|parts| parts.borrow().last().copied());
        if let Ok(Some(id)) = part {
            recording.record(&Activity::Inside { correlation, id });
        }
    }
}

impl EmulatedDriver {
    /// Nanoseconds on the clock of the records.
    fn activity_clock(&self) -> u64 {
        self.time.as_ref().map_or_else(real_now, |time| time.host_now_ns())
    }

    /// A call that enqueues work or waits: recorded, if anything records, when the result is dropped.
    #[inline]
    pub(super) fn called(&self, call: Call) -> Option<Begun<'_>> {
        if self.recorder.is_on() { self.called_recorded(call) } else { None }
    }

    /// As [`Self::called`], of a call that neither enqueues work nor waits.
    #[inline]
    pub(super) fn called_aside(&self, call: Call) -> Option<Begun<'_>> {
        let is_recorded = self.recorder.is_on() && self.all_calls.load(Ordering::Relaxed);
        if is_recorded { self.called_recorded(call) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn called_recorded(&self, call: Call) -> Option<Begun<'_>> {
        let recording = self.recorder.recording()?;
        let correlation = recording.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (start, around) = (self.activity_clock(), CORRELATION.replace(correlation));
        Some(Begun { driver: self, recording, call, correlation, start, around })
    }

    /// The host has waited for what was done at this simulated time.
    pub(super) fn waited_until(&self, us: f64) {
        if let Some(time) = &self.time {
            time.host_waited_until(us);
        }
    }

    /// Records that the host waits while `wait` runs.
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
            let (end, ran) = (self.activity_clock(), Ran::new(Some(&trail), stream));
            ran.record(&Activity::Wait { start, end, place: ran.place(device), kind });
        }
        result
    }

    /// Records a launch that a driver without time accepts and does not run.
    pub(super) fn launched_idly(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        config: &LaunchConfig,
    ) {
        let Some(trail) = self.recorder.trail() else { return };
        let Ok((kernel, _)) = self.code.kernel_of(Call::Launch, function) else { return };
        let Ok(queue) = self.streams.get(Call::Launch, stream.0) else { return };
        let (ran, now) = (Ran::new(Some(&trail), queue.number()), self.activity_clock());
        ran.kernel(queue.context().ordinal, (kernel.symbol, kernel.static_shared), config, (now, now));
    }

    /// As [`Self::launched_idly`], of a graph.
    pub(super) fn graph_launched_idly(&self, queue: &Queue, graph: u32, plan: &Plan) {
        let Some(trail) = self.recorder.trail() else { return };
        let now = self.activity_clock();
        nodes(plan, Ran::new(Some(&trail), queue.number()).in_graph(graph), queue.context().ordinal, now);
    }
}

/// Records nodes of a graph that take no time, but for those of conditional nodes.
fn nodes(plan: &Plan, ran: Ran<'_>, device: u32, now: u64) {
    for node in &plan.nodes {
        match &node.step {
            PlanStep::Work(piece) => ran.at_node(node.handle).action(device, &piece.action, (now, now)),
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
        self.all_calls.store(options.all_calls, Ordering::Relaxed);
        self.recorder.start(sink)?;
        let time = if self.time.is_some() { "simulated" } else { "real" };
        Ok(ActivityStarted { source: format!("the emulated device, {time} time"), without_cupti: None })
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
        let _ = PARTS.try_with(|parts| parts.borrow_mut().push(id));
    }

    fn activity_pop(&self) {
        let _ = PARTS.try_with(|parts| parts.borrow_mut().pop());
    }
}
