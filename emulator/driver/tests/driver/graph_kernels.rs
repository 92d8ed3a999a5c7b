//! Tests of kernels in graphs on the emulated driver: conditions set by kernels, and launches with attributes.
//!
//! Safety, everywhere in this file: the arguments match the kernels' parameters, and memory lives as long as the
//! driver.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::{Fixture, refused};
use gpu_spec::{KernelSpec, ParamKind, ParamSpec};
use warpsmith_runtime::driver::Result;
use warpsmith_runtime::driver::{
    CaptureMode, CodeDriver, ConditionHandle, ConditionalKind, DevicePtr, Driver, ExecUpdate, FaultKind,
    FunctionHandle, GraphDriver, GraphExecHandle, GraphFunction, GraphHandle, LaunchConfig, ModuleHandle,
    NodeHandle, NodeInfo, NodeWork,
};
use warpsmith_runtime::emulated::Call;

const INVALID_VALUE: u32 = 1;
const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
const NOT_SUPPORTED: u32 = 801;
const INVALID_CLUSTER_SIZE: u32 = 912;

const fn param(kind: ParamKind, size: usize) -> ParamSpec {
    ParamSpec { name: "", kind, type_name: "", size, align: size, signature: 0 }
}

const fn kernel(
    symbol: &'static str,
    params: &'static [ParamSpec],
    entry: gpu_spec::HostEntry,
) -> KernelSpec {
    let mut spec = KernelSpec::new("test-kernels", "0.0.0", symbol, params, entry);
    spec.info.is_safe = false;
    spec
}

/// Decrements `counters[1]`, increments `counters[0]`, and sets a condition to `counters[1]`.
static COUNT_DOWN: KernelSpec =
    kernel("count_down", &[param(ParamKind::Value, 8), param(ParamKind::SliceMut, 4)], count_down);
/// Sets a condition to the first element.
static SET_FROM: KernelSpec =
    kernel("set_from", &[param(ParamKind::Value, 8), param(ParamKind::Slice, 4)], set_from);
/// Increments the first element, and panics if the slice is empty.
static ADD_ONE: KernelSpec = kernel("add_one", &[param(ParamKind::SliceMut, 4)], add_one);

unsafe fn set_condition(args: *const *const c_void, value: u32) {
    unsafe {
        let condition = (*args).cast::<u64>().read() as usize;
        let condition: *const AtomicU32 = std::ptr::with_exposed_provenance(condition);
        (*condition).store(value, Ordering::Release);
    }
}

unsafe fn count_down(args: *const *const c_void) {
    unsafe {
        let counters = (*args.add(1)).cast::<*mut u32>().read();
        *counters += 1;
        *counters.add(1) -= 1;
        set_condition(args, *counters.add(1));
    }
}

unsafe fn set_from(args: *const *const c_void) {
    unsafe { set_condition(args, (*args.add(1)).cast::<*const u32>().read().read()) };
}

unsafe fn add_one(args: *const *const c_void) {
    unsafe {
        let (data, len) = ((*args).cast::<*mut u32>().read(), (*args.add(1)).cast::<u64>().read());
        assert!(len > 0, "there is nothing to add to");
        *data += 1;
    }
}

/// Graph calls that the tests make.
impl Fixture {
    fn numbers(&self, numbers: &[u32]) -> DevicePtr {
        self.block(&numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>())
    }

    fn number(&self, ptr: DevicePtr) -> u32 {
        u32::from_ne_bytes(self.read(ptr, 4).try_into().unwrap())
    }

    fn function(&self, kernel: &'static KernelSpec) -> FunctionHandle {
        self.driver.module_function(self.context, ModuleHandle(0), kernel).unwrap()
    }

    fn graph(&self) -> GraphHandle {
        self.driver.graph_create(self.context).unwrap()
    }

