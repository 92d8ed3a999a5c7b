//! Tests of driver calls for captures and graphs, on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated
//! device if it is not set. A missing device fails the tests.
//!
//! There is no kernel image here: kernels in graphs, and conditions set by kernels, are tested only on the emulated
//! driver (`driver/graph_kernels.rs`).
//!
//! Safety, everywhere in this file: memory that graphs name and functions that they call are kept until the stream has
//! been waited for, and handles are not used after they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::rig::*;
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
    let rig = Rig::new();
    let (a, b) = (rig.block(&[1; 64]), rig.block(&[2; 64]));
    let pinned = rig.driver().pinned_allocate(rig.context(), 64).unwrap();
    unsafe { pinned.cast::<u8>().write_bytes(0, 64) };

    rig.begin(CaptureMode::ThreadLocal);
    let CaptureStatus::Active(first) = rig.status(rig.stream) else { panic!("no capture") };
    rig.set(rig.stream, a, 7, 32).unwrap();
    rig.copy(rig.stream, b, a, 64);
    unsafe { rig.driver().copy_to_host(rig.context(), pinned, b, 64, rig.stream) }.unwrap();
    let graph = rig.end().unwrap();
    assert_eq!(rig.status(rig.stream), CaptureStatus::None);
    assert_eq!((rig.read(a, 64), rig.read(b, 64)), (vec![1; 64], vec![2; 64]));

    let nodes = rig.nodes(graph);
    let infos: Vec<_> = nodes.iter().map(|node| rig.info(*node)).collect();
    assert_eq!(
        infos,
        [NodeInfo::Set { bytes: 32 }, NodeInfo::Copy { bytes: 64 }, NodeInfo::Copy { bytes: 64 }]
    );
    assert_eq!(rig.edges(graph), [(nodes[0], nodes[1]), (nodes[1], nodes[2])]);

    let exec = rig.instantiate(graph);
    rig.destroy(graph);
    rig.driver().graph_upload(rig.context(), exec, rig.stream).unwrap();
    let expected = [[7; 32], [1; 32]].concat();
    for _ in 0..2 {
        rig.set(rig.stream, b, 0, 64).unwrap();
        rig.launch(exec);
        assert_eq!(rig.read(b, 64), expected);
        let host = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 64) };
        assert_eq!(host, expected);
    }

    rig.begin(CaptureMode::ThreadLocal);
    let CaptureStatus::Active(second) = rig.status(rig.stream) else { panic!("no capture") };
    assert_ne!(first, second);
    let empty = rig.end().unwrap();
    assert!(rig.nodes(empty).is_empty());
    rig.run(empty);
    unsafe { rig.driver().pinned_free(rig.context(), pinned) }.unwrap();
}

#[test]
fn tips_of_a_capture_are_its_last_nodes() {
    let rig = Rig::new();
    let (a, b) = (rig.block(&[0; 16]), rig.block(&[0; 16]));
    let tips = |stream| rig.driver().capture_tips(rig.context(), stream).unwrap();
    assert_eq!(tips(rig.stream), []);
    rig.begin(CaptureMode::ThreadLocal);
    assert_eq!((tips(rig.stream), tips(rig.other)), (vec![], vec![]));
    rig.set(rig.stream, a, 1, 16).unwrap();
    let first = tips(rig.stream);
    rig.order(rig.stream, rig.other);
    assert_eq!(tips(rig.other), first);
    rig.set(rig.other, b, 2, 16).unwrap();
    let second = tips(rig.other);
    assert_eq!(tips(rig.stream), first);
    rig.order(rig.other, rig.stream);
    let mut both = tips(rig.stream);
    both.retain(|tip| !first.contains(tip));
    assert_eq!(both, second, "a place that was waited for is one to come after");
    rig.copy(rig.stream, b, a, 8);
    let third = tips(rig.stream);
    let graph = rig.end().unwrap();
    assert_eq!([first, second, third].concat(), rig.nodes(graph));
    assert_eq!(tips(rig.stream), []);
    rig.destroy(graph);
}

