//! Tests of captures and graphs on the emulated driver: rejected calls, launches alongside other work, and races within
//! graphs.
//!
//! Safety, everywhere in this file: the emulated driver checks device memory and rejects invalid accesses. Functions
//! are kept until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::{Fixture, refused};
use crate::machine::*;
use warpsmith_runtime::driver::Result;
use warpsmith_runtime::driver::{
    CaptureMode, CaptureStatus, DevicePtr, Driver, Fault, FaultKind, GraphDriver, GraphExecHandle,
    GraphFunction, GraphHandle, MemoryDriver, NodeHandle, NodeWork, StreamDriver,
};
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule};

const INVALID_VALUE: u32 = 1;
const ILLEGAL_STATE: u32 = 401;
const ASSERT: u32 = 710;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const MERGE: u32 = 902;
const ISOLATION: u32 = 905;
const CAPTURED_EVENT: u32 = 907;

/// Returns one device with worker threads and two streams.
fn machine() -> Machine {
    Machine::new(EmulatedDriver::builder().memory(1 << 30), 2)
}

/// Graph calls on the first stream of a machine.
trait Graphs {
    fn begin(&self);
    fn end(&self) -> Result<GraphHandle>;
    fn status(&self, stream: usize) -> CaptureStatus;
    fn graph(&self) -> GraphHandle;
    fn add(&self, graph: GraphHandle, after: &[NodeHandle], work: NodeWork<'_>) -> NodeHandle;
    fn instantiate(&self, graph: GraphHandle) -> GraphExecHandle;
    fn start(&self, exec: GraphExecHandle, stream: usize) -> Result<()>;
}

impl Graphs for Machine {
    fn begin(&self) {
        self.driver.capture_begin(self.context, self.streams[0], CaptureMode::ThreadLocal).unwrap();
    }

    fn end(&self) -> Result<GraphHandle> {
        self.driver.capture_end(self.context, self.streams[0])
    }

    fn status(&self, stream: usize) -> CaptureStatus {
        self.driver.capture_status(self.context, self.streams[stream]).unwrap()
    }

    fn graph(&self) -> GraphHandle {
        self.driver.graph_create(self.context).unwrap()
    }

    fn add(&self, graph: GraphHandle, after: &[NodeHandle], work: NodeWork<'_>) -> NodeHandle {
        unsafe { self.driver.graph_add(self.context, graph, after, work) }.unwrap()
    }

    fn instantiate(&self, graph: GraphHandle) -> GraphExecHandle {
        self.driver.graph_instantiate(self.context, graph).unwrap()
    }

    fn start(&self, exec: GraphExecHandle, stream: usize) -> Result<()> {
        unsafe { self.driver.graph_launch(self.context, exec, self.streams[stream]) }
    }
}

fn fill(dst: DevicePtr, value: u8, bytes: usize) -> NodeWork<'static> {
    NodeWork::Set { dst, value, bytes }
}

#[test]
fn uncapturable_calls_invalidate_the_capture_by_name() {
    let m = machine();
    let (driver, context, stream) = (&m.driver, m.context, m.streams[0]);
    let (block, mut host) = (m.memory(16), [0u8; 16]);
    let pooled = driver.stream_allocate(context, 64, stream).unwrap();
    m.sync(0);
    let pageable = host.as_mut_ptr().cast();
    let exec = m.instantiate(m.graph());
    type Attempt<'a> = (Box<dyn FnMut() -> Result<()> + 'a>, &'static str);
    let attempts: [Attempt<'_>; 6] = [
        (Box::new(|| driver.host_function(context, stream, Box::new(|| ()))), "can be called only once"),
        (
            Box::new(|| driver.stream_allocate(context, 64, stream).map(|_| ())),
            "memory pool cannot allocate or free",
        ),
        (
            Box::new(|| unsafe { driver.stream_free(context, pooled, stream) }),
            "memory pool cannot allocate or free",
        ),
        (
            Box::new(|| unsafe { driver.copy_to_host(context, pageable, block, 16, stream) }),
            "require page-locked host memory",
        ),
        (
            Box::new(|| unsafe { driver.copy_to_device(context, block, pageable, 16, stream) }),
            "require page-locked host memory",
        ),
        (Box::new(|| driver.graph_upload(context, exec, stream)), "before the capture"),
    ];
    for (mut attempt, text) in attempts {
        m.begin();
        refused(attempt(), UNSUPPORTED, text);
        assert_eq!(m.status(0), CaptureStatus::Invalidated);
        refused(attempt(), INVALIDATED, "has invalidated the capture");
        refused(m.end(), INVALIDATED, "has invalidated the capture");
        assert_eq!(m.status(0), CaptureStatus::None);
    }
    unsafe { driver.stream_free(context, pooled, stream) }.unwrap();
    m.to_host(0, pageable, block, 16);
    m.sync(0);
    assert_eq!(host, [0xFF; 16]);
}

