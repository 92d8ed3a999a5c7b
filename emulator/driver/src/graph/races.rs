//! Races within a graph: two nodes race if they access the same byte, at least one of them writes it, and no edges
//! order them.

use std::fmt;

use super::super::touched::{Access, Touched};
use super::plan::{Node, Plan, Step};

/// Returns descriptions of the races between nodes of a graph and of nested graphs.
pub(super) fn within(plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    let touched: Vec<Touched> = plan.nodes.iter().map(|node| node.step.touched()).collect();
    let before = ancestors(plan);
    for later in 0..plan.nodes.len() {
        for earlier in (0..later).filter(|earlier| !before[later].holds(*earlier)) {
            if let Some((first, second)) = conflict(&touched[earlier], &touched[later]) {
                let at = first.range.start.max(second.range.start);
                let (first, second) = (Use(plan, earlier, first), Use(plan, later, second));
                found.push(format!(
                    "{first} and {second} in one graph access the same bytes from {at:#x} on, without an order"
                ));
            }
        }
    }
    for Node { step, .. } in &plan.nodes {
        match step {
            Step::Child(child) => found.extend(within(child)),
            Step::Conditional { bodies, .. } => bodies.iter().for_each(|body| found.extend(within(body))),
            Step::Empty | Step::Work(_) => {}
        }
    }
    found
}

/// A set of nodes.
#[derive(Debug, Clone)]
struct Nodes(Vec<u64>);

impl Nodes {
    fn holds(&self, node: usize) -> bool {
        self.0[node / 64] >> (node % 64) & 1 == 1
    }
}

fn ancestors(plan: &Plan) -> Vec<Nodes> {
    let words = plan.nodes.len().div_ceil(64);
    let mut all: Vec<Nodes> = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let mut before = Nodes(vec![0; words]);
        for after in &node.after {
            before.0.iter_mut().zip(&all[after.node].0).for_each(|(own, other)| *own |= other);
            before.0[after.node / 64] |= 1 << (after.node % 64);
        }
        all.push(before);
    }
    all
}

/// Returns the first two uses that share a byte and of which at least one is a write.
fn conflict<'a>(first: &'a Touched, second: &'a Touched) -> Option<(&'a Access, &'a Access)> {
    let overlap = |a: &Access, b: &Access| a.range.start < b.range.end && b.range.start < a.range.end;
    let mut pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
    pairs.find(|(a, b)| (a.write || b.write) && overlap(a, b))
}

/// Formats a node's use of memory.
struct Use<'a>(&'a Plan, usize, &'a Access);

impl fmt::Display for Use<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan, node, Access { range, write }) = self;
        let name = match &plan.nodes[*node].step {
            Step::Work(piece) => piece.name,
            step => step.kind(),
        };
        let verb = if *write { "writes" } else { "reads" };
        write!(f, "{name} in node {node} ({verb} {:#x}..{:#x})", range.start, range.end)
    }
}
