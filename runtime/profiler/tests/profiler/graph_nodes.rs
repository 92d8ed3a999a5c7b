//! Nodes of graphs in traces: each has the range and the source line in which it was captured or added.

use std::collections::BTreeSet;
use std::sync::mpsc;

use warpsmith_profiler::trace::Trace;
use warpsmith_profiler::{Profiler, ProfilerOptions};
use warpsmith_ranges::range;
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, Error, Graph, GraphExec, Launch, Stream, TypedKernel,
};

use crate::alone::only_alone;
use crate::common::*;
use crate::rig::*;

/// A device of each kind of time, with a stream and a kernel.
fn rigs() -> [(Device, Stream, TypedKernel<Mix>); 2] {
    let (_, real) = device();
    let (_, simulated) = simulated();
    [real, simulated].map(|device| {
        let stream = Stream::new(&device).unwrap();
        let kernel = module(&device).kernel().unwrap();
        (device, stream, kernel)
    })
}

fn record(device: &Device) -> Profiler {
    ProfilerOptions::default().device(device).start().unwrap()
}

fn launch(exec: &GraphExec, stream: &Stream) {
    let _range = range!("launches");
    exec.launch(stream).unwrap();
    stream.synchronize().unwrap();
}

/// Where each kernel, copy and memset of a graph comes from, in the order of their beginning: its range and line in this file.
fn origins(trace: &Trace) -> Vec<(String, u32)> {
    let kernels = trace.kernels.iter().map(|kernel| (kernel.start, kernel.node, kernel.range, kernel.line));
    let copies = trace.transfers.iter().map(|copy| (copy.start, copy.node, copy.range, copy.line));
    let mut work: Vec<_> = kernels.chain(copies).filter(|(_, node, ..)| *node != 0).collect();
    work.sort();
    let name = |range: u64| {
        let found = trace.ranges.iter().find(|known| known.id == range);
        found.map_or(String::new(), |range| text(trace, range.name))
    };
    let line = |line| {
        let line = text(trace, line);
        line.strip_prefix(concat!(file!(), ":")).map_or(0, |line| line.parse().unwrap())
    };
    work.into_iter().map(|(_, _, range, at)| (name(range), line(at))).collect()
}

fn at<const N: usize>(places: [(&str, u32); N]) -> Vec<(String, u32)> {
    places.map(|(range, line)| (range.to_owned(), line)).to_vec()
}

/// What the trace says of nodes whose place it does not know.
fn unknown(trace: &Trace) -> Option<&String> {
    trace.definitions.about.get("records of graph nodes without a place of capture")
}

fn again(once: &[(String, u32)], times: usize) -> Vec<(String, u32)> {
    once.iter().cycle().take(times * once.len()).cloned().collect()
}

#[test]
fn captured_nodes_have_range_and_line_of_their_capture() {
    only_alone!();
    for (device, stream, kernel) in rigs() {
        let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).unwrap();
        let line = line!();
        let outer = range!("outer");
        stream.memset(&mut y, 1).unwrap();
        {
            let _inner = range!("inner");
            kernel.launch(&stream, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
        }
        drop(outer);
        stream.copy(&x, &mut y).unwrap();
        let exec = capture.end().unwrap().instantiate().unwrap();
        (0..3).for_each(|_| launch(&exec, &stream));
        let trace = profiler.stop().unwrap();
        check(&trace);
        let once = at([("outer", line + 2), ("inner", line + 5), ("launches", line + 8)]);
        assert_eq!(origins(&trace), again(&once, 3));
        assert!(unknown(&trace).is_none());
        let summary = trace.summary();
        let row = |name: &str| summary.ranges.iter().find(|row| row.name == name).unwrap();
        let launches = ["outer", "inner", "launches"].map(|name| row(name).launches);
        assert_eq!(launches, [6, 3, 3], "a node captured outside of ranges is of that of its launch");
        let of_line = format!("{}:{}", file!(), line + 5);
        assert!(summary.lines.iter().any(|row| row.name == of_line && row.count == 3), "{:?}", summary.lines);
    }
}

#[test]
fn added_nodes_have_range_and_line() {
    only_alone!();
    for (device, stream, kernel) in rigs() {
        let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let mut graph = Graph::new(&device).unwrap();
        let line = line!();
        let set = graph.add_memset(&mut y, 1, &[]).unwrap();
        let empty = graph.add_empty(&[set]).unwrap();
        {
            let _built = range!("built");
            graph.add_kernel(&kernel, Launch::grid_block(2, 32), (5, &x, &mut y), &[empty]).unwrap();
            graph.add_host_function(|| (), &[]).unwrap();
        }
        graph.add_copy(&x, &mut y, &[]).unwrap();
        let exec = graph.instantiate().unwrap();
        drop(graph);
        (0..2).for_each(|_| launch(&exec, &stream));
        let trace = profiler.stop().unwrap();
        check(&trace);
        let once = at([("launches", line + 1), ("built", line + 5), ("launches", line + 8)]);
        assert_eq!(origins(&trace), again(&once, 2));
    }
}

