//! Updates of executable graphs. This module determines whether a change is permitted, and computes the resulting plan.
//!
//! The nodes of an executable keep the handles that they have in the original graph.

use std::sync::{Arc, Weak};

use super::super::action::Action;
use super::plan::{Piece, Plan, PlanStep, Step};
use warpsmith_driver::NodeHandle;
use warpsmith_driver::error::Result;

/// Reason why an executable cannot be updated from a graph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Node of the new graph.
    pub(super) node: Option<NodeHandle>,
    pub(super) reason: String,
}

/// Returns the first difference that prevents an update from `old` to `new`.
pub(super) fn difference(old: &Plan, new: &Plan) -> Option<Difference> {
    let (before, after) = (old.nodes.len(), new.nodes.len());
    if before != after {
        let reason = format!("the executable graph has {before} nodes here, but the graph has {after}");
        return Some(Difference { node: None, reason });
    }
    old.nodes.iter().zip(&new.nodes).find_map(|(old, new)| {
        let at = |reason| Difference { node: Some(NodeHandle(new.handle)), reason };
        if old.after != new.after {
            return Some(at("it has different dependencies than in the executable graph".to_owned()));
        }
        match step_difference(&old.step, &new.step)? {
            Difference { node: None, reason } => Some(at(reason)),
            within => Some(within),
        }
    })
}

/// Returns the difference that prevents the update of a node. The `node` of the result is `None` if the difference
/// concerns the given node itself.
pub(super) fn step_difference(old: &PlanStep, new: &PlanStep) -> Option<Difference> {
    let reason = |reason: String| Some(Difference { node: None, reason });
    if old.kind() != new.kind() {
        return reason(format!("it is {} in the executable and cannot become {}", old.kind(), new.kind()));
    }
    match (old, new) {
        (Step::Work(old), Step::Work(new)) => {
            piece_difference(old, new).and_then(|text| reason(text.to_owned()))
        }
        (Step::Child(old), Step::Child(new)) => difference(old, new),
        (Step::Conditional { kind: old_kind, bodies: old, .. }, Step::Conditional { kind, bodies, .. }) => {
            if old_kind != kind {
                return reason(format!("it is {old_kind:?} in the executable and cannot become {kind:?}"));
            }
            old.iter().zip(bodies).find_map(|(old, new)| difference(old, new))
        }
        _ => None,
    }
}

fn piece_difference(old: &Piece, new: &Piece) -> Option<&'static str> {
    if !Weak::ptr_eq(&old.context, &new.context) {
        return Some("it belongs to another device");
    }
    let is_memory_alone = !matches!(new.action, Action::Launch(_) | Action::Host(_) | Action::HostWork(_));
    let mut homes = old.homes.iter().zip(&new.homes);
    if is_memory_alone && homes.any(|(old, new)| old.device() != new.device()) {
        return Some("its memory is on a different device than in the executable graph, or on the host");
    }
    None
}

/// Returns the new plan with the node handles of the old plan. The two plans must not differ in a way that prevents an
/// update.
pub(super) fn renamed(old: &Plan, mut new: Plan) -> Plan {
    for (old, new) in old.nodes.iter().zip(&mut new.nodes) {
        new.handle = old.handle;
        match (&old.step, &mut new.step) {
            (Step::Child(old), Step::Child(new)) => *new = Arc::new(renamed(old, Plan::clone(new))),
            (Step::Conditional { bodies: old, .. }, Step::Conditional { bodies: new, .. }) => {
                for (old, new) in old.iter().zip(new) {
                    *new = Arc::new(renamed(old, Plan::clone(new)));
                }
            }
            _ => {}
        }
    }
    new
}

/// Returns a copy of the plan in which one node is changed. The node may be in a nested graph. Returns `None` if there
/// is no such node.
pub(super) fn with_node(
    plan: &Plan,
    node: NodeHandle,
    change: &mut dyn FnMut(&PlanStep) -> Result<PlanStep>,
) -> Result<Option<Plan>> {
    let changed = |place: usize, step| {
        let mut plan = plan.clone();
        plan.nodes[place].step = step;
        Some(plan)
    };
    for (place, own) in plan.nodes.iter().enumerate() {
        if own.handle == node.0 {
            return Ok(changed(place, change(&own.step)?));
        }
        match &own.step {
            Step::Child(child) => {
                if let Some(child) = with_node(child, node, change)? {
                    return Ok(changed(place, Step::Child(Arc::new(child))));
                }
            }
            Step::Conditional { condition, kind, bodies } => {
                for (index, body) in bodies.iter().enumerate() {
                    if let Some(body) = with_node(body, node, change)? {
                        let mut bodies = bodies.clone();
                        bodies[index] = Arc::new(body);
                        let (condition, kind) = (condition.clone(), *kind);
                        return Ok(changed(place, Step::Conditional { condition, kind, bodies }));
                    }
                }
            }
            Step::Empty | Step::Work(_) => {}
        }
    }
    Ok(None)
}
