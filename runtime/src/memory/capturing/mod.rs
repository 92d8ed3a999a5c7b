//! [`Capturing`]: an active capture and its records for the graph.
//!
//! Captured work is synchronized and recorded separately from running work, so the buffers' own usage records are
//! neither read nor changed. The capture records which buffers its work uses ([`Capturing::enqueue`]) and inserts waits
//! between its own streams. When the capture ends, it passes these records to the graph, whose launches then count as
//! uses of the buffers. The capture's lock is held while work is captured, while the capture ends, and during other
//! threads' driver calls on its streams. It is also held while the last nodes of a stream are read, because the
//! driver's list of these nodes is valid only until the next call on the stream.

mod notes;
mod private_memory;
mod scratch;
mod uses;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::MemoryPool;
use super::allocator::CachingAllocator;
use super::allocator::pool::CaptureGuard;
use super::graph_resource::GraphResource;
use super::usage::Access;
use crate::device::Device;
use crate::device::flags::ActiveCapture;
use crate::device::graph_nodes::Note;
use crate::device::observe::Operation;
use crate::driver::{self, CaptureMode, Context, Driver, EventHandle, GraphFunction, GraphHandle};
use crate::error::{GraphError, Result};
use crate::stream::Stream;
use crate::stream::captures::{Before, CaptureSink, Held, Holds, Invalidation};
use crate::stream::clock::Timestamp;
use crate::stream::launch_hook::{LaunchHook, LaunchHooks};

pub(crate) use self::private_memory::PrivateMemory;
use self::scratch::CapturedScratch;
use self::uses::Resource;
pub(crate) use self::uses::{CapturedUse, enqueue, note_allocated};

#[derive(Default)]
struct State {
    /// Streams of the capture, starting with the origin stream.
    streams: Vec<Stream>,
    routes: Vec<CaptureGuard>,
    resources: HashMap<*const GraphResource, Resource>,
    scratch: Vec<CapturedScratch>,
    memory: Vec<PrivateMemory>,
    functions: Vec<Arc<GraphFunction>>,
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    hooks: LaunchHooks,
    kernels: Vec<Launched>,
    ended: bool,
    active: Option<ActiveCapture>,
}

