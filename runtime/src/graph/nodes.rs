//! Nodes added to a graph one by one, which can be updated in its executables.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use gpu_spec::{Kernel, SafeKernel};

use super::origins::{Origin, work_of};
use super::{Graph, GraphExec};
use crate::device::Device;
use crate::device::graph_nodes::GraphWork;
use crate::device::observe::{self, Operation, site_of_node};
use crate::driver::{GraphFunction, LaunchConfig, NodeHandle, NodeWork, Place};
use crate::error::{Error, GraphError, Result};
use crate::launch::arguments::Uses;
use crate::launch::{Arguments, Function, Launch, TypedKernel, bytes_of_launch};
use crate::memory::capturing::CapturedUse;
use crate::memory::graph_resource::Resources;
use crate::memory::slice::check_lengths;
use crate::memory::storage::BufferUse;
use crate::memory::usage::Access;
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};

/// A node of a graph, on which other nodes can depend.
///
/// See the example of [`Graph::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    graph: u64,
    index: usize,
}

/// A node that launches a kernel. Use [`GraphExec::set_kernel`] to change its arguments.
///
/// See the example of [`Graph::add_kernel`].
pub struct KernelNode<K> {
    node: Node,
    kernel: PhantomData<fn() -> K>,
}

impl<K> KernelNode<K> {
    /// Returns the node, so that other nodes can depend on it.
    pub fn node(&self) -> Node {
        self.node
    }
}

impl<K> Clone for KernelNode<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for KernelNode<K> {}

impl<K> std::fmt::Debug for KernelNode<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.node.fmt(f)
    }
}

/// The buffers that a node uses.
#[derive(Debug, Clone)]
pub(super) struct NodeUse {
    handle: NodeHandle,
    uses: Vec<CapturedUse>,
    /// True if the node must be ordered with respect to all other nodes.
    barrier: bool,
}

/// Remedy in the error for memory on another device.
const COPY_THERE: &str = "copy it there first";

impl NodeUse {
    /// Creates the list of uses for a node that has not been added yet.
    pub fn of(uses: Vec<CapturedUse>) -> Self {
        Self { handle: NodeHandle(0), uses, barrier: false }
    }

    pub fn handle(&self) -> NodeHandle {
        self.handle
    }

    /// Returns true if the node uses exactly these buffer ranges.
    pub fn is_of<'p, 'a: 'p>(&self, parts: impl Iterator<Item = &'p BufferUse<'a>>) -> bool {
        let mut known = self.uses.iter();
        let same = |part: &BufferUse<'_>| {
            known.next().is_some_and(|used| {
                Arc::ptr_eq(&used.tracked, part.storage.track(part.access))
                    && used.range == part.range
                    && used.access == part.access
            })
        };
        parts.filter(|part| !part.range.is_empty()).all(same) && known.next().is_none()
    }

    /// Returns true if both nodes use a common byte and at least one of them writes it.
    pub fn conflicts(&self, other: &NodeUse) -> bool {
        let conflicts = |own: &CapturedUse, other: &CapturedUse| {
            Arc::ptr_eq(&own.tracked, &other.tracked)
                && (own.access == Access::Write || other.access == Access::Write)
                && own.range.start < other.range.end
                && other.range.start < own.range.end
        };
        self.barrier
            || other.barrier
            || self.uses.iter().any(|own| other.uses.iter().any(|other| conflicts(own, other)))
    }

    /// Replaces the uses with the uses of another node.
    pub fn replace(&mut self, other: NodeUse) {
        self.uses = other.uses;
    }

    pub fn add_to(&self, resources: &mut Resources) {
        for CapturedUse { tracked, range, access, .. } in &self.uses {
            resources.add(tracked, range.clone(), *access);
        }
    }
}

/// A node that was added to a graph.
#[derive(Debug)]
pub(super) struct Added {
    pub uses: NodeUse,
    /// Bit set of the earlier nodes on which this node depends, directly or indirectly.
    after: Vec<u64>,
}

