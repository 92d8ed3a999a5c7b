//! Tests of driver calls for captures and graphs, on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated
//! device if it is not set. A missing device fails the tests.
//!
//! These tests have no kernel image, so kernels in graphs, and conditions set by kernels, are tested only on the
//! emulated driver (`driver/graph_kernels.rs`).
//!
//! Safety, everywhere in this file: memory that graphs name and functions that they call are kept until the stream has
//! been waited for, and handles are not used after they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::fixture::*;
use warpsmith_runtime::driver::{
    CaptureMode, CaptureStatus, ConditionalKind, ExecUpdate, GraphFunction, NodeHandle, NodeInfo, NodeWork,
    Place, RowsCopy,
};

const INVALID_VALUE: u32 = 1;
const NOT_SUPPORTED: u32 = 801;
const UNSUPPORTED: u32 = 900;
const UNMATCHED: u32 = 903;
const UNJOINED: u32 = 904;
const ISOLATION: u32 = 905;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;

#[test]
fn captured_work_runs_at_each_launch_only() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.block(&[1; 64]), fixture.block(&[2; 64]));
    let pinned = fixture.driver().pinned_allocate(fixture.context(), 64).unwrap();
    unsafe { pinned.cast::<u8>().write_bytes(0, 64) };

    fixture.begin(CaptureMode::ThreadLocal);
    let CaptureStatus::Active(first) = fixture.status(fixture.stream) else { panic!("no capture") };
    fixture.set(fixture.stream, a, 7, 32).unwrap();
    fixture.copy(fixture.stream, b, a, 64);
    unsafe { fixture.driver().copy_to_host(fixture.context(), pinned, b, 64, fixture.stream) }.unwrap();
    let graph = fixture.end().unwrap();
    assert_eq!(fixture.status(fixture.stream), CaptureStatus::None);
    assert_eq!((fixture.read(a, 64), fixture.read(b, 64)), (vec![1; 64], vec![2; 64]));

    let nodes = fixture.nodes(graph);
    let infos: Vec<_> = nodes.iter().map(|node| fixture.info(*node)).collect();
    assert_eq!(
        infos,
        [NodeInfo::Set { bytes: 32 }, NodeInfo::Copy { bytes: 64 }, NodeInfo::Copy { bytes: 64 }]
    );
    assert_eq!(fixture.edges(graph), [(nodes[0], nodes[1]), (nodes[1], nodes[2])]);

    let exec = fixture.instantiate(graph);
    fixture.destroy(graph);
    fixture.driver().graph_upload(fixture.context(), exec, fixture.stream).unwrap();
    let expected = [[7; 32], [1; 32]].concat();
    for _ in 0..2 {
        fixture.set(fixture.stream, b, 0, 64).unwrap();
        fixture.launch(exec);
        assert_eq!(fixture.read(b, 64), expected);
        let host = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 64) };
        assert_eq!(host, expected);
    }

    fixture.begin(CaptureMode::ThreadLocal);
    let CaptureStatus::Active(second) = fixture.status(fixture.stream) else { panic!("no capture") };
    assert_ne!(first, second);
    let empty = fixture.end().unwrap();
    assert!(fixture.nodes(empty).is_empty());
    fixture.run(empty);
    unsafe { fixture.driver().pinned_free(fixture.context(), pinned) }.unwrap();
}

#[test]
fn tips_of_a_capture_are_its_last_nodes() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.block(&[0; 16]), fixture.block(&[0; 16]));
    let tips = |stream| fixture.driver().capture_tips(fixture.context(), stream).unwrap();
    assert_eq!(tips(fixture.stream), []);
    fixture.begin(CaptureMode::ThreadLocal);
    assert_eq!((tips(fixture.stream), tips(fixture.other)), (vec![], vec![]));
    fixture.set(fixture.stream, a, 1, 16).unwrap();
    let first = tips(fixture.stream);
    fixture.order(fixture.stream, fixture.other);
    assert_eq!(tips(fixture.other), first);
    fixture.set(fixture.other, b, 2, 16).unwrap();
    let second = tips(fixture.other);
    assert_eq!(tips(fixture.stream), first);
    fixture.order(fixture.other, fixture.stream);
    let mut both = tips(fixture.stream);
    both.retain(|tip| !first.contains(tip));
    assert_eq!(both, second, "a place that was waited for is one to come after");
    fixture.copy(fixture.stream, b, a, 8);
    let third = tips(fixture.stream);
    let graph = fixture.end().unwrap();
    assert_eq!([first, second, third].concat(), fixture.nodes(graph));
    assert_eq!(tips(fixture.stream), []);
    fixture.destroy(graph);
}

