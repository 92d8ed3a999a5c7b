//! Graphs: [`GraphDriver`] for [`EmulatedDriver`].
//!
//! As in CUDA, graphs with conditional nodes can neither be copied nor be children of other graphs. A condition belongs
//! to one conditional node, and bodies of conditional nodes cannot call host functions. Launching an executable that
//! uses freed memory fails. If unordered nodes access the same memory, and at least one of them writes it, they race.
//! If the driver checks for races, the race is reported at the first launch.
//!
//! | module | contents |
//! | --- | --- |
//! | `plan` | nodes, operations and dependencies |
//! | `store` | graphs, by handle |
//! | `build` | adds work to a graph |
//! | `run` | executable graphs and their launches |
//! | `update` | updates of executable graphs |
//! | `races` | races within a graph |

mod build;
mod plan;
mod races;
mod run;
mod store;
mod update;

use std::ops::Range;
use std::sync::Arc;

pub(super) use self::build::NO_POOL;
use self::plan::Step;
pub(super) use self::plan::{After, Home, Node, Plan, PlanStep};
pub(super) use self::run::{Executable, GraphRun};
pub(super) use self::store::Store;
use super::EmulatedDriver;
use super::action::Action;
use super::control::Call;
use super::control::driver_error;
use super::stream::{Queue, Work};
use super::touched::Access;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{
    CaptureMode, CaptureStatus, ConditionHandle, ConditionalKind, Context, Edge, ExecUpdate, GraphDriver,
    GraphExecHandle, GraphFunction, GraphHandle, NodeHandle, NodeInfo, NodeWork, StreamHandle,
};

// SAFETY: plans own all data that their work names, nodes run in an order that respects their edges, and a launch is
// one task of its stream.
unsafe impl GraphDriver for EmulatedDriver {
    fn capture_begin(&self, context: Context, stream: StreamHandle, mode: CaptureMode) -> Result<()> {
        let _called = self.called_aside(Call::CaptureBegin);
        let context = self.enter(Call::CaptureBegin, context)?;
        self.stream_of(Call::CaptureBegin, &context, stream)?;
        let graph = self.store().reserve_graph();
        self.captures.begin(stream.0, &context, mode, graph)
    }

    fn capture_end(&self, context: Context, stream: StreamHandle) -> Result<GraphHandle> {
        let _called = self.called_aside(Call::CaptureEnd);
        let call = Call::CaptureEnd;
        // The capture ends in every case, even if the call fails.
        let ordered = self.control.enter_to_wait(call)?;
        let context = self.contexts.get(call, context.0)?;
        let (graph, plan) = self.captures.end(stream.0)?;
        ordered?;
        context.check(call.name())?;
        self.store().insert_captured(graph, plan);
        Ok(graph)
    }

    fn capture_status(&self, context: Context, stream: StreamHandle) -> Result<CaptureStatus> {
        self.enter(Call::CaptureStatus, context)?;
        self.streams.get(Call::CaptureStatus, stream.0)?;
        Ok(self.captures.status(stream.0))
    }

    fn capture_tips(&self, _context: Context, stream: StreamHandle) -> Result<Vec<NodeHandle>> {
        Ok(self.captures.tips(stream.0))
    }

    unsafe fn capture_host_function(
        &self,
        context: Context,
        stream: StreamHandle,
        function: &Arc<GraphFunction>,
    ) -> Result<()> {
        let _called = self.called_aside(Call::CaptureHostFunction);
        let call = Call::CaptureHostFunction;
        self.enter(call, context)?;
        let queue = self.streams.get(call, stream.0)?;
        let node = self.store().reserve_node();
        self.captures.add(call, stream.0, node, self.host_step(call, queue.context(), Action::host(function)))
    }

    fn graph_create(&self, context: Context) -> Result<GraphHandle> {
        let _called = self.called_aside(Call::GraphCreate);
        self.enter(Call::GraphCreate, context)?;
        Ok(self.store().create(None))
    }

    unsafe fn graph_destroy(&self, _context: Context, graph: GraphHandle) {
        // A failure cannot be reported. A host function must not destroy graphs.
        if self.control.enter_to_wait(Call::GraphDestroy).is_ok() {
            self.store().destroy(graph);
        }
    }

