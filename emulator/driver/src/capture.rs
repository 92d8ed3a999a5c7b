//! Stream capture. The work of a capturing stream becomes part of a graph instead of running.
//!
//! The rules are the same as CUDA's. A stream joins a capture by waiting for an event recorded in it. Querying whether
//! captured work has run invalidates the capture. After that, every call on the capture's streams and events fails
//! until the capture is ended. Ending the capture fails as well, but returns all streams to normal. Captured work is
//! not enqueued.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use super::EmulatedDriver;
use super::context::EmulatedContext;
use super::control::Call;
use super::control::driver_error;
use super::graph::{After, Node, Plan, PlanStep};
use super::stream::{CapturedEvent, Mark, Newest};
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{CaptureMode, CaptureStatus, EventHandle, GraphHandle, NodeHandle, StreamHandle};

#[derive(Debug)]
struct Capture {
    origin: u64,
    /// Graph that the capture creates.
    graph: GraphHandle,
    mode: CaptureMode,
    thread: ThreadId,
    /// Call that invalidated the capture; `None` if the capture is valid.
    invalidated_by: Option<Call>,
    nodes: Vec<Node<Arc<Plan>>>,
}

/// State of a stream in a capture.
#[derive(Debug)]
struct Member {
    capture: u64,
    context: Weak<EmulatedContext>,
    /// Nodes on which the next node of the stream depends.
    tips: Vec<usize>,
}

#[derive(Debug, Default)]
struct State {
    captures: HashMap<u64, Capture>,
    /// Streams that are being captured, keyed by handle.
    members: HashMap<u64, Member>,
}

/// Captures of a driver.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// Number of capturing streams, so that a driver without captures does not acquire the lock.
    streams: AtomicUsize,
    state: Mutex<State>,
}

fn invalidated(call: Call, by: Call) -> DriverError {
    let text = format!(
        "an earlier {} has invalidated the capture; end it, then capture again without it",
        by.name()
    );
    driver_error(call.name(), code::STREAM_CAPTURE_INVALIDATED, text)
}

fn not_captured(call: Call, stream: u64) -> DriverError {
    let text = format!("stream {stream} is not being captured");
    driver_error(call.name(), code::ILLEGAL_STATE, text)
}

impl State {
    /// Returns a capture; `None` if it has ended. Returns an error if the capture is invalidated.
    fn intact(&mut self, call: Call, capture: u64) -> Result<Option<&mut Capture>> {
        match self.captures.get_mut(&capture) {
            Some(Capture { invalidated_by: Some(by), .. }) => Err(invalidated(call, *by)),
            capture => Ok(capture),
        }
    }

    /// Returns a stream and its capture, if the stream is in a capture. Returns an error if the capture is invalidated.
    fn member(&mut self, call: Call, stream: u64) -> Result<Option<(&mut Member, &mut Capture)>> {
        let Self { captures, members } = self;
        let Some(member) = members.get_mut(&stream) else { return Ok(None) };
        match captures.get_mut(&member.capture) {
            Some(Capture { invalidated_by: Some(by), .. }) => Err(invalidated(call, *by)),
            capture => Ok(capture.map(|capture| (member, capture))),
        }
    }

    fn invalidate(&mut self, call: Call, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalidated_by.get_or_insert(call);
        }
    }

    /// Removes a capture and returns it, together with its streams.
    fn remove(&mut self, capture: u64) -> Option<(Capture, HashMap<u64, Member>)> {
        let ended = self.captures.remove(&capture)?;
        let (members, others) =
            std::mem::take(&mut self.members).into_iter().partition(|(_, member)| member.capture == capture);
        self.members = others;
        Some((ended, members))
    }
}

impl Captures {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if any capture exists.
    pub(super) fn any(&self) -> bool {
        self.streams.load(Ordering::Acquire) > 0
    }

