//! [`GraphExec`]: a graph instantiated for launching.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Graph;
use super::content::Content;
use super::nodes::{NodeUse, Order, uses_of};
use crate::device::Device;
use crate::device::graph_nodes::GraphNodes;
use crate::device::health::Quiet;
use crate::device::observe::{self, Operation, site};
use crate::driver::{ExecUpdate, GraphExecHandle, NodeHandle, NodeWork, host_function};
use crate::error::{Error, GraphError, Result};
use crate::event::Event;
use crate::launch::arguments::Uses;
use crate::memory::graph_resource::Resources;
use crate::memory::statistics::PoolId;
use crate::stream::Stream;
use crate::stream::clock::Timeline;

/// Remedy in the error for a stream of another device.
const ON_ITS_DEVICE: &str = "launch it on a stream of its device";

/// An executable graph, ready to be launched; see the [module's documentation](super).
///
/// It can be launched from any thread on any stream of its device. Launches of the same executable are serialized.
/// Dropping the executable does not block; its resources are freed after its launches have run.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Graph, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1_u32, 2])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// let exec = Graph::capture(&stream, || stream.copy(&x, &mut y))?.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(y.to_host()?, [1, 2]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct GraphExec {
    /// `Some` until the executable is dropped.
    inner: Option<Box<Inner>>,
}

struct Inner {
    device: Device,
    handle: GraphExecHandle,
    state: Mutex<State>,
}

struct State {
    content: Content,
    /// The operation that captured or added each node, for observers.
    origins: Arc<GraphNodes>,
    pools: Vec<PoolId>,
    /// Memory uses of nodes added one by one.
    nodes: Vec<NodeUse>,
    order: Order,
    /// Memory uses in `content.resources` other than those in `nodes`.
    others: Resources,
    /// True if `content.resources` must be rebuilt.
    changed: bool,
    /// Streams on which the executable was launched, with the epoch of the last launch on each stream.
    launches: Vec<(Stream, u64)>,
    /// Content replaced by updates, kept until the launches that use it have run.
    before: Vec<Content>,
}

