//! [`GraphNodes`]: the operation that captured or added each graph node, for observers.
//!
//! Each captured operation records a [`Note`]: its source line, and the last nodes of its stream before and after the
//! operation. Notes are recorded even without an observer, because one may be registered later. When the capture has
//! ended, [`attributed`] assigns the nodes between these two points to the operation: one node, or any number for
//! library work. Nodes outside all operations, for example from direct CUDA calls, remain unattributed.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use super::observe::Operation;
use crate::driver::{Edge, NodeHandle, StreamHandle};

/// Nodes of an executable graph, including nodes in its child graphs.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::extension::{Ended, GraphWork, Observed, Observer, Operation, observe};
/// use warpsmith_runtime::{Device, DeviceBuffer, Graph};
///
/// /// The work of each node of the launched graphs.
/// struct Works(Arc<Mutex<Vec<GraphWork>>>);
///
/// impl Observer for Works {
///     fn end(&self, observed: &Observed<'_>, _: Ended) {
///         if let Operation::GraphLaunch { nodes, .. } = &observed.operation {
///             self.0.lock().unwrap().extend(nodes.nodes.iter().map(|node| node.work));
///         }
///     }
/// }
///
/// let device = Device::emulated(0)?;
/// let mut x = DeviceBuffer::<u8>::zeros(&device.default_stream(), 4)?;
/// let mut graph = Graph::new(&device)?;
/// graph.add_memset(&mut x, 7, &[])?;
/// let works = Arc::new(Mutex::new(Vec::new()));
/// let _observation = observe(Works(works.clone()));
/// graph.instantiate()?.launch(&device.default_stream())?;
/// assert_eq!(*works.lock().unwrap(), [GraphWork::Memset]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct GraphNodes {
    /// ID of the list, unique in the process; 0 for an unknown list.
    pub id: u64,
    /// The executable's ID in the driver's records; `None` if no recorder was active when the graph was instantiated.
    pub graph: Option<u32>,
    /// The nodes, in capture or insertion order.
    pub nodes: Vec<GraphNode>,
}

impl GraphNodes {
    pub(crate) fn new(graph: Option<u32>, nodes: Vec<GraphNode>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), graph, nodes }
    }

    /// Returns an empty list, for a graph whose nodes are unknown.
    pub(crate) fn unknown() -> Self {
        Self { id: 0, graph: None, nodes: Vec::new() }
    }
}

/// A node of an executable graph. A node with [unknown](GraphWork::Unknown) work and no number may stand for an entire
/// child graph whose nodes are unknown.
///
/// See the example of [`GraphNodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphNode {
    /// ID of the graph that contains the node: 0 for the top-level graph, a unique ID for each child graph.
    pub part: u32,
    /// Node ID, as described for
    /// [`ActivityDriver::activity_node`](crate::driver::activity::ActivityDriver::activity_node); `None` if no recorder
    /// was active when the executable was instantiated.
    pub number: Option<u64>,
    /// The node's work.
    pub work: GraphWork,
    /// The [`Observed::id`](super::observe::Observed::id) of the operation that captured or added the node; 0 if no
    /// observer saw it.
    pub operation: u64,
    /// The source line of the operation that captured or added the node.
    pub site: Option<&'static Location<'static>>,
}

/// The work of a graph node.
///
/// See the example of [`GraphNodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphWork {
    /// A kernel launch.
    Kernel {
        /// The symbol of the kernel instance.
        symbol: &'static str,
        /// Bytes that the kernel reads and writes, as in [`Operation::Launch`], computed from the arguments at capture
        /// time.
        bytes: u64,
    },
    /// A copy.
    Copy,
    /// A memset.
    Memset,
    /// No device work: a host function call, or a node that only adds dependencies.
    Nothing,
    /// Library work, or work of an unknown kind.
    Unknown,
}

impl GraphWork {
    /// Returns the work captured by an operation; `None` if the operation enqueues no work.
    fn of(operation: &Operation<'_>) -> Option<Self> {
        Some(match operation {
            Operation::Launch { spec, bytes, .. } => Self::Kernel { symbol: spec.symbol, bytes: *bytes },
            Operation::Copy { .. } => Self::Copy,
            Operation::Memset { .. } => Self::Memset,
            Operation::HostFunction => Self::Nothing,
            Operation::Extension { .. } => Self::Unknown,
            _ => return None,
        })
    }
}

/// The record of an operation that captured work.
#[derive(Debug)]
pub(crate) struct Note {
    pub work: GraphWork,
    /// The operation's [`Observed::id`](super::observe::Observed::id).
    pub operation: u64,
    pub site: Option<&'static Location<'static>>,
    /// The last nodes of the operation's stream before and after it.
    pub before: Vec<NodeHandle>,
    pub after: Vec<NodeHandle>,
}