    fn add(&self, graph: GraphHandle, after: &[NodeHandle], work: NodeWork<'_>) -> Result<NodeHandle> {
        unsafe { self.driver.graph_add(self.context, graph, after, work) }
    }

    fn condition(&self, graph: GraphHandle, initial: Option<u32>) -> ConditionHandle {
        self.driver.graph_condition(self.context, graph, initial).unwrap()
    }

    fn conditional(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: ConditionHandle,
        kind: ConditionalKind,
    ) -> Result<(NodeHandle, Vec<GraphHandle>)> {
        self.driver.graph_add_conditional(self.context, graph, after, condition, kind)
    }

    /// Adds a launch of a kernel that takes a condition and numbers.
    fn add_setter(
        &self,
        graph: GraphHandle,
        kernel: &'static KernelSpec,
        condition: ConditionHandle,
        numbers: DevicePtr,
    ) -> NodeHandle {
        let (function, config) = (self.function(kernel), LaunchConfig::new([1; 3], [1; 3], 0));
        let len = 1u64;
        let args = [(&raw const condition.0).cast(), (&raw const numbers.0).cast(), (&raw const len).cast()];
        self.add(graph, &[], NodeWork::Kernel { function, config, args: &args }).unwrap()
    }

    /// Adds a launch of [`ADD_ONE`].
    fn add_adder(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        numbers: DevicePtr,
        config: LaunchConfig,
    ) -> Result<NodeHandle> {
        let (function, len) = (self.function(&ADD_ONE), u64::from(numbers != DevicePtr::NULL));
        let args = [(&raw const numbers.0).cast(), (&raw const len).cast()];
        self.add(graph, after, NodeWork::Kernel { function, config, args: &args })
    }

    fn enqueue(&self, numbers: DevicePtr, config: LaunchConfig) -> Result<()> {
        let len = 1u64;
        let args = [(&raw const numbers.0).cast(), (&raw const len).cast()];
        unsafe { self.driver.launch(self.context, self.function(&ADD_ONE), &config, &args, self.stream) }
    }

    fn instantiate(&self, graph: GraphHandle) -> GraphExecHandle {
        self.driver.graph_instantiate(self.context, graph).unwrap()
    }

    fn run(&self, exec: GraphExecHandle) -> Result<()> {
        unsafe { self.driver.graph_launch(self.context, exec, self.stream) }.unwrap();
        self.wait()
    }
}

fn plain() -> LaunchConfig {
    LaunchConfig::new([1; 3], [1; 3], 0)
}

#[test]
fn a_loop_runs_until_a_kernel_ends_it() {
    let fixture = Fixture::new();
    let counters = fixture.numbers(&[0, 5]);
    let graph = fixture.graph();
    let condition = fixture.condition(graph, Some(1));
    let (_, bodies) = fixture.conditional(graph, &[], condition, ConditionalKind::While).unwrap();
    fixture.add_setter(bodies[0], &COUNT_DOWN, condition, counters);
    let exec = fixture.instantiate(graph);
    // The executable also owns the condition and the bodies.
    unsafe { fixture.driver.graph_destroy(fixture.context, graph) };
    fixture.run(exec).unwrap();
    assert_eq!((fixture.number(counters), fixture.number(counters.offset(4))), (5, 0));
    let src = 2u32.to_ne_bytes();
    let (dst, src) = (counters.offset(4), src.as_ptr().cast());
    unsafe { fixture.driver.copy_to_device(fixture.context, dst, src, 4, fixture.stream) }.unwrap();
    fixture.run(exec).unwrap();
    assert_eq!(fixture.number(counters), 7);
}

