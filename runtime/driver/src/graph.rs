//! [`GraphDriver`]: the part of [`Driver`](super::Driver) that captures, builds, updates and launches graphs.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::{Context, DevicePtr, FunctionHandle, LaunchConfig, Place, StreamHandle};
use crate::error::Result;

handle!(
    /// Handle of a graph: work and its dependencies.
    GraphHandle
);
handle!(
    /// Handle of a graph node.
    NodeHandle
);
handle!(
    /// Handle of an executable graph.
    GraphExecHandle
);
handle!(
    /// Conditional handle: a value that a graph's kernels set and its conditional nodes read.
    ConditionHandle
);

/// Threads on which a capture forbids potentially unsafe calls, such as waits, queries, and allocations made outside
/// this runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// Every thread of the process, except for threads that have exempted themselves.
    Global,
    /// Only the thread that started the capture. This thread must also end the capture.
    #[default]
    ThreadLocal,
    /// No thread. Any thread may end the capture.
    Relaxed,
}

/// Capture status of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// The stream is not capturing, so its work runs.
    None,
    /// The stream is capturing, so its work becomes part of a graph. The ID is unique to the capture in the process.
    Active(u64),
    /// A call that cannot be captured has invalidated the capture, which must still be ended.
    Invalidated,
}

/// A function that a graph calls on the host, once per launch.
pub struct GraphFunction(Box<dyn Fn() + Send + Sync>);

impl GraphFunction {
    /// Wraps a function. The function must follow the rules of
    /// [`StreamDriver::host_function`](super::StreamDriver::host_function).
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
    /// A kernel launch, with arguments as for [`CodeDriver::launch`](super::CodeDriver::launch).
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
        /// Number of bytes, which must not be 0.
        bytes: usize,
    },
    /// A memset.
    Set {
        /// Destination.
        dst: DevicePtr,
        /// Value of each byte.
        value: u8,
        /// Number of bytes, which must not be 0.
        bytes: usize,
    },
    /// A host function call.
    Host(&'a Arc<GraphFunction>),
    /// A child graph, which the call copies.
    Child(GraphHandle),
}

/// Operation of a graph node, as far as known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NodeInfo {
    /// No work.
    Empty,
    /// A kernel launch.
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
    /// A memset.
    Set {
        /// Number of bytes.
        bytes: usize,
    },
    /// A host function call.
    Host,
    /// A child graph.
    Child(GraphHandle),
    /// A conditional node.
    Conditional,
    /// Recording of an event, or a wait for one, visible outside the graph.
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
    /// True for a programmatic dependency: the later node may start once the earlier node permits it, before the
    /// earlier node has finished.
    pub early: bool,
}

/// Kind of a conditional node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionalKind {
    /// The body runs once if the condition is not 0.
    If,
    /// If the condition is not 0, the first body runs once. Otherwise, the second body runs once.
    IfElse,
    /// The body runs repeatedly while the condition is not 0.
    While,
    /// The body whose index equals the condition runs, if it exists. The field is the number of bodies.
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
        /// The differing node of the new graph, if the driver reports it.
        node: Option<NodeHandle>,
        /// The difference, as reported by the driver.
        reason: String,
    },
}

/// Graph calls of a [`Driver`](super::Driver). As for [`Driver`](super::Driver), handles are not validated.
///
/// An executable graph is instantiated from a graph and can be launched repeatedly. Launches of one executable are
/// serialized, even on different streams. Two threads must not use the same graph or executable at the same time.
///
/// # Safety
/// Implementations must uphold the safety contract of [`Driver`](super::Driver) for handles and for the work of graphs:
///
/// - Work that is captured or added must not run before a launch.
/// - A launch must run each node after the node's predecessors and before later work on the launch's stream.
/// - A launch may access only the memory that its nodes specify.
/// - Functions must not be called after the executable is destroyed and its launches have finished.
/// - [`Self::graph_add`] and captured calls must copy their arguments before they return.
pub unsafe trait GraphDriver {
    /// Starts a capture, during which work on the stream becomes part of a new graph instead of running. Other streams
    /// that wait for an event recorded on this stream join the capture.
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()>;
    /// Ends the capture that was started on this stream. If the call fails, the capture still ends, its graph is
    /// destroyed, and its streams stop capturing.
    ///
    /// In the modes [`CaptureMode::ThreadLocal`] and [`CaptureMode::Global`], the call fails on any thread other than
    /// the one that started the capture. The capture has then ended or is invalidated; in the latter case, that thread
    /// must still end it.
    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle>;
    /// Returns the capture status of a stream.
    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus>;
    /// Returns the nodes on which the next work on a capturing stream depends: its last captured work and the nodes for
    /// which it has waited since. Empty if the stream is not capturing.
    ///
    /// No other thread may use the stream or end the capture until this call returns, because CUDA's own list of nodes
    /// is valid only until the next call on the stream.
    fn capture_tips(&self, context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>>;
    /// Adds a host function call to the capture of a stream. Fails if the stream is not capturing.
    ///
    /// # Safety
    /// The function must be kept alive until no executable instantiated from the graph, or from a copy of it, can run.
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
    /// Neither the handle nor the handles of its nodes and bodies may be used again. The graph must not be the body of
    /// a conditional node or a graph from [`NodeInfo::Child`].
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
    /// Each launch of an executable must meet the requirements for the same work on a stream. Functions must be kept
    /// alive as for [`Self::capture_host_function`].
    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle>;
    /// Creates a conditional handle for nodes of a graph. Each launch starts with `initial` if specified, otherwise
    /// with the last launch's value (0 for the first launch).
    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle>;
    /// Adds a conditional node. Returns its bodies, which the node owns: empty graphs for the caller to fill.
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
    /// Destroys an executable graph. A launch that is already running continues.
    ///
    /// # Safety
    /// The handle must not be used again.
    unsafe fn graph_exec_destroy(&self, context: Context, exec: GraphExecHandle);
    /// Uploads an executable graph to the device ahead of its first launch.
    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()>;
    /// Launches an executable graph. Fails on a capturing stream.
    ///
    /// # Safety
    /// Each node must meet the requirements for the same work on a stream; in particular, its memory must be valid
    /// until it has run.
    unsafe fn graph_launch(
        &self,
        context: Context,
        exec: GraphExecHandle,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Updates an executable with the parameters of a graph that has the same topology. Launches that are already
    /// enqueued are unaffected.
    ///
    /// # Safety
    /// All nodes of the graph must meet the requirements of [`Self::graph_add`].
    unsafe fn graph_exec_update(
        &self,
        context: Context,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<ExecUpdate>;
    /// Sets the parameters of one node of an executable, identified by its node in the original graph. The kind of work
    /// must stay the same, as must a kernel's context, cluster size and cooperative flag. Changing the latter two is an
    /// error, which is not always detected if the new configuration is plain. [`NodeWork::Empty`] is not supported.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::graph_add`].
    unsafe fn graph_exec_set(
        &self,
        context: Context,
        exec: GraphExecHandle,
        node: NodeHandle,
        work: NodeWork<'_>,
    ) -> Result<()>;
}
