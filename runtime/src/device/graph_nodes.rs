//! [`GraphNodes`]: where the nodes of graphs were captured or added, for observers.
//!
//! Each operation that captures work notes its source line and the last nodes of its stream before and after ([`Note`]), also
//! while there is no observer: one may come later. When the capture has ended, what lies between is what the operation became
//! ([`attributed`]): one node, or for work of libraries any number. What is not between is of no operation, for example of code
//! that calls CUDA itself.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use super::observe::Operation;
use crate::driver::{Edge, NodeHandle, StreamHandle};

/// The nodes of an executable graph, with those of the graphs within it.
#[derive(Debug)]
pub struct GraphNodes {
    /// No other list of the process has it; 0 of a list that says nothing.
    pub id: u64,
    /// The executable's number in the driver's records; `None` where nothing was recorded when it was made.
    pub graph: Option<u32>,
    /// The nodes, in the order in which they were captured or added.
    pub nodes: Vec<GraphNode>,
}

impl GraphNodes {
    pub(crate) fn new(graph: Option<u32>, nodes: Vec<GraphNode>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), graph, nodes }
    }

    /// A list that says nothing.
    pub(crate) fn unknown() -> Self {
        Self { id: 0, graph: None, nodes: Vec::new() }
    }
}

/// A node of an executable graph; one with [unknown](GraphWork::Unknown) work and without a number may stand for all of a graph
/// within, of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphNode {
    /// 0 for the graph that the executable was made of, another number for each graph within it.
    pub part: u32,
    /// See [`ActivityDriver::activity_node`](crate::driver::activity::ActivityDriver::activity_node); `None` where nothing was
    /// recorded when the executable was made.
    pub number: Option<u64>,
    /// What it does.
    pub work: GraphWork,
    /// The [`Observed::id`](super::observe::Observed::id) of the operation that captured or added it; 0 if no observer saw that.
    pub operation: u64,
    /// The source line of that operation.
    pub site: Option<&'static Location<'static>>,
}

/// What a node of a graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphWork {
    /// A launch of a kernel.
    Kernel {
        /// Its symbol.
        symbol: &'static str,
        /// See [`Operation::Launch`]; the arguments are those of the capture.
        bytes: u64,
    },
    /// A copy.
    Copy,
    /// Setting bytes to a value.
    Memset,
    /// Nothing on a device: it calls the host, or orders others.
    Nothing,
    /// What a library made it do, or what is not known.
    Unknown,
}

impl GraphWork {
    /// What an operation becomes when it is captured, if that is work.
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

/// An operation that captured work.
#[derive(Debug)]
pub(crate) struct Note {
    pub work: GraphWork,
    /// Its [`Observed::id`](super::observe::Observed::id).
    pub operation: u64,
    pub site: Option<&'static Location<'static>>,
    /// The last nodes of its stream before and after it.
    pub before: Vec<NodeHandle>,
    pub after: Vec<NodeHandle>,
}

impl Note {
    /// Of an operation that begins, if it captures work.
    pub fn begin(operation: &Operation<'_>, before: impl FnOnce() -> Vec<NodeHandle>) -> Option<Self> {
        let work = GraphWork::of(operation)?;
        Some(Self { work, operation: 0, site: None, before: before(), after: Vec::new() })
    }
}

/// A capture as the operations that it captures see it.
pub(crate) trait Noted {
    /// The last nodes of a stream, read while no other thread captures; none after the end and where the capture is invalid.
    fn tips(&self, stream: StreamHandle) -> Vec<NodeHandle>;
    /// Takes the note of an operation.
    fn note(&self, note: Note);
}

/// For each node of a captured graph the operation that it is of, by its place among the notes.
pub(crate) fn attributed(nodes: &[NodeHandle], edges: &[Edge], notes: &[Note]) -> Vec<Option<usize>> {
    let mut places: Vec<(u64, usize)> = nodes.iter().enumerate().map(|(at, node)| (node.0, at)).collect();
    places.sort_unstable();
    let place = |node: NodeHandle| {
        let found = places.binary_search_by_key(&node.0, |(node, _)| *node);
        found.ok().map(|found| places[found].1)
    };
    // By the later node.
    let both = |edge: &Edge| Some((place(edge.to)?, place(edge.from)?));
    let mut edges: Vec<(usize, usize)> = edges.iter().filter_map(both).collect();
    edges.sort_unstable();
    let mut is_seen = vec![false; nodes.len()];
    let mut open = Vec::new();
    // The nodes that lead to these and were not seen before.
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
        // Two threads that capture on one stream see each other's nodes.
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
        // Both began at node 1; the first saw the other's node already.
        let notes = [note(GraphWork::Copy, [1], [3]), note(GraphWork::Copy, [1], [3])];
        let of = attributed(&nodes([1, 2, 3]), &edges([(1, 2), (2, 3)]), &notes);
        assert_eq!(of, [None; 3]);
    }
}