#[test]
fn wrong_calls_invalidate_no_capture() {
    let m = machine();
    let block = m.memory(16);
    m.begin();
    let beyond = unsafe { m.driver.memset(m.context, block, 1, 17, m.streams[0]) };
    refused(beyond, INVALID_VALUE, "not within a live block");
    m.set(0, block, 1, 0);
    m.set(0, block, 1, 16);
    let graph = m.end().unwrap();
    assert_eq!(m.driver.graph_nodes(m.context, graph).unwrap().len(), 1, "nothing to set is no node");
    let add = |work| unsafe { m.driver.graph_add(m.context, graph, &[], work) };
    refused(add(fill(block, 1, 0)), INVALID_VALUE, "at least 1 byte");
    refused(add(fill(block.offset(8), 1, 9)), INVALID_VALUE, "not within a live block");
    let unknown = NodeHandle(1 << 40);
    let added = unsafe { m.driver.graph_add(m.context, graph, &[unknown], NodeWork::Empty) };
    refused(added, INVALID_VALUE, "unknown");
    assert_eq!(m.driver.graph_nodes(m.context, graph).unwrap().len(), 1);
}

#[test]
fn two_captures_cannot_become_one() {
    let m = machine();
    m.begin();
    let event = m.record(0);
    m.driver.capture_begin(m.context, m.streams[1], CaptureMode::Relaxed).unwrap();
    let waited = m.driver.stream_wait_event(m.context, m.streams[1], event);
    refused(waited, MERGE, "another capture");
    assert_eq!((m.status(0), m.status(1)), (CaptureStatus::Invalidated, CaptureStatus::Invalidated));
    refused(m.end(), INVALIDATED, "stream_wait_event has invalidated");
    refused(m.driver.capture_end(m.context, m.streams[1]), INVALIDATED, "stream_wait_event");
}

#[test]
fn an_ended_captures_event_is_recorded_again() {
    let m = machine();
    let (driver, context) = (&m.driver, m.context);
    m.begin();
    let event = m.record(0);
    let never = driver.event_create(context, false).unwrap();
    let graph = m.end().unwrap();
    refused(driver.event_query(context, event), CAPTURED_EVENT, "record it again");
    refused(driver.event_elapsed(context, event, event), CAPTURED_EVENT, "record it again");
    refused(driver.stream_wait_event(context, m.streams[1], event), CAPTURED_EVENT, "record it again");
    for event in [event, never] {
        m.begin();
        refused(driver.stream_wait_event(context, m.streams[0], event), ISOLATION, "in");
        m.end().unwrap_err();
    }
    driver.event_record(context, event, m.streams[1]).unwrap();
    driver.event_synchronize(context, event).unwrap();
    unsafe { driver.graph_destroy(context, graph) };
}

#[test]
fn destroying_a_stream_ends_or_invalidates_its_capture() {
    let m = Machine::new(EmulatedDriver::builder().memory(1 << 30), 3);
    m.begin();
    m.order(0, 1);
    unsafe { m.driver.stream_destroy(m.context, m.streams[1]) };
    assert_eq!(m.status(0), CaptureStatus::Invalidated);
    refused(m.end(), INVALIDATED, "stream_destroy has invalidated");

    m.begin();
    m.order(0, 2);
    unsafe { m.driver.stream_destroy(m.context, m.streams[0]) };
    assert_eq!(m.status(2), CaptureStatus::None, "it could not be ended");
    m.set(2, m.memory(4), 1, 4);
    m.sync(2);
}

#[test]
fn a_context_takes_its_captures_along() {
    let fixture = Fixture::new();
    let driver = &fixture.driver;
    driver.capture_begin(fixture.context, fixture.stream, CaptureMode::ThreadLocal).unwrap();
    driver.context_release(0);
    let fresh = Fixture::of(driver, 0);
    driver.context_synchronize(fresh.context).unwrap();
    assert_eq!(driver.capture_status(fresh.context, fresh.stream).unwrap(), CaptureStatus::None);
    assert_eq!(driver.capture_status(fresh.context, fixture.stream).unwrap(), CaptureStatus::None);
}