    fn graph_clone(&self, context: Context, graph: GraphHandle) -> Result<GraphHandle> {
        let _called = self.called_aside(Call::GraphClone);
        self.enter(Call::GraphClone, context)?;
        self.store().clone_graph(Call::GraphClone, graph)
    }

    fn graph_node_in_clone(
        &self,
        context: Context,
        node: NodeHandle,
        clone: GraphHandle,
    ) -> Result<NodeHandle> {
        self.enter(Call::GraphNodeInClone, context)?;
        self.store().in_clone(Call::GraphNodeInClone, node, clone)
    }

    fn graph_nodes(&self, context: Context, graph: GraphHandle) -> Result<Vec<NodeHandle>> {
        self.enter(Call::GraphNodes, context)?;
        self.store().nodes(Call::GraphNodes, graph)
    }

    fn graph_edges(&self, context: Context, graph: GraphHandle) -> Result<Vec<Edge>> {
        self.enter(Call::GraphEdges, context)?;
        self.store().edges(Call::GraphEdges, graph)
    }

    fn graph_node(&self, context: Context, node: NodeHandle) -> Result<NodeInfo> {
        self.enter(Call::GraphNode, context)?;
        self.store().info(Call::GraphNode, node)
    }

    unsafe fn graph_add(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle> {
        let _called = self.called_aside(Call::GraphAdd);
        let context = self.enter(Call::GraphAdd, context)?;
        // SAFETY: guaranteed by the caller.
        let step = unsafe { self.step(Call::GraphAdd, &context, work) }?;
        self.store().add(Call::GraphAdd, graph, after, &step)
    }

    fn graph_condition(
        &self,
        context: Context,
        graph: GraphHandle,
        initial: Option<u32>,
    ) -> Result<ConditionHandle> {
        self.enter(Call::GraphCondition, context)?;
        self.store().add_condition(Call::GraphCondition, graph, initial)
    }

    fn graph_add_conditional(
        &self,
        context: Context,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)> {
        self.enter(Call::GraphAddConditional, context)?;
        self.store().add_conditional(Call::GraphAddConditional, graph, after, condition, kind)
    }

    fn graph_instantiate(&self, context: Context, graph: GraphHandle) -> Result<GraphExecHandle> {
        let _called = self.called_aside(Call::GraphInstantiate);
        let call = Call::GraphInstantiate;
        self.enter(call, context)?;
        let plan = self.store().plan(call, graph)?;
        check_bodies(call, &plan)?;
        Ok(GraphExecHandle(self.executables.insert(Executable::new(plan))))
    }

    unsafe fn graph_exec_destroy(&self, _context: Context, exec: GraphExecHandle) {
        // A failure cannot be reported, as for graphs.
        if self.control.enter_to_wait(Call::GraphExecDestroy).is_ok() {
            self.executables.remove(exec.0);
        }
    }

    fn graph_upload(&self, context: Context, exec: GraphExecHandle, stream: StreamHandle) -> Result<()> {
        let _called = self.called_aside(Call::GraphUpload);
        let call = Call::GraphUpload;
        self.enter(call, context)?;
        self.executables.get(call, exec.0)?;
        self.streams.get(call, stream.0)?;
        self.captures.refuse(call, stream.0, "upload the executable graph before the capture")
    }

    unsafe fn graph_launch(
        &self,
        context: Context,
        exec: GraphExecHandle,
        stream: StreamHandle,
    ) -> Result<()> {
        let called = self.called(Call::GraphLaunch);
        let call = Call::GraphLaunch;
        self.enter(call, context)?;
        let executable = self.executables.get(call, exec.0)?;
        let program = executable.program();
        if self.captures.holds(stream.0) {
            return self.captures.refuse(
                call,
                stream.0,
                "an executable graph cannot be captured; add its graph as a child graph",
            );
        }
        if self.idle && self.time.is_none() {
            let queue = self.streams.get(call, stream.0)?;
            if let Some(called) = &called {
                let place = (queue.context().ordinal, stream);
                self.graph_launched_idly(called, place, exec.0 as u32, &program.plan);
            }
            return Ok(());
        }
        self.check_memory(call, &program.plan)?;
        if self.races.is_on() {
            self.races.tell(program.races());
        }
        self.visit_all(&*self.streams.get(call, stream.0)?);
        executable.launch(exec.0 as u32, |launch| {
            let touched = launch.touched();
            self.push(call, stream, Work::Graph(launch), touched)
        })
    }

    unsafe fn graph_exec_update(
        &self,
        context: Context,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<ExecUpdate> {
        let _called = self.called_aside(Call::GraphExecUpdate);
        let call = Call::GraphExecUpdate;
        self.enter(call, context)?;
        let executable = self.executables.get(call, exec.0)?;
        let new = self.store().plan(call, graph)?;
        check_bodies(call, &new)?;
        let old = executable.program();
        if let Some(update::Difference { node, reason }) = update::difference(&old.plan, &new) {
            return Ok(ExecUpdate::Refused { node, reason });
        }
        executable.set_plan(update::renamed(&old.plan, new));
        Ok(ExecUpdate::Done)
    }

    unsafe fn graph_exec_set(
        &self,
        context: Context,
        exec: GraphExecHandle,
        node: NodeHandle,
        work: NodeWork<'_>,
    ) -> Result<()> {
        let _called = self.called_aside(Call::GraphExecSet);
        let call = Call::GraphExecSet;
        let context = self.enter(call, context)?;
        let executable = self.executables.get(call, exec.0)?;
        let invalid = |text: String| driver_error(call.name(), code::INVALID_VALUE, text);
        if matches!(work, NodeWork::Empty) {
            return Err(invalid("an empty node has no parameters that could be set".to_owned()));
        }
        // SAFETY: guaranteed by the caller.
        let new = unsafe { self.step(call, &context, work) }?;
        let plan = update::with_node(&executable.program().plan, node, &mut |old| match (
            update::step_difference(old, &new),
            old,
            &new,
        ) {
            (Some(update::Difference { reason, .. }), ..) => {
                Err(invalid(format!("node {} cannot do this: {reason}", node.0)))
            }
            (None, Step::Child(old), Step::Child(new)) => {
                Ok(Step::Child(Arc::new(update::renamed(old, Plan::clone(new)))))
            }
            _ => Ok(new.clone()),
        })?;
        let plan =
            plan.ok_or_else(|| invalid(format!("node {} is not part of the executable graph", node.0)))?;
        executable.set_plan(plan);
        Ok(())
    }
}

impl EmulatedDriver {
    /// Rejects a launch whose work uses memory that has been freed.
    fn check_memory(&self, call: Call, plan: &Plan) -> Result<()> {
        let mut freed = None;
        plan.pieces(&mut |piece| {
            let gone = |(access, home): &(&Access, &Home)| {
                **home != Home::Elsewhere && !access.range.is_empty() && self.home(&access.range) != **home
            };
            if freed.is_none() {
                let gone = piece.touched.iter().zip(&piece.homes).find(gone);
                freed = gone.map(|(access, _)| (piece.name, access.range.clone()));
            }
        });
        let Some((name, Range { start, end })) = freed else { return Ok(()) };
        let text = format!(
            "{name} in the graph uses memory from {start:#x} to {end:#x}, which has been freed; build the graph again"
        );
        Err(driver_error(call.name(), code::INVALID_VALUE, text))
    }

    /// Records that work on a stream may use memory of any device.
    fn visit_all(&self, queue: &Queue) {
        if self.devices.len() > 1 {
            let others = self.contexts.all().into_iter().filter(|other| !Arc::ptr_eq(other, queue.context()));
            others.for_each(|other| other.add_visitor(queue.context()));
        }
    }
}

/// Returns an error if a body of a conditional node calls a host function.
fn check_bodies(call: Call, plan: &Plan) -> Result<()> {
    let calls = |step: &PlanStep| {
        let Step::Work(piece) = step else { return false };
        matches!(piece.action, Action::Host(_))
    };
    let bad = |step: &PlanStep| {
        let Step::Conditional { bodies, .. } = step else { return false };
        bodies.iter().any(|body| body.any(&calls))
    };
    if !plan.any(&bad) {
        return Ok(());
    }
    let text = "bodies of conditional nodes cannot call host functions";
    Err(driver_error(call.name(), code::NOT_SUPPORTED, text))
}
