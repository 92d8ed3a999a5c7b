//! Tests of a GPU's activity records through CUPTI, which must be installed.
//!
//! Safety, everywhere in this file: the arguments match the kernels' parameters, and memory in use is kept until the
//! stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

mod bench;

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::driver::activity::{
    ActivityError, ActivityLoss, ActivityOptions, ActivityPlace, ActivityWait,
};
use warpsmith_runtime::driver::{CaptureMode, LaunchConfig, NodeHandle, NodeInfo, NodeWork};

use self::bench::{
    Bench, Kept, MILLISECOND, Records, begins_after_its_call, calls, cupti, has_all_work, one_block,
    this_thread, work,
};

#[test]
#[ignore = "needs a GPU"]
fn kernels_copies_and_memsets_are_recorded() {
    let bench = Bench::new();
    let (records, started) = bench.start(cupti());
    println!("{started:?}");
    assert!(started.source.contains("CUPTI"), "{started:?}");
    let config = LaunchConfig::new([7, 5, 3], [32, 4, 2], 2048);
    bench.spin(bench.fixture.stream, config, 50_000);
    bench.spin(bench.fixture.other, one_block(), 20_000);
    let transfers = work(&bench);
    let streams = [bench.stream(bench.fixture.stream), bench.stream(bench.fixture.other)];
    assert_ne!(streams[0], streams[1]);
    let (kept, loss) = bench.stop(&records);
    assert_eq!(loss, ActivityLoss::default());
    println!("work begins {} ns after its call at least", begins_after_its_call(&kept));
    has_all_work(&kept, streams[0], &transfers);
    let kernels: Vec<_> = kept
        .iter()
        .filter_map(|record| match record {
            Kept::Kernel { start, end, place, symbol, config, registers } => {
                assert_eq!((symbol.as_str(), place.graph, place.node), ("warpsmith_spin", 0, 0));
                assert_eq!(place.device, bench.fixture.device.id().ordinal());
                assert!(*registers > 0);
                Some((place.stream, *config, end - start))
            }
            _ => None,
        })
        .collect();
    assert_eq!(kernels.len(), 2, "{kernels:?}");
    for (stream, config, minimum) in [(streams[0], config, 50_000), (streams[1], one_block(), 20_000)] {
        let of = kernels.iter().find(|kernel| kernel.0 == stream).expect("a kernel on each stream");
        assert!(of.1 == config && of.2 >= minimum && of.2 < minimum + MILLISECOND, "{of:?}");
    }
    let functions: BTreeSet<String> = calls(&kept).into_values().map(|call| call.3).collect();
    for function in ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuStreamSynchronize"] {
        assert!(functions.contains(function), "{functions:?}");
    }
    assert!(
        !functions.iter().any(|function| function.contains("Get")),
        "only what enqueues or waits: {functions:?}"
    );
}

#[test]
#[ignore = "needs a GPU"]
fn all_calls_are_recorded_on_request() {
    let bench = Bench::new();
    let (records, _) = bench.start(ActivityOptions { all_calls: true, ..cupti() });
    bench.fixture.driver().memory_info(bench.fixture.context()).unwrap();
    let (kept, _) = bench.stop(&records);
    assert!(calls(&kept).values().any(|call| call.3.starts_with("cuMemGetInfo")));
}

