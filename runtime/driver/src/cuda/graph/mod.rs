//! Graphs: [`GraphDriver`] for [`CudaDriver`].
//!
//! On drivers before CUDA 12, only missing graph functions fail, as not supported.

pub(super) mod capture;
mod conditional;
mod edges;
mod exec;
mod nodes;
mod parameters;

use std::sync::Arc;

use cudarc::driver::sys;

use super::call::{Feature, RelaxedCapture, check};
use super::context::bind;
use super::{CudaDriver, stream_of};
use crate::error::Result;
use crate::{
    CaptureMode, CaptureStatus, ConditionHandle, ConditionalKind, Context, Edge, ExecUpdate, GraphDriver,
    GraphExecHandle, GraphFunction, GraphHandle, NodeHandle, NodeInfo, NodeWork, StreamHandle,
};

fn graph_of(graph: GraphHandle) -> sys::CUgraph {
    graph.0 as sys::CUgraph
}

fn node_of(node: NodeHandle) -> sys::CUgraphNode {
    node.0 as sys::CUgraphNode
}

fn exec_of(exec: GraphExecHandle) -> sys::CUgraphExec {
    exec.0 as sys::CUgraphExec
}

/// Makes a context current for graph calls. Returns an error that names `call` if the driver does not support graphs.
fn enter(context: Context, call: &'static str) -> Result<()> {
    bind(context)?;
    Feature::Graphs.need(call)
}

// SAFETY: CUDA's driver upholds this contract; each method forwards its arguments to the driver and returns its result.
unsafe impl GraphDriver for CudaDriver {
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()> {
        enter(context, "cuStreamBeginCapture")?;
        capture::begin(stream_of(stream), mode)
    }

    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle> {
        enter(context, "cuStreamEndCapture")?;
        capture::end(stream_of(stream))
    }

    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus> {
        enter(context, "cuStreamGetCaptureInfo")?;
        capture::status(stream_of(stream))
    }

    fn capture_tips(&self, context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>> {
        enter(context, "cuStreamGetCaptureInfo")?;
        capture::tips(stream_of(stream))
    }

    unsafe fn capture_host_function(
        &self,
        context: Context,
        stream: StreamHandle,
        function: &Arc<GraphFunction>,
    ) -> Result<()> {
        enter(context, "cuLaunchHostFunc")?;
        // SAFETY: guaranteed by the caller.
        unsafe { capture::host_function(stream_of(stream), function) }
    }

    fn graph_create(&self, context: Context) -> Result<GraphHandle> {
        enter(context, "cuGraphCreate")?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuGraphCreate", sys::cuGraphCreate(&mut graph, 0)) }?;
        Ok(GraphHandle(graph as u64))
    }

    unsafe fn graph_destroy(&self, context: Context, graph: GraphHandle) {
        if enter(context, "cuGraphDestroy").is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: guaranteed by the caller. An error cannot be reported here.
            let _ = unsafe { sys::cuGraphDestroy(graph_of(graph)) };
        }
    }

    fn graph_clone(&self, context: Context, graph: GraphHandle) -> Result<GraphHandle> {
        enter(context, "cuGraphClone")?;
        let mut clone = std::ptr::null_mut();
        // SAFETY: the graph is alive, by the trait's contract; the pointer is to a local variable.
        unsafe { check("cuGraphClone", sys::cuGraphClone(&mut clone, graph_of(graph))) }?;
        Ok(GraphHandle(clone as u64))
    }

    fn graph_node_in_clone(
        &self,
        context: Context,
        node: NodeHandle,
        clone: GraphHandle,
    ) -> Result<NodeHandle> {
        const CALL: &str = "cuGraphNodeFindInClone";
        enter(context, CALL)?;
        let mut found = std::ptr::null_mut();
        // SAFETY: node and copy are alive, by the trait's contract; the pointer is to a local variable.
        let result = unsafe { sys::cuGraphNodeFindInClone(&mut found, node_of(node), graph_of(clone)) };
        check(CALL, result)?;
        Ok(NodeHandle(found as u64))
    }

    fn graph_nodes(&self, context: Context, graph: GraphHandle) -> Result<Vec<NodeHandle>> {
        enter(context, "cuGraphGetNodes")?;
        edges::nodes(graph)
    }

    fn graph_edges(&self, context: Context, graph: GraphHandle) -> Result<Vec<Edge>> {
        enter(context, "cuGraphGetEdges")?;
        edges::edges(graph)
    }

    fn graph_node(&self, context: Context, node: NodeHandle) -> Result<NodeInfo> {
        enter(context, "cuGraphNodeGetType")?;
        nodes::info(node)
    }

    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle> {
        enter(context, "adding a node to a graph")?;
        // SAFETY: guaranteed by the caller.
        unsafe { nodes::add(context, graph, after, work) }
    }

    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle> {
        bind(context)?;
        conditional::condition(context, graph, initial)
    }

    fn graph_add_conditional(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)> {
        bind(context)?;
        conditional::add(context, graph, after, condition, kind, self.version)
    }

    fn graph_instantiate(&self, context: Context, graph: GraphHandle) -> Result<GraphExecHandle> {
        enter(context, "cuGraphInstantiate")?;
        exec::instantiate(graph)
    }

    unsafe fn graph_exec_destroy(&self, context: Context, exec: GraphExecHandle) {
        if enter(context, "cuGraphExecDestroy").is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: guaranteed by the caller. An error cannot be reported here.
            let _ = unsafe { sys::cuGraphExecDestroy(exec_of(exec)) };
        }
    }

    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()> {
        enter(context, "cuGraphUpload")?;
        exec::upload(exec, stream)
    }

    unsafe fn graph_launch(
        &self,
        context: Context,
        exec: GraphExecHandle,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: guaranteed by the caller; an executable exists only with a driver that has this function.
        unsafe { check("cuGraphLaunch", sys::cuGraphLaunch(exec_of(exec), stream_of(stream))) }
    }

    unsafe fn graph_exec_update(
        &self,
        context: Context,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<ExecUpdate> {
        enter(context, "cuGraphExecUpdate")?;
        // SAFETY: guaranteed by the caller.
        unsafe { exec::update(exec, graph) }
    }

    unsafe fn graph_exec_set(
        &self,
        context: Context,
        exec: GraphExecHandle,
        node: NodeHandle,
        work: NodeWork<'_>,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: guaranteed by the caller; an executable exists only with a driver that has these functions.
        unsafe { exec::set(context, exec, node, work) }
    }
}