    /// Changes the state and then updates the number of capturing streams.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let result = change(&mut state);
        self.streams.store(state.members.len(), Ordering::Release);
        result
    }

    /// Starts a capture that creates the graph with this handle.
    pub(super) fn begin(
        &self,
        stream: u64,
        context: &Arc<EmulatedContext>,
        mode: CaptureMode,
        graph: GraphHandle,
    ) -> Result<()> {
        /// Capture IDs are unique in the process.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.change(|state| {
            if state.members.contains_key(&stream) {
                let text = format!("stream {stream} is already being captured; end that capture first");
                return Err(driver_error(Call::CaptureBegin.name(), code::ILLEGAL_STATE, text));
            }
            let capture = NEXT.fetch_add(1, Ordering::Relaxed);
            let thread = std::thread::current().id();
            let begun =
                Capture { origin: stream, graph, mode, thread, invalidated_by: None, nodes: Vec::new() };
            state.captures.insert(capture, begun);
            state
                .members
                .insert(stream, Member { capture, context: Arc::downgrade(context), tips: Vec::new() });
            Ok(())
        })
    }

    pub(super) fn status(&self, stream: u64) -> CaptureStatus {
        let state = self.state();
        let Some(member) = state.members.get(&stream) else { return CaptureStatus::None };
        match state.captures.get(&member.capture) {
            Some(Capture { invalidated_by: None, .. }) => CaptureStatus::Active(member.capture),
            Some(_) => CaptureStatus::Invalidated,
            None => CaptureStatus::None,
        }
    }

    /// Returns true if a stream is in a capture.
    pub(super) fn holds(&self, stream: u64) -> bool {
        self.any() && self.state().members.contains_key(&stream)
    }

    /// Ends the capture of a stream, unless the capture must be ended on another thread. Returns the handle and the
    /// plan of the graph.
    pub(super) fn end(&self, stream: u64) -> Result<(GraphHandle, Plan)> {
        let call = Call::CaptureEnd;
        self.change(|state| {
            let id = state.members.get(&stream).map(|member| member.capture);
            let Some((id, capture)) = id.and_then(|id| Some((id, state.captures.get(&id)?))) else {
                return Err(not_captured(call, stream));
            };
            if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
                state.invalidate(call, id);
                let text = "another thread started the capture; end it on that thread, or capture in the relaxed \
                            mode";
                return Err(driver_error(call.name(), code::STREAM_CAPTURE_WRONG_THREAD, text));
            }
            let Some((capture, members)) = state.remove(id) else { return Err(not_captured(call, stream)) };
            if let Some(by) = capture.invalidated_by {
                return Err(invalidated(call, by));
            }
            if capture.origin != stream {
                let text = format!("the capture started on stream {}; end it on that stream", capture.origin);
                return Err(driver_error(call.name(), code::STREAM_CAPTURE_UNMATCHED, text));
            }
            let graph = capture.graph;
            joined(capture, members).map(|plan| (graph, plan))
        })
    }

    /// Invalidates the capture of a stream, and returns the error for a call that is not permitted on a capturing
    /// stream.
    pub(super) fn refuse(&self, call: Call, stream: u64, why: &str) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let mut state = self.state();
        let Some((member, _)) = state.member(call, stream)? else { return Ok(()) };
        let capture = member.capture;
        state.invalidate(call, capture);
        let text = format!("stream {stream} is being captured: {why}");
        Err(driver_error(call.name(), code::STREAM_CAPTURE_UNSUPPORTED, text))
    }

    /// Returns an error while a stream of the context is being captured. Does not invalidate the capture.
    pub(super) fn check_none(&self, call: Call, context: &Arc<EmulatedContext>) -> Result<()> {
        let is_here = |member: &Member| member.context.as_ptr() == Arc::as_ptr(context);
        if self.any() && self.state().members.values().any(is_here) {
            let text = "a stream of the context is being captured";
            return Err(driver_error(call.name(), code::STREAM_CAPTURE_UNSUPPORTED, text));
        }
        Ok(())
    }

    /// If any stream of a context is in a capture, invalidates the captures and returns an error for a call that
    /// affects all streams of the context.
    pub(super) fn refuse_context(&self, call: Call, context: &Arc<EmulatedContext>) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let mut state = self.state();
        let here = |member: &&Member| member.context.as_ptr() == Arc::as_ptr(context);
        let captures: BTreeSet<u64> =
            state.members.values().filter(here).map(|member| member.capture).collect();
        let Some(first) = captures.first().copied() else { return Ok(()) };
        let verdict = state.intact(call, first).map(|_| ());
        captures.iter().for_each(|capture| state.invalidate(call, *capture));
        verdict?;
        let text =
            "a stream of the context is being captured, and its work does not run; end the capture first";
        Err(driver_error(call.name(), code::STREAM_CAPTURE_UNSUPPORTED, text))
    }

    /// Returns the error for a call that queries a captured event. The query invalidates the capture.
    pub(super) fn refuse_event(&self, call: Call, event: &CapturedEvent) -> DriverError {
        let mut state = self.state();
        if let Err(invalidated) = state.intact(call, event.capture) {
            return invalidated;
        }
        state.invalidate(call, event.capture);
        let text = "the event was last recorded in a capture, which does not run work; record it again outside the capture";
        driver_error(call.name(), code::CAPTURED_EVENT, text)
    }

    /// Adds a node with the handle `handle` to the capture of a stream.
    pub(super) fn add(&self, call: Call, stream: u64, handle: NodeHandle, step: PlanStep) -> Result<()> {
        let mut state = self.state();
        let Some((member, capture)) = state.member(call, stream)? else {
            return Err(not_captured(call, stream));
        };
        let early = match &member.tips[..] {
            [tip] => step.is_dependent() && capture.nodes[*tip].step.is_kernel(),
            _ => false,
        };
        let after = member.tips.iter().map(|&node| After { node, early }).collect();
        member.tips = vec![capture.nodes.len()];
        capture.nodes.push(Node { handle: handle.0, copy_of: None, after, step });
        Ok(())
    }

    /// Returns the nodes on which the next node of a stream depends.
    pub(super) fn tips(&self, stream: u64) -> Vec<NodeHandle> {
        if !self.any() {
            return Vec::new();
        }
        let state = self.state();
        let member = state.members.get(&stream);
        let capture = member.and_then(|member| state.captures.get(&member.capture));
        let (Some(member), Some(capture)) = (member, capture) else { return Vec::new() };
        member.tips.iter().map(|tip| NodeHandle(capture.nodes[*tip].handle)).collect()
    }

    /// Returns the captured event that is recorded on a stream, if the stream is in a capture.
    pub(super) fn record(&self, call: Call, stream: u64) -> Result<Option<CapturedEvent>> {
        if !self.any() {
            return Ok(None);
        }
        let mut state = self.state();
        let member = state.member(call, stream)?;
        Ok(member.map(|(member, _)| CapturedEvent { capture: member.capture, tips: member.tips.clone() }))
    }

    fn wait(&self, call: Call, stream: u64, context: &Arc<EmulatedContext>, event: &Newest) -> Result<bool> {
        self.change(|state| {
            let own = state.member(call, stream)?.map(|(member, _)| member.capture);
            let event = match (own, event) {
                (None, Newest::Never | Newest::Mark(_)) => return Ok(false),
                (Some(own), Newest::Never | Newest::Mark(_)) => {
                    state.invalidate(call, own);
                    let text = "a stream that is being captured cannot wait for an event that was not recorded in \
                                the capture; let the stream wait before the capture starts";
                    return Err(driver_error(call.name(), code::STREAM_CAPTURE_ISOLATION, text));
                }
                (_, Newest::Captured(event)) => event,
            };
            if state.intact(call, event.capture)?.is_none() {
                let Some(own) = own else {
                    let text = "the event was last recorded in a capture that has ended; record it again";
                    return Err(driver_error(call.name(), code::CAPTURED_EVENT, text));
                };
                state.invalidate(call, own);
                let text = "the event was last recorded in an earlier capture; record it again in this one";
                return Err(driver_error(call.name(), code::STREAM_CAPTURE_ISOLATION, text));
            }
            if let Some(own) = own.filter(|own| *own != event.capture) {
                state.invalidate(call, own);
                state.invalidate(call, event.capture);
                let text = "the event was recorded in another capture, and captures cannot be joined; record it in \
                            this capture";
                return Err(driver_error(call.name(), code::STREAM_CAPTURE_MERGE, text));
            }
            let member = state.members.entry(stream).or_insert_with(|| Member {
                capture: event.capture,
                context: Arc::downgrade(context),
                tips: Vec::new(),
            });
            let new: Vec<usize> = event.tips.iter().copied().filter(|tip| !member.tips.contains(tip)).collect();
            member.tips.extend(new);
            Ok(true)
        })
    }

    /// Updates the captures after a stream was destroyed. A capture that was started on the stream can no longer be
    /// ended. A capture that the stream had joined is invalidated.
    pub(super) fn stream_destroyed(&self, stream: u64) {
        if !self.any() {
            return;
        }
        self.change(|state| {
            let Some(Member { capture, .. }) = state.members.remove(&stream) else { return };
            match state.captures.get(&capture) {
                Some(Capture { origin, .. }) if *origin == stream => _ = state.remove(capture),
                _ => state.invalidate(Call::StreamDestroy, capture),
            }
        });
    }

    /// Removes the captures in which a released context's streams take part.
    pub(super) fn context_released(&self, context: &Arc<EmulatedContext>) {
        if !self.any() {
            return;
        }
        self.change(|state| {
            let here = |member: &&Member| member.context.as_ptr() == Arc::as_ptr(context);
            let captures: BTreeSet<u64> =
                state.members.values().filter(here).map(|member| member.capture).collect();
            captures.iter().for_each(|capture| _ = state.remove(*capture));
        });
    }
}