impl State {
    fn of(graph: &Graph, exec: GraphExecHandle) -> Self {
        Self {
            origins: graph.origins.of_executable(&graph.device, exec),
            content: graph.content.clone(),
            pools: graph.content.pools(),
            nodes: graph.added.iter().map(|added| added.uses.clone()).collect(),
            order: graph.order(),
            others: graph.others.clone(),
            changed: false,
            launches: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Records a launch and keeps its stream alive until the launch has run. Returns the result of [`Self::sweep`].
    fn launched(&mut self, stream: &Stream) -> Vec<Content> {
        let epoch = stream.epoch(Timeline::Running);
        if let Some((_, last)) = self.launches.iter_mut().find(|(known, _)| known == stream) {
            *last = epoch;
            return Vec::new();
        }
        let unused = self.sweep();
        self.launches.push((stream.clone(), epoch));
        unused
    }

    /// Removes completed launches from the list. Returns the content that only these launches needed.
    fn sweep(&mut self) -> Vec<Content> {
        self.launches.retain(|(stream, epoch)| !stream.running_clock().is_done(*epoch));
        if self.launches.is_empty() { std::mem::take(&mut self.before) } else { Vec::new() }
    }
}

impl GraphExec {
    pub(super) fn new(graph: &Graph) -> Result<Self> {
        graph.content.check()?;
        let device = graph.device().clone();
        let what = |exec| Operation::GraphInstantiate { graph: graph.handle, exec };
        let mut watch = observe::begin(&device, || (None, what(None)));
        let handle = device.call(|driver, context| driver.graph_instantiate(context, graph.handle))?;
        watch.found(|| what(Some(handle)));
        drop(watch);
        let state = Mutex::new(State::of(graph, handle));
        Ok(Self { inner: Some(Box::new(Inner { device, handle, state })) })
    }

    #[inline]
    fn inner(&self) -> &Inner {
        let Some(inner) = &self.inner else { unreachable!("it is there until it is dropped") };
        inner
    }

    fn inner_mut(&mut self) -> (&Device, GraphExecHandle, &mut State) {
        let Some(inner) = &mut self.inner else { unreachable!("it is there until it is dropped") };
        (&inner.device, inner.handle, inner.state.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the device on which the graph runs.
    pub fn device(&self) -> &Device {
        &self.inner().device
    }

    /// Launches the graph. It runs after all earlier work on the stream and on the graph's buffers.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`] for a stream of another device, [`GraphError::BufferDropped`],
    /// [`GraphError::HostBufferInUse`], or [`GraphError::Invalidated`]. Returns [`GraphError::NotCapturable`] on a
    /// stream that is being captured; use [`Graph::add_child`] to add the graph to another graph. Returns the error
    /// from a callback registered with [`Stream::on_graph_launch`], and [`GraphError::LaunchInHook`] if called within
    /// such a callback. Also returns the fault of earlier work.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        let Inner { device, handle: exec, .. } = self.inner();
        stream.check_home(
            device,
            || ("launching a graph".to_owned(), "the graph".to_owned()),
            ON_ITS_DEVICE,
        )?;
        device.check_process()?;
        stream
            .check_not_capturing("GraphExec::launch", "add the graph to another with `Graph::add_child`")?;
        let mut state = self.inner().state();
        state.content.check()?;
        if state.changed {
            state.gather();
        }
        let hooks = state.content.hooks.clone();
        let hooked = if hooks.is_empty() {
            Vec::new()
        } else {
            // Hooks are not called for a launch that fails validation.
            state.content.resources.check(&state.pools)?;
            // The lock is released first, because hooks are user callbacks.
            drop(state);
            let hooked = hooks.call(stream)?;
            state = self.inner().state();
            hooked
        };
        let State { content, pools, origins, .. } = &*state;
        let captures = stream.capture_count();
        let handle = stream.handle();
        let mut tried = false;
        let launched = content.resources.enqueue(stream, pools, || {
            tried = true;
            let watch = stream.watch(|| Operation::GraphLaunch {
                exec: *exec,
                nodes: origins,
                kernels: &content.kernels,
            });
            watch.done(stream.call(|driver, context| {
                // SAFETY: the buffers exist and have recorded the stream, so their memory stays allocated and later
                // uses run after this launch. The state keeps the graph's own memory allocated.
                unsafe { driver.graph_launch(context, *exec, handle) }
            }))
        });
        drop(hooked);
        let mut unused = Vec::new();
        if tried {
            // Recorded even after a failure, because some work may have been enqueued.
            if stream.capture_count() != captures {
                stream.invalidate_captures();
            }
            unused = state.launched(stream);
        }
        if launched.is_ok() {
            device.0.health.graph_launched(stream.id(), &state.content.kernels);
        }
        drop(state);
        // The lock is released first, because the dropped content may include user objects.
        drop(unused);
        launched?;
        if device.0.launch_blocking { stream.synchronize() } else { Ok(()) }
    }

    /// Uploads the executable to the device, which makes its first launch faster.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`] or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        let what = || ("uploading a graph".to_owned(), "the graph".to_owned());
        stream.check_home(self.device(), what, ON_ITS_DEVICE)?;
        stream.check_not_capturing("GraphExec::upload", "call it after the capture has ended")?;
        let state = self.inner().state();
        let (exec, handle) = (self.inner().handle, stream.handle());
        stream.call(|driver, context| driver.graph_upload(context, exec, handle))?;
        drop(state);
        Ok(())
    }

    /// Updates the executable to another graph with the same topology (the same nodes in the same order) but possibly
    /// different parameters and buffers. Launches that are already enqueued are unaffected.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Graph, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let (a, b) = (DeviceBuffer::from_host(&stream, &[1u8])?, DeviceBuffer::from_host(&stream, &[2u8])?);
    /// let mut out = DeviceBuffer::zeros(&stream, 1)?;
    /// let mut exec = Graph::capture(&stream, || stream.copy(&a, &mut out))?.instantiate()?;
    /// exec.update(&Graph::capture(&stream, || stream.copy(&b, &mut out))?)?;
    /// exec.launch(&stream)?;
    /// assert_eq!(out.to_host()?, [2]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`GraphError::NotUpdated`], without changing the executable, if the graphs differ in anything but
    /// parameters and buffers; use [`Graph::instantiate`] instead. Returns [`Error::DifferentDevices`] or any [driver
    /// error](crate::Error::Driver).
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        let (device, exec, state) = self.inner_mut();
        if !graph.device().ptr_eq(device) {
            return Err(Error::DifferentDevices {
                operation: "updating a graph".to_owned(),
                what: "the other graph".to_owned(),
                found: graph.device().id(),
                expected: device.id(),
                beside: "the executable",
                remedy: "capture it on a stream of that device",
            });
        }
        graph.content.check()?;
        let from = graph.handle;
        // SAFETY: the executable keeps the graph's content alive from now on.
        let updated =
            device.call(|driver, context| unsafe { driver.graph_exec_update(context, exec, from) })?;
        match updated {
            ExecUpdate::Done => {
                state.before.push(std::mem::replace(&mut state.content, graph.content.clone()));
                state.pools = state.content.pools();
                state.origins = graph.origins.of_updated(&state.origins);
                // Nodes of the original graph no longer identify this executable's nodes.
                (state.nodes, state.order) = (Vec::new(), Order::default());
                (state.others, state.changed) = (state.content.resources.clone(), false);
                state.sweep();
                Ok(())
            }
            ExecUpdate::Refused { reason, .. } => Err(Error::Graph(GraphError::NotUpdated { reason })),
        }
    }

    /// Simulates that foreign work has entered the capture.
    #[cfg(test)]
    pub(super) fn invalidate(&self) {
        self.inner().state().content.invalidate();
    }

    /// Sets new parameters of an added node, which then uses the memory in `uses`.
    ///
    /// # Safety
    /// The requirements of [`GraphDriver::graph_exec_set`](crate::driver::GraphDriver::graph_exec_set) apply to the
    /// buffers of these arguments.
    pub(super) unsafe fn set(
        &mut self,
        graph: u64,
        index: usize,
        uses: &Uses<'_>,
        work: NodeWork<'_>,
    ) -> Result<()> {
        let (device, exec, state) = self.inner_mut();
        let node = state.node(graph, index)?;
        let set = || {
            // SAFETY: guaranteed by the caller.
            device.call(|driver, context| unsafe { driver.graph_exec_set(context, exec, node, work) })
        };
        if state.nodes[index].is_of(uses.iter()) {
            return set();
        }
        let uses = NodeUse::of(uses_of(uses.iter()));
        let conflicts = |other: &usize| state.nodes[*other].conflicts(&uses);
        if let Some(other) = state.order.unordered(index).find(conflicts) {
            return Err(GraphError::NodeConflict { node: index, other }.into());
        }
        set()?;
        state.nodes[index].replace(uses);
        state.changed = true;
        Ok(())
    }
}

impl State {
    /// Returns the node added at `index` to the graph numbered `graph`.
    fn node(&self, graph: u64, index: usize) -> Result<NodeHandle> {
        match self.nodes.get(index) {
            Some(node) if self.order.is_of(graph) => Ok(node.handle()),
            _ => Err(Error::Graph(GraphError::NodeOfOtherGraph)),
        }
    }

