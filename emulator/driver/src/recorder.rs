//! [`Recorder`]: passes the records of a driver to the sink.
//!
//! Every record is delivered to the sink immediately, on the thread that creates it. Work that was enqueued before the
//! recording started is not recorded.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use warpsmith_driver::LaunchConfig;
use warpsmith_driver::activity::{
    Activity, ActivityError, ActivityPlace, ActivityResult, ActivitySink, ActivityTransfer, ActivityWait,
    thread_number,
};

thread_local! {
    /// Correlation ID of this thread's current call; 0 if the thread is not in a call or no recording is active.
    static CORRELATION: Cell<u64> = const { Cell::new(0) };
    /// Open ranges of this thread. The innermost range comes last.
    static PARTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Activity recorder of a driver.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    on: AtomicBool,
    /// The `all_calls` option of the last recording.
    all_calls: AtomicBool,
    recording: RwLock<Option<Arc<Recording>>>,
}

impl Recorder {
    /// Returns true if a recording is active. The check costs one relaxed load.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns true if calls that neither enqueue work nor wait are recorded too.
    pub(super) fn has_all_calls(&self) -> bool {
        self.all_calls.load(Ordering::Relaxed)
    }

    fn recording(&self) -> Option<Arc<Recording>> {
        self.recording.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn start(&self, sink: Arc<dyn ActivitySink>, all_calls: bool) -> ActivityResult<()> {
        let mut recording = self.recording.write().unwrap_or_else(PoisonError::into_inner);
        if recording.is_some() {
            return Err(ActivityError::Recording);
        }
        *recording = Some(Arc::new(Recording { sink: RwLock::new(Some(sink)), calls: AtomicU64::new(0) }));
        self.all_calls.store(all_calls, Ordering::Relaxed);
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        let recording = self.recording.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(recording) = recording {
            // Acquiring the lock waits for deliveries in progress, because they hold it.
            let sink = recording.sink.write().unwrap_or_else(PoisonError::into_inner).take();
            drop(sink);
        }
    }

    /// Starts a call on this thread. Returns the trail for the call's work and the correlation ID of the enclosing
    /// call.
    pub(super) fn begin_call(&self) -> Option<(Trail, u64)> {
        let recording = self.recording()?;
        let correlation = recording.calls.fetch_add(1, Ordering::Relaxed) + 1;
        Some((Trail { recording, correlation }, CORRELATION.replace(correlation)))
    }

    /// Returns the trail for work that this thread enqueues now.
    pub(super) fn trail(&self) -> Option<Trail> {
        let correlation = CORRELATION.get();
        if correlation == 0 { None } else { Some(Trail { recording: self.recording()?, correlation }) }
    }
}

struct Recording {
    /// The sink; `None` after the recording has ended.
    sink: RwLock<Option<Arc<dyn ActivitySink>>>,
    /// The last correlation ID that was assigned.
    calls: AtomicU64,
}

impl Recording {
    fn record(&self, activity: &Activity<'_>) {
        if let Some(sink) = &*self.sink.read().unwrap_or_else(PoisonError::into_inner) {
            sink.record(activity);
        }
    }
}

/// Opens a range on this thread.
pub(super) fn push_part(id: u64) {
    let _ = PARTS.try_with(|parts| parts.borrow_mut().push(id));
}

/// Closes the innermost range of this thread.
pub(super) fn pop_part() {
    let _ = PARTS.try_with(|parts| parts.borrow_mut().pop());
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// The recording in which a piece of work is recorded, and the call that enqueued the work.
#[derive(Debug)]
pub(super) struct Trail {
    recording: Arc<Recording>,
    correlation: u64,
}

impl Trail {
    /// Records a finished call, nested in the call with the correlation ID `around`.
    pub(super) fn end_call(&self, around: u64, (start, end): (u64, u64), function: &str) {
        CORRELATION.set(around);
        let Self { recording, correlation } = self;
        let correlation = *correlation;
        recording.record(&Activity::Call { start, end, thread: thread_number(), correlation, function });
        // A call during thread exit is considered outside of all ranges, because the thread's list no longer exists.
        let part = PARTS.try_with(|parts| parts.borrow().last().copied()).ok().flatten();
        if let Some(id) = part {
            recording.record(&Activity::Inside { correlation, id });
        }
    }
}

/// Information for the records of work, if a recording is active.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran<'a> {
    trail: Option<&'a Trail>,
    stream: u32,
    graph: u32,
    node: u64,
}

impl<'a> Ran<'a> {
    /// Returns the information for work on a stream.
    pub(super) fn new(trail: Option<&'a Trail>, stream: u32) -> Self {
        Self { trail, stream, graph: 0, node: 0 }
    }

    /// Returns the information for a node of an executable graph.
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

    /// Records a launch.
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

    /// Records a copy or a memset.
    pub(super) fn transfer(
        self,
        device: u32,
        (kind, bytes): (ActivityTransfer, u64),
        (start, end): (u64, u64),
    ) {
        self.record(&Activity::Transfer { start, end, place: self.place(device), kind, bytes });
    }

    /// Records a host wait.
    pub(super) fn host_waited(self, device: u32, kind: ActivityWait, (start, end): (u64, u64)) {
        self.record(&Activity::Wait { start, end, place: self.place(device), kind });
    }

    /// Records a stream's wait for an event.
    pub(super) fn waited(self, device: u32, (start, end): (u64, u64)) {
        let (place, kind) = (self.place(device), ActivityWait::StreamForEvent);
        self.record(&Activity::Wait { start, end, place, kind });
    }
}