#[test]
fn every_kind_of_copy_is_captured() {
    let fixture = Fixture::new();
    let (driver, context, stream) = (fixture.driver(), fixture.context(), fixture.stream);
    let (a, b) = (fixture.block(&[1, 2, 3, 4, 5, 6, 7, 8]), fixture.block(&[0; 16]));
    let pinned = driver.pinned_allocate(context, 4).unwrap();
    unsafe { pinned.cast::<u8>().write_bytes(9, 4) };
    let rows = |dst, src| RowsCopy { dst, dst_pitch: 4, src, src_pitch: 2, row_bytes: 2, rows: 2 };
    fixture.begin(CaptureMode::ThreadLocal);
    unsafe {
        driver.copy_to_device(context, a.offset(6), pinned, 2, stream).unwrap();
        driver.copy_rows(context, rows(Place::Device(b), Place::Device(a)), stream).unwrap();
        driver.copy_rows(context, rows(Place::Device(b.offset(8)), Place::Host(pinned)), stream).unwrap();
        driver.copy_peer(context, (context, b.offset(14)), (context, a.offset(5)), 2, stream).unwrap();
    }
    let graph = fixture.end().unwrap();
    assert_eq!(fixture.nodes(graph).len(), 4);
    assert_eq!(fixture.read(b, 16), [0; 16]);
    fixture.run(graph);
    assert_eq!(fixture.read(b, 16), [1, 2, 0, 0, 3, 4, 0, 0, 9, 9, 0, 0, 9, 9, 6, 9]);
    unsafe { driver.pinned_free(context, pinned) }.unwrap();
}

#[test]
fn forked_streams_must_join_their_capture() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.block(&[0; 16]), fixture.block(&[0; 16]));
    fixture.begin(CaptureMode::ThreadLocal);
    assert_eq!(fixture.status(fixture.other), CaptureStatus::None);
    fixture.set(fixture.stream, a, 1, 16).unwrap();
    fixture.order(fixture.stream, fixture.other);
    assert_eq!(fixture.status(fixture.other), fixture.status(fixture.stream));
    fixture.copy(fixture.other, b, a, 8);
    fixture.set(fixture.stream, a.offset(8), 2, 8).unwrap();
    fixture.order(fixture.other, fixture.stream);
    fixture.copy(fixture.stream, b.offset(8), a.offset(8), 8);
    let graph = fixture.end().unwrap();
    assert_eq!(fixture.status(fixture.other), CaptureStatus::None);

    let nodes = fixture.nodes(graph);
    assert_eq!(nodes.len(), 4);
    let edges = fixture.edges(graph);
    let count = |node: NodeHandle, from: bool| {
        edges.iter().filter(|edge| if from { edge.0 == node } else { edge.1 == node }).count()
    };
    let forks = nodes.iter().filter(|node| count(**node, true) == 2).count();
    let joins = nodes.iter().filter(|node| count(**node, false) == 2).count();
    assert_eq!((edges.len(), forks, joins), (4, 1, 1));
    fixture.run(graph);
    assert_eq!(fixture.read(b, 16), [[1; 8], [2; 8]].concat());

    fixture.begin(CaptureMode::ThreadLocal);
    fixture.order(fixture.stream, fixture.other);
    fixture.set(fixture.other, a, 1, 16).unwrap();
    assert_eq!(code(fixture.end()), Some(UNJOINED));
    fixture.runs_again();
}

