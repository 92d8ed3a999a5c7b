//! [`GraphDriver`]: the part of [`Driver`](super::Driver) that captures, builds, updates and launches graphs.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::{Context, DevicePtr, FunctionHandle, LaunchConfig, Place, StreamHandle};
use crate::error::Result;

handle!(
    /// Handle of a graph, which consists of work and its dependencies.
    GraphHandle
);
handle!(
    /// Handle of a graph node.
    NodeHandle
);
handle!(
    /// Handle of an executable graph, which is ready to be launched.
    GraphExecHandle
);
handle!(
    /// Conditional handle, which refers to a value that kernels of a graph set and that the graph's conditional nodes
    /// read.
    ConditionHandle
);

/// Threads on which a capture forbids calls that may disturb it, such as waits, queries, and allocating or freeing
/// memory without this runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// Every thread of the process, except for threads that have exempted themselves.
    Global,
    /// The thread that started the capture and must also end it.
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
    /// The stream is capturing, so its work becomes part of a graph. The ID is unique to each capture in the process.
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

/// Operation of a node that is to be added.
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
    /// A function call on the host.
    Host(&'a Arc<GraphFunction>),
    /// The entire work of another graph, which the call copies.
    Child(GraphHandle),
}

/// Operation of a graph node, as far as it is known.
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
    /// A function call on the host.
    Host,
    /// A child graph.
    Child(GraphHandle),
    /// Graphs whose execution depends on a condition.
    Conditional,
    /// Recording of an event, or a wait for an event, that is visible outside the graph.
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
    /// True for a programmatic dependency. The later node may start as soon as the earlier node permits it, even before
    /// the earlier node has finished.
    pub early: bool,
}

/// Kind of a conditional node, which determines when its bodies run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionalKind {
    /// The body runs once if the condition is not 0.
    If,
    /// If the condition is not 0, the first body runs once. Otherwise, the second body runs once.
    IfElse,
    /// The body runs repeatedly while the condition is not 0.
    While,
    /// The node has this number of bodies, of which only the body whose index equals the condition runs. If there is no
    /// such body, no body runs.
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

/// Graph calls of a [`Driver`](super::Driver). The contract of [`Driver`](super::Driver) applies, so handles are not
/// validated.
///
/// A graph contains work with its dependencies and does not run itself. An executable graph is instantiated from it
/// once and can be launched repeatedly. Launches of one executable run one after another, even on different streams.
/// Two threads must not make calls on the same graph or the same executable at the same time.
///
/// # Safety
/// An implementation must fulfill the contract of [`Driver`](super::Driver) for handles and for the work of graphs:
///
/// - Work that is captured or added must not run before a launch.
/// - A launch must run each node after its predecessors, and before later work on its stream.
/// - A launch may access only the memory that its nodes specify.
/// - A launch must not call functions after the executable is destroyed and its launches have finished.
/// - [`Self::graph_add`] and captured calls must copy their arguments before they return.
pub unsafe trait GraphDriver {
    /// Starts a capture, during which work on the stream becomes part of a new graph instead of running. Other streams
    /// that wait for an event recorded on this stream join the capture.
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()>;
    /// Ends the capture that was started on this stream. Even if the call fails, the capture ends, its graph is
    /// destroyed, and all its streams return to normal.
    ///
    /// [`CaptureMode::ThreadLocal`] and [`CaptureMode::Global`] forbid ending a capture on another thread. On another
    /// thread, the call fails, and afterwards the capture has ended or is invalidated. The thread that started the
    /// capture may still have to end it.
    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle>;
    /// Returns the capture status of a stream.
    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus>;
    /// Returns the nodes on which the next work on a capturing stream depends, that is, its last captured work and the
    /// nodes for which it has waited since then. They are nodes of the graph that is being captured. The result is
    /// empty if the stream is not being captured.
    ///
    /// No other thread may use the stream or end the capture until the call returns, because CUDA returns a pointer to
    /// its own list of nodes, which is valid only until the next call on the stream.
    fn capture_tips(&self, context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>>;
    /// Adds a host function call to the capture of a stream. Returns an error on a stream that is not being captured.
    ///
    /// # Safety
    /// The function must be kept until no executable that was instantiated from the graph or from a copy of it can
    /// still run.
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
    /// of a conditional node nor a graph in [`NodeInfo::Child`].
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
    /// Each launch of an executable of the graph must meet the requirements that apply to the same work on a stream.
    /// Functions must be kept as required by [`Self::capture_host_function`].
    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle>;
    /// Creates a conditional handle for nodes of a graph. If `initial` is specified, the condition has that value at
    /// the start of each launch. Otherwise, the condition keeps its value from the last launch, and is 0 before the
    /// first launch.
    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle>;
    /// Adds a conditional node. Returns the bodies of the node, which are empty graphs for the caller to fill. The node
    /// owns them.
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
    /// Uploads an executable graph to the device, so that its first launch does not have to do this.
    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()>;
    /// Launches an executable graph. Returns an error on a stream that is being captured.
    ///
    /// # Safety
    /// Each node must meet the requirements that apply to the same work on a stream; in particular, its memory must be
    /// valid until it has run.
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
    /// and, for a kernel, the context must stay the same. The cluster size of a kernel and whether it is cooperative
    /// must not change. Changing either is an error, but if the new configuration is plain, the change is not always
    /// detected. [`NodeWork::Empty`] is not supported.
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