#[test]
fn an_uninitialized_condition_keeps_its_value() {
    let fixture = Fixture::new();
    let [wanted, seen] = [3, 0].map(|number| fixture.numbers(&[number]));
    let graph = fixture.graph();
    let condition = fixture.condition(graph, None);
    let (check, bodies) = fixture.conditional(graph, &[], condition, ConditionalKind::If).unwrap();
    fixture.add_adder(bodies[0], &[], seen, plain()).unwrap();
    let set = fixture.add_setter(graph, &SET_FROM, condition, wanted);
    let edges = fixture.driver.graph_edges(fixture.context, graph).unwrap();
    assert!(edges.is_empty() && check < set, "the nodes run in the order in which they were added");
    let exec = fixture.instantiate(graph);
    for expected in [0, 1, 2] {
        fixture.run(exec).unwrap();
        assert_eq!(fixture.number(seen), expected);
    }
}

#[test]
fn conditional_nodes_are_nested() {
    let fixture = Fixture::new();
    let (counters, odd) = (fixture.numbers(&[0, 6]), fixture.numbers(&[0]));
    let graph = fixture.graph();
    let (outer, inner) = (fixture.condition(graph, Some(1)), fixture.condition(graph, Some(1)));
    let (_, bodies) = fixture.conditional(graph, &[], outer, ConditionalKind::While).unwrap();
    let count = fixture.add_setter(bodies[0], &COUNT_DOWN, outer, counters);
    let (_, chosen) = fixture.conditional(bodies[0], &[count], inner, ConditionalKind::IfElse).unwrap();
    fixture.add_adder(chosen[1], &[], odd, plain()).unwrap();
    let adder = fixture.add_adder(chosen[0], &[], odd, plain()).unwrap();
    fixture.add_adder(chosen[0], &[adder], odd, plain()).unwrap();
    fixture.run(fixture.instantiate(graph)).unwrap();
    assert_eq!((fixture.number(counters), fixture.number(odd)), (6, 12));
}

#[test]
fn conditional_nodes_are_where_they_can_be_only() {
    let fixture = Fixture::new();
    let (driver, context) = (&fixture.driver, fixture.context);
    let (graph, other) = (fixture.graph(), fixture.graph());
    let condition = fixture.condition(graph, None);
    let kind = ConditionalKind::If;
    refused(fixture.conditional(other, &[], condition, kind), INVALID_VALUE, "belongs neither to this graph");
    refused(fixture.conditional(graph, &[], condition, ConditionalKind::Switch(0)), INVALID_VALUE, "a body");
    refused(
        fixture.conditional(graph, &[], ConditionHandle(7), kind),
        INVALID_VALUE,
        "belongs neither to this graph",
    );
    let (node, bodies) = fixture.conditional(graph, &[], condition, kind).unwrap();
    refused(fixture.conditional(graph, &[node], condition, kind), INVALID_VALUE, "one condition per node");
    refused(fixture.conditional(bodies[0], &[], condition, kind), INVALID_VALUE, "one condition per node");
    refused(driver.graph_clone(context, graph), NOT_SUPPORTED, "cannot be copied");
    refused(fixture.add(other, &[], NodeWork::Child(graph)), NOT_SUPPORTED, "cannot be a child");

    let exec = fixture.instantiate(graph);
    let set = unsafe { driver.graph_exec_set(context, exec, node, NodeWork::Child(other)) };
    refused(set, INVALID_VALUE, "a conditional node in the executable");

    let function = GraphFunction::new(|| ());
    fixture.add(bodies[0], &[], NodeWork::Host(&function)).unwrap();
    refused(driver.graph_instantiate(context, graph), NOT_SUPPORTED, "cannot call host functions");
}

#[test]
fn a_loop_without_end_is_a_fault() {
    let fixture = Fixture::new();
    let graph = fixture.graph();
    let condition = fixture.condition(graph, Some(1));
    fixture.conditional(graph, &[], condition, ConditionalKind::While).unwrap();
    fixture.run(fixture.instantiate(graph)).unwrap_err();
    let fault = fixture.driver.take_fault(fixture.context).unwrap();
    assert!(fault.kind == FaultKind::Deadlock && fault.message.contains("while node"), "{fault:?}");
}