    /// Rebuilds the list of all memory that the executable uses.
    fn gather(&mut self) {
        let mut resources = self.others.clone();
        self.nodes.iter().for_each(|node| node.add_to(&mut resources));
        self.content.resources = resources;
        self.changed = false;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the resources that launches need, once the streams have finished these launches.
    fn drop_behind(&self, launches: Vec<(Stream, u64)>, content: Content, before: Vec<Content>) {
        let behind = Stream::from_pool(&self.device).and_then(|behind| {
            // The stream must not be in a capture started by other code.
            let behind = if behind.is_capturing() { Stream::new(&self.device)? } else { behind };
            for (stream, epoch) in &launches {
                behind.wait_for_running(stream, Some(*epoch), None)?;
            }
            let reached = behind.record_event()?;
            Ok((behind, reached))
        });
        let streams = launches.into_iter().map(|(stream, _)| stream).collect();
        let mut remains = Remains { reached: None, streams, content, before };
        // Without such a stream, the resources are dropped here, which waits for the launches.
        if let Ok((behind, reached)) = behind {
            remains.reached = Some(reached);
            // If the call fails, the resources are dropped here as well.
            let _ = behind.host_function(move || drop(remains));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        if self.device.is_forked() {
            return;
        }
        let (driver, context) = self.device.raw();
        // SAFETY: this value owns the executable and is being dropped; enqueued launches do not need it.
        unsafe { driver.graph_exec_destroy(context, self.handle) };
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.sweep();
        let running = std::mem::take(&mut state.launches);
        if running.is_empty() {
            return;
        }
        if self.device.is_lost() {
            // Work that has already started, such as a host function, may still be running.
            running.iter().for_each(|(stream, _)| stream.wait_idle());
            return;
        }
        let content = std::mem::take(&mut state.content);
        let before = std::mem::take(&mut state.before);
        self.drop_behind(running, content, before);
    }
}

/// Resources of a dropped executable that its unfinished launches still need.
struct Remains {
    /// Event that was recorded after the launches.
    reached: Option<Event>,
    /// The streams on which the executable was launched.
    streams: Vec<Stream>,
    content: Content,
    before: Vec<Content>,
}

impl Drop for Remains {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        if host_function::is_running() {
            let (reached, streams) = (self.reached.take(), std::mem::take(&mut self.streams));
            let (content, before) = (std::mem::take(&mut self.content), std::mem::take(&mut self.before));
            return host_function::drop_elsewhere(Box::new(Self { reached, streams, content, before }));
        }
        let reached = self.reached.as_ref().is_some_and(|reached| reached.wait().is_ok());
        if !reached {
            // Work that has already started may still be running, even on a lost device.
            self.streams.iter().for_each(Stream::wait_idle);
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if host_function::is_running() {
            host_function::drop_elsewhere(Box::new(inner));
        }
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphExec({:#x} on {})", self.inner().handle.0, self.device().id())
    }
}
