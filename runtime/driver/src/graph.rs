//! [`GraphDriver`]: the part of [`Driver`](super::Driver) that captures, builds, updates and launches graphs.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::{Context, DevicePtr, FunctionHandle, LaunchConfig, Place, StreamHandle};
use crate::error::Result;

handle!(
    /// A graph: work with its dependencies.
    GraphHandle
);
handle!(
    /// A node of a graph.
    NodeHandle
);
handle!(
    /// An executable graph that is ready to be launched.
    GraphExecHandle
);
handle!(
    /// A conditional handle: a value that kernels of a graph set and that the graph's conditional nodes read.
    ConditionHandle
);

/// Threads for which a capture forbids calls that may disturb it: allocation and free by means other than this
/// runtime's, waits, and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// Every thread of the process that has not exempted itself.
    Global,
    /// The thread that started the capture and must also end it.
    #[default]
    ThreadLocal,
    /// No thread; any thread may end the capture. Any thread may end the capture.
    Relaxed,
}

/// Capture status of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// The stream is not capturing, so its work runs.
    None,
    /// The stream is capturing, so its work becomes part of a graph. The ID is unique to each capture in the process.
    Active(u64),
    /// A call that cannot be captured has invalidated the capture, which must still be ended.
    Invalidated,
}

/// A function that a graph calls on the host, once per launch.
pub struct GraphFunction(Box<dyn Fn() + Send + Sync>);

impl GraphFunction {
    /// Wraps a function. The rules of [`StreamDriver::host_function`](super::StreamDriver::host_function) apply.
    pub fn new(function: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Box::new(function)))
    }

    /// Calls the function.
    pub fn call(&self) {
        (self.0)();
    }
}

impl fmt::Debug for GraphFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GraphFunction")
    }
}

/// Operation of a node to be added.
#[derive(Debug, Clone, Copy)]
pub enum NodeWork<'a> {
    /// No work; the node only orders other nodes.
    Empty,
    /// A launch, with arguments as for [`CodeDriver::launch`](super::CodeDriver::launch).
    Kernel {
        /// Kernel to launch.
        function: FunctionHandle,
        /// Launch configuration.
        config: LaunchConfig,
        /// One pointer per kernel parameter (PTX `.param`); the call copies the values.
        args: &'a [*const c_void],
    },
    /// A copy of bytes.
    Copy {
        /// Destination.
        dst: Place,
        /// Source.
        src: Place,
        /// Number of bytes, not zero.
        bytes: usize,
    },
    /// Memset of bytes.
    Set {
        /// Destination.
        dst: DevicePtr,
        /// Value of each byte.
        value: u8,
        /// Number of bytes, not zero.
        bytes: usize,
    },
    /// A call of a function on the host.
    Host(&'a Arc<GraphFunction>),
    /// The entire work of another graph, which the call copies.
    Child(GraphHandle),
}

/// Operation of a graph node, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NodeInfo {
    /// No work.
    Empty,
    /// A launch.
    Kernel {
        /// Kernel to launch.
        function: FunctionHandle,
        /// Launch configuration.
        config: LaunchConfig,
    },
    /// A copy.
    Copy {
        /// Number of bytes.
        bytes: usize,
    },
    /// Memset of bytes.
    Set {
        /// Number of bytes.
        bytes: usize,
    },
    /// A call of a function on the host.
    Host,
    /// A child graph.
    Child(GraphHandle),
    /// Graphs that run depending on a condition.
    Conditional,
    /// Recording of, or waiting for, an event that is visible outside of the graph.
    Event,
    /// Any other operation.
    Other,
}

/// A dependency between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Earlier node.
    pub from: NodeHandle,
    /// Later node.
    pub to: NodeHandle,
    /// True for a programmatic dependency. The later node may start as soon as the earlier node permits it, before the
    /// earlier node has finished.
    pub early: bool,
}

/// Kind of a conditional node, which determines when its bodies run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionalKind {
    /// The body runs once if the condition is not 0.
    If,
    /// The first body runs once if the condition is not 0, otherwise the second body runs once.
    IfElse,
    /// The body runs repeatedly while the condition is not 0.
    While,
    /// Of this number of bodies, the one whose index equals the condition runs; none if there is no such body.
    Switch(u32),
}

impl ConditionalKind {
    /// Returns the number of bodies.
    pub fn bodies(self) -> u32 {
        match self {
            Self::If | Self::While => 1,
            Self::IfElse => 2,
            Self::Switch(bodies) => bodies,
        }
    }
}

/// Result of updating an executable graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecUpdate {
    /// The executable now has the parameters of the graph.
    Done,
    /// The graphs differ in more than parameters; the executable is unchanged.
    Refused {
        /// Node of the new graph that differs, if the driver reports it.
        node: Option<NodeHandle>,
        /// Difference, as the driver reports it.
        reason: String,
    },
}