#[test]
fn every_kind_of_copy_is_captured() {
    let rig = Rig::new();
    let (driver, context, stream) = (rig.driver(), rig.context(), rig.stream);
    let (a, b) = (rig.block(&[1, 2, 3, 4, 5, 6, 7, 8]), rig.block(&[0; 16]));
    let pinned = driver.pinned_allocate(context, 4).unwrap();
    unsafe { pinned.cast::<u8>().write_bytes(9, 4) };
    let rows = |dst, src| RowsCopy { dst, dst_pitch: 4, src, src_pitch: 2, row_bytes: 2, rows: 2 };
    rig.begin(CaptureMode::ThreadLocal);
    unsafe {
        driver.copy_to_device(context, a.offset(6), pinned, 2, stream).unwrap();
        driver.copy_rows(context, rows(Place::Device(b), Place::Device(a)), stream).unwrap();
        driver.copy_rows(context, rows(Place::Device(b.offset(8)), Place::Host(pinned)), stream).unwrap();
        driver.copy_peer(context, (context, b.offset(14)), (context, a.offset(5)), 2, stream).unwrap();
    }
    let graph = rig.end().unwrap();
    assert_eq!(rig.nodes(graph).len(), 4);
    assert_eq!(rig.read(b, 16), [0; 16]);
    rig.run(graph);
    assert_eq!(rig.read(b, 16), [1, 2, 0, 0, 3, 4, 0, 0, 9, 9, 0, 0, 9, 9, 6, 9]);
    unsafe { driver.pinned_free(context, pinned) }.unwrap();
}

#[test]
fn forked_streams_must_join_their_capture() {
    let rig = Rig::new();
    let (a, b) = (rig.block(&[0; 16]), rig.block(&[0; 16]));
    rig.begin(CaptureMode::ThreadLocal);
    assert_eq!(rig.status(rig.other), CaptureStatus::None);
    rig.set(rig.stream, a, 1, 16).unwrap();
    rig.order(rig.stream, rig.other);
    assert_eq!(rig.status(rig.other), rig.status(rig.stream));
    rig.copy(rig.other, b, a, 8);
    rig.set(rig.stream, a.offset(8), 2, 8).unwrap();
    rig.order(rig.other, rig.stream);
    rig.copy(rig.stream, b.offset(8), a.offset(8), 8);
    let graph = rig.end().unwrap();
    assert_eq!(rig.status(rig.other), CaptureStatus::None);

    let nodes = rig.nodes(graph);
    assert_eq!(nodes.len(), 4);
    let edges = rig.edges(graph);
    let count = |node: NodeHandle, from: bool| {
        edges.iter().filter(|edge| if from { edge.0 == node } else { edge.1 == node }).count()
    };
    let forks = nodes.iter().filter(|node| count(**node, true) == 2).count();
    let joins = nodes.iter().filter(|node| count(**node, false) == 2).count();
    assert_eq!((edges.len(), forks, joins), (4, 1, 1));
    rig.run(graph);
    assert_eq!(rig.read(b, 16), [[1; 8], [2; 8]].concat());

    rig.begin(CaptureMode::ThreadLocal);
    rig.order(rig.stream, rig.other);
    rig.set(rig.other, a, 1, 16).unwrap();
    assert_eq!(code(rig.end()), Some(UNJOINED));
    rig.runs_again();
}

#[test]
fn queries_of_captured_work_invalidate_the_capture() {
    let rig = Rig::new();
    let (driver, context, stream) = (rig.driver(), rig.context(), rig.stream);
    let event = rig.event();
    let block = rig.block(&[0; 4]);
    type Ask<'a> = (&'static str, Box<dyn Fn() -> Option<u32> + 'a>, u32);
    let asks: [Ask<'_>; 5] = [
        ("stream_query", Box::new(|| code(driver.stream_query(context, stream))), UNSUPPORTED),
        ("stream_synchronize", Box::new(|| code(driver.stream_synchronize(context, stream))), UNSUPPORTED),
        ("context_synchronize", Box::new(|| code(driver.context_synchronize(context))), UNSUPPORTED),
        ("event_query", Box::new(|| code(driver.event_query(context, event))), CAPTURED_EVENT),
        ("event_synchronize", Box::new(|| code(driver.event_synchronize(context, event))), CAPTURED_EVENT),
    ];
    for (name, ask, expected) in asks {
        rig.begin(CaptureMode::ThreadLocal);
        rig.set(stream, block, 1, 4).unwrap();
        rig.record(event, stream).unwrap();
        assert_eq!(ask(), Some(expected), "{name}");
        assert_eq!(code(rig.set(stream, block, 1, 4)), Some(INVALIDATED), "after {name}");
        rig.ends_invalidated();
    }
    assert_eq!(rig.read(block, 4), [0; 4]);
    rig.record(event, stream).unwrap();
    driver.event_synchronize(context, event).unwrap();
    unsafe { driver.event_destroy(context, event) };
}

