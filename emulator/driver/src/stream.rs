//! Streams and events of the emulated device. Either each stream has a worker thread, which starts with the stream's
//! first task, or a [`Stepper`] runs all streams.
//!
//! Tasks of a stream run in order, and streams run independently. Tasks of a context that is unusable are skipped, but
//! its events are still signaled, so no wait hangs. When [`Queue::wait`] returns, no work that was enqueued before the
//! call is still running.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpu_spec::KernelSpec;
use warpsmith_emulator::check::{self, Enqueued};

use super::action::{Action, fault};
use super::clock::Clock;
use super::context::EmulatedContext;
use super::control::Call;
use super::control::Control;
use super::graph::GraphRun;
use super::race::{Place, Races};
use super::recorder::{Ran, Trail};
use super::schedule::Stepping;
use super::shared_event::SharedEvent;
use super::simulated::Timeline;
use super::touched::{Access, Touched};
use warpsmith_driver::error::Result;
use warpsmith_driver::host_function::{self, HostCall};
use warpsmith_driver::{DevicePtr, FaultKind, LaunchConfig};

/// An event and its last recording, if any.
#[derive(Debug, Default)]
pub(super) struct EventState {
    newest: Mutex<Newest>,
    /// Shared state of an interprocess event, which does not use [`Newest`].
    shared: Option<Arc<SharedEvent>>,
}

/// An event that was recorded in a capture. It refers to the captured nodes of its stream.
#[derive(Debug, Clone)]
pub(super) struct CapturedEvent {
    pub(super) capture: u64,
    pub(super) tips: Vec<usize>,
}

/// Location at which an event was last recorded.
#[derive(Debug, Clone, Default)]
pub(super) enum Newest {
    #[default]
    Never,
    Mark(Arc<Mark>),
    Captured(CapturedEvent),
}

impl EventState {
    /// Creates an interprocess event.
    pub(super) fn of_processes(shared: SharedEvent) -> Self {
        Self { shared: Some(Arc::new(shared)), ..Self::default() }
    }

    pub(super) fn shared(&self) -> Option<&Arc<SharedEvent>> {
        self.shared.as_ref()
    }

    pub(super) fn newest(&self) -> Newest {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the last recording, whose [`Work::Record`] must already be enqueued. Waits for an older recording are
    /// unaffected.
    pub(super) fn set_newest(&self, newest: Newest) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = newest;
    }
}

/// Time at which a stream reached a mark, on the machine's clock and on the clock of its [`Timeline`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    at: Instant,
    pub(super) simulated_us: f64,
}

impl Reached {
    /// Returns the number of microseconds from `earlier` to this time on the machine's clock.
    pub(super) fn us_since(self, earlier: Self) -> f64 {
        match self.at.checked_duration_since(earlier.at) {
            Some(after) => after.as_secs_f64() * 1e6,
            None => -(earlier.at - self.at).as_secs_f64() * 1e6,
        }
    }
}

/// A position in a stream.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// Time at which the stream reached the mark.
    at: Mutex<Option<Reached>>,
    reached: Condvar,
    /// Work that is ordered before the mark, if the driver checks for races.
    clock: OnceLock<Clock>,
    /// Stream ID in records; 0 if the mark does not belong to an event.
    stream: u32,
}

impl Mark {
    /// Creates the mark of an event recorded on the stream with this ID.
    pub(super) fn of_stream(stream: u32) -> Self {
        Self { stream, ..Self::default() }
    }

    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Returns the time at which the stream reached the mark; `None` if it has not reached the mark.
    pub(super) fn time(&self) -> Option<Reached> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn clock(&self) -> Option<&Clock> {
        self.clock.get()
    }

    /// Sets the clock. Called when the mark is enqueued; only the first call has an effect.
    pub(super) fn set_clock(&self, clock: Clock) {
        self.clock.get_or_init(|| clock);
    }

    /// Signals that the stream has reached the mark at time `simulated_us` on its [`Timeline`].
    pub(super) fn reach(&self, simulated_us: f64) {
        let reached = Reached { at: Instant::now(), simulated_us };
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(reached);
        self.reached.notify_all();
    }

