//! [`Origins`]: the operations that created a graph's nodes, for observers of its launches.
//!
//! Origins are known for nodes captured or added through the runtime. When the driver copies nodes into clones, child
//! graphs or bodies of conditional nodes, their origins are copied too, because a copy lists its nodes in the same
//! order as the original. If the kinds of work of a node and its copy differ, the copy's origins are treated as
//! unknown.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use crate::device::Device;
use crate::device::graph_nodes::{GraphNode, GraphNodes, GraphWork, Note, attributed};
use crate::driver::{
    Context, Driver, DriverError, Edge, GraphExecHandle, GraphHandle, NodeHandle, NodeInfo, NodeWork,
};

/// The operation that created a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub work: GraphWork,
    /// ID of the operation that captured or added the node; 0 if there was no observer.
    pub operation: u64,
    pub site: Option<&'static Location<'static>>,
}

impl Origin {
    const UNKNOWN: Self = Self { work: GraphWork::Unknown, operation: 0, site: None };
}

/// Origins of a graph's nodes; see the [module's documentation](self).
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    /// The nodes, each with the ID of its nested graph, in capture or insertion order. An entry without a handle stands
    /// for all nodes of a nested graph whose origins are unknown.
    nodes: Vec<(u32, Option<NodeHandle>, Origin)>,
    /// The number of nested graphs.
    parts: u32,
}

/// Returns the kind of work of a node to be added.
pub(super) fn work_of(work: &NodeWork<'_>) -> GraphWork {
    match work {
        NodeWork::Copy { .. } => GraphWork::Copy,
        NodeWork::Set { .. } => GraphWork::Memset,
        NodeWork::Empty | NodeWork::Host(_) | NodeWork::Child(_) => GraphWork::Nothing,
        NodeWork::Kernel { .. } => GraphWork::Unknown,
    }
}

impl Origins {
    /// Creates the origins of a captured graph.
    pub fn of_capture(nodes: &[NodeHandle], edges: &[Edge], notes: &[Note]) -> Self {
        if notes.is_empty() {
            return Self::default();
        }
        let of = attributed(nodes, edges, notes);
        let origin = |of: &Option<usize>| {
            let note = of.and_then(|at| notes.get(at));
            note.map_or(Origin::UNKNOWN, |note| Origin {
                work: note.work,
                operation: note.operation,
                site: note.site,
            })
        };
        let nodes = nodes.iter().zip(&of).map(|(node, of)| (0, Some(*node), origin(of)));
        Self { nodes: nodes.collect(), parts: 0 }
    }

    /// Creates the origins of a graph cloned by the driver.
    pub fn of_clone(device: &Device, graph: GraphHandle, origins: &Origins, clone: GraphHandle) -> Self {
        let mut of_clone = Self::default();
        of_clone.copy(device, graph, origins, clone, 0);
        of_clone
    }

    /// Returns true if any origin is known.
    fn is_known(&self) -> bool {
        self.nodes.iter().any(|(.., origin)| origin.operation != 0 || origin.site.is_some())
    }

    /// Records that a node was added.
    pub fn add(&mut self, node: NodeHandle, origin: Origin) {
        self.nodes.push((0, Some(node), origin));
    }

    /// Records that the most recently added node launches a kernel.
    pub fn last_is_kernel(&mut self, symbol: &'static str, bytes: u64) {
        if let Some((.., origin)) = self.nodes.last_mut() {
            origin.work = GraphWork::Kernel { symbol, bytes };
        }
    }

    /// Records the addition of a child graph node. The driver has copied the node's graph from `child`.
    pub fn add_child(&mut self, device: &Device, node: NodeHandle, child: GraphHandle, origins: &Origins) {
        self.parts += 1;
        let part = self.parts;
        let (driver, context) = device.raw();
        if origins.is_known()
            && let Ok(NodeInfo::Child(copy)) = driver.graph_node(context, node)
        {
            self.copy(device, child, origins, copy, part);
        } else {
            self.nodes.push((part, None, Origin::UNKNOWN));
        }
    }

    /// Records that a conditional node was added. Each of its bodies consists of one child graph node. In an
    /// executable, the driver numbers these nodes first, and then the nodes of the child graphs, starting with the last
    /// child graph.
    pub fn add_conditional(&mut self, device: &Device, bodies: &[(NodeHandle, GraphHandle, &Origins)]) {
        self.parts += 1;
        let nothing = Origin { work: GraphWork::Nothing, ..Origin::UNKNOWN };
        self.nodes.extend(bodies.iter().map(|(node, ..)| (self.parts, Some(*node), nothing)));
        for (node, body, origins) in bodies.iter().rev() {
            self.add_child(device, *node, *body, origins);
        }
    }