#[test]
fn a_captured_stream_cannot_wait_for_work_outside() {
    let rig = Rig::new();
    let event = rig.event();
    rig.record(event, rig.other).unwrap();
    rig.begin(CaptureMode::ThreadLocal);
    let waited = rig.driver().stream_wait_event(rig.context(), rig.stream, event);
    assert_eq!(code(waited), Some(ISOLATION));
    rig.ends_invalidated();
    unsafe { rig.driver().event_destroy(rig.context(), event) };
}

#[test]
fn a_capture_ends_on_its_stream_and_thread() {
    let rig = Rig::new();
    let elsewhere = || {
        let (driver, context) = (Arc::clone(unsafe { rig.device.driver() }.0), rig.context());
        let stream = rig.stream;
        std::thread::spawn(move || driver.capture_end(context, stream)).join().unwrap()
    };
    for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
        rig.begin(mode);
        assert_eq!(code(elsewhere()), Some(WRONG_THREAD));
        assert!(!matches!(rig.status(rig.stream), CaptureStatus::Active(_)), "it is invalidated, or over");
        assert!(rig.end().is_err());
        rig.runs_again();
    }
    rig.begin(CaptureMode::Relaxed);
    rig.destroy(elsewhere().unwrap());

    rig.begin(CaptureMode::ThreadLocal);
    rig.order(rig.stream, rig.other);
    let ended = rig.driver().capture_end(rig.context(), rig.other);
    assert_eq!(code(ended), Some(UNMATCHED));
    // Whether that ended or invalidated the capture: no graph results, and the streams are free afterwards.
    assert!(rig.end().is_err());
    rig.runs_again();

    assert!(rig.end().is_err(), "there is none");
    rig.begin(CaptureMode::ThreadLocal);
    assert!(rig.driver().capture_begin(rig.context(), rig.stream, CaptureMode::ThreadLocal).is_err());
    let _ = rig.end();
    rig.runs_again();
}

#[test]
fn memory_can_be_allocated_and_freed_during_captures() {
    let rig = Rig::new();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        rig.begin(mode);
        let block = rig.driver().memory_allocate(rig.context(), 1000).unwrap();
        unsafe { rig.driver().memory_free(rig.context(), block) }.unwrap();
        let pinned = rig.driver().pinned_allocate(rig.context(), 1000).unwrap();
        unsafe { rig.driver().pinned_free(rig.context(), pinned) }.unwrap();
        rig.end().unwrap();
    }
}

