//! [`GraphDriver`]: the part of [`Driver`](super::Driver) about graphs: capturing, building, updating and launching
//! them.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::{Context, DevicePtr, FunctionHandle, LaunchConfig, Place, StreamHandle};
use crate::error::Result;

handle!(
    /// A graph: work and its order.
    GraphHandle
);
handle!(
    /// A piece of work in a graph.
    NodeHandle
);
handle!(
    /// A graph made ready to be launched.
    GraphExecHandle
);
handle!(
    /// A number that kernels of a graph set and its conditional nodes read.
    ConditionHandle
);

/// The calls that a capture forbids, and to which threads, among those that may disturb it (allocating and freeing by other
/// means than this runtime's, waiting, queries).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// Every thread of the process that has not exempted itself.
    Global,
    /// The thread that began it, which must also end it.
    #[default]
    ThreadLocal,
    /// None. Any thread may end it.
    Relaxed,
}

/// Whether a stream is being captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// Work on it runs.
    None,
    /// Work on it becomes part of a graph; the number differs in every capture of the process.
    Active(u64),
    /// A call that cannot be captured has invalidated the capture, which must still be ended.
    Invalidated,
}

/// A function that a graph calls on the host, once for each launch.
pub struct GraphFunction(Box<dyn Fn() + Send + Sync>);

impl GraphFunction {
    /// The rules of [`StreamDriver::host_function`](super::StreamDriver::host_function) hold for it.
    pub fn new(function: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Box::new(function)))
    }

    /// Calls it.
    pub fn call(&self) {
        (self.0)();
    }
}

impl fmt::Debug for GraphFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GraphFunction")
    }
}

/// The operation of a node to add.
#[derive(Debug, Clone, Copy)]
pub enum NodeWork<'a> {
    /// Nothing: it only orders others.
    Empty,
    /// A launch, with arguments as [`CodeDriver::launch`](super::CodeDriver::launch) takes them.
    Kernel {
        /// The kernel.
        function: FunctionHandle,
        /// Its configuration.
        config: LaunchConfig,
        /// One pointer per machine parameter; the values are copied by the call.
        args: &'a [*const c_void],
    },
    /// A copy of bytes.
    Copy {
        /// Where to.
        dst: Place,
        /// Where from.
        src: Place,
        /// How many, not zero.
        bytes: usize,
    },
    /// Setting every byte to a value.
    Set {
        /// Where.
        dst: DevicePtr,
        /// The value.
        value: u8,
        /// How many, not zero.
        bytes: usize,
    },
    /// A call of a function on the host.
    Host(&'a Arc<GraphFunction>),
    /// Everything that another graph does. That graph is copied by the call.
    Child(GraphHandle),
}

/// The operation of a node of a graph, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NodeInfo {
    /// Nothing.
    Empty,
    /// A launch.
    Kernel {
        /// The kernel.
        function: FunctionHandle,
        /// Its configuration.
        config: LaunchConfig,
    },
    /// A copy.
    Copy {
        /// How many bytes.
        bytes: usize,
    },
    /// Setting bytes.
    Set {
        /// How many.
        bytes: usize,
    },
    /// A call of a function on the host.
    Host,
    /// Another graph.
    Child(GraphHandle),
    /// Graphs that run or not by a condition.
    Conditional,
    /// Recording an event that is seen outside the graph, or waiting for one.
    Event,
    /// Something else.
    Other,
}

/// That one node comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The earlier.
    pub from: NodeHandle,
    /// The later.
    pub to: NodeHandle,
    /// Whether the later may start when the earlier allows it, before it is done (a dependent launch).
    pub early: bool,
}

/// When the body of a conditional node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionalKind {
    /// Once, if the condition is not 0.
    If,
    /// The first body once if the condition is not 0, else the second.
    IfElse,
    /// Again and again while the condition is not 0.
    While,
    /// Of this number of bodies, the one with the condition's number; none if there is no such.
    Switch(u32),
}

impl ConditionalKind {
    /// How many bodies it has.
    pub fn bodies(self) -> u32 {
        match self {
            Self::If | Self::While => 1,
            Self::IfElse => 2,
            Self::Switch(bodies) => bodies,
        }
    }
}

/// The outcome of an update of an executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecUpdate {
    /// The executable does from now on what the graph says.
    Done,
    /// The graphs differ in more than parameters; the executable is as it was.
    Refused {
        /// The node of the new graph that differs, if the driver says.
        node: Option<NodeHandle>,
        /// In what, as the driver says it.
        reason: String,
    },
}

