//! Parts of a graph that run or not, or again and again, by a number that its kernels set.

use super::{Graph, Node};
use crate::driver::{ConditionHandle, ConditionalKind};
use crate::error::{Error, Result};

/// What fills the body of a conditional node.
type Body<'b> = Box<dyn FnOnce(&mut Graph) -> Result<()> + 'b>;

/// A number that kernels of a graph set and that decides what its conditional nodes do.
///
/// A kernel gets it as a parameter of type `u64` ([`Condition::argument`]) and sets it by
/// `gpu_std::graph::set_condition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    graph: u64,
    handle: ConditionHandle,
}

impl Condition {
    /// What a kernel that sets it is passed.
    pub fn argument(&self) -> u64 {
        self.handle.0
    }
}

impl Graph {
    /// Adds a condition. With an initial value it has that at the start of every launch; without, the value that the last
    /// launch left, and 0 before the first.
    ///
    /// # Errors
    /// Whatever the driver reports: CUDA has conditions since 12.4.
    pub fn add_condition(&mut self, initial: Option<u32>) -> Result<Condition> {
        let graph = self.handle;
        let handle = self.device.call(|driver, context| driver.graph_condition(context, graph, initial))?;
        Ok(Condition { graph: self.number, handle })
    }

    /// Adds a part that runs if the condition is not 0 when the graph comes to it. It comes after all nodes so far, and
    /// nodes that are added later come after it.
    ///
    /// # Errors
    /// [`Error::NodeOfOtherGraph`] for a condition of another graph; what `body` returns, and what it has added stays;
    /// whatever the driver reports.
    pub fn add_if(
        &mut self,
        condition: &Condition,
        body: impl FnOnce(&mut Graph) -> Result<()>,
    ) -> Result<Node> {
        self.add_conditional(condition, ConditionalKind::If, [Some(body)])
    }

    /// Adds a part that runs if the condition is not 0, and another that runs if it is. CUDA has this since 12.8. As
    /// [`Self::add_if`].
    ///
    /// # Errors
    /// As [`Self::add_if`].
    pub fn add_if_else<'b>(
        &mut self,
        condition: &Condition,
        body: impl FnOnce(&mut Graph) -> Result<()> + 'b,
        otherwise: impl FnOnce(&mut Graph) -> Result<()> + 'b,
    ) -> Result<Node> {
        let bodies: [Option<Body<'b>>; 2] = [Some(Box::new(body)), Some(Box::new(otherwise))];
        self.add_conditional(condition, ConditionalKind::IfElse, bodies)
    }

    /// Adds a part that runs again and again while the condition is not 0: before each time, and so before the first. A
    /// kernel in it sets the condition to 0 in the end. As [`Self::add_if`].
    ///
    /// # Errors
    /// As [`Self::add_if`].
    pub fn add_while(
        &mut self,
        condition: &Condition,
        body: impl FnOnce(&mut Graph) -> Result<()>,
    ) -> Result<Node> {
        self.add_conditional(condition, ConditionalKind::While, [Some(body)])
    }

    /// Adds `count` parts, of which the one with the condition's number runs, and none if there is no such. `body` fills
    /// each, given its number. CUDA has this since 12.8. As [`Self::add_if`].
    ///
    /// # Errors
    /// As [`Self::add_if`].
    pub fn add_switch(
        &mut self,
        condition: &Condition,
        count: u32,
        body: impl Fn(u32, &mut Graph) -> Result<()>,
    ) -> Result<Node> {
        let body = &body;
        let bodies = (0..count).map(|number| Some(move |graph: &mut Graph| body(number, graph)));
        self.add_conditional(condition, ConditionalKind::Switch(count), bodies)
    }

    fn add_conditional<F: FnOnce(&mut Graph) -> Result<()>>(
        &mut self,
        condition: &Condition,
        kind: ConditionalKind,
        bodies: impl IntoIterator<Item = Option<F>>,
    ) -> Result<Node> {
        if condition.graph != self.number {
            return Err(Error::NodeOfOtherGraph);
        }
        let graph = self.handle;
        let mut handles = Vec::new();
        // SAFETY: it is ordered with all other nodes, and what its bodies use is noted below, whatever happens.
        let node = unsafe {
            self.add_barrier(|device, nodes| {
                let (node, made) = device.call(|driver, context| {
                    driver.graph_add_conditional(context, graph, nodes, condition.handle, kind)
                })?;
                handles = made;
                Ok(node)
            })
        }?;
        for (handle, fill) in handles.into_iter().zip(bodies) {
            let mut body = Graph::of(&self.device, handle, false, Default::default());
            // Conditions belong to the graph as a whole.
            let filled = fill.map_or(Ok(()), |fill| fill(&mut body));
            self.content.add(&body.content);
            self.others.add_all(&body.content.resources);
            filled?;
        }
        Ok(node)
    }
}