#[test]
#[ignore = "needs a GPU"]
fn waits_are_recorded_with_their_stream() {
    let bench = Bench::new();
    let fixture = &bench.fixture;
    let (records, _) = bench.start(cupti());
    bench.spin(fixture.stream, one_block(), MILLISECOND);
    fixture.order(fixture.stream, fixture.other);
    fixture.wait();
    let stream = bench.stream(fixture.stream);
    let (kept, _) = bench.stop(&records);
    let waits: Vec<_> = kept
        .iter()
        .filter_map(|record| match record {
            Kept::Wait { start, end, place, kind } => Some((*kind, place.stream, end - start)),
            _ => None,
        })
        .collect();
    let for_stream = waits.iter().find(|wait| wait.0 == ActivityWait::HostForStream && wait.1 == stream);
    let long = MILLISECOND / 2..20 * MILLISECOND;
    assert!(for_stream.is_some_and(|wait| long.contains(&wait.2)), "{waits:?}");
    assert!(waits.iter().any(|wait| wait.0 == ActivityWait::HostForDevice), "{waits:?}");
    assert!(waits.iter().any(|wait| wait.0 == ActivityWait::StreamForEvent), "{waits:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn nodes_of_graphs_are_numbered() {
    let bench = Bench::new();
    let fixture = &bench.fixture;
    let block = fixture.block(&[0; 4096]);
    let (records, _) = bench.start(cupti());
    fixture.begin(CaptureMode::ThreadLocal);
    for _ in 0..3 {
        bench.spin(fixture.stream, one_block(), 10_000);
    }
    fixture.set(fixture.stream, block, 3, 4096).unwrap();
    let exec = fixture.instantiate(fixture.end().unwrap());
    fixture.launch(exec);
    fixture.launch(exec);
    fixture.wait();
    let (kept, loss) = bench.stop(&records);
    assert_eq!(loss, ActivityLoss::default());
    begins_after_its_call(&kept);
    let calls = calls(&kept);
    let mut launches: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for (start, _, place) in kept.iter().filter_map(Kept::on_device) {
        assert!(place.graph != 0 && place.node != 0, "{place:?}");
        assert!(calls[&place.correlation].3.starts_with("cuGraphLaunch"));
        launches.entry(place.correlation).or_default().push((start, place.node));
    }
    let nodes: Vec<Vec<u64>> = launches
        .into_values()
        .map(|mut nodes| {
            nodes.sort();
            nodes.into_iter().map(|(_, node)| node).collect()
        })
        .collect();
    println!("{nodes:x?}");
    assert_eq!((nodes.len(), nodes[0].len()), (2, 4), "both launches have the correlation of their call");
    assert_eq!(nodes[0], nodes[1]);
    assert!(
        nodes[0].windows(2).all(|pair| pair[0] < pair[1]),
        "in the order in which they were made: {nodes:x?}"
    );
}

#[test]
#[ignore = "needs a GPU"]
fn executables_keep_the_lower_half_of_node_numbers() {
    let bench = Bench::new();
    let fixture = &bench.fixture;
    let (driver, context) = (fixture.driver(), fixture.context());
    let block = fixture.block(&[0; 4096]);
    let number = |node: NodeHandle| driver.activity_node(context, node).unwrap();
    let (records, _) = bench.start(cupti());
    // The graph contains a child of two memsets between kernels, one after the other.
    fixture.begin(CaptureMode::ThreadLocal);
    (0..2).for_each(|value| fixture.set(fixture.stream, block, value, 4096).unwrap());
    let child = fixture.end().unwrap();
    let graph = driver.graph_create(context).unwrap();
    let nanoseconds = 10_000u64;
    let arguments = [(&raw const nanoseconds).cast::<c_void>()];
    let spin = NodeWork::Kernel { function: bench.spin, config: one_block(), args: &arguments };
    let mut nodes: Vec<NodeHandle> = Vec::new();
    for work in [spin, NodeWork::Empty, NodeWork::Child(child), spin, spin] {
        let after = nodes.last().copied();
        nodes.push(unsafe { driver.graph_add(context, graph, after.as_slice(), work) }.unwrap());
    }
    let NodeInfo::Child(copy) = fixture.info(nodes[2]) else { panic!("no child") };
    let (own, of_child): (Vec<u64>, Vec<u64>) = (
        nodes.iter().map(|node| number(*node)).collect(),
        fixture.nodes(copy).into_iter().map(number).collect(),
    );
    let execs = [fixture.instantiate(graph), fixture.instantiate(graph)];
    let numbers = execs.map(|exec| driver.activity_exec(context, exec).unwrap());
    let low = |number: &u64| *number as u32;
    // The nodes of the child are numbered after those of the graph.
    let after = own.iter().map(low).max().unwrap() + 1;
    let wanted = [low(&own[0]), after, after + 1, low(&own[3]), low(&own[4])];
    assert!(of_child[0] < of_child[1]);
    for exec in execs {
        fixture.launch(exec);
        fixture.wait();
    }
    let (kept, loss) = bench.stop(&records);
    assert_eq!(loss, ActivityLoss::default());
    let mut seen: Vec<(u64, ActivityPlace)> =
        kept.iter().filter_map(Kept::on_device).map(|(start, _, place)| (start, place)).collect();
    seen.sort_by_key(|(start, _)| *start);
    println!("graph {own:x?}, child {of_child:x?}, executables {numbers:x?}, records {seen:x?}");
    assert_eq!(seen.len(), 10);
    for (seen, exec) in seen.chunks(5).zip(numbers) {
        let nodes: Vec<u64> = seen.iter().map(|(_, place)| place.node).collect();
        assert_eq!(nodes.iter().map(low).collect::<Vec<u32>>(), wanted);
        assert!(nodes.iter().all(|node| node >> 32 == u64::from(exec)), "{nodes:x?} of {exec:x}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn recordings_are_repeated_without_mixing() {
    let bench = Bench::new();
    for round in 1..=3 {
        let (records, _) = bench.start(cupti());
        for _ in 0..round * 10_000 {
            bench.spin(bench.fixture.stream, one_block(), 0);
        }
        let (kept, loss) = bench.stop(&records);
        let kernels = kept.iter().filter(|record| matches!(record, Kept::Kernel { .. })).count();
        assert_eq!((kernels, loss), (round * 10_000, ActivityLoss::default()));
        begins_after_its_call(&kept);
        bench.spin(bench.fixture.stream, one_block(), 0);
        bench.fixture.wait();
        assert!(records.kept.lock().unwrap().is_empty(), "nothing comes after the end");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_second_recording_is_refused() {
    let bench = Bench::new();
    let (records, _) = bench.start(cupti());
    let again = bench.fixture.driver().activity_start(&cupti(), Arc::new(Records::default()));
    assert_eq!(again.unwrap_err(), ActivityError::Recording);
    bench.spin(bench.fixture.stream, one_block(), 0);
    let (kept, _) = bench.stop(&records);
    assert!(kept.iter().any(|record| matches!(record, Kept::Kernel { .. })), "the first goes on");
}

#[test]
#[ignore = "needs a GPU"]
fn starved_buffers_are_counted() {
    const LAUNCHES: usize = 20_000;
    let bench = Bench::new();
    let slow = Records { delay: Duration::from_micros(200), ..Records::default() };
    let (records, _) = bench.start_with(ActivityOptions { memory: 64 << 10, ..cupti() }, slow);
    for _ in 0..LAUNCHES {
        bench.spin(bench.fixture.stream, one_block(), 0);
    }
    let (kept, loss) = bench.stop(&records);
    println!("{} records, {loss:?}", kept.len());
    assert!(loss.refused_buffers > 0 && loss.dropped > 0, "{loss:?}");
    let launch = |record: &&Kept| match record {
        Kept::Kernel { .. } => true,
        Kept::Call { function, .. } => function == "cuLaunchKernel",
        _ => false,
    };
    let recorded = kept.iter().filter(launch).count() as u64;
    let known = recorded + loss.dropped + loss.zero_time;
    assert!(known >= 2 * LAUNCHES as u64, "{recorded} records of launches, {loss:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn calls_name_the_part_of_the_program() {
    let bench = Bench::new();
    let driver = bench.fixture.driver();
    let (records, _) = bench.start(cupti());
    let config = |threads| LaunchConfig::new([1; 3], [threads, 1, 1], 0);
    driver.activity_push(71);
    bench.spin(bench.fixture.stream, config(32), 0);
    driver.activity_push(72);
    bench.spin(bench.fixture.stream, config(64), 0);
    driver.activity_pop();
    bench.spin(bench.fixture.stream, config(96), 0);
    driver.activity_pop();
    bench.spin(bench.fixture.stream, config(128), 0);
    let (kept, _) = bench.stop(&records);
    let parts: HashMap<u64, u64> = kept
        .iter()
        .filter_map(|record| match record {
            Kept::Inside { correlation, id } => Some((*correlation, *id)),
            _ => None,
        })
        .collect();
    for (threads, part) in [(32, Some(71)), (64, Some(72)), (96, Some(71)), (128, None)] {
        let correlation = kept.iter().find_map(|record| match record {
            Kept::Kernel { config, place, .. } if config.block[0] == threads => Some(place.correlation),
            _ => None,
        });
        assert_eq!(parts.get(&correlation.unwrap()).copied(), part, "{threads} threads: {kept:#?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn calls_have_the_number_of_their_thread() {
    let bench = Bench::new();
    let (records, _) = bench.start(cupti());
    let (driver, context) = unsafe { bench.fixture.device.driver() };
    let (spin, stream) = (bench.spin, bench.fixture.stream);
    let launch = || {
        for _ in 0..1000 {
            let nanoseconds = 0u64;
            let arguments = [(&raw const nanoseconds).cast::<c_void>()];
            unsafe { driver.launch(context, spin, &one_block(), &arguments, stream) }.unwrap();
        }
        this_thread()
    };
    let threads: BTreeSet<u64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(launch)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (kept, loss) = bench.stop(&records);
    let calls = calls(&kept);
    let kernels = kept.iter().filter_map(Kept::on_device).map(|(_, _, place)| calls[&place.correlation].2);
    let mut by_thread: HashMap<u64, u32> = HashMap::new();
    kernels.for_each(|thread| *by_thread.entry(thread).or_default() += 1);
    assert_eq!(by_thread, threads.into_iter().map(|thread| (thread, 1000)).collect());
    assert_eq!(loss, ActivityLoss::default());
}

#[cfg(unix)]
#[test]
#[ignore = "needs a GPU"]
fn a_forked_child_cannot_record() {
    let bench = Bench::new();
    let (records, _) = bench.start(cupti());
    // SAFETY: the child calls only functions that acquire no lock of another thread, and then exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let driver = bench.fixture.driver();
        driver.activity_push(1);
        driver.activity_pop();
        let refused = [
            driver.activity_start(&cupti(), Arc::new(Records::default())).map(|_| ()),
            driver.activity_flush(),
            driver.activity_stop().map(|_| ()),
        ];
        let right = refused.iter().all(|result| matches!(result, Err(ActivityError::Forked)));
        // SAFETY: the call exits the child without running destructors.
        unsafe { libc::_exit(if right { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local variable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:x}");
    bench.spin(bench.fixture.stream, one_block(), 0);
    let (kept, _) = bench.stop(&records);
    let kernels = kept.iter().filter(|record| matches!(record, Kept::Kernel { .. })).count();
    assert_eq!(kernels, 1, "the parent goes on");
}