/// The part of [`Driver`](super::Driver) about graphs, with the same contract: handles are trusted.
///
/// A graph is work and its order, which does not run; an executable is made of it once and launched as often as
/// wanted. Launches of one executable run one after the other, whatever their streams. Calls on one graph or one
/// executable must not be made by two threads at once.
///
/// # Safety
/// An implementation keeps the contract of [`Driver`](super::Driver) for handles and for the work of graphs:
///
/// - Work that is captured or added does not run before a launch.
/// - A launch runs each node after those that its edges name, and before later work of its stream.
/// - It accesses the memory that its nodes name and no other.
/// - It calls no function after the executable is destroyed and its launches are done.
/// - Arguments of [`Self::graph_add`] and of captured calls are copied by the call.
pub unsafe trait GraphDriver {
    /// Makes work on a stream part of a new graph from now on, instead of running it. Other streams that wait for an
    /// event recorded on it take part as well.
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()>;
    /// Ends the capture that began on this stream. If it fails, the capture has ended nevertheless: its graph is
    /// destroyed, and all streams that took part are as before.
    ///
    /// On another thread than the capture's, which [`CaptureMode::ThreadLocal`] and [`CaptureMode::Global`] forbid, it
    /// fails, and the capture has ended or is invalidated; then its own thread may still have to end it.
    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle>;
    /// Whether a stream is being captured.
    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus>;
    /// The nodes that the next work on a stream which is being captured comes after: what its last work became, and what it
    /// has waited for since. They are nodes of the graph that the capture makes. None on a stream that is not being captured.
    ///
    /// No other thread may use the stream, or end the capture, until it returns: CUDA lends its own list of them, which is
    /// valid until then.
    fn capture_tips(&self, context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>>;
    /// Adds a call of a function to the capture of a stream. Fails on a stream that is not being captured.
    ///
    /// # Safety
    /// The function is kept until no executable made of the graph, or of a copy of it, can run any more.
    unsafe fn capture_host_function(
        &self,
        context: Context,
        stream: StreamHandle,
        function: &Arc<GraphFunction>,
    ) -> Result<()>;

    /// Makes an empty graph.
    fn graph_create(&self, context: Context) -> Result<GraphHandle>;
    /// Destroys a graph. Executables made of it stay.
    ///
    /// # Safety
    /// Neither the handle nor those of its nodes and bodies are used again. It is not the body of a conditional node,
    /// nor one that [`NodeInfo::Child`] gave.
    unsafe fn graph_destroy(&self, context: Context, graph: GraphHandle);
    /// Copies a graph.
    fn graph_clone(&self, context: Context, graph: GraphHandle) -> Result<GraphHandle>;
    /// The node of a copy that was made of `node`.
    fn graph_node_in_clone(
        &self,
        context: Context,
        node: NodeHandle,
        clone: GraphHandle,
    ) -> Result<NodeHandle>;
    /// The nodes of a graph, not those of graphs within.
    fn graph_nodes(&self, context: Context, graph: GraphHandle) -> Result<Vec<NodeHandle>>;
    /// The edges between them.
    fn graph_edges(&self, context: Context, graph: GraphHandle) -> Result<Vec<Edge>>;
    /// The operation of a node.
    fn graph_node(&self, context: Context, node: NodeHandle) -> Result<NodeInfo>;
    /// Adds a node that comes after others of the same graph.
    ///
    /// # Safety
    /// As for the same work on a stream, at each launch of an executable made of the graph. A function is kept as
    /// [`Self::capture_host_function`] says.
    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle>;
    /// Makes a condition for conditional nodes of a graph. If `initial` is given, it has that value at the start of
    /// each launch; else the value that the last launch left, and 0 before the first.
    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle>;
    /// Adds a conditional node. Returns its bodies, which are empty graphs to be filled; they belong to it.
    fn graph_add_conditional(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)>;

    /// Makes an executable. Later changes of the graph do not change it.
    fn graph_instantiate(&self, context: Context, graph: GraphHandle) -> Result<GraphExecHandle>;
    /// Destroys an executable; a running launch continues.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn graph_exec_destroy(&self, context: Context, exec: GraphExecHandle);
    /// Brings an executable to the device, so that its first launch need not.
    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()>;
    /// Enqueues everything that the executable does. Fails on a stream that is being captured.
    ///
    /// # Safety
    /// As for each piece of its work on a stream: arguments and memory are valid until it has run.
    unsafe fn graph_launch(
        &self,
        context: Context,
        exec: GraphExecHandle,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Gives an executable the parameters of a graph of the same form. Launches that were enqueued before are not
    /// changed.
    ///
    /// # Safety
    /// As [`Self::graph_add`] for all nodes of the graph.
    unsafe fn graph_exec_update(
        &self,
        context: Context,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<ExecUpdate>;
    /// Gives one node of an executable, named by the node of the graph it was made of, other parameters: of the same
    /// kind, and for a kernel of the same context. A kernel keeps its cluster and whether it is cooperative: to say
    /// otherwise is an error, but that a plain configuration does is not always noticed. Not for [`NodeWork::Empty`].
    ///
    /// # Safety
    /// As [`Self::graph_add`].
    unsafe fn graph_exec_set(
        &self,
        context: Context,
        exec: GraphExecHandle,
        node: NodeHandle,
        work: NodeWork<'_>,
    ) -> Result<()>;
}