#[test]
fn nodes_that_are_added_to_a_capture_join_it() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let captured = Graph::capture(&stream, || stream.memset(&mut y, 1));
        let mut graph = captured.unwrap();
        graph.add_memset(&mut y, 2, &[]).unwrap();
        launch(&graph.instantiate().unwrap(), &stream);
        let trace = profiler.stop().unwrap();
        assert_eq!(origins(&trace), at([("launches", line + 1), ("launches", line + 3)]));
    }
}

#[test]
fn clones_and_children_keep_where_they_come_from() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let inner = Graph::capture(&stream, || {
            let _range = range!("inner");
            stream.memset(&mut y, 1)
        });
        let mut middle = Graph::new(&device).unwrap();
        middle.add_child(&inner.unwrap(), &[]).unwrap();
        middle.add_memset(&mut y, 2, &[]).unwrap();
        let mut outer = middle.try_clone().unwrap();
        drop(middle);
        outer.add_child(&outer.try_clone().unwrap(), &[]).unwrap();
        outer.add_memset(&mut y, 3, &[]).unwrap();
        let exec = outer.instantiate().unwrap();
        drop(outer);
        (0..2).for_each(|_| launch(&exec, &stream));
        let trace = profiler.stop().unwrap();
        check(&trace);
        let middle = [("inner", line + 3), ("launches", line + 7)];
        let once = at([middle[0], middle[1], middle[0], middle[1], ("launches", line + 11)]);
        assert_eq!(origins(&trace), again(&once, 2));
    }
}

#[test]
fn conditional_parts_keep_where_they_come_from() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let then = Graph::capture(&stream, || stream.memset(&mut y, 1)).unwrap();
        let otherwise = Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap();
        let mut graph = Graph::new(&device).unwrap();
        for value in [1, 0] {
            let condition = graph.add_condition(Some(value)).unwrap();
            graph.add_if_else(&condition, &then, &otherwise).unwrap();
        }
        launch(&graph.instantiate().unwrap(), &stream);
        let trace = profiler.stop().unwrap();
        assert_eq!(origins(&trace), at([("launches", line + 1), ("launches", line + 2)]));
    }
}

#[test]
fn each_executable_of_a_graph_has_its_nodes() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let mut graph = Graph::capture(&stream, || stream.memset(&mut y, 1)).unwrap();
        let first = graph.instantiate().unwrap();
        graph.add_memset(&mut y, 2, &[]).unwrap();
        let second = graph.instantiate().unwrap();
        drop(graph);
        [&second, &first, &second].into_iter().for_each(|exec| launch(exec, &stream));
        drop(first);
        let graph = Graph::capture(&stream, || stream.memset(&mut y, 3)).unwrap();
        launch(&graph.instantiate().unwrap(), &stream);
        let trace = profiler.stop().unwrap();
        let lines: Vec<u32> = origins(&trace).into_iter().map(|(_, at)| at - line).collect();
        assert_eq!(lines, [1, 3, 1, 1, 3, 8]);
    }
}

#[test]
fn an_update_brings_the_places_of_the_other_graph() {
    only_alone!();
    for (device, stream, kernel) in rigs() {
        let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let before = Graph::capture(&stream, || stream.memset(&mut y, 1)).unwrap();
        let after = Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap();
        let other = Graph::capture(&stream, || kernel.launch(&stream, Launch::auto(50), (5, &x, &mut y)));
        let mut exec = before.instantiate().unwrap();
        launch(&exec, &stream);
        exec.update(&after).unwrap();
        launch(&exec, &stream);
        exec.update(&other.unwrap()).unwrap_err();
        launch(&exec, &stream);
        exec.update(&before).unwrap();
        launch(&exec, &stream);
        let trace = profiler.stop().unwrap();
        let lines: Vec<u32> = origins(&trace).into_iter().map(|(_, at)| at - line).collect();
        assert_eq!(lines, [1, 2, 2, 1]);
    }
}

#[test]
fn a_node_with_other_arguments_stays_where_it_was_added() {
    only_alone!();
    for (device, stream, kernel) in rigs() {
        let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let mut graph = Graph::new(&device).unwrap();
        let line = line!() + 1;
        let node = graph.add_kernel(&kernel, Launch::auto(50), (5, &x, &mut y), &[]).unwrap();
        let mut exec = graph.instantiate().unwrap();
        launch(&exec, &stream);
        exec.set_kernel(&node, &kernel, Launch::grid_block(7, 32), (6, &x, &mut y)).unwrap();
        launch(&exec, &stream);
        let trace = profiler.stop().unwrap();
        assert_eq!(origins(&trace), at([("launches", line), ("launches", line)]));
        assert_eq!(trace.kernels[1].grid, [7, 1, 1]);
    }
}

