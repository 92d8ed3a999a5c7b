//! Graphs of a driver, keyed by handle. They can be extended, copied and inspected.
//!
//! Handles are never reused. Nested graphs (child graphs and bodies) have their own handles and are destroyed together
//! with the outer graph.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::super::control::Call;
use super::super::control::driver_error;
use super::plan::{After, Condition, Node, Plan, PlanStep, Step};
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{ConditionHandle, ConditionalKind, Edge, GraphHandle, NodeHandle, NodeInfo};

/// A mutable graph.
#[derive(Debug, Default)]
struct Stored {
    nodes: Vec<Node<GraphHandle>>,
    conditions: Vec<Condition>,
    /// Graph that contains this graph.
    owner: Option<GraphHandle>,
}

/// Graphs, keyed by handle; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(in super::super) struct Store {
    last_handle: u64,
    graphs: HashMap<GraphHandle, Stored>,
    /// Graph and index of every node.
    nodes: HashMap<NodeHandle, (GraphHandle, usize)>,
}

fn invalid(call: Call, text: impl Into<String>) -> DriverError {
    driver_error(call.name(), code::INVALID_VALUE, text)
}

fn unknown_graph(call: Call, graph: GraphHandle) -> DriverError {
    invalid(call, format!("graph {} is unknown or was destroyed", graph.0))
}

impl Store {
    fn handle(&mut self) -> u64 {
        self.last_handle += 1;
        self.last_handle
    }

    fn graph(&self, call: Call, graph: GraphHandle) -> Result<&Stored> {
        self.graphs.get(&graph).ok_or_else(|| unknown_graph(call, graph))
    }

    fn graph_mut(&mut self, call: Call, graph: GraphHandle) -> Result<&mut Stored> {
        self.graphs.get_mut(&graph).ok_or_else(|| unknown_graph(call, graph))
    }

    fn node(&self, call: Call, node: NodeHandle) -> Result<&Node<GraphHandle>> {
        let found =
            self.nodes.get(&node).and_then(|(graph, place)| self.graphs.get(graph)?.nodes.get(*place));
        found.ok_or_else(|| invalid(call, format!("node {} is unknown, or its graph was destroyed", node.0)))
    }

    /// Creates an empty graph, optionally owned by another graph.
    pub(super) fn create(&mut self, owner: Option<GraphHandle>) -> GraphHandle {
        let graph = GraphHandle(self.handle());
        self.graphs.insert(graph, Stored { owner, ..Stored::default() });
        graph
    }

    /// Destroys a graph that no other graph owns, together with all nested graphs.
    pub(super) fn destroy(&mut self, graph: GraphHandle) {
        if self.graphs.get(&graph).is_some_and(|stored| stored.owner.is_none()) {
            self.remove(graph);
        }
    }

    fn remove(&mut self, graph: GraphHandle) {
        let Some(stored) = self.graphs.remove(&graph) else { return };
        for node in stored.nodes {
            self.nodes.remove(&NodeHandle(node.handle));
            match node.step {
                Step::Child(child) => self.remove(child),
                Step::Conditional { bodies, .. } => bodies.into_iter().for_each(|body| self.remove(body)),
                Step::Empty | Step::Work(_) => {}
            }
        }
    }

    /// Returns a snapshot of the graph, including all nested graphs.
    pub(super) fn plan(&self, call: Call, graph: GraphHandle) -> Result<Plan> {
        let stored = self.graph(call, graph)?;
        let nodes = stored.nodes.iter().map(|node| {
            let step = match &node.step {
                Step::Empty => Step::Empty,
                Step::Work(piece) => Step::Work(Arc::clone(piece)),
                Step::Child(child) => Step::Child(Arc::new(self.plan(call, *child)?)),
                Step::Conditional { condition, kind, bodies } => Step::Conditional {
                    condition: condition.clone(),
                    kind: *kind,
                    bodies: bodies
                        .iter()
                        .map(|body| Ok(Arc::new(self.plan(call, *body)?)))
                        .collect::<Result<_>>()?,
                },
            };
            Ok(Node { handle: node.handle, copy_of: node.copy_of, after: node.after.clone(), step })
        });
        Ok(Plan { nodes: nodes.collect::<Result<_>>()?, conditions: stored.conditions.clone() })
    }

