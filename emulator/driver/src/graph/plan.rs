//! Representation of graphs as nodes with operations and dependencies.
//!
//! Nodes are stored in insertion order and depend only on earlier nodes, so they can run in that order. A [`Plan`] owns
//! all its work, including child graphs.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use super::super::action::Action;
use super::super::context::EmulatedContext;
use super::super::touched::{Access, Touched};
use warpsmith_driver::{ConditionHandle, ConditionalKind};

/// A value that kernels set and conditional nodes read. The handle of a condition is its address.
#[derive(Debug, Clone)]
pub(in super::super) struct Condition {
    pub(super) value: Arc<AtomicU32>,
    /// Value at the start of each launch; `None` if the value of the last launch is kept.
    pub(super) initial: Option<u32>,
}

impl Condition {
    pub(super) fn handle(&self) -> ConditionHandle {
        ConditionHandle(Arc::as_ptr(&self.value).expose_provenance() as u64)
    }
}

/// Location of memory that work uses, determined when the work was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Home {
    Device(u32),
    PageLocked,
    /// Host memory, or memory unknown to this driver.
    Elsewhere,
}

impl Home {
    pub(super) fn device(self) -> Option<u32> {
        if let Self::Device(ordinal) = self { Some(ordinal) } else { None }
    }
}

/// Work of a node.
#[derive(Debug)]
pub(in super::super) struct Piece {
    pub(in super::super) context: Weak<EmulatedContext>,
    /// Name of the driver call or the kernel.
    pub(in super::super) name: &'static str,
    pub(in super::super) action: Action,
    pub(in super::super) touched: Touched,
    /// Memory location of each accessed range.
    pub(in super::super) homes: Vec<Home>,
}

/// Operation of a node. Child graphs are identified by handle in mutable graphs and owned in plans.
#[derive(Debug, Clone)]
pub(in super::super) enum Step<G> {
    Empty,
    Work(Arc<Piece>),
    Child(G),
    Conditional { condition: Condition, kind: ConditionalKind, bodies: Vec<G> },
}

impl<G> Step<G> {
    pub(in super::super) fn is_kernel(&self) -> bool {
        matches!(self, Self::Work(piece) if matches!(piece.action, Action::Launch(_)))
    }

    /// Returns true for a programmatic dependent launch.
    pub(in super::super) fn is_dependent(&self) -> bool {
        matches!(self, Self::Work(piece) if matches!(&piece.action, Action::Launch(call) if call.config().dependent))
    }

    /// Returns the name of the operation's kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "an empty node",
            Self::Child(_) => "a child graph",
            Self::Conditional { .. } => "a conditional node",
            Self::Work(piece) => match piece.action {
                Action::Copy { .. } => "a copy",
                Action::Rows(_) => "a copy of rows",
                Action::Set { .. } => "a fill",
                Action::Launch(_) => "a kernel",
                Action::Host(_) => "a host function",
                Action::HostWork(_) => "work of a library",
            },
        }
    }
}

/// Operation of a plan's node.
pub(in super::super) type PlanStep = Step<Arc<Plan>>;

/// Dependency on an earlier node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct After {
    /// Index of the earlier node.
    pub(in super::super) node: usize,
    /// True for a programmatic dependency ([`Edge::early`](warpsmith_driver::Edge::early)).
    pub(in super::super) early: bool,
}

#[derive(Debug, Clone)]
pub(in super::super) struct Node<G> {
    pub(in super::super) handle: u64,
    /// Node of the original graph, if this node is a copy.
    pub(in super::super) copy_of: Option<u64>,
    pub(in super::super) after: Vec<After>,
    pub(in super::super) step: Step<G>,
}

/// An immutable graph.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Plan {
    pub(in super::super) nodes: Vec<Node<Arc<Plan>>>,
    pub(in super::super) conditions: Vec<Condition>,
}

impl Plan {
    /// Visits all work, including the work of every body, in a valid execution order.
    pub(super) fn pieces(&self, visit: &mut impl FnMut(&Arc<Piece>)) {
        for node in &self.nodes {
            node.step.pieces(visit);
        }
    }

    /// Returns the conditions of the graph and of nested graphs.
    pub(super) fn all_conditions(&self) -> Vec<Condition> {
        let mut all = self.conditions.clone();
        for node in &self.nodes {
            match &node.step {
                Step::Child(child) => all.extend(child.all_conditions()),
                Step::Conditional { bodies, .. } => {
                    bodies.iter().for_each(|body| all.extend(body.all_conditions()))
                }
                Step::Empty | Step::Work(_) => {}
            }
        }
        all
    }

    /// Returns true if a node of the graph or of a nested graph satisfies the predicate.
    pub(super) fn any(&self, is: &impl Fn(&PlanStep) -> bool) -> bool {
        self.nodes.iter().any(|node| {
            is(&node.step)
                || match &node.step {
                    Step::Child(child) => child.any(is),
                    Step::Conditional { bodies, .. } => bodies.iter().any(|body| body.any(is)),
                    Step::Empty | Step::Work(_) => false,
                }
        })
    }

    pub(super) fn has_conditional(&self) -> bool {
        self.any(&|step| matches!(step, Step::Conditional { .. }))
    }
}

impl PlanStep {
    /// Visits all work of a node.
    pub(super) fn pieces(&self, visit: &mut impl FnMut(&Arc<Piece>)) {
        match self {
            Self::Empty => {}
            Self::Work(piece) => visit(piece),
            Self::Child(child) => child.pieces(visit),
            Self::Conditional { bodies, .. } => bodies.iter().for_each(|body| body.pieces(visit)),
        }
    }

    /// Returns the memory that a node accesses, merged into few ranges.
    pub(super) fn touched(&self) -> Touched {
        let mut all = Touched::new();
        self.pieces(&mut |piece| all.extend(piece.touched.iter().cloned()));
        union(all)
    }
}

/// Merges accesses into the minimum number of ranges. Read-only ranges come first.
pub(super) fn union(mut all: Touched) -> Touched {
    all.retain(|access| !access.range.is_empty());
    all.sort_by_key(|access| (access.write, access.range.start));
    let mut merged = Touched::new();
    for Access { range: Range { start, end }, write } in all {
        match merged.last_mut() {
            Some(last) if last.write == write && start <= last.range.end => {
                last.range.end = last.range.end.max(end);
            }
            _ => merged.push(Access { range: start..end, write }),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_become_one_and_reads_stay_reads() {
        let touched = vec![
            Access::write(20, 5),
            Access::read(0, 10),
            Access::read(10, 5),
            Access::write(24, 4),
            Access::read(3, 2),
            Access::read(16, 0),
            Access::read(17, 2),
        ];
        let found: Vec<_> = union(touched).into_iter().map(|access| (access.range, access.write)).collect();
        assert_eq!(found, [(0..15, false), (17..19, false), (20..28, true)]);
    }
}
