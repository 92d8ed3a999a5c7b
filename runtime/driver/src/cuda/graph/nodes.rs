//! Graph nodes: adding and querying them. Every function in this module requires a current context.

use std::mem::MaybeUninit;

use cudarc::driver::sys;
use sys::CUgraphNodeType as Type;
use sys::CUlaunchAttributeID as Attribute;

use super::super::call::check;
use super::super::launch::{Attributes, zero};
use super::super::{host_functions, launch};
use super::{edges, graph_of, node_of, parameters};
use crate::error::{DriverError, Result, code};
use crate::{Context, GraphHandle, LaunchConfig, NodeHandle, NodeInfo, NodeWork};

/// Adds a node.
///
/// # Safety
/// The requirements are the same as for [`GraphDriver::graph_add`](crate::GraphDriver::graph_add).
pub(super) unsafe fn add(
    context: Context,
    graph: GraphHandle,
    after: &[NodeHandle],
    work: NodeWork<'_>,
) -> Result<NodeHandle> {
    let after: Vec<sys::CUgraphNode> = after.iter().map(|node| node_of(*node)).collect();
    let (graph, first, count) = (graph_of(graph), after.as_ptr(), after.len());
    let context = context.0 as sys::CUcontext;
    let mut node = std::ptr::null_mut();
    // SAFETY: graph, nodes and context are alive, by the trait's contract, and the node count matches. The caller
    // guarantees memory, functions and arguments; the other pointers are to local variables.
    unsafe {
        match work {
            NodeWork::Empty => {
                let result = sys::cuGraphAddEmptyNode(&mut node, graph, first, count);
                check("cuGraphAddEmptyNode", result)?;
            }
            NodeWork::Kernel { function, config, args } => {
                let params = parameters::kernel(function, &config, args);
                let result = sys::cuGraphAddKernelNode_v2(&mut node, graph, first, count, &params);
                check("cuGraphAddKernelNode", result)?;
                set_attributes(node, &config).inspect_err(|_| {
                    sys::cuGraphDestroyNode(node);
                })?;
            }
            NodeWork::Copy { dst, src, bytes } => {
                let params = parameters::copy(dst, src, bytes);
                let result = sys::cuGraphAddMemcpyNode(&mut node, graph, first, count, &params, context);
                check("cuGraphAddMemcpyNode", result)?;
            }
            NodeWork::Set { dst, value, bytes } => {
                let params = parameters::set(dst, value, bytes);
                let result = sys::cuGraphAddMemsetNode(&mut node, graph, first, count, &params, context);
                check("cuGraphAddMemsetNode", result)?;
            }
            NodeWork::Host(function) => {
                let params = host_functions::of_graph(function);
                let result = sys::cuGraphAddHostNode(&mut node, graph, first, count, &params);
                check("cuGraphAddHostNode", result)?;
            }
            NodeWork::Child(child) => {
                let result = sys::cuGraphAddChildGraphNode(&mut node, graph, first, count, graph_of(child));
                check("cuGraphAddChildGraphNode", result)?;
            }
        }
    }
    Ok(NodeHandle(node as u64))
}

/// Sets the attributes of a new kernel node whose launch is not plain.
///
/// # Safety
/// The node must be a kernel node.
unsafe fn set_attributes(node: sys::CUgraphNode, config: &LaunchConfig) -> Result<()> {
    Attributes::of_node(config).as_slice().iter().try_for_each(|attribute| {
        // SAFETY: guaranteed by the caller; the value has the attribute's type.
        let result = unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value) };
        check("cuGraphKernelNodeSetAttribute", result)
    })
}