    /// Adds the nodes of a graph that the driver has copied as a nested graph.
    fn copy(&mut self, device: &Device, graph: GraphHandle, origins: &Origins, copy: GraphHandle, part: u32) {
        if !origins.is_known() {
            return;
        }
        let known = origins.nodes.iter().filter_map(|(_, node, origin)| Some(((*node)?, *origin))).collect();
        let (driver, context) = device.raw();
        if self.copy_nodes(&**driver, context, &known, (graph, copy), part).is_err() {
            // If the driver reports an error, the remaining origins are unknown.
            self.nodes.push((self.parts, None, Origin::UNKNOWN));
        }
    }

    fn copy_nodes(
        &mut self,
        driver: &dyn Driver,
        context: Context,
        known: &HashMap<NodeHandle, Origin>,
        (graph, copy): (GraphHandle, GraphHandle),
        part: u32,
    ) -> Result<(), DriverError> {
        let (nodes, copies) = (driver.graph_nodes(context, graph)?, driver.graph_nodes(context, copy)?);
        if nodes.len() != copies.len() {
            self.nodes.push((part, None, Origin::UNKNOWN));
            return Ok(());
        }
        // Drivers preserve the order of nodes. A query verifies this for some nodes; a driver may not support the query
        // for child graphs.
        let is_at = |(node, by_place): (&NodeHandle, &NodeHandle)| {
            let copied = driver.graph_node_in_clone(context, *node, copy);
            copied.map_or(true, |copied| copied == *by_place)
        };
        let middle = nodes.len() / 2;
        let some = [0, middle, nodes.len().saturating_sub(1)].map(|at| nodes.get(at).zip(copies.get(at)));
        let is_same = some.into_iter().flatten().all(is_at);
        for (node, by_place) in nodes.into_iter().zip(copies) {
            let copied = if is_same { by_place } else { driver.graph_node_in_clone(context, node, copy)? };
            let (from, to) = (driver.graph_node(context, node)?, driver.graph_node(context, copied)?);
            let of_node = known.get(&node).copied();
            if let (NodeInfo::Child(from), NodeInfo::Child(to)) = (from, to) {
                self.nodes.push((part, Some(copied), of_node.unwrap_or(Origin::UNKNOWN)));
                self.parts += 1;
                self.copy_nodes(driver, context, known, (from, to), self.parts)?;
            } else {
                let of_node = of_node.filter(|_| from == to);
                self.nodes.push((part, Some(copied), of_node.unwrap_or(Origin::UNKNOWN)));
            }
        }
        Ok(())
    }

    /// Returns the nodes of an executable created from the graph, which must not have been changed since then.
    pub fn of_executable(&self, device: &Device, exec: GraphExecHandle) -> Arc<GraphNodes> {
        if !self.is_known() {
            return Arc::new(GraphNodes::unknown());
        }
        let (driver, context) = device.raw();
        let nodes = self.nodes.iter().map(|(part, node, origin)| GraphNode {
            part: *part,
            number: node.and_then(|node| driver.activity_node(context, node).ok()),
            work: origin.work,
            operation: origin.operation,
            site: origin.site,
        });
        Arc::new(GraphNodes::new(driver.activity_exec(context, exec).ok(), nodes.collect()))
    }

    /// Returns the nodes of an executable updated to this graph. The nodes keep their numbers.
    pub fn of_updated(&self, before: &GraphNodes) -> Arc<GraphNodes> {
        let numbers = before.nodes.iter().map(|node| (node.part, node.number));
        let parts = self.nodes.iter().map(|(part, ..)| *part);
        let is_same = before.nodes.iter().map(|node| node.part).eq(parts);
        if !self.is_known() || !is_same {
            return Arc::new(GraphNodes::unknown());
        }
        let nodes = self.nodes.iter().zip(numbers).map(|((part, _, origin), (_, number))| GraphNode {
            part: *part,
            number,
            work: origin.work,
            operation: origin.operation,
            site: origin.site,
        });
        Arc::new(GraphNodes::new(before.graph, nodes.collect()))
    }
}
