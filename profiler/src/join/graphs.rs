//! [`Graphs`]: source locations and ranges in which the nodes of launched graphs were captured or added.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashSet};
use warpsmith_runtime::extension::{GraphNodes, GraphWork};

use super::nodes::{Entry as NodeEntry, Found, Nodes, Place, Seen, Work};
use super::{Joiner, ORIGINS, Origin};
use crate::recording::Recording;

/// Capture locations of graph nodes. See the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// Location where each operation has captured or added work.
    captured: HashMap<u64, Place>,
    /// Operations in `captured`, oldest first.
    known: VecDeque<u64>,
    /// Node lists by ID.
    lists: HashMap<u64, List>,
    /// Latest node list of each executable graph, keyed by the executable's ID in records.
    executables: HashMap<u32, u64>,
    /// Total number of nodes in all lists.
    nodes: usize,
    /// Number of records for nodes that were captured before the recording started.
    early: u64,
    /// Number of records for nodes whose capture was not observed.
    unseen: u64,
    /// Number of records for nodes that do not match the captured work.
    unfit: u64,
}

/// Maximum total number of nodes in all lists. If it is exceeded, the least recently used lists are removed.
const MAX_NODES: usize = 1 << 20;

/// Nodes of an executable.
#[derive(Debug)]
struct List {
    given: Arc<GraphNodes>,
    /// Nodes, or `None` before the first record of a node has arrived.
    nodes: Option<Nodes>,
    /// Round in which the list was last used.
    used: u64,
    /// Launches of the executable so far.
    launch: Launches,
}

/// Launches of an executable.
#[derive(Debug, Default)]
enum Launches {
    #[default]
    None,
    One(Origin),
    Several,
}

impl Graphs {
    /// Adds lists. Returns true if other lists had to be removed.
    fn add(&mut self, lists: Vec<Arc<GraphNodes>>, round: u64, most: usize) -> bool {
        for given in lists {
            let (id, count, executable) = (given.id, given.nodes.len(), given.graph);
            if let Entry::Vacant(new) = self.lists.entry(id) {
                new.insert(List { given, nodes: None, used: round, launch: Launches::None });
                self.nodes += count;
                self.executables.extend(executable.map(|number| (number, id)));
            }
        }
        if self.nodes <= most {
            return false;
        }
        let mut by_use: Vec<(u64, u64)> = self.lists.iter().map(|(id, list)| (list.used, *id)).collect();
        by_use.sort_unstable();
        // Half of the lists are removed at once, so that this happens rarely. Lists whose records may still arrive in
        // this round are kept.
        for (_, id) in by_use.into_iter().take_while(|(used, _)| *used < round) {
            if self.nodes <= most / 2 {
                break;
            }
            self.nodes -= self.lists.remove(&id).map_or(0, |list| list.given.nodes.len());
        }
        let lists = &self.lists;
        self.executables.retain(|_, id| lists.contains_key(id));
        true
    }

    /// Records that an operation's call has launched an executable graph.
    pub(super) fn launched(&mut self, origin: Origin) {
        if let Some(list) = self.lists.get_mut(&origin.nodes) {
            list.launch = match list.launch {
                Launches::None => Launches::One(origin),
                Launches::One(before) if before.op == origin.op => return,
                Launches::One(_) | Launches::Several => Launches::Several,
            };
        }
    }

    /// Returns the origin of an executable graph's work if the record does not name a call, as with CUPTI's conditional
    /// nodes. If the executable was launched only once, the origin is this launch. Otherwise, the origin contains only
    /// the executable.
    pub(super) fn launch_of(&self, executable: u32) -> Option<Origin> {
        let id = self.executables.get(&executable)?;
        match self.lists.get(id)?.launch {
            Launches::One(origin) => Some(origin),
            Launches::None | Launches::Several => Some(Origin { nodes: *id, ..Origin::default() }),
        }
    }

    /// Records that an operation has captured or added work.
    pub(super) fn captured(&mut self, operation: u64, place: Place) {
        if self.captured.insert(operation, place).is_none() {
            self.known.push_back(operation);
        }
        if self.known.len() > ORIGINS
            && let Some(oldest) = self.known.pop_front()
        {
            self.captured.remove(&oldest);
        }
    }

    /// Returns facts about the nodes whose location is unknown.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let causes = [
            (self.early, "captured before the recording: range of the launch, line of the capture"),
            (self.unseen, "captured by code outside the recording: range and line of the launch"),
            (
                self.unfit,
                "not identified, because they do not match the captured nodes: range and line of the launch",
            ),
        ];
        let known = causes.into_iter().filter(|(count, _)| *count > 0);
        let texts: Vec<String> = known.map(|(count, cause)| format!("{count} {cause}")).collect();
        if texts.is_empty() {
            Vec::new()
        } else {
            vec![("records of graph nodes".to_owned(), texts.join("; "))]
        }
    }
}

