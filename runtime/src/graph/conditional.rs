//! Conditional nodes: bodies that run once, repeatedly or not at all, controlled by a value that kernels of the graph
//! set.

use super::{Graph, Node};
use crate::device::observe::site_of_node;
use crate::driver::{ConditionHandle, ConditionalKind, NodeWork};
use crate::error::{GraphError, Result};

/// A value that a graph's kernels set and that controls its conditional nodes (a CUDA conditional handle).
///
/// Pass it to a kernel as a `u64` ([`Condition::argument`]); the kernel sets it with `gpu_std::graph::set_condition`.
///
/// See the example of [`Graph::add_if`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    graph: u64,
    handle: ConditionHandle,
}

impl Condition {
    /// Returns the argument for a kernel that sets the condition.
    pub fn argument(&self) -> u64 {
        self.handle.0
    }
}

impl Graph {
    /// Adds a condition. Every launch starts with `initial` if specified, otherwise with the last launch's value (0 for
    /// the first launch).
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver). Conditions require CUDA 12.4 or later.
    pub fn add_condition(&mut self, initial: Option<u32>) -> Result<Condition> {
        let graph = self.handle;
        let handle = self.device.call(|driver, context| driver.graph_condition(context, graph, initial))?;
        Ok(Condition { graph: self.number, handle })
    }

    /// Adds a conditional node whose body runs if the condition is not 0 when the node is reached. The node runs after
    /// all earlier nodes and before all later ones.
    ///
    /// The node contains a copy of `body`, which can be changed, reused or dropped afterwards. `body` must not contain
    /// conditions or host functions.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Graph};
    ///
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
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`GraphError::NodeOfOtherGraph`] for a condition of another graph,
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices), [`GraphError::Invalidated`], or any [driver
    /// error](crate::Error::Driver), for example if `body` contains conditions. After an error, the graph may contain
    /// an empty conditional node.
    #[track_caller]
    pub fn add_if(&mut self, condition: &Condition, body: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::If, &[body])
    }

    /// Like [`Self::add_if`], but also adds a body that runs if the condition is 0. Requires CUDA 12.8 or later.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::add_if`].
    #[track_caller]
    pub fn add_if_else(&mut self, condition: &Condition, then: &Graph, otherwise: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::IfElse, &[then, otherwise])
    }

    /// Like [`Self::add_if`], but repeats the body while the condition is not 0. The condition is checked before each
    /// iteration, including the first. A kernel in the body must eventually set the condition to 0.
    ///
    /// Callbacks registered with [`Stream::on_graph_launch`](crate::Stream::on_graph_launch) are called once per
    /// launch, regardless of the number of iterations. Each iteration of a captured body therefore generates the same
    /// random numbers.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::add_if`].
    #[track_caller]
    pub fn add_while(&mut self, condition: &Condition, body: &Graph) -> Result<Node> {
        let _site = site_of_node();
        self.add_conditional(condition, ConditionalKind::While, &[body])
    }

    /// Like [`Self::add_if`], but adds several bodies. The condition is the index of the body to run; if there is no
    /// such body, none runs. Requires CUDA 12.8 or later.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::add_if`], or a driver error if `bodies` is empty.
    #[track_caller]
    pub fn add_switch(&mut self, condition: &Condition, bodies: &[&Graph]) -> Result<Node> {
        let _site = site_of_node();
        // More than `u32::MAX` bodies would not fit in memory.
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
            self.check_device(&body.device, "a conditional part", "create it on that device")?;
            body.content.check()?;
        }
        // Record the content first, so that it is kept alive even if a call below fails.
        for body in bodies {
            self.content.add(&body.content);
            self.others.add_all(&body.content.resources);
        }
        let graph = self.handle;
        let mut handles = Vec::new();
        // SAFETY: the node is ordered with respect to all other nodes, and the memory that its bodies use was recorded
        // above.
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
            // SAFETY: the handle belongs to a body of the new node, which is alive. The memory that its work uses was
            // recorded above, and launches check that it exists.
            let part = self
                .device
                .call(|driver, context| unsafe { driver.graph_add(context, handle, &[], work) })?;
            parts.push((part, body.handle, &body.origins));
        }
        self.origins.add_conditional(&self.device, &parts);
        Ok(node)
    }
}
