//! Executable graphs: instantiation, update and launch. Every function in this module requires a current context.

use std::mem::MaybeUninit;

use cudarc::driver::sys;
use sys::CUgraphInstantiate_flags as Flags;

use super::super::call::{RelaxedCapture, check, invalid, not_supported};
use super::super::{host_functions, stream_of};
use super::{exec_of, graph_of, node_of, nodes, parameters};
use crate::error::{DriverError, Result, code};
use crate::{
    Context, ExecUpdate, GraphExecHandle, GraphHandle, LaunchConfig, NodeHandle, NodeWork, StreamHandle,
};

/// Instantiation flags. Nodes run with the priority of the streams on which they were captured. A launch frees memory
/// that the previous launch allocated and did not free, instead of failing.
const FLAGS: u32 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;

pub(super) fn instantiate(graph: GraphHandle) -> Result<GraphExecHandle> {
    let _relaxed = RelaxedCapture::enter();
    let mut params = MaybeUninit::new(sys::CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: FLAGS.into(),
        hUploadStream: std::ptr::null_mut(),
        hErrNode_out: std::ptr::null_mut(),
        result_out: sys::CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
    });
    let place = params.as_mut_ptr();
    let mut exec = std::ptr::null_mut();
    // SAFETY: the graph is alive, by the trait's contract; the pointers are to local variables.
    let result = unsafe { sys::cuGraphInstantiateWithParams(&mut exec, graph_of(graph), place) };
    // SAFETY: the field is initialized. It is read as a plain number, because newer drivers may return values that the
    // bindings do not define.
    let reason = unsafe { (&raw const (*place).result_out).cast::<u32>().read() };
    match check("cuGraphInstantiate", result) {
        Ok(()) => Ok(GraphExecHandle(exec as u64)),
        Err(error) => Err(with_reason(error, instantiate_reason(reason))),
    }
}

/// Adds a reason to the text of a driver error.
fn with_reason(error: DriverError, reason: Option<&str>) -> DriverError {
    match (error, reason) {
        (DriverError::Call { call, code, name, text }, Some(reason)) => {
            DriverError::Call { call, code, name, text: format!("{text}; {reason}") }
        }
        (error, _) => error,
    }
}

/// Describes the reason why a graph cannot be instantiated.
fn instantiate_reason(reason: u32) -> Option<&'static str> {
    use sys::CUgraphInstantiateResult as Reason;
    const STRUCTURE: u32 = Reason::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE as u32;
    const OPERATION: u32 = Reason::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED as u32;
    const CONTEXTS: u32 = Reason::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED as u32;
    const UNUSED: u32 = Reason::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED as u32;
    Some(match reason {
        STRUCTURE => {
            "the graph is not well formed: its dependencies form a cycle, or a node lacks a dependency"
        }
        OPERATION => {
            "a node is not supported in this place; for example, the body of a conditional node cannot call \
                      host functions"
        }
        CONTEXTS => "its nodes belong to several devices where only one is allowed",
        UNUSED => {
            "a condition was created that no node uses; add a conditional node for it, or do not create it"
        }
        _ => return None,
    })
}

pub(super) fn upload(exec: GraphExecHandle, stream: StreamHandle) -> Result<()> {
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: both are alive, by the trait's contract.
    unsafe { check("cuGraphUpload", sys::cuGraphUpload(exec_of(exec), stream_of(stream))) }
}

/// Updates an executable with the parameters of a graph.
///
/// # Safety
/// The requirements are the same as for [`GraphDriver::graph_exec_update`](crate::GraphDriver::graph_exec_update).
pub(super) unsafe fn update(exec: GraphExecHandle, graph: GraphHandle) -> Result<ExecUpdate> {
    let mut info = MaybeUninit::<sys::CUgraphExecUpdateResultInfo>::zeroed();
    let place = info.as_mut_ptr();
    // SAFETY: guaranteed by the caller; the pointer is to a local variable.
    let result = unsafe { sys::cuGraphExecUpdate_v2(exec_of(exec), graph_of(graph), place) };
    match check("cuGraphExecUpdate", result) {
        Ok(()) => Ok(ExecUpdate::Done),
        Err(error) if error.code() == Some(code::GRAPH_EXEC_UPDATE_FAILURE) => {
            // SAFETY: the fields are initialized. One is a pointer; the other is read as a plain number, because newer
            // drivers may return values that the bindings do not define.
            let (node, reason) =
                unsafe { ((*place).errorNode, (&raw const (*place).result).cast::<u32>().read()) };
            let node = (!node.is_null()).then_some(NodeHandle(node as u64));
            Ok(ExecUpdate::Refused { node, reason: update_reason(reason) })
        }
        Err(error) => Err(error),
    }
}