// SAFETY: the addresses are used only as keys, and each entry keeps its memory alive.
unsafe impl Send for State {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel that a graph launches.
pub(crate) type Launched = (&'static gpu_spec::KernelSpec, crate::driver::LaunchConfig);

/// The information that a capture has recorded for its graph.
pub(crate) struct Captured {
    pub handle: GraphHandle,
    pub pool: MemoryPool,
    pub resources: Vec<(Arc<GraphResource>, Range<usize>, Access)>,
    pub memory: Vec<PrivateMemory>,
    pub functions: Vec<Arc<GraphFunction>>,
    pub kept: Vec<Arc<dyn Any + Send + Sync>>,
    pub hooks: LaunchHooks,
    pub kernels: Vec<Launched>,
    pub invalidation: Invalidation,
    /// Notes of the captured operations.
    pub notes: Vec<Note>,
}

/// An active capture. See the [module's documentation](self).
pub(crate) struct Capturing {
    pool: MemoryPool,
    invalidation: Invalidation,
    device: Device,
    mode: CaptureMode,
    thread: ThreadId,
    /// This field is not in `state`, because `state` is locked while operations record notes.
    notes: Mutex<Vec<Note>>,
    /// True if another thread's driver call was in progress on a stream when the stream joined the capture.
    is_disturbed: AtomicBool,
    state: Mutex<State>,
}

/// The state, locked by the current thread.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _holds: Holds,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Held for Locked<'_> {}

pub(crate) fn begin(stream: &Stream, mode: CaptureMode) -> Result<Arc<Capturing>> {
    let device = stream.device();
    device.check()?;
    if stream.is_shared() {
        return Err(GraphError::SharedStream.into());
    }
    if device.part::<CachingAllocator>().is_stream_ordered() {
        return Err(GraphError::NotCapturable {
            call: "Graph::capture",
            instead: "with the driver's stream-ordered pool, the memory would become part of the graph; use the \
                      native backend",
        }.into());
    }
    let pool = MemoryPool::for_graph(device)?;
    let capturing = Arc::new(Capturing {
        pool,
        invalidation: Invalidation::default(),
        device: device.clone(),
        mode,
        thread: thread::current().id(),
        notes: Mutex::default(),
        is_disturbed: AtomicBool::new(false),
        state: Mutex::default(),
    });
    let watch = stream.watch(|| Operation::CaptureBegin);
    let mut state = capturing.lock();
    state.active = Some(ActiveCapture::begin());
    let begun = capturing
        .enter(stream, &mut state, |driver, context| driver.capture_begin(context, stream.handle(), mode));
    drop(state);
    watch.done(begun)?;
    Ok(capturing)
}

impl Capturing {
    fn lock(&self) -> Locked<'_> {
        let state = lock(&self.state);
        Locked { state, _holds: Holds::begin(self) }
    }

    /// Makes a stream join the capture; `call` is the driver call that starts capturing it.
    fn enter(
        self: &Arc<Self>,
        stream: &Stream,
        state: &mut State,
        call: impl FnOnce(&dyn Driver, Context) -> driver::Result<()>,
    ) -> Result<()> {
        let device = stream.device();
        let captures = stream.captures();
        let mut slot = captures.slot();
        if slot.current.is_some() {
            return Err(GraphError::CaptureUnderway.into());
        }
        let event = device.0.events.take(device, false)?;
        let route = self.pool.capture(stream).inspect_err(|_| device.0.events.put(event, false))?;
        slot.invalidation = Some(Arc::clone(&self.invalidation));
        slot.pool = Some(self.pool.id());
        // This must happen before the slot is closed and the driver begins the capture; see the module's documentation.
        if captures.changed() {
            self.is_disturbed.store(true, Ordering::Release);
        }
        let closed = stream.running_clock().close();
        let before = Arc::new(Before { event, closed, device: device.clone() });
        let handle = stream.handle();
        let recorded = stream.call(|driver, context| driver.event_record(context, event, handle));
        if let Err(error) = recorded.and_then(|()| stream.call(call)) {
            captures.changed();
            // The slot is dropped before the route, because dropping the route may record events.
            drop(slot);
            return Err(error);
        }
        slot.before = Some(before);
        slot.current = Some(Arc::clone(self) as Arc<dyn CaptureSink>);
        state.streams.push(stream.clone());
        state.routes.push(route);
        Ok(())
    }

    /// Calls the driver for a captured operation that uses no buffers.
    fn call<R>(
        &self,
        stream: &Stream,
        work: impl FnOnce(&dyn Driver, Context) -> driver::Result<R>,
    ) -> Result<R> {
        let state = self.lock();
        if state.ended {
            return Err(GraphError::CaptureEnded.into());
        }
        let called = stream.call(work);
        drop(state);
        called
    }

    /// Keeps an item alive as long as the graph.
    pub fn keep(&self, item: Arc<dyn Any + Send + Sync>) {
        self.lock().kept.push(item);
    }

    /// Records a captured kernel.
    pub fn note_kernel(&self, kernel: Launched) {
        self.lock().kernels.push(kernel);
    }

    /// Ends the capture, even on errors, and returns its records.
    pub fn end(self: &Arc<Self>) -> Result<Captured> {
        let mut state = self.lock();
        let Some(origin) = state.streams.first().filter(|_| !state.ended).cloned() else {
            return Err(GraphError::CaptureEnded.into());
        };
        let handle = origin.handle();
        let kernels = state.kernels.len();
        let what = |graph| Operation::CaptureEnd { graph, kernels };
        let mut watch = origin.watch(|| what(None));
        let ended = origin.device().call_lost(|driver, context| driver.capture_end(context, handle));
        if let Ok(graph) = ended {
            watch.found(|| what(Some(graph)));
        }
        drop(watch);
        state.ended = true;
        let streams = std::mem::take(&mut state.streams);
        for stream in &streams {
            let captures = stream.captures();
            let mut slot = captures.slot();
            (slot.current, slot.before) = (None, None);
            // This must happen after the driver call.
            captures.changed();
        }
        let mut noted = std::mem::take(&mut *state);
        state.ended = true;
        drop(state);
        // The lock must not be held here: dropping a route may record events and drop the last handle to a stream.
        noted.routes.clear();
        drop(streams);
        let handle = ended?;
        let mut resources = Vec::new();
        for (_, Resource { tracked, touched, .. }) in noted.resources.drain() {
            // Memory that was allocated and freed within the capture has no other user.
            if tracked.pool() == Some(self.pool.id()) && tracked.is_dropped() {
                continue;
            }
            resources.extend(
                touched.take().into_iter().map(|(range, access)| (Arc::clone(&tracked), range, access)),
            );
        }
        Ok(Captured {
            handle,
            pool: self.pool.clone(),
            resources,
            memory: noted.memory,
            functions: noted.functions,
            kept: noted.kept,
            hooks: noted.hooks,
            kernels: noted.kernels,
            invalidation: Arc::clone(&self.invalidation),
            notes: std::mem::take(&mut *lock(&self.notes)),
        })
    }
}

impl CaptureSink for Capturing {
    fn join(self: Arc<Self>, stream: &Stream, closed: &Timestamp, event: EventHandle) -> Result<()> {
        if stream.is_shared() {
            return Err(GraphError::SharedStream.into());
        }
        let handle = stream.handle();
        let mut state = self.lock();
        if state.ended {
            return Err(GraphError::CaptureEnded.into());
        }
        self.enter(stream, &mut state, |driver, context| driver.stream_wait_event(context, handle, event))?;
        stream.captured_clock().learn(closed);
        Ok(())
    }