/// Graph calls of a [`Driver`](super::Driver), with the same contract: handles are not validated.
///
/// A graph contains work with its dependencies and does not run itself. An executable graph is instantiated from it
/// once and can be launched repeatedly. Launches of one executable run one after the other, on any streams. Two threads
/// must not make calls on the same graph or the same executable at the same time.
///
/// # Safety
/// An implementation must fulfill the contract of [`Driver`](super::Driver) for handles and for the work of graphs:
///
/// - Work that is captured or added must not run before a launch.
/// - A launch must run each node after its predecessors, and before later work of its stream.
/// - A launch must access only the memory that its nodes name.
/// - A launch must not call functions after the executable is destroyed and its launches have finished.
/// - Arguments of [`Self::graph_add`] and of captured calls must be copied by the call.
pub unsafe trait GraphDriver {
    /// Starts a capture, during which work on the stream becomes part of a new graph instead of running. Other streams
    /// that wait for an event recorded on this stream join the capture.
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()>;
    /// Ends the capture that was started on this stream. Even if the call fails, the capture ends, its graph is
    /// destroyed, and all its streams return to normal.
    ///
    /// [`CaptureMode::ThreadLocal`] and [`CaptureMode::Global`] forbid ending a capture on another thread. On another
    /// thread, the call fails, and the capture has ended or is invalidated. The thread that started the capture may
    /// still have to end it.
    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle>;
    /// Returns the capture status of a stream.
    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus>;
    /// Returns the nodes on which the next work of a capturing stream depends: its last captured work and the nodes for
    /// which it has waited since. They are nodes of the graph that is being captured. The result is empty if the stream
    /// is not being captured.
    ///
    /// No other thread may use the stream or end the capture until the call returns, because CUDA lends its own list of
    /// nodes, which is valid only until then.
    fn capture_tips(&self, context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>>;
    /// Adds a host function call to the capture of a stream. Fails on a stream that is not being captured.
    ///
    /// # Safety
    /// The function must be kept until no executable of the graph, or of a copy of the graph, can still run.
    unsafe fn capture_host_function(
        &self,
        context: Context,
        stream: StreamHandle,
        function: &Arc<GraphFunction>,
    ) -> Result<()>;

    /// Creates an empty graph.
    fn graph_create(&self, context: Context) -> Result<GraphHandle>;
    /// Destroys a graph. Executables of the graph are unaffected.
    ///
    /// # Safety
    /// Neither the handle nor the handles of its nodes and bodies may be used again. The graph must be neither the body
    /// of a conditional node nor a graph returned by [`NodeInfo::Child`].
    unsafe fn graph_destroy(&self, context: Context, graph: GraphHandle);
    /// Copies a graph.
    fn graph_clone(&self, context: Context, graph: GraphHandle) -> Result<GraphHandle>;
    /// Returns the node of a clone that corresponds to `node`.
    fn graph_node_in_clone(
        &self,
        context: Context,
        node: NodeHandle,
        clone: GraphHandle,
    ) -> Result<NodeHandle>;
    /// Returns the nodes of a graph, excluding the nodes of child graphs.
    fn graph_nodes(&self, context: Context, graph: GraphHandle) -> Result<Vec<NodeHandle>>;
    /// Returns the edges between the nodes of a graph.
    fn graph_edges(&self, context: Context, graph: GraphHandle) -> Result<Vec<Edge>>;
    /// Returns the operation of a node.
    fn graph_node(&self, context: Context, node: NodeHandle) -> Result<NodeInfo>;
    /// Adds a node that depends on other nodes of the same graph.
    ///
    /// # Safety
    /// Each launch of an executable of the graph must meet the requirements of the same work on a stream. A function
    /// must be kept as [`Self::capture_host_function`] requires.
    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle>;
    /// Creates a conditional handle for nodes of a graph. With `initial`, the condition has that value at the start of
    /// each launch. Otherwise, it keeps the value of the last launch, and is 0 before the first.
    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle>;
    /// Adds a conditional node. Returns its bodies, which are empty graphs to be filled and owned by the node.
    fn graph_add_conditional(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)>;

    /// Instantiates an executable graph. Later changes of the graph do not affect it.
    fn graph_instantiate(&self, context: Context, graph: GraphHandle) -> Result<GraphExecHandle>;
    /// Destroys an executable graph; a running launch continues.
    ///
    /// # Safety
    /// The handle must not be used again.
    unsafe fn graph_exec_destroy(&self, context: Context, exec: GraphExecHandle);
    /// Uploads an executable graph to the device, so that its first launch does not have to.
    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()>;
    /// Launches an executable graph. Fails on a stream that is being captured.
    ///
    /// # Safety
    /// The requirements of each piece of its work on a stream apply: arguments and memory must be valid until it has
    /// run.
    unsafe fn graph_launch(
        &self,
        context: Context,
        exec: GraphExecHandle,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Updates an executable with the parameters of a graph of the same topology. Launches that are already enqueued
    /// are unaffected.
    ///
    /// # Safety
    /// The requirements are those of [`Self::graph_add`], for all nodes of the graph.
    unsafe fn graph_exec_update(
        &self,
        context: Context,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<ExecUpdate>;
    /// Sets the parameters of one node of an executable, identified by its node in the original graph. The kind of work
    /// must be the same; for a kernel, the context too. A kernel must keep its cluster and whether it is cooperative.
    /// Changing either is an error, but such a change by a plain configuration is not always detected.
    /// [`NodeWork::Empty`] is not supported.
    ///
    /// # Safety
    /// The requirements are those of [`Self::graph_add`].
    unsafe fn graph_exec_set(
        &self,
        context: Context,
        exec: GraphExecHandle,
        node: NodeHandle,
        work: NodeWork<'_>,
    ) -> Result<()>;
}