#[test]
fn queries_of_captured_work_invalidate_the_capture() {
    let fixture = Fixture::new();
    let (driver, context, stream) = (fixture.driver(), fixture.context(), fixture.stream);
    let event = fixture.event();
    let block = fixture.block(&[0; 4]);
    type Ask<'a> = (&'static str, Box<dyn Fn() -> Option<u32> + 'a>, u32);
    let asks: [Ask<'_>; 5] = [
        ("stream_query", Box::new(|| code(driver.stream_query(context, stream))), UNSUPPORTED),
        ("stream_synchronize", Box::new(|| code(driver.stream_synchronize(context, stream))), UNSUPPORTED),
        ("context_synchronize", Box::new(|| code(driver.context_synchronize(context))), UNSUPPORTED),
        ("event_query", Box::new(|| code(driver.event_query(context, event))), CAPTURED_EVENT),
        ("event_synchronize", Box::new(|| code(driver.event_synchronize(context, event))), CAPTURED_EVENT),
    ];
    for (name, ask, expected) in asks {
        fixture.begin(CaptureMode::ThreadLocal);
        fixture.set(stream, block, 1, 4).unwrap();
        fixture.record(event, stream).unwrap();
        assert_eq!(ask(), Some(expected), "{name}");
        assert_eq!(code(fixture.set(stream, block, 1, 4)), Some(INVALIDATED), "after {name}");
        fixture.ends_invalidated();
    }
    assert_eq!(fixture.read(block, 4), [0; 4]);
    fixture.record(event, stream).unwrap();
    driver.event_synchronize(context, event).unwrap();
    unsafe { driver.event_destroy(context, event) };
}

#[test]
fn a_captured_stream_cannot_wait_for_work_outside() {
    let fixture = Fixture::new();
    let event = fixture.event();
    fixture.record(event, fixture.other).unwrap();
    fixture.begin(CaptureMode::ThreadLocal);
    let waited = fixture.driver().stream_wait_event(fixture.context(), fixture.stream, event);
    assert_eq!(code(waited), Some(ISOLATION));
    fixture.ends_invalidated();
    unsafe { fixture.driver().event_destroy(fixture.context(), event) };
}

#[test]
fn a_capture_ends_on_its_stream_and_thread() {
    let fixture = Fixture::new();
    let elsewhere = || {
        let (driver, context) = (Arc::clone(unsafe { fixture.device.driver() }.0), fixture.context());
        let stream = fixture.stream;
        std::thread::spawn(move || driver.capture_end(context, stream)).join().unwrap()
    };
    for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
        fixture.begin(mode);
        assert_eq!(code(elsewhere()), Some(WRONG_THREAD));
        assert!(
            !matches!(fixture.status(fixture.stream), CaptureStatus::Active(_)),
            "it is invalidated, or over"
        );
        assert!(fixture.end().is_err());
        fixture.runs_again();
    }
    fixture.begin(CaptureMode::Relaxed);
    fixture.destroy(elsewhere().unwrap());

    fixture.begin(CaptureMode::ThreadLocal);
    fixture.order(fixture.stream, fixture.other);
    let ended = fixture.driver().capture_end(fixture.context(), fixture.other);
    assert_eq!(code(ended), Some(UNMATCHED));
    // This either ended or invalidated the capture. In both cases no graph results, and the streams are usable
    // afterwards.
    assert!(fixture.end().is_err());
    fixture.runs_again();

    assert!(fixture.end().is_err(), "there is none");
    fixture.begin(CaptureMode::ThreadLocal);
    assert!(
        fixture.driver().capture_begin(fixture.context(), fixture.stream, CaptureMode::ThreadLocal).is_err()
    );
    let _ = fixture.end();
    fixture.runs_again();
}

#[test]
fn memory_can_be_allocated_and_freed_during_captures() {
    let fixture = Fixture::new();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        fixture.begin(mode);
        let block = fixture.driver().memory_allocate(fixture.context(), 1000).unwrap();
        unsafe { fixture.driver().memory_free(fixture.context(), block) }.unwrap();
        let pinned = fixture.driver().pinned_allocate(fixture.context(), 1000).unwrap();
        unsafe { fixture.driver().pinned_free(fixture.context(), pinned) }.unwrap();
        fixture.end().unwrap();
    }
}

