//! Parts of a graph that run or not, or again and again, by a number that its kernels set.

use super::{Graph, Node};
use crate::device::observe::site_of_node;
use crate::driver::{ConditionHandle, ConditionalKind, NodeWork};
use crate::error::{GraphError, Result};

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
    /// The argument for a kernel that sets it.
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
    /// The part is what `body` does now, captured or built: it is copied, so `body` can be changed, used again or dropped
    /// after that. It cannot have conditions itself, nor call functions on the host.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Graph};
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// let stream = device.default_stream();
    /// let mut x = DeviceBuffer::<u8>::zeros(&stream, 4)?;
    /// let mut body = Graph::new(&device)?;
    /// body.add_memset(&mut x, 8, &[])?;
    /// let mut graph = Graph::new(&device)?;
    /// let condition = graph.add_condition(Some(1))?;
    /// graph.add_if(&condition, &body)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(x.to_host()?, [8; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`GraphError::NodeOfOtherGraph`] for a condition of another graph,
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices), [`GraphError::Invalidated`]; whatever the driver reports,
    /// also for a body with conditions. The part may be there then, and be empty.
    #[track_caller]
    pub fn add_if(&mut self, condition: &Condition, body: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::If, &[body])
    }

    /// Adds a part that runs if the condition is not 0, and another that runs if it is. CUDA has this since 12.8. As
    /// [`Self::add_if`].
    ///
    /// # Errors
    /// As [`Self::add_if`].
    #[track_caller]
    pub fn add_if_else(&mut self, condition: &Condition, then: &Graph, otherwise: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::IfElse, &[then, otherwise])
    }

    /// Adds a part that runs again and again while the condition is not 0: before each time, and so before the first. A
    /// kernel in it sets the condition to 0 in the end. As [`Self::add_if`].
    ///
    /// What is called before a launch ([`Stream::on_graph_launch`](crate::Stream::on_graph_launch)) is called once, however
    /// often the part runs: random numbers of a captured part are the same each time.
    ///
    /// # Errors
    /// As [`Self::add_if`].
    #[track_caller]
    pub fn add_while(&mut self, condition: &Condition, body: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::While, &[body])
    }

    /// Adds parts, of which the one with the condition's number runs, and none if there is no such. CUDA has this since
    /// 12.8. As [`Self::add_if`].
    ///
    /// # Errors
    /// As [`Self::add_if`]; there has to be a part.
    #[track_caller]
    pub fn add_switch(&mut self, condition: &Condition, bodies: &[&Graph]) -> Result<Node> {
        let _site = site_of_node();
        // Memory has no room for more.
        let count = u32::try_from(bodies.len()).unwrap_or(u32::MAX);
        self.add_conditional(condition, ConditionalKind::Switch(count), bodies)
    }

    fn add_conditional(
        &mut self,
        condition: &Condition,
        kind: ConditionalKind,
        bodies: &[&Graph],
    ) -> Result<Node> {
        if condition.graph != self.number {
            return Err(GraphError::NodeOfOtherGraph.into());
        }
        for body in bodies {
            self.check_device(&body.device, "a conditional part", "make it on that device")?;
            body.content.check()?;
        }
        // Before the driver has any of it: whatever fails below, what the graph may come to use is noted and kept.
        for body in bodies {
            self.content.add(&body.content);
            self.others.add_all(&body.content.resources);
        }
        let graph = self.handle;
        let mut handles = Vec::new();
        // SAFETY: it is ordered with all other nodes, and what its bodies use was noted above.
        let node = unsafe {
            self.add_barrier(|device, nodes| {
                let (node, made) = device.call(|driver, context| {
                    driver.graph_add_conditional(context, graph, nodes, condition.handle, kind)
                })?;
                handles = made;
                Ok(node)
            })
        }?;
        let mut parts = Vec::new();
        for (handle, body) in handles.into_iter().zip(bodies) {
            let work = NodeWork::Child(body.handle);
            // SAFETY: the handle is of a body of the new node, which is alive; what the work uses was noted above, and
            // launches check whether it exists.
            let part = self
                .device
                .call(|driver, context| unsafe { driver.graph_add(context, handle, &[], work) })?;
            parts.push((part, body.handle, &body.origins));
        }
        self.origins.add_conditional(&self.device, &parts);
        Ok(node)
    }
}