impl Added {
    fn is_after(&self, index: usize) -> bool {
        self.after.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

/// The pairs of nodes of a graph that are not ordered with respect to each other.
#[derive(Debug, Default)]
pub(super) struct Order {
    graph: Option<u64>,
    unordered: Vec<Vec<usize>>,
}

impl Order {
    /// Returns true if this value describes the graph numbered `graph`.
    pub fn is_of(&self, graph: u64) -> bool {
        self.graph == Some(graph)
    }

    /// Returns the nodes that run neither before nor after a node.
    pub fn unordered(&self, index: usize) -> impl Iterator<Item = usize> {
        self.unordered.get(index).into_iter().flatten().copied()
    }
}

impl Graph {
    pub(super) fn order(&self) -> Order {
        let ordered = |a: usize, b: usize| a == b || self.added[a.max(b)].is_after(a.min(b));
        let all = 0..self.added.len();
        let unordered = all.clone().map(|a| all.clone().filter(|b| !ordered(a, *b)).collect()).collect();
        Order { graph: Some(self.number), unordered }
    }

    /// Adds a node that runs after `after`, and after every node with conflicting uses.
    ///
    /// # Safety
    /// The requirements of [`GraphDriver::graph_add`](crate::driver::GraphDriver::graph_add) apply to memory that
    /// `uses` does not list.
    unsafe fn add(
        &mut self,
        after: &[Node],
        mut uses: NodeUse,
        work: GraphWork,
        add: impl FnOnce(&Device, &[NodeHandle]) -> Result<NodeHandle>,
    ) -> Result<Node> {
        let index = self.added.len();
        if after.iter().any(|node| node.graph != self.number) {
            return Err(GraphError::NodeOfOtherGraph.into());
        }
        let mut handles = self.base.clone();
        let mut before = vec![0u64; index.div_ceil(64)];
        // Start at the last node, because a node that already precedes another dependency needs no edge.
        for (earlier, added) in self.added.iter().enumerate().rev() {
            let bit = 1 << (earlier % 64);
            let named = after.iter().any(|node| node.index == earlier);
            if before[earlier / 64] & bit == 0 && (named || added.uses.conflicts(&uses)) {
                handles.push(added.uses.handle);
                before[earlier / 64] |= bit;
                before.iter_mut().zip(&added.after).for_each(|(own, its)| *own |= its);
            }
        }
        if handles.len() > self.base.len() {
            // Every added node already runs after the base nodes.
            handles.drain(..self.base.len());
        }
        let watch = observe::begin(&self.device, || (None, Operation::GraphAdd { graph: self.handle }));
        let (operation, site) = watch.noted();
        uses.handle = watch.done(add(&self.device, &handles))?;
        self.origins.add(uses.handle, Origin { work, operation, site });
        uses.add_to(&mut self.content.resources);
        self.added.push(Added { uses, after: before });
        Ok(Node { graph: self.number, index })
    }

    /// Adds a node that runs after all earlier nodes and before all later ones.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::add`].
    pub(super) unsafe fn add_barrier(
        &mut self,
        add: impl FnOnce(&Device, &[NodeHandle]) -> Result<NodeHandle>,
    ) -> Result<Node> {
        let uses = NodeUse { handle: NodeHandle(0), uses: Vec::new(), barrier: true };
        // SAFETY: guaranteed by the caller.
        unsafe { self.add(&[], uses, GraphWork::Nothing, add) }
    }

    /// Adds work that uses only the memory listed in `uses`.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::add`].
    pub(super) unsafe fn add_work(
        &mut self,
        after: &[Node],
        uses: Vec<CapturedUse>,
        work: NodeWork<'_>,
    ) -> Result<Node> {
        let (uses, graph, what) = (NodeUse::of(uses), self.handle, work_of(&work));
        // SAFETY: guaranteed by the caller; the use of buffers is recorded, and launches check that they exist.
        unsafe {
            self.add(after, uses, what, |device, nodes| {
                device.call(|driver, context| driver.graph_add(context, graph, nodes, work))
            })
        }
    }

    /// Adds a launch of a kernel.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Graph, Launch};
    ///
    /// #[kernel]
    /// fn scale(a: f32, mut x: DisjointMut<f32>) {
    ///     if let Some(x) = x.get_mut(thread::unique_index()) {
    ///         *x *= a;
    ///     }
    /// }
    ///
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// let stream = device.default_stream();
    /// let kernel = device.load(&IMAGE)?.kernel::<scale>()?;
    /// let mut x = DeviceBuffer::from_host(&stream, &[1.0_f32; 4])?;
    /// let mut graph = Graph::new(&device)?;
    /// let node = graph.add_kernel(&kernel, Launch::auto(x.len()), (2.0, &mut x), &[])?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// exec.set_kernel(&node, &kernel, Launch::auto(x.len()), (3.0, &mut x))?;
    /// exec.launch(&stream)?;
    /// assert_eq!(x.to_host()?, [6.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`TypedKernel::launch`], [`GraphError::NodeOfOtherGraph`],
    /// [`GraphError::EmptyLaunch`] if the launch has no threads, or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn add_kernel<K: SafeKernel, A: Arguments<K::Params>>(
        &mut self,
        kernel: &TypedKernel<K>,
        launch: Launch,
        args: A,
        after: &[Node],
    ) -> Result<KernelNode<K>> {
        let _site = site_of_node();
        // SAFETY: as in `TypedKernel::launch`.
        unsafe { self.add_kernel_unsafe(kernel, launch, args, after) }
    }

    /// Adds a launch of an `unsafe` kernel.
    ///
    /// See the example of [`Graph::add_kernel`]. A kernel that is an `unsafe fn` differs only in the `unsafe`
    /// block around the call.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::add_kernel`].
    ///
    /// # Safety
    /// Each launch of an executable must uphold the safety contract of [`TypedKernel::launch_unsafe`].
    #[track_caller]
    pub unsafe fn add_kernel_unsafe<K: Kernel, A: Arguments<K::Params>>(
        &mut self,
        kernel: &TypedKernel<K>,
        launch: Launch,
        args: A,
        after: &[Node],
    ) -> Result<KernelNode<K>> {
        let _site = site_of_node();
        let function = kernel.function();
        let device = self.device.clone();
        let prepared = |function: &Function, config, args: &[*const c_void], uses: &Uses<'_>| {
            let work = NodeWork::Kernel { function: function.handle(), config, args };
            // SAFETY: guaranteed by the caller; the arguments have the parameters' types.
            let node = unsafe { self.add_work(after, uses_of(uses.iter()), work) }?;
            let spec = function.spec();
            // SAFETY: `args` contains one pointer per PTX parameter.
            self.origins.last_is_kernel(spec.symbol, unsafe { bytes_of_launch(spec, args) });
            self.content.add_kernel((function.spec(), config));
            Ok(node)
        };
        let node = function.for_graph(&device, launch, &args, prepared)?;
        Ok(KernelNode { node, kernel: PhantomData })
    }