impl Joiner {
    /// Takes the node lists of launched executables from the recording.
    pub(super) fn take_lists(&mut self, recording: &Recording) {
        if self.graphs.add(recording.take_nodes(), self.round, MAX_NODES) {
            recording.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the given lists that contain nodes without a record.
    pub(super) fn incomplete_lists(&self, lists: &[u64]) -> HashSet<u64> {
        let is_known = |operation: u64| operation == 0 || self.graphs.captured.contains_key(&operation);
        let is_incomplete = |id: &&u64| {
            let new = self.graphs.lists.get(id).filter(|list| list.nodes.is_none());
            new.is_some_and(|list| !list.given.nodes.iter().all(|node| is_known(node.operation)))
        };
        lists.iter().filter(is_incomplete).copied().collect()
    }

    /// Registers a record of a node; `list` is the node list of the node's executable.
    pub(super) fn see_node(&mut self, recording: &Recording, list: u64, node: u64, seen: Seen) {
        let Some(known) = self.graphs.lists.get_mut(&list) else { return };
        known.used = self.round;
        if let Some(nodes) = &mut known.nodes {
            return nodes.see(node, seen);
        }
        let given = Arc::clone(&known.given);
        let mut nodes = self.nodes_of(recording, &given);
        nodes.see(node, seen);
        if let Some(known) = self.graphs.lists.get_mut(&list) {
            known.nodes = Some(nodes);
        }
    }

    fn nodes_of(&mut self, recording: &Recording, given: &GraphNodes) -> Nodes {
        let entries = given.nodes.iter().map(|node| {
            let (work, bytes) = match node.work {
                GraphWork::Kernel { symbol, bytes } => (Work::Kernel(recording.intern(symbol)), bytes),
                GraphWork::Copy => (Work::Copy, 0),
                GraphWork::Memset => (Work::Memset, 0),
                GraphWork::Nothing => (Work::Nothing, 0),
                GraphWork::Unknown => (Work::Unknown, 0),
            };
            // If the operation ran before the recording, or its record was dropped, only its source line is known.
            let place = self.graphs.captured.get(&node.operation).copied();
            let place = place.or_else(|| {
                let line = self.line(node.site);
                (!line.is_none()).then_some(Place { line, ..Place::default() })
            });
            let place = place.map(|place| Place { bytes, ..place });
            NodeEntry { part: node.part, number: node.number, work, place }
        });
        Nodes::new(given.graph, entries.collect())
    }

    /// Returns the location where a node was captured, for work launched at `origin`.
    pub(super) fn node_origin(&mut self, origin: Origin, node: u64) -> Origin {
        let nodes = self.graphs.lists.get_mut(&origin.nodes).and_then(|list| list.nodes.as_mut());
        let found = nodes.map_or(Found::Unseen, |nodes| nodes.find(node));
        match found {
            // Work that was captured outside of all ranges belongs to the range of the launch.
            Found::At(Place { line, range: Some(0), bytes, .. }) => return Origin { line, bytes, ..origin },
            Found::At(Place { line, range: Some(range), ranges, bytes }) => {
                return Origin { line, range, ranges, bytes, ..origin };
            }
            Found::At(Place { line, range: None, bytes, .. }) => {
                self.graphs.early += 1;
                return Origin { line, bytes, ..origin };
            }
            Found::Unseen => self.graphs.unseen += 1,
            Found::Unfit => self.graphs.unfit += 1,
        }
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(id: u64, nodes: usize) -> Arc<GraphNodes> {
        let node = warpsmith_runtime::extension::GraphNode {
            part: 0,
            number: None,
            work: GraphWork::Copy,
            operation: 0,
            site: None,
        };
        Arc::new(GraphNodes { id, graph: None, nodes: vec![node; nodes] })
    }

    #[test]
    fn lists_that_are_not_used_make_room() {
        let mut graphs = Graphs::default();
        assert!(!graphs.add(vec![list(1, 40), list(2, 40)], 1, 100));
        graphs.lists.get_mut(&1).unwrap().used = 2;
        assert!(!graphs.add(vec![list(1, 40), list(3, 20)], 2, 100), "one is there already");
        assert!(graphs.add(vec![list(4, 1)], 3, 100));
        let mut kept: Vec<u64> = graphs.lists.keys().copied().collect();
        kept.sort();
        assert_eq!((kept, graphs.nodes), (vec![3, 4], 21));
        assert!(graphs.add(vec![list(5, 500)], 4, 100));
        assert!(graphs.lists.contains_key(&5), "what is used now stays");
    }
}