/// Describes the reason why an executable cannot be updated.
fn update_reason(reason: u32) -> String {
    use sys::CUgraphExecUpdateResult as Reason;
    const ERROR: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR as u32;
    const TOPOLOGY: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED as u32;
    const TYPE: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED as u32;
    const FUNCTION: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED as u32;
    const PARAMETERS: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED as u32;
    const NOT_SUPPORTED: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED as u32;
    const UNSUPPORTED_FUNCTION: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE as u32;
    const ATTRIBUTES: u32 = Reason::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED as u32;
    let words = match reason {
        ERROR => "the driver does not name the difference",
        TOPOLOGY => "the graphs have different nodes or dependencies",
        TYPE => "a node has a different type",
        FUNCTION => "a node launches a different kernel",
        PARAMETERS => "a node's parameters changed in a way that an executable graph does not support",
        NOT_SUPPORTED => "a node has a property that cannot be updated",
        UNSUPPORTED_FUNCTION => "a node launches a kernel that cannot replace the original one",
        ATTRIBUTES => "a launch changed its cluster or its cooperative attribute",
        other => return format!("the driver returned the unknown reason {other}"),
    };
    words.to_owned()
}

/// Sets the parameters of one node of an executable.
///
/// # Safety
/// The requirements are the same as for [`GraphDriver::graph_exec_set`](crate::GraphDriver::graph_exec_set).
pub(super) unsafe fn set(
    context: Context,
    exec: GraphExecHandle,
    node: NodeHandle,
    work: NodeWork<'_>,
) -> Result<()> {
    let (exec, node, context) = (exec_of(exec), node_of(node), context.0 as sys::CUcontext);
    // SAFETY: executable, node and context are alive, by the trait's contract, and the node has the kind of the work.
    // The caller guarantees memory, functions and arguments; the pointers are to local variables.
    unsafe {
        match work {
            NodeWork::Empty => {
                let text = "an empty node has no parameters that could be set".to_owned();
                Err(invalid("cuGraphExecKernelNodeSetParams", text))
            }
            NodeWork::Kernel { function, config, args } => {
                // Skip the query for a node that remains a plain launch, because it costs as much as setting the
                // parameters.
                if !config.is_plain() {
                    same_special(&config, nodes::special(node)?)?;
                }
                let params = parameters::kernel(function, &config, args);
                let result = sys::cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
                check("cuGraphExecKernelNodeSetParams", result)
            }
            NodeWork::Copy { dst, src, bytes } => {
                let params = parameters::copy(dst, src, bytes);
                let result = sys::cuGraphExecMemcpyNodeSetParams(exec, node, &params, context);
                check("cuGraphExecMemcpyNodeSetParams", result)
            }
            NodeWork::Set { dst, value, bytes } => {
                let params = parameters::set(dst, value, bytes);
                let result = sys::cuGraphExecMemsetNodeSetParams(exec, node, &params, context);
                check("cuGraphExecMemsetNodeSetParams", result)
            }
            NodeWork::Host(function) => {
                let params = host_functions::of_graph(function);
                let result = sys::cuGraphExecHostNodeSetParams(exec, node, &params);
                check("cuGraphExecHostNodeSetParams", result)
            }
            NodeWork::Child(child) => {
                let result = sys::cuGraphExecChildGraphNodeSetParams(exec, node, graph_of(child));
                check("cuGraphExecChildGraphNodeSetParams", result)
            }
        }
    }
}

/// Returns an error if a launch changes the node's cluster or makes it cooperative.
fn same_special(config: &LaunchConfig, node: ([u32; 3], bool)) -> Result<()> {
    if (config.cluster, config.cooperative) == node {
        return Ok(());
    }
    let text = "the cluster and the cooperative attribute of a node in an executable graph cannot change; instantiate the \
         graph again";
    Err(not_supported("cuGraphExecKernelNodeSetParams", text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_drivers() {
        assert_eq!(size_of::<sys::CUDA_GRAPH_INSTANTIATE_PARAMS>(), 32);
        assert_eq!(size_of::<sys::CUgraphExecUpdateResultInfo>(), 24);
    }

    #[test]
    fn reasons_of_refused_updates_differ() {
        let told: Vec<_> = (1..=8).map(update_reason).collect();
        for (index, reason) in told.iter().enumerate() {
            assert!(!told[..index].contains(reason) && !reason.contains("no name"), "{reason}");
        }
        assert!(update_reason(77).contains("77"));
    }

    #[test]
    fn failed_instantiation_appends_its_cause() {
        let error = || invalid("cuGraphInstantiate", "invalid argument".to_owned());
        let text = with_reason(error(), instantiate_reason(5)).to_string();
        assert!(text.contains("invalid argument; a condition was created that no node uses"), "{text}");
        assert_eq!(with_reason(error(), instantiate_reason(0)).to_string(), error().to_string());
    }

    #[test]
    fn a_node_keeps_its_cluster_and_whether_it_is_cooperative() {
        let plain = LaunchConfig::new([8, 1, 1], [32, 1, 1], 0);
        let clusters = LaunchConfig { cluster: [2, 1, 1], ..plain };
        let cooperative = LaunchConfig { cooperative: true, ..plain };
        assert!(same_special(&clusters, ([2, 1, 1], false)).is_ok());
        assert!(same_special(&cooperative, ([1; 3], true)).is_ok());
        for (config, node) in
            [(clusters, ([1; 3], false)), (clusters, ([2, 1, 1], true)), (cooperative, ([1; 3], false))]
        {
            assert_eq!(same_special(&config, node).unwrap_err().code(), Some(code::NOT_SUPPORTED));
        }
    }
}