#[test]
fn streams_and_threads_of_a_capture_have_their_own_places() {
    only_alone!();
    for (device, first, _) in rigs() {
        let second = Stream::new(&device).unwrap();
        let mut x = DeviceBuffer::<u32>::zeros(&first, 50).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&second, 50).unwrap();
        device.synchronize().unwrap();
        let profiler = record(&device);
        let line = line!();
        let capture = Capture::begin(&first, CaptureMode::Relaxed).unwrap();
        let _range = range!("of this thread");
        first.memset(&mut x, 1).unwrap();
        second.wait_stream(&first).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _range = range!("of the other");
                second.memset(&mut y, 2).unwrap();
            });
        });
        first.wait_stream(&second).unwrap();
        first.copy(&x, &mut y).unwrap();
        let exec = capture.end().unwrap().instantiate().unwrap();
        launch(&exec, &first);
        let trace = profiler.stop().unwrap();
        let places =
            [("of this thread", line + 3), ("of the other", line + 8), ("of this thread", line + 12)];
        assert_eq!(origins(&trace), at(places));
    }
}

#[test]
fn captures_at_the_same_time_are_kept_apart() {
    only_alone!();
    let (_, device) = device();
    let profiler = record(&device);
    let one = |name: &'static str| {
        let stream = Stream::new(&device).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        for _ in 0..50 {
            let graph = Graph::capture(&stream, || {
                let _range = range!("{name}");
                (0..4).try_for_each(|value| stream.memset(&mut y, value))
            });
            graph.unwrap().instantiate().unwrap().launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
        (name, stream.id())
    };
    std::thread::scope(|scope| {
        let threads = ["a", "b", "c"].map(|name| scope.spawn(move || one(name)));
        threads.into_iter().for_each(|thread| _ = thread.join().unwrap());
    });
    let trace = profiler.stop().unwrap();
    check(&trace);
    let range = |id: u64| trace.ranges.iter().find(|range| range.id == id).unwrap();
    let nodes: Vec<_> = trace.transfers.iter().filter(|memset| memset.node != 0).collect();
    assert_eq!(nodes.len(), 600);
    for memset in &nodes {
        let call = trace.calls.iter().find(|call| call.correlation == memset.correlation).unwrap();
        assert_eq!(call.thread, range(memset.range).thread, "captured and launched by the same thread");
    }
    let ranges: BTreeSet<u64> = nodes.iter().map(|memset| memset.range).collect();
    assert_eq!(ranges.len(), 150, "each capture has a range of its own");
}

#[test]
fn an_abandoned_capture_leaves_nothing() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let abandoned = Capture::begin(&stream, CaptureMode::ThreadLocal).unwrap();
        stream.memset(&mut y, 1).unwrap();
        drop(abandoned);
        let failed = Graph::capture(&stream, || {
            stream.memset(&mut y, 1)?;
            stream.synchronize()
        });
        assert!(matches!(failed, Err(Error::Graph(_))), "{failed:?}");
        let line = line!() + 1;
        let graph = Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap();
        launch(&graph.instantiate().unwrap(), &stream);
        let trace = profiler.stop().unwrap();
        check(&trace);
        assert_eq!(origins(&trace), at([("launches", line)]));
    }
}

#[test]
fn work_of_libraries_in_a_capture_does_not_shift_others() {
    only_alone!();
    for (device, stream, _) in rigs() {
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = record(&device);
        let line = line!();
        let graph = Graph::capture(&stream, || {
            let uses = [y.as_mut_slice().used()];
            // SAFETY: it accesses nothing.
            unsafe { stream.enqueue_host_named("blas::gemm", &uses, || ()) }?;
            stream.graph_function(|| ())?;
            stream.memset(&mut y, 2)
        });
        launch(&graph.unwrap().instantiate().unwrap(), &stream);
        let trace = profiler.stop().unwrap();
        assert_eq!(origins(&trace), at([("launches", line + 6)]));
    }
}

#[test]
fn a_graph_launched_often_repeats_no_texts() {
    only_alone!();
    let (_, device, stream) = rig();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let mut texts = |launches: usize| {
        let profiler = record(&device);
        let graph = Graph::capture(&stream, || {
            let _range = range!("captured");
            stream.memset(&mut y, 1)
        });
        let exec = graph.unwrap().instantiate().unwrap();
        (0..launches).for_each(|_| exec.launch(&stream).unwrap());
        let trace = profiler.stop().unwrap();
        assert_eq!(trace.transfers.len(), launches);
        trace.definitions.names.len()
    };
    texts(1);
    let few = texts(1);
    assert_eq!(texts(1000), few);
}

#[test]
fn a_file_has_the_places_too() {
    only_alone!();
    let (_, device, stream) = rig();
    let folder = std::env::temp_dir().join(format!("warpsmith-profiler-nodes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("trace.pftrace");
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = ProfilerOptions::default().device(&device).to_file(&path).unwrap();
    let (sender, receiver) = mpsc::channel();
    let line = line!() + 4;
    // What was captured is long written when it is launched on another thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let graph = Graph::capture(&stream, || stream.memset(&mut y, 1));
            sender.send(graph.unwrap().instantiate().unwrap()).unwrap();
        });
    });
    std::thread::sleep(std::time::Duration::from_millis(1200));
    launch(&receiver.recv().unwrap(), &stream);
    profiler.finish().unwrap();
    let trace = Trace::read(&path).unwrap().trace;
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(origins(&trace), at([("launches", line)]));
}