/// Reason why captured work cannot be queried.
pub(super) const NOTHING_RUNS: &str =
    "captured work does not run, so it cannot be queried or awaited; end the capture first";

impl EmulatedDriver {
    /// Returns the last recording of an event. Returns an error if it belongs to a capture.
    pub(super) fn newest_mark(&self, call: Call, event: EventHandle) -> Result<Option<Arc<Mark>>> {
        match self.events.get(call, event.0)?.newest() {
            Newest::Never => Ok(None),
            Newest::Mark(mark) => Ok(Some(mark)),
            Newest::Captured(captured) => Err(self.captures.refuse_event(call, &captured)),
        }
    }

    /// If the stream or the event is in a capture, makes the stream wait for the event and returns true.
    pub(super) fn captures_wait(&self, call: Call, stream: StreamHandle, event: &Newest) -> Result<bool> {
        if !self.captures.any() && !matches!(event, Newest::Captured(_)) {
            return Ok(false);
        }
        let queue = self.streams.get(call, stream.0)?;
        self.captures.wait(call, stream.0, queue.context(), event)
    }
}

/// Returns the graph of a capture that has ended, if the stream on which the capture was started has joined the work of
/// all other streams.
fn joined(capture: Capture, members: HashMap<u64, Member>) -> Result<Plan> {
    let mut before = vec![false; capture.nodes.len()];
    let mut open = members.get(&capture.origin).map_or_else(Vec::new, |origin| origin.tips.clone());
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut before[node], true) {
            open.extend(capture.nodes[node].after.iter().map(|after| after.node));
        }
    }
    let loose = members.iter().filter(|(_, member)| member.tips.iter().any(|tip| !before[*tip]));
    match loose.map(|(stream, _)| *stream).min() {
        None => Ok(Plan { nodes: capture.nodes, conditions: Vec::new() }),
        Some(stream) => {
            let text = format!(
                "stream {} did not wait for the work of stream {stream}, which joined the capture; record an event \
                 on that stream and wait for it before the capture ends",
                capture.origin
            );
            Err(driver_error(Call::CaptureEnd.name(), code::STREAM_CAPTURE_UNJOINED, text))
        }
    }
}