#[test]
fn host_functions_are_called_in_order() {
    let rig = Rig::new();
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
    let outside = unsafe { rig.driver().capture_host_function(rig.context(), rig.stream, &functions[0]) };
    assert!(outside.is_err(), "there is no capture");

    rig.begin(CaptureMode::ThreadLocal);
    for function in &functions[..2] {
        unsafe { rig.driver().capture_host_function(rig.context(), rig.stream, function) }.unwrap();
    }
    let graph = rig.end().unwrap();
    let nodes = rig.nodes(graph);
    assert_eq!(nodes.iter().map(|node| rig.info(*node)).collect::<Vec<_>>(), [NodeInfo::Host; 2]);
    rig.add(graph, &nodes[1..], NodeWork::Host(&functions[2])).unwrap();
    let exec = rig.instantiate(graph);
    rig.launch(exec);
    rig.launch(exec);
    rig.wait();
    assert_eq!(*log.lock().unwrap_or_else(PoisonError::into_inner), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_graphs_function_cannot_call_the_driver() {
    let rig = Rig::new();
    let (driver, context, stream) = (Arc::clone(unsafe { rig.device.driver() }.0), rig.context(), rig.stream);
    let (codes, said) = channel();
    let function = GraphFunction::new(move || {
        let answers = [code(driver.memory_allocate(context, 8)), code(driver.stream_query(context, stream))];
        codes.send(answers).unwrap();
    });
    let graph = rig.graph();
    rig.add(graph, &[], NodeWork::Host(&function)).unwrap();
    rig.run(graph);
    assert_eq!(said.recv_timeout(Duration::from_secs(60)).unwrap(), [Some(800); 2]);
}

#[test]
fn nodes_follow_others_of_the_same_graph() {
    let rig = Rig::new();
    let (a, b) = (rig.block(&[1; 8]), rig.block(&[0; 8]));
    let mut host = [0u8; 8];
    let child = rig.graph();
    let filled = rig.add(child, &[], set(a.offset(4), 5, 4)).unwrap();

    let graph = rig.graph();
    let start = rig.add(graph, &[], NodeWork::Empty).unwrap();
    let first = rig.add(graph, &[start], set(a, 3, 2)).unwrap();
    let second = rig.add(graph, &[start], NodeWork::Child(child)).unwrap();
    let third = rig.add(graph, &[first, second], copy(b, a, 8)).unwrap();
    let (dst, src) = (Place::Host(host.as_mut_ptr().cast()), Place::Device(b));
    let last = rig.add(graph, &[third], NodeWork::Copy { dst, src, bytes: 8 }).unwrap();
    assert_eq!(rig.nodes(graph), [start, first, second, third, last]);
    let mut edges = rig.edges(graph);
    edges.sort();
    let mut expected = vec![(start, first), (start, second), (first, third), (second, third), (third, last)];
    expected.sort();
    assert_eq!(edges, expected);
    assert_eq!(rig.info(start), NodeInfo::Empty);
    let NodeInfo::Child(copied) = rig.info(second) else { panic!("no child") };
    assert!(copied != child && rig.nodes(copied).len() == 1, "the child is a copy");
    rig.add(child, &[filled], set(a, 100, 8)).unwrap();

    assert_eq!(code(rig.add(graph, &[filled], NodeWork::Empty)), Some(INVALID_VALUE), "of another graph");
    assert_eq!(code(rig.add(graph, &[start, start], NodeWork::Empty)), Some(INVALID_VALUE), "twice");
    assert_eq!(rig.nodes(graph).len(), 5);
    rig.run(graph);
    assert_eq!(host, [3, 3, 1, 1, 5, 5, 5, 5]);
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    let rig = Rig::new();
    let block = rig.block(&[0; 8]);
    let graph = rig.graph();
    let first = rig.add(graph, &[], set(block, 1, 8)).unwrap();
    let second = rig.add(graph, &[first], set(block, 2, 4)).unwrap();
    let clone = rig.driver().graph_clone(rig.context(), graph).unwrap();
    let later = rig.add(graph, &[second], set(block, 3, 8)).unwrap();
    let in_clone = |node| rig.driver().graph_node_in_clone(rig.context(), node, clone);
    let (copy_of_first, copy_of_second) = (in_clone(first).unwrap(), in_clone(second).unwrap());
    assert_eq!(rig.nodes(clone).len(), 2);
    assert!(rig.nodes(clone).contains(&copy_of_first) && copy_of_first != first);
    assert_eq!(rig.edges(clone), [(copy_of_first, copy_of_second)]);
    assert_eq!(code(in_clone(later)), Some(INVALID_VALUE), "it was added afterwards");
    rig.destroy(graph);
    rig.run(clone);
    assert_eq!(rig.read(block, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
}

#[test]
fn executables_take_new_parameters_and_no_new_form() {
    let rig = Rig::new();
    let (driver, context) = (rig.driver(), rig.context());
    let (a, b) = (rig.block(&[0; 8]), rig.block(&[0; 8]));
    let form = |value: u8, bytes: usize| {
        let graph = rig.graph();
        let first = rig.add(graph, &[], set(a, value, bytes)).unwrap();
        let second = rig.add(graph, &[first], copy(b, a, 8)).unwrap();
        (graph, first, second)
    };
    let (graph, fill, _) = form(1, 8);
    let exec = rig.instantiate(graph);
    rig.launch(exec);
    assert_eq!(rig.read(b, 8), [1; 8]);

    unsafe { driver.graph_exec_set(context, exec, fill, set(a, 2, 8)) }.unwrap();
    rig.launch(exec);
    assert_eq!(rig.read(b, 8), [2; 8]);
    unsafe { driver.graph_exec_set(context, exec, fill, copy(a, b, 8)) }.unwrap_err();
    unsafe { driver.graph_exec_set(context, exec, fill, NodeWork::Empty) }.unwrap_err();

    let (other, ..) = form(3, 4);
    let update = |graph| unsafe { driver.graph_exec_update(context, exec, graph) }.unwrap();
    assert_eq!(update(other), ExecUpdate::Done);
    rig.destroy(other);
    rig.launch(exec);
    assert_eq!(rig.read(b, 8), [3, 3, 3, 3, 2, 2, 2, 2]);
    // Nodes keep the names they had in the original graph.
    unsafe { driver.graph_exec_set(context, exec, fill, set(a, 4, 8)) }.unwrap();
    rig.launch(exec);
    assert_eq!(rig.read(b, 8), [4; 8]);

    let (longer, _, last) = form(5, 8);
    rig.add(longer, &[last], set(a, 6, 8)).unwrap();
    let unlike = rig.graph();
    let first = rig.add(unlike, &[], copy(b, a, 8)).unwrap();
    rig.add(unlike, &[first], set(a, 7, 8)).unwrap();
    let unordered = rig.graph();
    rig.add(unordered, &[], set(a, 8, 4)).unwrap();
    rig.add(unordered, &[], copy(b.offset(4), a.offset(4), 4)).unwrap();
    for graph in [longer, unlike, unordered] {
        let ExecUpdate::Refused { reason, .. } = update(graph) else { panic!("updated") };
        assert!(!reason.is_empty());
    }
    rig.launch(exec);
    assert_eq!(rig.read(b, 8), [4; 8], "it is as it was");
}

#[test]
fn a_launch_outlives_its_executable() {
    let rig = Rig::new();
    let block = rig.block(&[0; 4]);
    let (proceed, may_proceed) = channel::<()>();
    let may_proceed = Mutex::new(may_proceed);
    let function = GraphFunction::new(move || {
        let may_proceed = may_proceed.lock().unwrap_or_else(PoisonError::into_inner);
        may_proceed.recv_timeout(Duration::from_secs(60)).unwrap();
    });
    let graph = rig.graph();
    let first = rig.add(graph, &[], NodeWork::Host(&function)).unwrap();
    rig.add(graph, &[first], set(block, 6, 4)).unwrap();
    let exec = rig.instantiate(graph);
    rig.launch(exec);
    rig.destroy_exec(exec);
    rig.destroy(graph);
    proceed.send(()).unwrap();
    rig.wait();
    assert_eq!(rig.read(block, 4), [6; 4]);
}

#[test]
fn launches_of_one_executable_are_sequential() {
    let rig = Rig::new();
    let count = Arc::new(AtomicU32::new(0));
    let inner = Arc::clone(&count);
    let function = GraphFunction::new(move || {
        // Loses counts if two run concurrently.
        let before = inner.load(Ordering::Relaxed);
        (0..100).for_each(|_| std::thread::yield_now());
        inner.store(before + 1, Ordering::Relaxed);
    });
    let graph = rig.graph();
    rig.add(graph, &[], NodeWork::Host(&function)).unwrap();
    let exec = rig.instantiate(graph);
    for launch in 0..20 {
        let stream = if launch % 2 == 0 { rig.stream } else { rig.other };
        unsafe { rig.driver().graph_launch(rig.context(), exec, stream) }.unwrap();
    }
    rig.driver().context_synchronize(rig.context()).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 20);
}

#[test]
fn an_executable_is_not_launched_into_a_capture() {
    let rig = Rig::new();
    let block = rig.block(&[0; 8]);
    let inner = rig.graph();
    rig.add(inner, &[], set(block, 4, 4)).unwrap();
    let exec = rig.instantiate(inner);
    rig.begin(CaptureMode::ThreadLocal);
    let launched = unsafe { rig.driver().graph_launch(rig.context(), exec, rig.stream) };
    assert_eq!(code(launched), Some(UNSUPPORTED));
    // Whether that has invalidated the capture or not, it contains no part of the graph.
    let _ = rig.end().map(|graph| rig.destroy(graph));
    rig.runs_again();
    rig.launch(exec);
    assert_eq!(rig.read(block, 8), [4, 4, 4, 4, 0, 0, 0, 0]);
}

#[test]
fn conditions_choose_among_bodies() {
    let rig = Rig::new();
    let (driver, context) = (rig.driver(), rig.context());
    let block = rig.block(&[0; 4]);
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
        let graph = rig.graph();
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
        assert_eq!((rig.info(node), bodies.len()), (NodeInfo::Conditional, kind.bodies() as usize));
        for (number, body) in (1..).zip(&bodies) {
            assert!(rig.nodes(*body).is_empty());
            rig.add(*body, &[], set(block, number, 4)).unwrap();
        }
        assert!(driver.graph_clone(context, graph).is_err(), "such graphs cannot be copied");
        let exec = rig.instantiate(graph);
        for _ in 0..2 {
            rig.set(rig.stream, block, 0, 4).unwrap();
            rig.launch(exec);
            assert_eq!(rig.read(block, 4), [expected; 4], "{kind:?} with {value}");
        }
    }
}