    fn wait_event(&self, stream: &Stream, event: EventHandle) -> Result<()> {
        let handle = stream.handle();
        stream.observed(
            || Operation::EventWait { event, on: None, buffer: None },
            || self.call(stream, |driver, context| driver.stream_wait_event(context, handle, event)),
        )
    }

    fn record_event(&self, stream: &Stream, event: EventHandle) -> Result<()> {
        let handle = stream.handle();
        self.call(stream, |driver, context| driver.event_record(context, event, handle))
    }

    fn host_function(&self, stream: &Stream, function: Arc<GraphFunction>) -> Result<()> {
        let mut state = self.lock();
        if state.ended {
            return Err(GraphError::CaptureEnded.into());
        }
        // The function is stored before the driver call, so that it is kept even if the call fails.
        state.functions.push(Arc::clone(&function));
        let handle = stream.handle();
        stream.observed(
            || Operation::HostFunction,
            || {
                // SAFETY: the graph keeps the function alive, and its executables keep alive everything that the graph
                // keeps alive.
                stream.call(|driver, context| unsafe {
                    driver.capture_host_function(context, handle, &function)
                })
            },
        )
    }

    fn add_hook(&self, hook: Arc<LaunchHook>) -> Result<()> {
        let mut state = self.lock();
        if state.ended {
            return Err(GraphError::CaptureEnded.into());
        }
        state.hooks.add(hook);
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.lock().ended
    }

    fn hold(&self) -> Box<dyn Held + '_> {
        Box::new(self.lock())
    }
}

impl Stream {
    /// Returns the stream's capture, if any.
    pub(crate) fn capturing(&self) -> Option<Arc<Capturing>> {
        let capture: Arc<dyn Any + Send + Sync> = self.capture_sink()?;
        capture.downcast().ok()
    }
}

impl fmt::Debug for Capturing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capturing({:?})", self.pool)
    }
}
