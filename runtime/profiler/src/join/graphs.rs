//! [`Graphs`]: where the nodes of launched graphs were captured or added.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use warpsmith_core::seam::GraphWork;

use super::nodes::{Entry, Found, Nodes, Place, Seen, Work};
use super::{Joiner, ORIGINS, Origin};
use crate::recording::Recording;

/// See the [module's documentation](self).
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// Where operations captured or added work.
    captured: HashMap<u64, Place>,
    /// The operations, the oldest first.
    known: VecDeque<u64>,
    /// The lists of nodes, by their numbers.
    lists: HashMap<u64, Nodes>,
    /// Records of nodes that were captured before the recording.
    early: u64,
    /// Those of which nothing saw the capture.
    unseen: u64,
    /// Those that do not fit what was captured.
    unfit: u64,
}

impl Graphs {
    /// An operation captured or added work.
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

    /// What is to be said of nodes whose place is not known.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let causes = [
            (self.early, "captured before the recording: range of the launch, line of the capture"),
            (self.unseen, "captured by code that is not recorded: range and line of the launch"),
            (
                self.unfit,
                "not identified, as they do not fit what was captured: range and line of the launch",
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
    /// The lists among these of which operations have no records yet.
    pub(super) fn incomplete_lists(&self, recording: &Recording, lists: &[u64]) -> HashSet<u64> {
        let mut incomplete = HashSet::default();
        for &id in lists {
            if self.graphs.lists.contains_key(&id) || incomplete.contains(&id) {
                continue;
            }
            let Some(nodes) = recording.nodes(id) else { continue };
            let is_known = |operation: u64| operation == 0 || self.graphs.captured.contains_key(&operation);
            if !nodes.nodes.iter().all(|node| is_known(node.operation)) {
                incomplete.insert(id);
            }
        }
        incomplete
    }

    /// Notes a record of a node of an executable with these nodes.
    pub(super) fn see_node(&mut self, recording: &Recording, list: u64, node: u64, seen: Seen) {
        if !self.graphs.lists.contains_key(&list) {
            let nodes = self.list(recording, list);
            self.graphs.lists.insert(list, nodes);
        }
        if let Some(nodes) = self.graphs.lists.get_mut(&list) {
            nodes.see(node, seen);
        }
    }

    fn list(&mut self, recording: &Recording, list: u64) -> Nodes {
        let Some(nodes) = recording.nodes(list) else { return Nodes::default() };
        let entries = nodes.nodes.iter().map(|node| {
            let work = match node.work {
                GraphWork::Kernel(symbol) => Work::Kernel(recording.intern(symbol)),
                GraphWork::Copy => Work::Copy,
                GraphWork::Memset => Work::Memset,
                GraphWork::Nothing => Work::Nothing,
                GraphWork::Unknown => Work::Unknown,
            };
            // An operation from before the recording, or whose record was dropped, has its line alone.
            let place = self.graphs.captured.get(&node.operation).copied();
            let place = place.or_else(|| {
                let line = self.line(node.site);
                (!line.is_none()).then_some(Place { line, range: None })
            });
            Entry { part: node.part, number: node.number, work, place }
        });
        Nodes::new(nodes.graph, entries.collect())
    }

    /// Where the work of a node was captured, which was launched at `origin`.
    pub(super) fn node_origin(&mut self, origin: Origin, node: u64) -> Origin {
        let found = match self.graphs.lists.get_mut(&origin.nodes) {
            Some(nodes) if origin.nodes != 0 => nodes.find(node),
            _ => Found::Unseen,
        };
        match found {
            // Outside of ranges it was captured for the range in which it is launched.
            Found::At(Place { line, range: Some(0) }) => return Origin { line, ..origin },
            Found::At(Place { line, range: Some(range) }) => return Origin { line, range, ..origin },
            Found::At(Place { line, range: None }) => {
                self.graphs.early += 1;
                return Origin { line, ..origin };
            }
            Found::Unseen => self.graphs.unseen += 1,
            Found::Unfit => self.graphs.unfit += 1,
        }
        origin
    }
}