/// Returns the operation of a node.
pub(super) fn info(node: NodeHandle) -> Result<NodeInfo> {
    const KERNEL: u32 = Type::CU_GRAPH_NODE_TYPE_KERNEL as u32;
    const MEMCPY: u32 = Type::CU_GRAPH_NODE_TYPE_MEMCPY as u32;
    const MEMSET: u32 = Type::CU_GRAPH_NODE_TYPE_MEMSET as u32;
    const HOST: u32 = Type::CU_GRAPH_NODE_TYPE_HOST as u32;
    const CHILD: u32 = Type::CU_GRAPH_NODE_TYPE_GRAPH as u32;
    const EMPTY: u32 = Type::CU_GRAPH_NODE_TYPE_EMPTY as u32;
    const WAIT: u32 = Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT as u32;
    const RECORD: u32 = Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD as u32;
    const CONDITIONAL: u32 = Type::CU_GRAPH_NODE_TYPE_CONDITIONAL as u32;

    let raw = node_of(node);
    // The kind is stored as a plain number, because newer drivers may return values that the bindings do not define.
    let mut kind = u32::MAX;
    // SAFETY: the node is alive, by the trait's contract; the pointer is to a local variable of the type's size.
    let result = unsafe { sys::cuGraphNodeGetType(raw, (&raw mut kind).cast::<Type>()) };
    check("cuGraphNodeGetType", result)?;
    Ok(match kind {
        // SAFETY: in this line and the next ones, the node is alive and of this kind.
        KERNEL => unsafe { kernel(raw) }?,
        // SAFETY: as above.
        MEMCPY => NodeInfo::Copy { bytes: unsafe { copied_bytes(raw) }? },
        // SAFETY: as above.
        MEMSET => NodeInfo::Set { bytes: unsafe { memset(raw) }? },
        HOST => NodeInfo::Host,
        // SAFETY: as above.
        CHILD => NodeInfo::Child(unsafe { child(raw) }?),
        EMPTY => NodeInfo::Empty,
        WAIT | RECORD => NodeInfo::Event,
        CONDITIONAL => NodeInfo::Conditional,
        _ => NodeInfo::Other,
    })
}

/// # Safety
/// The node must be a live kernel node.
unsafe fn kernel(node: sys::CUgraphNode) -> Result<NodeInfo> {
    let mut params = MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable. Zeros and the values that the driver writes
    // are valid numbers and pointers.
    let params = unsafe {
        let result = sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr());
        check("cuGraphKernelNodeGetParams", result)?;
        params.assume_init()
    };
    let (function, config) = parameters::read_kernel(&params);
    // SAFETY: guaranteed by the caller.
    let (cluster, cooperative) = unsafe { special(node) }?;
    let dependent = edges::may_start_early(node)?;
    Ok(NodeInfo::Kernel { function, config: LaunchConfig { cluster, cooperative, dependent, ..config } })
}

/// Returns the cluster of a kernel node, and true if the node is cooperative.
///
/// # Safety
/// The node must be a live kernel node.
pub(super) unsafe fn special(node: sys::CUgraphNode) -> Result<([u32; 3], bool)> {
    // SAFETY: guaranteed by the caller. Each member consists of numbers: zeros, or the requested attribute's value.
    unsafe {
        let cluster = attribute(node, Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)?.clusterDim;
        let cooperative = attribute(node, Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)?.cooperative;
        Ok(([cluster.x, cluster.y, cluster.z].map(|blocks| blocks.max(1)), cooperative != 0))
    }
}

/// Returns an attribute of a kernel node; zero if the device does not support it.
///
/// # Safety
/// The node must be a live kernel node.
unsafe fn attribute(node: sys::CUgraphNode, which: Attribute) -> Result<sys::CUlaunchAttributeValue> {
    let mut value = launch::zero();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable large enough for any attribute.
    let result = unsafe { sys::cuGraphKernelNodeGetAttribute(node, which, &mut value) };
    match check("cuGraphKernelNodeGetAttribute", result) {
        Ok(()) => Ok(value),
        Err(DriverError::Call { code: code::INVALID_VALUE | code::NOT_SUPPORTED, .. }) => Ok(zero()),
        Err(error) => Err(error),
    }
}

/// # Safety
/// The node must be a live memcpy node.
unsafe fn copied_bytes(node: sys::CUgraphNode) -> Result<usize> {
    let mut params = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    let place = params.as_mut_ptr();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable. Only numbers are read from it, because
    // newer drivers may return memory kinds that the bindings do not define.
    unsafe {
        check("cuGraphMemcpyNodeGetParams", sys::cuGraphMemcpyNodeGetParams(node, place))?;
        Ok(parameters::box_bytes((*place).WidthInBytes, (*place).Height, (*place).Depth))
    }
}

/// # Safety
/// The node must be a live memset node.
unsafe fn memset(node: sys::CUgraphNode) -> Result<usize> {
    let mut params = MaybeUninit::<sys::CUDA_MEMSET_NODE_PARAMS>::zeroed();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable. Zeros and the values that the driver writes
    // are numbers.
    let params = unsafe {
        let result = sys::cuGraphMemsetNodeGetParams(node, params.as_mut_ptr());
        check("cuGraphMemsetNodeGetParams", result)?;
        params.assume_init()
    };
    Ok(parameters::box_bytes(params.width.saturating_mul(params.elementSize as usize), params.height, 1))
}

/// # Safety
/// The node must be a live child graph node.
unsafe fn child(node: sys::CUgraphNode) -> Result<GraphHandle> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable.
    let result = unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &mut graph) };
    check("cuGraphChildGraphNodeGetGraph", result)?;
    Ok(GraphHandle(graph as u64))
}