#[test]
fn an_update_brings_its_own_conditions() {
    let fixture = Fixture::new();
    let build = |rounds: u32| {
        let counters = fixture.numbers(&[0, rounds]);
        let graph = fixture.graph();
        let condition = fixture.condition(graph, Some(1));
        let (outer, bodies) = fixture.conditional(graph, &[], condition, ConditionalKind::While).unwrap();
        let node = fixture.add_setter(bodies[0], &COUNT_DOWN, condition, counters);
        (graph, outer, bodies[0], node, counters)
    };
    let (graph, _, _, node, counters) = build(3);
    let exec = fixture.instantiate(graph);
    let (other, outer, body, added, other_counters) = build(4);
    let update = || unsafe { fixture.driver.graph_exec_update(fixture.context, exec, other) }.unwrap();
    assert_eq!(update(), ExecUpdate::Done);
    unsafe { fixture.driver.graph_destroy(fixture.context, graph) };
    fixture.run(exec).unwrap();
    assert_eq!((fixture.number(counters), fixture.number(other_counters)), (0, 4));

    fixture.add(body, &[added], NodeWork::Empty).unwrap();
    let ExecUpdate::Refused { node: found, reason } = update() else { panic!("updated") };
    assert!(found == Some(outer) && reason.contains("1 nodes here, but the graph has 2"), "{reason}");
    // A node of a body must be named by the corresponding node of the original graph.
    let (function, config, null) = (fixture.function(&ADD_ONE), plain(), 1u64);
    let args = [(&raw const counters.0).cast(), (&raw const null).cast()];
    let work = NodeWork::Kernel { function, config, args: &args };
    unsafe { fixture.driver.graph_exec_set(fixture.context, exec, node, work) }.unwrap();
    let unknown = unsafe { fixture.driver.graph_exec_set(fixture.context, exec, added, work) };
    refused(unknown, INVALID_VALUE, "is not part of the executable graph");
}

#[test]
fn a_panicking_kernel_stops_its_graph() {
    let fixture = Fixture::new();
    let numbers = fixture.numbers(&[0]);
    let graph = fixture.graph();
    let first = fixture.add_adder(graph, &[], numbers, plain()).unwrap();
    let second = fixture.add_adder(graph, &[first], DevicePtr::NULL, plain()).unwrap();
    fixture.add_adder(graph, &[second], numbers, plain()).unwrap();
    fixture.run(fixture.instantiate(graph)).unwrap_err();
    let fault = fixture.driver.take_fault(fixture.context).unwrap();
    assert_eq!((fault.kind, fault.kernel.as_deref()), (FaultKind::Panic, Some("add_one")));
    let data: *const u32 = std::ptr::with_exposed_provenance(numbers.0 as usize);
    assert_eq!(unsafe { *data }, 1, "the last has not run");
}

#[test]
fn captured_launches_keep_their_arguments() {
    let fixture = Fixture::new();
    let (driver, context) = (&fixture.driver, fixture.context);
    let numbers = fixture.numbers(&[0, 0]);
    driver.capture_begin(context, fixture.stream, CaptureMode::ThreadLocal).unwrap();
    fixture.enqueue(numbers, plain()).unwrap();
    let dependent = LaunchConfig { dependent: true, ..plain() };
    fixture.enqueue(numbers.offset(4), dependent).unwrap();
    fixture.enqueue(numbers.offset(4), plain()).unwrap();
    let graph = driver.capture_end(context, fixture.stream).unwrap();
    let nodes = driver.graph_nodes(context, graph).unwrap();
    let function = fixture.function(&ADD_ONE);
    let expected = [plain(), dependent, plain()].map(|config| NodeInfo::Kernel { function, config });
    assert!(nodes.iter().map(|node| driver.graph_node(context, *node).unwrap()).eq(expected));
    let edges = driver.graph_edges(context, graph).unwrap();
    assert_eq!(edges.iter().map(|edge| edge.early).collect::<Vec<_>>(), [true, false]);
    let exec = fixture.instantiate(graph);
    fixture.run(exec).unwrap();
    fixture.run(exec).unwrap();
    assert_eq!((fixture.number(numbers), fixture.number(numbers.offset(4))), (2, 4));
}