#[test]
fn host_functions_are_called_in_order() {
    let fixture = Fixture::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let functions: Vec<_> = (0..3)
        .map(|number| {
            let log = Arc::clone(&log);
            GraphFunction::new(move || {
                log.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                assert_ne!(number, 1, "a panic of the test's");
            })
        })
        .collect();
    let outside =
        unsafe { fixture.driver().capture_host_function(fixture.context(), fixture.stream, &functions[0]) };
    assert!(outside.is_err(), "there is no capture");

    fixture.begin(CaptureMode::ThreadLocal);
    for function in &functions[..2] {
        unsafe { fixture.driver().capture_host_function(fixture.context(), fixture.stream, function) }
            .unwrap();
    }
    let graph = fixture.end().unwrap();
    let nodes = fixture.nodes(graph);
    assert_eq!(nodes.iter().map(|node| fixture.info(*node)).collect::<Vec<_>>(), [NodeInfo::Host; 2]);
    fixture.add(graph, &nodes[1..], NodeWork::Host(&functions[2])).unwrap();
    let exec = fixture.instantiate(graph);
    fixture.launch(exec);
    fixture.launch(exec);
    fixture.wait();
    assert_eq!(*log.lock().unwrap_or_else(PoisonError::into_inner), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_graphs_function_cannot_call_the_driver() {
    let fixture = Fixture::new();
    let (driver, context, stream) =
        (Arc::clone(unsafe { fixture.device.driver() }.0), fixture.context(), fixture.stream);
    let (codes, said) = channel();
    let function = GraphFunction::new(move || {
        let answers = [code(driver.memory_allocate(context, 8)), code(driver.stream_query(context, stream))];
        codes.send(answers).unwrap();
    });
    let graph = fixture.graph();
    fixture.add(graph, &[], NodeWork::Host(&function)).unwrap();
    fixture.run(graph);
    assert_eq!(said.recv_timeout(Duration::from_secs(60)).unwrap(), [Some(800); 2]);
}

#[test]
fn nodes_follow_others_of_the_same_graph() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.block(&[1; 8]), fixture.block(&[0; 8]));
    let mut host = [0u8; 8];
    let child = fixture.graph();
    let filled = fixture.add(child, &[], set(a.offset(4), 5, 4)).unwrap();

    let graph = fixture.graph();
    let start = fixture.add(graph, &[], NodeWork::Empty).unwrap();
    let first = fixture.add(graph, &[start], set(a, 3, 2)).unwrap();
    let second = fixture.add(graph, &[start], NodeWork::Child(child)).unwrap();
    let third = fixture.add(graph, &[first, second], copy(b, a, 8)).unwrap();
    let (dst, src) = (Place::Host(host.as_mut_ptr().cast()), Place::Device(b));
    let last = fixture.add(graph, &[third], NodeWork::Copy { dst, src, bytes: 8 }).unwrap();
    assert_eq!(fixture.nodes(graph), [start, first, second, third, last]);
    let mut edges = fixture.edges(graph);
    edges.sort();
    let mut expected = vec![(start, first), (start, second), (first, third), (second, third), (third, last)];
    expected.sort();
    assert_eq!(edges, expected);
    assert_eq!(fixture.info(start), NodeInfo::Empty);
    let NodeInfo::Child(copied) = fixture.info(second) else { panic!("no child") };
    assert!(copied != child && fixture.nodes(copied).len() == 1, "the child is a copy");
    fixture.add(child, &[filled], set(a, 100, 8)).unwrap();

    assert_eq!(code(fixture.add(graph, &[filled], NodeWork::Empty)), Some(INVALID_VALUE), "of another graph");
    assert_eq!(code(fixture.add(graph, &[start, start], NodeWork::Empty)), Some(INVALID_VALUE), "twice");
    assert_eq!(fixture.nodes(graph).len(), 5);
    fixture.run(graph);
    assert_eq!(host, [3, 3, 1, 1, 5, 5, 5, 5]);
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    let fixture = Fixture::new();
    let block = fixture.block(&[0; 8]);
    let graph = fixture.graph();
    let first = fixture.add(graph, &[], set(block, 1, 8)).unwrap();
    let second = fixture.add(graph, &[first], set(block, 2, 4)).unwrap();
    let clone = fixture.driver().graph_clone(fixture.context(), graph).unwrap();
    let later = fixture.add(graph, &[second], set(block, 3, 8)).unwrap();
    let in_clone = |node| fixture.driver().graph_node_in_clone(fixture.context(), node, clone);
    let (copy_of_first, copy_of_second) = (in_clone(first).unwrap(), in_clone(second).unwrap());
    assert_eq!(fixture.nodes(clone).len(), 2);
    assert!(fixture.nodes(clone).contains(&copy_of_first) && copy_of_first != first);
    assert_eq!(fixture.edges(clone), [(copy_of_first, copy_of_second)]);
    assert_eq!(code(in_clone(later)), Some(INVALID_VALUE), "it was added afterwards");
    fixture.destroy(graph);
    fixture.run(clone);
    assert_eq!(fixture.read(block, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
}

#[test]
fn executables_take_new_parameters_and_no_new_form() {
    let fixture = Fixture::new();
    let (driver, context) = (fixture.driver(), fixture.context());
    let (a, b) = (fixture.block(&[0; 8]), fixture.block(&[0; 8]));
    let form = |value: u8, bytes: usize| {
        let graph = fixture.graph();
        let first = fixture.add(graph, &[], set(a, value, bytes)).unwrap();
        let second = fixture.add(graph, &[first], copy(b, a, 8)).unwrap();
        (graph, first, second)
    };
    let (graph, fill, _) = form(1, 8);
    let exec = fixture.instantiate(graph);
    fixture.launch(exec);
    assert_eq!(fixture.read(b, 8), [1; 8]);

    unsafe { driver.graph_exec_set(context, exec, fill, set(a, 2, 8)) }.unwrap();
    fixture.launch(exec);
    assert_eq!(fixture.read(b, 8), [2; 8]);
    unsafe { driver.graph_exec_set(context, exec, fill, copy(a, b, 8)) }.unwrap_err();
    unsafe { driver.graph_exec_set(context, exec, fill, NodeWork::Empty) }.unwrap_err();

    let (other, ..) = form(3, 4);
    let update = |graph| unsafe { driver.graph_exec_update(context, exec, graph) }.unwrap();
    assert_eq!(update(other), ExecUpdate::Done);
    fixture.destroy(other);
    fixture.launch(exec);
    assert_eq!(fixture.read(b, 8), [3, 3, 3, 3, 2, 2, 2, 2]);
    // Nodes keep the handles that they have in the original graph.
    unsafe { driver.graph_exec_set(context, exec, fill, set(a, 4, 8)) }.unwrap();
    fixture.launch(exec);
    assert_eq!(fixture.read(b, 8), [4; 8]);

    let (longer, _, last) = form(5, 8);
    fixture.add(longer, &[last], set(a, 6, 8)).unwrap();
    let unlike = fixture.graph();
    let first = fixture.add(unlike, &[], copy(b, a, 8)).unwrap();
    fixture.add(unlike, &[first], set(a, 7, 8)).unwrap();
    let unordered = fixture.graph();
    fixture.add(unordered, &[], set(a, 8, 4)).unwrap();
    fixture.add(unordered, &[], copy(b.offset(4), a.offset(4), 4)).unwrap();
    for graph in [longer, unlike, unordered] {
        let ExecUpdate::Refused { reason, .. } = update(graph) else { panic!("updated") };
        assert!(!reason.is_empty());
    }
    fixture.launch(exec);
    assert_eq!(fixture.read(b, 8), [4; 8], "it is as it was");
}

#[test]
fn a_launch_outlives_its_executable() {
    let fixture = Fixture::new();
    let block = fixture.block(&[0; 4]);
    let (proceed, may_proceed) = channel::<()>();
    let may_proceed = Mutex::new(may_proceed);
    let function = GraphFunction::new(move || {
        let may_proceed = may_proceed.lock().unwrap_or_else(PoisonError::into_inner);
        may_proceed.recv_timeout(Duration::from_secs(60)).unwrap();
    });
    let graph = fixture.graph();
    let first = fixture.add(graph, &[], NodeWork::Host(&function)).unwrap();
    fixture.add(graph, &[first], set(block, 6, 4)).unwrap();
    let exec = fixture.instantiate(graph);
    fixture.launch(exec);
    fixture.destroy_exec(exec);
    fixture.destroy(graph);
    proceed.send(()).unwrap();
    fixture.wait();
    assert_eq!(fixture.read(block, 4), [6; 4]);
}

#[test]
fn launches_of_one_executable_are_sequential() {
    let fixture = Fixture::new();
    let count = Arc::new(AtomicU32::new(0));
    let inner = Arc::clone(&count);
    let function = GraphFunction::new(move || {
        // Counts are lost if two functions run concurrently.
        let before = inner.load(Ordering::Relaxed);
        (0..100).for_each(|_| std::thread::yield_now());
        inner.store(before + 1, Ordering::Relaxed);
    });
    let graph = fixture.graph();
    fixture.add(graph, &[], NodeWork::Host(&function)).unwrap();
    let exec = fixture.instantiate(graph);
    for launch in 0..20 {
        let stream = if launch % 2 == 0 { fixture.stream } else { fixture.other };
        unsafe { fixture.driver().graph_launch(fixture.context(), exec, stream) }.unwrap();
    }
    fixture.driver().context_synchronize(fixture.context()).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 20);
}

#[test]
fn an_executable_is_not_launched_into_a_capture() {
    let fixture = Fixture::new();
    let block = fixture.block(&[0; 8]);
    let inner = fixture.graph();
    fixture.add(inner, &[], set(block, 4, 4)).unwrap();
    let exec = fixture.instantiate(inner);
    fixture.begin(CaptureMode::ThreadLocal);
    let launched = unsafe { fixture.driver().graph_launch(fixture.context(), exec, fixture.stream) };
    assert_eq!(code(launched), Some(UNSUPPORTED));
    // The capture contains no part of the graph, even if the failed launch has not invalidated it.
    let _ = fixture.end().map(|graph| fixture.destroy(graph));
    fixture.runs_again();
    fixture.launch(exec);
    assert_eq!(fixture.read(block, 8), [4, 4, 4, 4, 0, 0, 0, 0]);
}

#[test]
fn conditions_choose_among_bodies() {
    let fixture = Fixture::new();
    let (driver, context) = (fixture.driver(), fixture.context());
    let block = fixture.block(&[0; 4]);
    let cases = [
        (ConditionalKind::If, 0, 0),
        (ConditionalKind::If, 5, 1),
        (ConditionalKind::While, 0, 0),
        (ConditionalKind::IfElse, 1, 1),
        (ConditionalKind::IfElse, 0, 2),
        (ConditionalKind::Switch(3), 0, 1),
        (ConditionalKind::Switch(3), 2, 3),
        (ConditionalKind::Switch(3), 3, 0),
    ];
    for (kind, value, expected) in cases {
        let graph = fixture.graph();
        let added = driver
            .graph_condition(context, graph, Some(value))
            .and_then(|condition| driver.graph_add_conditional(context, graph, &[], condition, kind));
        let (node, bodies) = match added {
            Ok(added) => added,
            Err(error) => {
                assert_eq!(error.code(), Some(NOT_SUPPORTED), "{kind:?}: {error}");
                continue;
            }
        };
        assert_eq!((fixture.info(node), bodies.len()), (NodeInfo::Conditional, kind.bodies() as usize));
        for (number, body) in (1..).zip(&bodies) {
            assert!(fixture.nodes(*body).is_empty());
            fixture.add(*body, &[], set(block, number, 4)).unwrap();
        }
        assert!(driver.graph_clone(context, graph).is_err(), "such graphs cannot be copied");
        let exec = fixture.instantiate(graph);
        for _ in 0..2 {
            fixture.set(fixture.stream, block, 0, 4).unwrap();
            fixture.launch(exec);
            assert_eq!(fixture.read(block, 4), [expected; 4], "{kind:?} with {value}");
        }
    }
}