    /// Adds a copy between two buffers on the graph's device.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`], [`Error::DifferentDevices`], [`GraphError::NodeOfOtherGraph`], or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn add_copy<'s, 't, T: DeviceCopy>(
        &mut self,
        source: impl Into<DeviceSlice<'s, T>>,
        target: impl Into<DeviceSliceMut<'t, T>>,
        after: &[Node],
    ) -> Result<Node> {
        let _site = site_of_node();
        let (source, target) = (source.into(), target.into());
        check_lengths("adding a copy to a graph", target.len(), source.len())?;
        self.check_device(source.device(), "the source", COPY_THERE)?;
        self.check_device(target.device(), "the target", COPY_THERE)?;
        let (from, to) = (source.used(Access::Read), target.used());
        let work = copy_work(
            Place::Device(target.as_device_ptr()),
            Place::Device(source.as_device_ptr()),
            to.range.len(),
        );
        // SAFETY: both ranges have the same size. The ranges do not overlap, because the source is shared and the
        // target exclusive.
        unsafe { self.add_work(after, uses_of([&from, &to].into_iter()), work) }
    }

    /// Adds a memset that sets every byte of a buffer to `value`.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`], [`GraphError::NodeOfOtherGraph`], or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn add_memset<'t, T: DeviceCopy>(
        &mut self,
        target: impl Into<DeviceSliceMut<'t, T>>,
        value: u8,
        after: &[Node],
    ) -> Result<Node> {
        let _site = site_of_node();
        let target = target.into();
        self.check_device(target.device(), "the buffer", COPY_THERE)?;
        let part = target.used();
        let work = match part.range.len() {
            0 => NodeWork::Empty,
            bytes => NodeWork::Set { dst: target.as_device_ptr(), value, bytes },
        };
        // SAFETY: the range is borrowed exclusively; every bit pattern is a valid element.
        unsafe { self.add_work(after, uses_of([&part].into_iter()), work) }
    }

    /// Adds a host function, which is called once per launch. The rules of
    /// [`Stream::host_function`](crate::Stream::host_function) apply.
    ///
    /// # Errors
    /// Returns [`GraphError::NodeOfOtherGraph`] or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn add_host_function(
        &mut self,
        function: impl Fn() + Send + Sync + 'static,
        after: &[Node],
    ) -> Result<Node> {
        let _site = site_of_node();
        let function = GraphFunction::new(function);
        self.content.add_function(Arc::clone(&function));
        // SAFETY: the function uses no device memory. The content, which executables share, keeps the function alive.
        unsafe { self.add_work(after, Vec::new(), NodeWork::Host(&function)) }
    }

    /// Adds an empty node, on which other nodes can depend.
    ///
    /// # Errors
    /// Returns [`GraphError::NodeOfOtherGraph`] or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn add_empty(&mut self, after: &[Node]) -> Result<Node> {
        let _site = site_of_node();
        // SAFETY: the node performs no work.
        unsafe { self.add_work(after, Vec::new(), NodeWork::Empty) }
    }

    /// Adds a copy of another graph's current work as a child graph.
    ///
    /// Callbacks registered with [`Stream::on_graph_launch`](crate::Stream::on_graph_launch) while the child graph was
    /// captured are called once per launch of this graph, even if the child graph was added several times. All copies
    /// of a captured graph therefore generate the same random numbers.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`], [`GraphError::NodeOfOtherGraph`], [`GraphError::Invalidated`], or any
    /// [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn add_child(&mut self, child: &Graph, after: &[Node]) -> Result<Node> {
        let _site = site_of_node();
        self.check_device(&child.device, "the other graph", "capture it on a stream of that device")?;
        child.content.check()?;
        let uses = child.content.resources.iter().collect();
        // SAFETY: the use of the child's memory is recorded, and this graph keeps the child's content alive.
        let node = unsafe { self.add_work(after, uses, NodeWork::Child(child.handle)) }?;
        self.content.add(&child.content);
        if let Some(added) = self.added.last() {
            self.origins.add_child(&self.device, added.uses.handle, child.handle, &child.origins);
        }
        Ok(node)
    }

    pub(super) fn check_device(&self, device: &Device, what: &str, remedy: &'static str) -> Result<()> {
        if device.ptr_eq(&self.device) {
            return Ok(());
        }
        Err(Error::DifferentDevices {
            operation: "adding to a graph".to_owned(),
            what: what.to_owned(),
            found: device.id(),
            beside: "the graph",
            expected: self.device.id(),
            remedy,
        })
    }
}