#[test]
fn an_enqueued_launch_is_not_changed_later() {
    let m = machine();
    let (a, b) = (m.memory(8), m.memory(8));
    let graph = m.graph();
    let first = m.add(graph, &[], fill(a, 1, 8));
    let exec = m.instantiate(graph);
    let hold = m.driver.hold();
    m.start(exec, 0).unwrap();
    unsafe { m.driver.graph_exec_set(m.context, exec, first, fill(b, 2, 8)) }.unwrap();
    m.start(exec, 1).unwrap();
    unsafe {
        m.driver.graph_exec_destroy(m.context, exec);
        m.driver.graph_destroy(m.context, graph);
    }
    assert_eq!((m.bytes(a, 8), m.query(0)), (vec![0xFF; 8], false));
    refused(m.free(a), INVALID_VALUE, "still used by enqueued work");
    refused(m.free(b), INVALID_VALUE, "still used by enqueued work");
    drop(hold);
    m.sync(0);
    m.sync(1);
    assert_eq!((m.bytes(a, 8), m.bytes(b, 8)), (vec![1; 8], vec![2; 8]));
    m.free(a).unwrap();
    m.free(b).unwrap();
}

#[test]
fn a_launch_whose_memory_was_freed_is_refused() {
    let m = machine();
    let (block, pinned) = (m.memory(4000), m.pinned(64));
    m.begin();
    m.to_host(0, pinned, block, 64);
    let exec = m.instantiate(m.end().unwrap());
    m.start(exec, 0).unwrap();
    m.sync(0);
    unsafe { m.driver.pinned_free(m.context, pinned) }.unwrap();
    refused(m.start(exec, 0), INVALID_VALUE, "copy_to_host in the graph uses memory");
    m.begin();
    m.set(0, block, 0, 4000);
    m.append(0, block, 1);
    let exec = m.instantiate(m.end().unwrap());
    m.start(exec, 0).unwrap();
    m.sync(0);
    m.free(block).unwrap();
    refused(m.start(exec, 0), INVALID_VALUE, "has been freed");
}

#[test]
fn launches_on_two_streams_come_in_order() {
    for seed in 0..20 {
        let m = Machine::new(stepped(Schedule::Random(seed)), 2);
        let log = m.log();
        m.begin();
        m.append(0, log, 1);
        m.order(0, 1);
        m.append(1, log, 2);
        m.order(1, 0);
        let exec = m.instantiate(m.end().unwrap());
        m.order(0, 1);
        for stream in [0, 1, 1, 0] {
            m.start(exec, stream).unwrap();
        }
        m.sync(1);
        m.sync(0);
        assert_eq!(m.ids(log), [1, 2, 1, 2, 1, 2, 1, 2]);
        let races = m.races();
        assert!(races.is_empty(), "{races:#?}");
    }
}

#[test]
fn a_graph_races_as_any_task() {
    let m = Machine::new(stepped(Schedule::Oldest), 2);
    let (a, b) = (m.memory(64), m.memory(64));
    m.begin();
    m.set(0, a, 1, 64);
    m.copy(0, b, a, 64);
    let graph = m.end().unwrap();
    m.set(1, b, 2, 1);
    let exec = m.instantiate(graph);
    assert!(m.races().is_empty(), "what is captured does not run");
    m.start(exec, 0).unwrap();
    let races = m.races();
    assert!(races.len() == 1 && races[0].contains("graph_launch on stream"), "{races:#?}");
    m.order(0, 1);
    m.set(1, a, 2, 64);
    m.set(1, b, 2, 64);
    assert!(m.races().is_empty());
    m.sync(1);
}

/// Returns the races of the first launch of a captured graph.
fn races_of(m: &Machine, capture: impl FnOnce()) -> Vec<String> {
    m.begin();
    m.order(0, 1);
    capture();
    m.order(1, 0);
    let exec = m.instantiate(m.end().unwrap());
    assert!(m.races().is_empty());
    m.start(exec, 0).unwrap();
    let races = m.races();
    m.start(exec, 0).unwrap();
    assert!(m.races().is_empty(), "they are reported once");
    m.sync(0);
    races
}

