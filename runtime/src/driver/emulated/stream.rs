//! Streams and events of the emulated device: one worker thread a stream, started with its first task.
//!
//! Tasks of a stream run in order; streams run independently. A task of a poisoned context is skipped, except
//! that events are still marked, so nobody waits forever. When [`Queue::wait`] returns, nothing enqueued before
//! the call runs any more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::context::EmulatedContext;
use super::control::Control;
use super::kernel::KernelCall;
use crate::driver::{DevicePtr, Fault, FaultKind};

/// An event: its newest record, if it has one.
#[derive(Debug, Default)]
pub(super) struct EventState {
    newest: Mutex<Option<Arc<Mark>>>,
}

impl EventState {
    /// The newest record; `None` if it was never recorded.
    pub(super) fn newest(&self) -> Option<Arc<Mark>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a new record, to be reached by [`Work::Record`]. Whoever waits for an older one still does.
    pub(super) fn record(&self) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&mark));
        mark
    }
}

/// A place in a stream.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// When the stream came to it.
    at: Mutex<Option<Instant>>,
    reached: Condvar,
}

impl Mark {
    /// When the stream came to it; `None` if it has not.
    pub(super) fn time(&self) -> Option<Instant> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.reached.notify_all();
    }

    /// Waits until the stream has come to it.
    pub(super) fn wait(&self) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while at.is_none() {
            at = self.reached.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a task does.
#[derive(Debug)]
pub(super) enum Work {
    Copy {
        dst: u64,
        src: u64,
        bytes: usize,
    },
    Set {
        dst: u64,
        value: u8,
        bytes: usize,
    },
    Launch(KernelCall),
    /// Frees a block in stream order.
    Free(DevicePtr),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
}

/// The ranges of device memory that a task touches.
pub(super) type Touched = Vec<Range<u64>>;

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<(Work, Touched)>,
    /// What the running task touches.
    running: Touched,
    pushed: u64,
    done: u64,
    closing: bool,
    delay: Duration,
    worker: Option<JoinHandle<()>>,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Queue {
    context: Arc<EmulatedContext>,
    control: Arc<Control>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    pub(super) fn new(context: Arc<EmulatedContext>, control: Arc<Control>) -> Arc<Self> {
        Arc::new(Self { context, control, state: Mutex::default(), changed: Condvar::new() })
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

    /// Enqueues a task, starting the worker if this is the first.
    ///
    /// Errors with the system's text when the thread cannot be started.
    pub(super) fn push(self: &Arc<Self>, work: Work, touched: Touched) -> std::io::Result<()> {
        let mut state = self.state();
        if state.worker.is_none() {
            let queue = Arc::clone(self);
            let worker = std::thread::Builder::new().name("warpsmith-stream".to_owned());
            state.worker = Some(worker.spawn(move || queue.work())?);
        }
        state.tasks.push_back((work, touched));
        state.pushed += 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Whether everything enqueued so far has run.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.done == state.pushed
    }

    /// Waits until everything enqueued so far has run.
    pub(super) fn wait(&self) {
        let mut state = self.state();
        let target = state.pushed;
        while state.done < target {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a task that has not run to its end touches addresses from `start` to `end`.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        let state = self.state();
        let mut ranges = state.running.iter().chain(state.tasks.iter().flat_map(|(_, touched)| touched));
        ranges.any(|range| range.start < end && start < range.end)
    }

    /// Runs what is enqueued, then ends the worker.
    pub(super) fn close(&self) {
        let worker = {
            let mut state = self.state();
            state.closing = true;
            self.changed.notify_all();
            state.worker.take()
        };
        if let Some(worker) = worker {
            // The worker catches nothing and panics nowhere; if it did, its work is lost with it.
            let _ = worker.join();
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.state();
            let (work, touched) = loop {
                if let Some(task) = state.tasks.pop_front() {
                    break task;
                }
                if state.closing {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.running = touched;
            let delay = state.delay;
            drop(state);

            self.control.before_task(delay);
            self.run(work);

            let mut state = self.state();
            state.running.clear();
            state.done += 1;
            self.changed.notify_all();
        }
    }

    fn run(&self, work: Work) {
        match work {
            Work::Record(mark) => mark.reach(),
            Work::Wait(mark) => mark.wait(),
            Work::Free(ptr) => self.free(ptr),
            _ if self.context.is_poisoned() => {}
            // SAFETY: whoever enqueued the copy promised that both ranges are valid until it has run, and
            // that they do not overlap.
            Work::Copy { dst, src, bytes } => unsafe {
                let src: *const u8 = std::ptr::with_exposed_provenance(src as usize);
                let dst: *mut u8 = std::ptr::with_exposed_provenance_mut(dst as usize);
                dst.copy_from_nonoverlapping(src, bytes);
            },
            // SAFETY: as above.
            Work::Set { dst, value, bytes } => unsafe {
                let dst: *mut u8 = std::ptr::with_exposed_provenance_mut(dst as usize);
                dst.write_bytes(value, bytes);
            },
            Work::Launch(call) => {
                // SAFETY: whoever enqueued the launch promised that its arguments are valid until it is done.
                if let Err(fault) = unsafe { call.run() } {
                    self.context.poison(fault);
                }
            }
        }
    }

    /// Gives memory back whose free was enqueued. Work on another stream that still uses it is a missing wait of
    /// the program's, which on a GPU corrupts memory: it stops the context here.
    fn free(&self, ptr: DevicePtr) {
        let context = &self.context;
        // SAFETY: whoever enqueued the free promised that the work which uses the memory comes before it, and
        // what the streams know of is checked.
        if let Err(error) = unsafe { context.heap.left(ptr, |start, end| context.is_busy(start, end)) } {
            context.poison(Fault {
                kind: FaultKind::Other,
                message: format!("{error}; the stream that frees it did not wait for that work"),
                location: None,
                kernel: None,
                block: None,
                thread: None,
            });
        }
    }
}