    /// Reserves the handle of the graph that a capture creates.
    pub(super) fn reserve_graph(&mut self) -> GraphHandle {
        GraphHandle(self.handle())
    }

    /// Reserves the handle of a node that a capture adds.
    pub(super) fn reserve_node(&mut self) -> NodeHandle {
        NodeHandle(self.handle())
    }

    /// Inserts a captured graph under the reserved handles. Captured graphs do not contain nested graphs of their own.
    pub(super) fn insert_captured(&mut self, graph: GraphHandle, plan: Plan) {
        let Plan { nodes, conditions } = plan;
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(place, Node { handle, copy_of, after, step })| {
            self.nodes.insert(NodeHandle(handle), (graph, place));
            let step = self.insert_step(&step, graph);
            Node { handle, copy_of, after, step }
        });
        let nodes = nodes.collect();
        self.graphs.insert(graph, Stored { nodes, conditions, owner: None });
    }

    /// Inserts a graph that is created from a plan.
    pub(super) fn insert(&mut self, plan: &Plan, owner: Option<GraphHandle>) -> GraphHandle {
        let graph = self.create(owner);
        let nodes = plan.nodes.iter().enumerate();
        let nodes = nodes.map(|(place, node)| {
            let handle = self.handle();
            self.nodes.insert(NodeHandle(handle), (graph, place));
            let step = self.insert_step(&node.step, graph);
            Node { handle, copy_of: Some(node.handle), after: node.after.clone(), step }
        });
        let nodes = nodes.collect();
        let conditions = plan.conditions.clone();
        self.graphs.insert(graph, Stored { nodes, conditions, owner });
        graph
    }

    fn insert_step(&mut self, step: &PlanStep, graph: GraphHandle) -> Step<GraphHandle> {
        match step {
            Step::Empty => Step::Empty,
            Step::Work(piece) => Step::Work(Arc::clone(piece)),
            Step::Child(child) => Step::Child(self.insert(child, Some(graph))),
            Step::Conditional { condition, kind, bodies } => Step::Conditional {
                condition: condition.clone(),
                kind: *kind,
                bodies: bodies.iter().map(|body| self.insert(body, Some(graph))).collect(),
            },
        }
    }

    /// Returns the dependencies on `nodes` of a graph. Each node may be listed only once.
    fn places(&self, call: Call, graph: GraphHandle, nodes: &[NodeHandle]) -> Result<Vec<After>> {
        let mut places = Vec::with_capacity(nodes.len());
        for node in nodes {
            let place = match self.nodes.get(node) {
                Some((of, place)) if *of == graph => After { node: *place, early: false },
                Some((of, _)) => {
                    let text = format!("node {} belongs to graph {}, not to graph {}", node.0, of.0, graph.0);
                    return Err(invalid(call, text));
                }
                None => return Err(invalid(call, format!("node {} is unknown", node.0))),
            };
            if places.contains(&place) {
                return Err(invalid(call, format!("node {} is named twice", node.0)));
            }
            places.push(place);
        }
        Ok(places)
    }

    /// Adds a node to a graph, with dependencies.
    pub(super) fn add(
        &mut self,
        call: Call,
        graph: GraphHandle,
        after: &[NodeHandle],
        step: &PlanStep,
    ) -> Result<NodeHandle> {
        let after = self.places(call, graph, after)?;
        let place = self.graph(call, graph)?.nodes.len();
        let step = self.insert_step(step, graph);
        let handle = self.handle();
        self.nodes.insert(NodeHandle(handle), (graph, place));
        self.graph_mut(call, graph)?.nodes.push(Node { handle, copy_of: None, after, step });
        Ok(NodeHandle(handle))
    }

    pub(super) fn add_condition(
        &mut self,
        call: Call,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle> {
        let condition = Condition { value: Arc::new(AtomicU32::new(initial.unwrap_or(0))), initial };
        let handle = condition.handle();
        self.graph_mut(call, graph)?.conditions.push(condition);
        Ok(handle)
    }

    /// Returns a condition of a graph or of a graph that contains it. The condition must not be used by a conditional
    /// node yet.
    fn condition(&self, call: Call, graph: GraphHandle, wanted: ConditionHandle) -> Result<Condition> {
        let mut at = Some(graph);
        while let Some(graph) = at {
            let stored = self.graph(call, graph)?;
            if let Some(condition) = stored.conditions.iter().find(|condition| condition.handle() == wanted) {
                let has = |node: &Node<GraphHandle>| {
                    let Step::Conditional { condition, .. } = &node.step else { return false };
                    condition.handle() == wanted
                };
                if self.graphs.values().any(|stored| stored.nodes.iter().any(has)) {
                    return Err(invalid(
                        call,
                        "another conditional node uses this condition; create one condition per node",
                    ));
                }
                return Ok(condition.clone());
            }
            at = stored.owner;
        }
        Err(invalid(call, "the condition belongs neither to this graph nor to a parent graph"))
    }

    /// Adds a conditional node with empty bodies.
    pub(super) fn add_conditional(
        &mut self,
        call: Call,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)> {
        if kind.bodies() == 0 {
            return Err(invalid(call, "a conditional node needs a body"));
        }
        let condition = self.condition(call, graph, condition)?;
        let bodies = (0..kind.bodies()).map(|_| Arc::default()).collect();
        let node = self.add(call, graph, after, &Step::Conditional { condition, kind, bodies })?;
        match &self.node(call, node)?.step {
            Step::Conditional { bodies, .. } => Ok((node, bodies.clone())),
            _ => Ok((node, Vec::new())),
        }
    }

    /// Copies a graph that has no conditional node.
    pub(super) fn clone_graph(&mut self, call: Call, graph: GraphHandle) -> Result<GraphHandle> {
        let plan = self.plan(call, graph)?;
        refuse_conditional(call, &plan, "cannot be copied")?;
        Ok(self.insert(&plan, None))
    }

    /// Returns the node of a clone that corresponds to `node`.
    pub(super) fn in_clone(&self, call: Call, node: NodeHandle, clone: GraphHandle) -> Result<NodeHandle> {
        let copy = self.graph(call, clone)?.nodes.iter().find(|copy| copy.copy_of == Some(node.0));
        let missing = || invalid(call, format!("graph {} has no copy of node {}", clone.0, node.0));
        copy.map(|copy| NodeHandle(copy.handle)).ok_or_else(missing)
    }

    pub(super) fn nodes(&self, call: Call, graph: GraphHandle) -> Result<Vec<NodeHandle>> {
        Ok(self.graph(call, graph)?.nodes.iter().map(|node| NodeHandle(node.handle)).collect())
    }

    pub(super) fn edges(&self, call: Call, graph: GraphHandle) -> Result<Vec<Edge>> {
        let nodes = &self.graph(call, graph)?.nodes;
        let handle = |place: usize| NodeHandle(nodes[place].handle);
        let of_node = |(place, node): (usize, &Node<GraphHandle>)| {
            let edge =
                move |after: &After| Edge { from: handle(after.node), to: handle(place), early: after.early };
            node.after.iter().map(edge).collect::<Vec<_>>()
        };
        Ok(nodes.iter().enumerate().flat_map(of_node).collect())
    }

    pub(super) fn info(&self, call: Call, node: NodeHandle) -> Result<NodeInfo> {
        Ok(match &self.node(call, node)?.step {
            Step::Empty => NodeInfo::Empty,
            Step::Work(piece) => piece.action.info(),
            Step::Child(child) => NodeInfo::Child(*child),
            Step::Conditional { .. } => NodeInfo::Conditional,
        })
    }
}

/// Returns an error if a graph contains a conditional node although it must not.
pub(super) fn refuse_conditional(call: Call, plan: &Plan, what: &str) -> Result<()> {
    if !plan.has_conditional() {
        return Ok(());
    }
    let text = format!("a graph with conditional nodes {what}");
    Err(driver_error(call.name(), code::NOT_SUPPORTED, text))
}
