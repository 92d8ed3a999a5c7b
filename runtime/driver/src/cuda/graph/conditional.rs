//! Conditional handles and conditional nodes. Every function in this module requires a current context.
//!
//! Both require CUDA 12.3 or later. Nodes with more than one body require CUDA 12.8 or later.

use cudarc::driver::sys;
use sys::CUgraphConditionalNodeType as Type;

use super::super::call::{Feature, check, invalid, not_supported};
use super::{graph_of, node_of};
use crate::error::{Result, code};
use crate::{ConditionHandle, ConditionalKind, Context, GraphHandle, NodeHandle};

/// First CUDA version with several bodies per conditional node.
const SEVERAL_BODIES: i32 = 12_080;

/// Creates a conditional handle for nodes of a graph.
pub(super) fn condition(
    context: Context,
    graph: GraphHandle,
    initial: Option<u32>,
) -> Result<ConditionHandle> {
    const CALL: &str = "cuGraphConditionalHandleCreate";
    Feature::ConditionalNodes.need(CALL)?;
    let flags = if initial.is_some() { sys::CU_GRAPH_COND_ASSIGN_DEFAULT } else { 0 };
    let (context, initial) = (context.0 as sys::CUcontext, initial.unwrap_or(0));
    let mut handle = 0;
    // SAFETY: graph and context are alive, by the trait's contract; the pointer is to a local variable.
    let result =
        unsafe { sys::cuGraphConditionalHandleCreate(&mut handle, graph_of(graph), context, initial, flags) };
    check(CALL, result)?;
    Ok(ConditionHandle(handle))
}

/// Returns the driver's node type and number of bodies. `version` is the driver's version.
fn kind_of(kind: ConditionalKind, version: i32) -> Result<(Type, u32)> {
    const CALL: &str = "cuGraphAddNode";
    let bodies = kind.bodies();
    let driver_type = match kind {
        ConditionalKind::If | ConditionalKind::IfElse => Type::CU_GRAPH_COND_TYPE_IF,
        ConditionalKind::While => Type::CU_GRAPH_COND_TYPE_WHILE,
        ConditionalKind::Switch(_) => Type::CU_GRAPH_COND_TYPE_SWITCH,
    };
    if bodies == 0 {
        return Err(invalid(CALL, "a conditional node needs at least one body".to_owned()));
    }
    let newer = matches!(kind, ConditionalKind::IfElse | ConditionalKind::Switch(_));
    if newer && version < SEVERAL_BODIES {
        let text = "conditional nodes of this kind require a driver for CUDA 12.8; update the driver, or use one \
                    conditional node per case";
        return Err(not_supported(CALL, text.to_owned()));
    }
    Ok((driver_type, bodies))
}

/// Adds a conditional node and returns its bodies, which the node owns.
pub(super) fn add(
    context: Context,
    graph: GraphHandle,
    after: &[NodeHandle],
    condition: ConditionHandle,
    kind: ConditionalKind,
    version: i32,
) -> Result<(NodeHandle, Vec<GraphHandle>)> {
    const CALL: &str = "cuGraphAddNode";
    Feature::ConditionalNodes.need(CALL)?;
    let (type_, size) = kind_of(kind, version)?;
    let after: Vec<sys::CUgraphNode> = after.iter().map(|node| node_of(*node)).collect();
    let mut params = parameters(sys::CUDA_CONDITIONAL_NODE_PARAMS {
        handle: condition.0,
        type_,
        size,
        phGraph_out: std::ptr::null_mut(),
        ctx: context.0 as sys::CUcontext,
    });
    let mut node = std::ptr::null_mut();
    // SAFETY: graph, nodes and context are alive, by the trait's contract, and the node count matches. Without edge
    // data, all edges are plain dependencies. The other pointers are to local variables.
    let result = unsafe {
        sys::cuGraphAddNode_v2(
            &mut node,
            graph_of(graph),
            after.as_ptr(),
            std::ptr::null(),
            after.len(),
            &mut params,
        )
    };
    check(CALL, result)?;
    // SAFETY: this union member was written above, and the driver has set its pointer.
    let bodies = unsafe { params.__bindgen_anon_1.conditional.phGraph_out };
    if bodies.is_null() {
        // SAFETY: the node was just created and is not used anywhere else.
        unsafe { sys::cuGraphDestroyNode(node) };
        let text = "the driver returned a conditional node without a body".to_owned();
        return Err(super::super::call::error(CALL, code::UNKNOWN, "CUDA_ERROR_UNKNOWN", text));
    }
    // SAFETY: the driver's array contains one graph per body and lives as long as the node.
    let bodies = unsafe { std::slice::from_raw_parts(bodies, size as usize) };
    Ok((NodeHandle(node as u64), bodies.iter().map(|body| GraphHandle(*body as u64)).collect()))
}

/// Returns node parameters that are zero except for the conditional member.
fn parameters(conditional: sys::CUDA_CONDITIONAL_NODE_PARAMS) -> sys::CUgraphNodeParams {
    let mut params = sys::CUgraphNodeParams {
        type_: sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        reserved0: [0; 3],
        __bindgen_anon_1: sys::CUgraphNodeParams_st__bindgen_ty_1 { reserved1: [0; 29] },
        reserved2: 0,
    };
    params.__bindgen_anon_1.conditional = conditional;
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_drivers() {
        assert_eq!(size_of::<sys::CUgraphNodeParams>(), 256);
        assert_eq!(size_of::<sys::CUDA_CONDITIONAL_NODE_PARAMS>(), 32);
    }

    #[test]
    fn more_than_one_body_needs_a_newer_driver() {
        use ConditionalKind as Kind;
        for version in [12_030, 12_060, 12_080, 13_000] {
            assert_eq!(kind_of(Kind::If, version).unwrap(), (Type::CU_GRAPH_COND_TYPE_IF, 1));
            assert_eq!(kind_of(Kind::While, version).unwrap(), (Type::CU_GRAPH_COND_TYPE_WHILE, 1));
        }
        for kind in [Kind::IfElse, Kind::Switch(1), Kind::Switch(5)] {
            let refused = kind_of(kind, 12_060).unwrap_err();
            assert_eq!(refused.code(), Some(code::NOT_SUPPORTED));
            assert!(refused.to_string().contains("12.8"), "{refused}");
        }
        assert_eq!(kind_of(Kind::IfElse, 12_080).unwrap(), (Type::CU_GRAPH_COND_TYPE_IF, 2));
        assert_eq!(kind_of(Kind::Switch(5), 13_000).unwrap(), (Type::CU_GRAPH_COND_TYPE_SWITCH, 5));
        assert_eq!(kind_of(Kind::Switch(0), 13_000).unwrap_err().code(), Some(code::INVALID_VALUE));
    }
}