impl GraphExec {
    /// Sets new arguments and a new launch shape for an added kernel node. Launches that are already enqueued are
    /// unaffected.
    ///
    /// # Errors
    /// Returns [`GraphError::NodeOfOtherGraph`] if the executable was not created from the node's graph, or was changed
    /// by [`Self::update`]. Returns [`GraphError::NodeConflict`] if the new arguments require a dependency that the
    /// graph does not contain. Also returns the same errors as [`Graph::add_kernel`].
    pub fn set_kernel<K: SafeKernel, A: Arguments<K::Params>>(
        &mut self,
        node: &KernelNode<K>,
        kernel: &TypedKernel<K>,
        launch: Launch,
        args: A,
    ) -> Result<()> {
        // SAFETY: as in `TypedKernel::launch`.
        unsafe { self.set_kernel_unsafe(node, kernel, launch, args) }
    }

    /// Like [`Self::set_kernel`], but for an `unsafe` kernel.
    ///
    /// See the example of [`Graph::add_kernel`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::set_kernel`].
    ///
    /// # Safety
    /// The requirements are the same as for [`Graph::add_kernel_unsafe`].
    pub unsafe fn set_kernel_unsafe<K: Kernel, A: Arguments<K::Params>>(
        &mut self,
        node: &KernelNode<K>,
        kernel: &TypedKernel<K>,
        launch: Launch,
        args: A,
    ) -> Result<()> {
        let function = kernel.function();
        if !function.device().ptr_eq(self.device()) {
            return Err(Error::DifferentDevices {
                operation: "changing a node of a graph".to_owned(),
                what: format!("kernel `{}`", function.spec().symbol),
                found: function.device().id(),
                expected: self.device().id(),
                beside: "the graph",
                remedy: "load it there",
            });
        }
        function.for_graph(function.device(), launch, &args, |function, config: LaunchConfig, args, uses| {
            let work = NodeWork::Kernel { function: function.handle(), config, args };
            // SAFETY: guaranteed by the caller; the arguments have the parameters' types.
            unsafe { self.set(node.node.graph, node.node.index, uses, work) }
        })
    }
}

/// Converts buffer-range uses to the form that graphs store.
pub(super) fn uses_of<'p, 'a: 'p>(parts: impl Iterator<Item = &'p BufferUse<'a>>) -> Vec<CapturedUse> {
    parts.filter(|part| !part.range.is_empty()).map(CapturedUse::of).collect()
}

/// Returns the node work for a copy; an empty node if there is nothing to copy.
fn copy_work<'a>(dst: Place, src: Place, bytes: usize) -> NodeWork<'a> {
    if bytes == 0 { NodeWork::Empty } else { NodeWork::Copy { dst, src, bytes } }
}
