//! Nodes and edges of a graph. Every function in this module requires a current context.
//!
//! Since CUDA 12.3, edges can have data, for example in a graph with a programmatic dependent launch. The older query
//! fails for such edges. Drivers before CUDA 12.3 support only the older query, which the bindings lack.

use std::ptr::null_mut;
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::super::call::{Feature, check, find_symbol};
use super::graph_of;
use crate::error::{DriverError, Result};
use crate::{Edge, GraphHandle, NodeHandle};

/// Edge data of a plain dependency.
const PLAIN: sys::CUgraphEdgeData =
    sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

pub(super) fn nodes(graph: GraphHandle) -> Result<Vec<NodeHandle>> {
    const CALL: &str = "cuGraphGetNodes";
    let mut count = 0;
    // SAFETY: the graph is alive, by the trait's contract; without an array, the driver only counts.
    unsafe { check(CALL, sys::cuGraphGetNodes(graph_of(graph), null_mut(), &mut count)) }?;
    if count == 0 {
        // The driver rejects an array of length zero.
        return Ok(Vec::new());
    }
    let mut nodes = vec![null_mut(); count];
    // SAFETY: as above; the array has the stated length.
    unsafe { check(CALL, sys::cuGraphGetNodes(graph_of(graph), nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes.into_iter().map(|node| NodeHandle(node as u64)).collect())
}

type GetEdges = unsafe extern "C" fn(
    sys::CUgraph,
    *mut sys::CUgraphNode,
    *mut sys::CUgraphNode,
    *mut usize,
) -> sys::CUresult;

fn older_get_edges() -> Result<GetEdges> {
    const SYMBOL: &str = "cuGraphGetEdges";
    static FUNCTION: OnceLock<Option<GetEdges>> = OnceLock::new();
    // SAFETY: the library's function with this name has this signature.
    let found = FUNCTION.get_or_init(|| unsafe { find_symbol(SYMBOL) });
    found.ok_or(DriverError::LacksFunction { symbol: SYMBOL })
}

/// Queries the edges, or their number if the arrays are null.
///
/// # Safety
/// The graph must be alive, and each array must be null or have the length in `count`.
unsafe fn get(
    graph: GraphHandle,
    from: *mut sys::CUgraphNode,
    to: *mut sys::CUgraphNode,
    data: *mut sys::CUgraphEdgeData,
    count: &mut usize,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let result = unsafe {
        if Feature::GraphEdgeData.is_there() {
            sys::cuGraphGetEdges_v2(graph_of(graph), from, to, data, count)
        } else {
            older_get_edges()?(graph_of(graph), from, to, count)
        }
    };
    check("cuGraphGetEdges", result)
}

pub(super) fn edges(graph: GraphHandle) -> Result<Vec<Edge>> {
    let mut count = 0;
    // SAFETY: the graph is alive, by the trait's contract.
    unsafe { get(graph, null_mut(), null_mut(), null_mut(), &mut count) }?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let (mut from, mut to, mut data) = (vec![null_mut(); count], vec![null_mut(); count], vec![PLAIN; count]);
    // SAFETY: as above; the arrays have the stated length.
    unsafe { get(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count) }?;
    let edges = from.into_iter().zip(to).zip(data).take(count);
    Ok(edges.map(|((from, to), data)| edge(from, to, data)).collect())
}

fn edge(from: sys::CUgraphNode, to: sys::CUgraphNode, data: sys::CUgraphEdgeData) -> Edge {
    Edge { from: NodeHandle(from as u64), to: NodeHandle(to as u64), early: is_early(data) }
}

/// Returns true for a programmatic edge, which starts at a port that opens before the end of the earlier node.
fn is_early(data: sys::CUgraphEdgeData) -> bool {
    const PROGRAMMATIC: u32 = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u32;
    u32::from(data.from_port) != sys::CU_GRAPH_KERNEL_NODE_PORT_DEFAULT
        || u32::from(data.type_) == PROGRAMMATIC
}

/// Returns true if a node may start before a predecessor has finished, once the predecessor permits it. The node must
/// be alive.
pub(super) fn may_start_early(node: sys::CUgraphNode) -> Result<bool> {
    const CALL: &str = "cuGraphNodeGetDependencies";
    if !Feature::GraphEdgeData.is_there() {
        return Ok(false);
    }
    let mut count = 0;
    // SAFETY: the node is alive; without arrays, the driver returns only the number of edges.
    unsafe { check(CALL, sys::cuGraphNodeGetDependencies_v2(node, null_mut(), null_mut(), &mut count)) }?;
    if count == 0 {
        return Ok(false);
    }
    let (mut before, mut data) = (vec![null_mut(); count], vec![PLAIN; count]);
    // SAFETY: as above; the arrays have the stated length.
    let result = unsafe {
        sys::cuGraphNodeGetDependencies_v2(node, before.as_mut_ptr(), data.as_mut_ptr(), &mut count)
    };
    check(CALL, result)?;
    Ok(data.into_iter().take(count).any(is_early))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_before_the_end_of_a_node_are_early() {
        assert_eq!(size_of::<sys::CUgraphEdgeData>(), 8);
        let (from, to) = (std::ptr::without_provenance_mut(0x10), std::ptr::without_provenance_mut(0x20));
        let plain = edge(from, to, PLAIN);
        assert_eq!(plain, Edge { from: NodeHandle(0x10), to: NodeHandle(0x20), early: false });
        for port in [sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, sys::CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER]
        {
            let data = sys::CUgraphEdgeData { from_port: port as u8, ..PLAIN };
            assert!(edge(from, to, data).early);
            assert!(edge(from, to, sys::CUgraphEdgeData { type_: 1, ..data }).early);
        }
        assert!(!edge(from, to, sys::CUgraphEdgeData { to_port: 1, ..PLAIN }).early);
    }
}