impl Note {
    /// Creates a note at the start of an operation; `None` if the operation captures no work.
    pub fn begin(operation: &Operation<'_>, before: impl FnOnce() -> Vec<NodeHandle>) -> Option<Self> {
        let work = GraphWork::of(operation)?;
        Some(Self { work, operation: 0, site: None, before: before(), after: Vec::new() })
    }
}

/// A capture that stores notes of captured operations.
pub(crate) trait Noted {
    /// Returns the last nodes of a stream, read while no other thread captures. Empty if the capture has ended or is
    /// invalid.
    fn tips(&self, stream: StreamHandle) -> Vec<NodeHandle>;
    /// Stores the note of an operation.
    fn note(&self, note: Note);
}

/// Returns, for each node of a captured graph, the index of the note to which it is attributed.
pub(crate) fn attributed(nodes: &[NodeHandle], edges: &[Edge], notes: &[Note]) -> Vec<Option<usize>> {
    let mut places: Vec<(u64, usize)> = nodes.iter().enumerate().map(|(at, node)| (node.0, at)).collect();
    places.sort_unstable();
    let place = |node: NodeHandle| {
        let found = places.binary_search_by_key(&node.0, |(node, _)| *node);
        found.ok().map(|found| places[found].1)
    };
    // The search below requires edges that are sorted by target node.
    let both = |edge: &Edge| Some((place(edge.to)?, place(edge.from)?));
    let mut edges: Vec<(usize, usize)> = edges.iter().filter_map(both).collect();
    edges.sort_unstable();
    let mut is_seen = vec![false; nodes.len()];
    let mut open = Vec::new();
    // Collects the ancestors of these nodes that have not been visited yet.
    let mut new = |tips: &[NodeHandle], found: &mut Vec<usize>| {
        found.clear();
        open.extend(tips.iter().filter_map(|tip| place(*tip)));
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut is_seen[node], true) {
                found.push(node);
                let first = edges.partition_point(|(later, _)| *later < node);
                let of_node = edges[first..].iter().take_while(|(later, _)| *later == node);
                open.extend(of_node.map(|(_, earlier)| *earlier));
            }
        }
    };
    let (mut of, mut found) = (vec![None; nodes.len()], Vec::new());
    for (at, note) in notes.iter().enumerate() {
        new(&note.before, &mut found);
        new(&note.after, &mut found);
        // Two threads that capture on one stream each see the other's nodes.
        if found.len() == 1 || note.work == GraphWork::Unknown {
            found.iter().for_each(|node| of[*node] = Some(at));
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<const N: usize>(handles: [u64; N]) -> Vec<NodeHandle> {
        handles.map(NodeHandle).to_vec()
    }

    fn edges<const N: usize>(edges: [(u64, u64); N]) -> Vec<Edge> {
        edges.map(|(from, to)| Edge { from: NodeHandle(from), to: NodeHandle(to), early: false }).to_vec()
    }

    fn note<const B: usize, const A: usize>(work: GraphWork, before: [u64; B], after: [u64; A]) -> Note {
        Note { work, operation: 0, site: None, before: nodes(before), after: nodes(after) }
    }

    #[test]
    fn each_operation_gets_its_node_whatever_their_order() {
        let notes = [note(GraphWork::Copy, [], [30]), note(GraphWork::Memset, [30], [10])];
        let of = attributed(&nodes([10, 30]), &edges([(30, 10)]), &notes);
        assert_eq!(of, [Some(1), Some(0)]);
    }

    #[test]
    fn an_operation_without_a_node_gets_none() {
        let notes = [note(GraphWork::Copy, [], [1]), note(GraphWork::Memset, [1], [1])];
        assert_eq!(attributed(&nodes([1]), &[], &notes), [Some(0)]);
    }

    #[test]
    fn work_of_a_library_gets_all_its_nodes() {
        let notes = [note(GraphWork::Copy, [], [1]), note(GraphWork::Unknown, [1], [4])];
        let of = attributed(&nodes([1, 2, 3, 4]), &edges([(1, 2), (1, 3), (2, 4), (3, 4)]), &notes);
        assert_eq!(of, [Some(0), Some(1), Some(1), Some(1)]);
    }

    #[test]
    fn nodes_of_other_code_are_of_no_operation() {
        let notes = [note(GraphWork::Copy, [], [1]), note(GraphWork::Memset, [2], [3])];
        let of = attributed(&nodes([1, 2, 3]), &edges([(1, 2), (2, 3)]), &notes);
        assert_eq!(of, [Some(0), None, Some(1)]);
    }

    #[test]
    fn nodes_that_two_threads_claim_are_of_neither() {
        // Both operations started at node 1, and the first one already saw the other's node.
        let notes = [note(GraphWork::Copy, [1], [3]), note(GraphWork::Copy, [1], [3])];
        let of = attributed(&nodes([1, 2, 3]), &edges([(1, 2), (2, 3)]), &notes);
        assert_eq!(of, [None; 3]);
    }
}