#[test]
fn impossible_cluster_sizes_are_refused() {
    let fixture = Fixture::new();
    let (driver, context) = (&fixture.driver, fixture.context);
    let (numbers, function) = (fixture.numbers(&[0]), fixture.function(&ADD_ONE));
    let config =
        |grid: [u32; 3], cluster: [u32; 3]| LaunchConfig { cluster, ..LaunchConfig::new(grid, [1; 3], 0) };
    assert_eq!(driver.function_max_cluster(context, function, plain()).unwrap(), 8);
    let graph = fixture.graph();
    let code = INVALID_CLUSTER_SIZE;
    for (config, text) in [
        (config([16, 1, 1], [16, 1, 1]), "but must have 1 to 8"),
        (config([16, 1, 1], [0, 1, 1]), "but must have 1 to 8"),
        (config([16, 1, 1], [1 << 31, 1 << 31, 1 << 31]), "but must have 1 to 8"),
        (config([9, 2, 1], [2, 2, 1]), "is not a multiple of the cluster"),
        (config([8, 1, 1], [1, 2, 1]), "is not a multiple of the cluster"),
    ] {
        refused(fixture.enqueue(numbers, config), code, text);
        refused(fixture.add_adder(graph, &[], numbers, config), code, text);
        refused(driver.function_resident_clusters(context, function, config), code, text);
    }
    let large = config([16, 1, 1], [4, 4, 1]);
    driver.function_allow_large_clusters(context, function).unwrap();
    assert_eq!(driver.function_max_cluster(context, function, plain()).unwrap(), 16);
    refused(fixture.enqueue(numbers, large), code, "is not a multiple of the cluster");
    let resident =
        |cluster| driver.function_resident_clusters(context, function, config([16, 1, 1], cluster)).unwrap();
    let single = resident([1; 3]);
    let blocks = driver.function_occupancy(context, function, 1, 0).unwrap();
    assert_eq!(single, blocks * driver.device_properties(0).unwrap().multiprocessors);
    assert_eq!(resident([16, 1, 1]), single / 16);
    for call in [Call::FunctionMaxCluster, Call::FunctionResidentClusters, Call::FunctionAllowLargeClusters] {
        assert!(driver.calls(call) > 0, "{}", call.name());
    }
    assert_eq!(fixture.number(numbers), 0, "nothing of it ran");
}

#[test]
fn a_cooperative_grid_fits_or_is_refused() {
    let fixture = Fixture::new();
    let numbers = fixture.numbers(&[0]);
    let properties = fixture.driver.device_properties(0).unwrap();
    let threads = 512;
    let most = properties.multiprocessors * (properties.max_threads_per_multiprocessor / threads);
    let config = |blocks, cooperative| LaunchConfig {
        cooperative,
        ..LaunchConfig::new([blocks, 1, 1], [threads, 1, 1], 0)
    };
    let text = format!("only {most} can be resident");
    refused(fixture.enqueue(numbers, config(most + 1, true)), COOPERATIVE_LAUNCH_TOO_LARGE, &text);
    let graph = fixture.graph();
    let added = fixture.add_adder(graph, &[], numbers, config(most + 1, true));
    refused(added, COOPERATIVE_LAUNCH_TOO_LARGE, &text);
    fixture.add_adder(graph, &[], numbers, config(most, true)).unwrap();
    fixture.add_adder(graph, &[], numbers, config(most + 1, false)).unwrap();
    fixture.enqueue(numbers, plain()).unwrap();
    assert_eq!(fixture.number(numbers), 1, "the stream is usable");
}