#[test]
fn nodes_of_a_graph_that_nothing_orders_race() {
    let m = Machine::new(stepped(Schedule::Oldest), 2);
    let [a, b] = [(); 2].map(|()| m.memory(64));
    let use_both = |forget: bool| {
        m.set(0, a, 1, 64);
        if forget {
            // SAFETY: the driver is stepped, and the memory outlives the enqueued work.
            unsafe { m.driver.skip_wait(0) };
        }
        m.order(0, 1);
        m.copy(1, b, a.offset(16), 32);
    };
    let ordered = races_of(&m, || use_both(false));
    assert!(ordered.is_empty(), "{ordered:#?}");
    let races = races_of(&m, || use_both(true));
    let expected = format!(
        "memset in node 0 (writes {:#x}..{:#x}) and copy_device in node 1 (reads {:#x}..{:#x}) in one graph access \
         the same bytes, starting at {:#x}, but are not ordered",
        a.0,
        a.0 + 64,
        a.0 + 16,
        a.0 + 48,
        a.0 + 16
    );
    assert_eq!(races, [expected]);

    let apart = races_of(&m, || {
        m.set(0, a, 1, 32);
        m.set(1, a.offset(32), 1, 32);
        m.look(0, (b, 16), (a, 0));
        m.look(1, (b, 16), (a, 0));
    });
    assert!(apart.is_empty(), "{apart:#?}");
    let atomics = races_of(&m, || {
        m.look(0, (b, 16), (a, 16));
        m.look(1, (b, 16), (a, 16));
    });
    assert!(atomics.len() == 1 && atomics[0].starts_with("look in node 0 (writes"), "{atomics:#?}");
}

#[test]
fn nested_graphs_race_outside_and_within() {
    let m = Machine::new(stepped(Schedule::Oldest), 2);
    let a = m.memory(64);
    let child = m.graph();
    m.add(child, &[], fill(a, 1, 8));
    m.add(child, &[], fill(a.offset(4), 1, 8));
    let graph = m.graph();
    let first = m.add(graph, &[], NodeWork::Child(child));
    m.add(graph, &[], fill(a.offset(10), 1, 8));
    m.add(graph, &[first], fill(a, 1, 8));
    m.start(m.instantiate(graph), 0).unwrap();
    let races = m.races();
    assert_eq!(races.len(), 2, "{races:#?}");
    assert!(
        races[0].starts_with("a child graph in node 0")
            && races[0].contains(&format!("starting at {:#x}", a.0 + 10))
    );
    assert!(races[1].starts_with("graph_add in node 0"));
    m.sync(0);
}

#[test]
fn a_stopped_context_runs_no_more_nodes() {
    let fixture = Fixture::new();
    let (driver, context, stream) = (&fixture.driver, fixture.context, fixture.stream);
    let block = fixture.block(&[0; 4]);
    let called = Arc::new(AtomicU32::new(0));
    let inner = Arc::clone(&called);
    let function = GraphFunction::new(move || _ = inner.fetch_add(1, Ordering::Relaxed));
    let graph = driver.graph_create(context).unwrap();
    unsafe {
        let after = driver.graph_add(context, graph, &[], NodeWork::Host(&function)).unwrap();
        driver.graph_add(context, graph, &[after], fill(block, 1, 4)).unwrap();
    }
    let exec = driver.graph_instantiate(context, graph).unwrap();
    let hold = driver.hold();
    unsafe { driver.graph_launch(context, exec, stream) }.unwrap();
    fixture.poison();
    refused(unsafe { driver.graph_launch(context, exec, stream) }, ASSERT, "stopped the context");
    refused(driver.graph_instantiate(context, graph), ASSERT, "stopped the context");
    drop(hold);
    refused(fixture.wait(), ASSERT, "stopped the context");
    assert_eq!(called.load(Ordering::Relaxed), 0);
    unsafe {
        driver.graph_exec_destroy(context, exec);
        driver.graph_destroy(context, graph);
    }
    driver.context_release(0);
}

#[test]
fn a_stopped_contexts_capture_can_be_ended() {
    let fixture = Fixture::new();
    fixture.driver.capture_begin(fixture.context, fixture.stream, CaptureMode::ThreadLocal).unwrap();
    fixture.poison();
    refused(fixture.driver.capture_end(fixture.context, fixture.stream), ASSERT, "stopped the context");
    refused(fixture.driver.capture_end(fixture.context, fixture.stream), ILLEGAL_STATE, "not being captured");
}

#[test]
fn a_function_that_is_gone_stops_the_context() {
    let m = machine();
    let graph = m.graph();
    let function = GraphFunction::new(|| ());
    m.add(graph, &[], NodeWork::Host(&function));
    let exec = m.instantiate(graph);
    drop(function);
    m.start(exec, 0).unwrap();
    m.driver.stream_synchronize(m.context, m.streams[0]).unwrap_err();
    let Fault { kind, message, .. } = m.driver.take_fault(m.context).unwrap();
    assert!(kind == FaultKind::Other && message.contains("already dropped"), "{message}");
}