    /// Waits until the stream has reached the mark.
    pub(super) fn wait(&self) -> Reached {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *at {
                Some(reached) => return reached,
                None => at = self.reached.wait(at).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Operation of a task.
#[derive(Debug)]
pub(super) enum Work {
    Act(Action),
    /// A launch that takes its simulated time but does not run.
    Idle(&'static KernelSpec, LaunchConfig),
    Host(HostCall),
    /// Frees a block in stream order.
    Free(DevicePtr),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Graph(GraphRun),
}

#[derive(Debug)]
struct Task {
    work: Work,
    /// State for the kernel check, captured at enqueue time.
    enqueued: Option<Enqueued>,
    /// Position in the race check, if the task is compared after it has run.
    place: Option<Place>,
    touched: Touched,
    /// Simulated host time at which the task was enqueued.
    enqueued_us: f64,
    /// Trail to the call that enqueued the task, if that call is recorded.
    trail: Option<Trail>,
    /// Position in the enqueue order of all streams, if there is a stepper.
    number: u64,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Memory that the running task accesses.
    running: Touched,
    pushed: u64,
    done: u64,
    closing: bool,
    delay: Duration,
    worker: Option<JoinHandle<()>>,
}

impl State {
    /// Removes and returns the next task, which becomes the running task.
    fn begin(&mut self) -> Option<Task> {
        let mut task = self.tasks.pop_front()?;
        let touched = std::mem::take(&mut task.touched);
        // A free must not conflict with itself.
        self.running = if matches!(task.work, Work::Free(_)) { Touched::new() } else { touched };
        Some(task)
    }
}

/// A stream.
#[derive(Debug)]
pub(super) struct Queue {
    context: Arc<EmulatedContext>,
    control: Arc<Control>,
    priority: i32,
    timeline: Timeline,
    /// Stepper that runs the tasks; `None` if a worker thread runs them.
    stepper: Option<Stepping>,
    races: Arc<Races>,
    state: Mutex<State>,
    changed: Condvar,
    /// Stream ID in records.
    number: AtomicU32,
}

impl Queue {
    pub(super) fn new(
        context: Arc<EmulatedContext>,
        control: Arc<Control>,
        priority: i32,
        timeline: Timeline,
        stepper: Option<Stepping>,
        races: Arc<Races>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            control,
            priority,
            timeline,
            stepper,
            races,
            state: Mutex::default(),
            changed: Condvar::new(),
            number: AtomicU32::new(0),
        })
    }

    /// Sets the stream ID in records.
    pub(super) fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns the simulated time at which the work enqueued so far has finished. That work must have run.
    pub(super) fn simulated_us(&self) -> f64 {
        self.timeline.now_us()
    }

    /// Returns the priority with which the stream was created. The priority does not affect the order of execution.
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn context(&self) -> &Arc<EmulatedContext> {
        &self.context
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Enqueues a task. The first task starts the worker, if there is one.
    ///
    /// If the thread cannot be started, returns the system's error message.
    pub(super) fn push(
        self: &Arc<Self>,
        work: Work,
        touched: Touched,
        place: Option<Place>,
    ) -> std::io::Result<()> {
        let mut state = self.state();
        if self.stepper.is_none() && state.worker.is_none() {
            let queue = Arc::clone(self);
            let worker = std::thread::Builder::new().name("warpsmith-stream".to_owned());
            state.worker = Some(worker.spawn(move || queue.work())?);
        }
        let number = self.stepper.as_ref().map_or(0, |stepper| stepper.number());
        let (enqueued_us, trail) = self.timeline.enqueued();
        let enqueued = check::enqueued();
        state.tasks.push_back(Task { work, enqueued, place, touched, enqueued_us, trail, number });
        state.pushed += 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Returns true if all work enqueued so far has run.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.done == state.pushed
    }

    /// Waits until all work enqueued so far has run. Without a worker, the calling thread runs it.
    ///
    /// Fails under the same conditions as [`Stepper::run_until`](super::schedule::Stepper::run_until).
    pub(super) fn wait(&self, call: Call) -> Result<()> {
        let mut state = self.state();
        let target = state.pushed;
        if let Some(stepper) = &self.stepper {
            drop(state);
            return stepper.run_until(call, || self.state().done >= target);
        }
        while state.done < target {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Returns true if an unfinished task accesses addresses from `start` to `end`. A stream-ordered free is ignored.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        let state = self.state();
        let enqueued = state.tasks.iter().filter(|task| !matches!(task.work, Work::Free(_)));
        let mut accesses = state.running.iter().chain(enqueued.flat_map(|task| &task.touched));
        accesses.any(|Access { range, .. }| !range.is_empty() && range.start < end && start < range.end)
    }

    /// Returns the sequence number of the next task, if there is a next task and all marks for which it waits have been
    /// reached.
    pub(super) fn ready(&self) -> Option<u64> {
        let state = self.state();
        let next = state.tasks.front()?;
        let awaited = match &next.work {
            Work::Wait(mark) => Some(mark),
            Work::Graph(launch) => launch.before(),
            _ => None,
        };
        awaited.is_none_or(|mark| mark.time().is_some()).then_some(next.number)
    }

    /// Runs the next task, which must be ready, on this thread.
    pub(super) fn step(&self) {
        let Some(task) = self.state().begin() else { return };
        let reached = self.run_as(task);
        self.finish(reached);
    }

    /// Waits until all enqueued work has run, and then ends the worker thread.
    pub(super) fn close(&self) {
        if self.stepper.is_some() {
            // An error means that tasks wait for a recording that was never enqueued. Such tasks can no longer run.
            let _ = self.wait(Call::StreamDestroy);
            return;
        }
        let worker = {
            let mut state = self.state();
            state.closing = true;
            self.changed.notify_all();
            state.worker.take()
        };
        // A host function can be the last owner of the driver, in which case the worker would wait for itself. The
        // workers end even without being joined.
        if let Some(worker) = worker.filter(|_| !host_function::is_running()) {
            // The worker does not panic. If it did, its remaining work would be lost.
            let _ = worker.join();
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.state();
            let task = loop {
                if let Some(next) = state.begin() {
                    break next;
                }
                if state.closing {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            let delay = state.delay;
            drop(state);

            self.control.before_task(delay);
            let reached = self.run_as(task);
            self.finish(reached);
        }
    }

    /// Marks the running task as complete. The task's mark is reached in the same step, so a thread that observes the
    /// mark also observes the stream's progress.
    fn finish(&self, reached: Option<Arc<Mark>>) {
        let mut state = self.state();
        state.running.clear();
        if let Some(mark) = reached {
            mark.reach(self.timeline.now_us());
        }
        state.done += 1;
        self.changed.notify_all();
    }

    /// Runs a task with the state of the thread that enqueued it.
    fn run_as(&self, task: Task) -> Option<Arc<Mark>> {
        let Task { work, enqueued, place, enqueued_us, trail, .. } = task;
        self.timeline.wait_until(enqueued_us);
        let ran = Ran::new(trail.as_ref(), self.number());
        let Some(enqueued) = enqueued else { return self.run(work, ran) };
        enqueued.run(|| {
            let reached = self.run(work, ran);
            self.races.ran(place);
            reached
        })
    }

    /// Runs a task. Returns the mark that the task reaches, if any.
    fn run(&self, work: Work, ran: Ran<'_>) -> Option<Arc<Mark>> {
        match work {
            Work::Record(mark) => return Some(mark),
            Work::Wait(mark) => {
                let start = if ran.is_recorded() { self.timeline.now_ns() } else { 0 };
                self.timeline.wait_until(mark.wait().simulated_us);
                if ran.is_recorded() {
                    ran.waited(self.context.ordinal, (start, self.timeline.now_ns()));
                }
            }
            Work::Free(ptr) => self.free(ptr),
            Work::Host(function) if self.context.is_poisoned() => function.skip(),
            Work::Host(function) => function.call(),
            // A graph that is skipped still keeps its position among the launches of its executable.
            Work::Graph(launch) => launch.run(&self.context, &self.timeline, ran),
            Work::Act(_) | Work::Idle(..) if self.context.is_poisoned() => {}
            // SAFETY: the caller has guaranteed that the memory that the work uses is valid until the work has run, and
            // that the two sides of a copy do not overlap.
            Work::Act(action) => unsafe { self.timeline.run(&action, &self.context, ran) },
            Work::Idle(spec, config) => self.timeline.run_idly(spec, &config, &self.context, ran),
        }
        None
    }

    /// Frees memory whose free was enqueued. If work on another stream still uses the memory, a wait is missing in the
    /// program. On a GPU, this would corrupt memory. On the emulated device, it makes the context unusable.
    fn free(&self, ptr: DevicePtr) {
        let context = &self.context;
        // SAFETY: the caller of the free has guaranteed that work that uses the memory is ordered before the free, and
        // the pending work of all streams is checked.
        if let Err(error) = unsafe { context.heap.left(ptr, |start, end| context.is_busy(start, end)) } {
            let text = format!("{error}; the stream that frees it did not wait for that work");
            context.poison(fault(FaultKind::Other, text));
        }
        context.report_damage(context.heap.take_damage());
    }
}
