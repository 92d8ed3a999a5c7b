//! Programs that launch graphs. In the trace, each node must have the range and the source line where it was captured
//! or added.

use warpsmith_profiler::trace::{Trace, Transfer};
use warpsmith_profiler::{Profiler, ProfilerOptions};
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::ranges::range;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, Error, Graph, GraphExec, Launch, Stream, TypedKernel,
};

use crate::fixture::*;
use crate::kernels::{IMAGE, Spin};

/// Device with a stream and a kernel.
pub struct Fixture {
    pub device: Device,
    pub stream: Stream,
    pub kernel: TypedKernel<Spin>,
}

impl Fixture {
    pub fn of(device: Device) -> Self {
        let stream = Stream::new(&device).unwrap();
        let kernel = device.load(&IMAGE).unwrap().kernel().unwrap();
        Self { device, stream, kernel }
    }
}

/// Returns a launch of two blocks that run for some microseconds.
fn two() -> Launch {
    Launch::grid_block(2, 32)
}

pub fn record(device: &Device) -> Profiler {
    ProfilerOptions::default().device(device).start().unwrap()
}

pub fn launch(exec: &GraphExec, stream: &Stream) {
    let _range = range!("launches");
    exec.launch(stream).unwrap();
    stream.synchronize().unwrap();
}

/// Returns the range and the source line (within these tests) of each kernel, copy and memset of a graph, ordered by
/// start time.
pub fn origins(trace: &Trace) -> Vec<(String, u32)> {
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
        let of_tests = line.rsplit_once(':').filter(|(file, _)| file.contains("tests/profiler/"));
        of_tests.map_or(0, |(_, line)| line.parse().unwrap())
    };
    work.into_iter().map(|(_, _, range, at)| (name(range), line(at))).collect()
}

pub fn at<const N: usize>(places: [(&str, u32); N]) -> Vec<(String, u32)> {
    places.map(|(range, line)| (range.to_owned(), line)).to_vec()
}

/// Returns the trace's fact about nodes whose place is unknown.
pub fn unknown(trace: &Trace) -> Option<&String> {
    trace.definitions.about.get("records of graph nodes")
}

pub fn again(once: &[(String, u32)], times: usize) -> Vec<(String, u32)> {
    once.iter().cycle().take(times * once.len()).cloned().collect()
}

pub fn captured_nodes_have_range_and_line_of_their_capture(fixture: Fixture) {
    let Fixture { device, stream, kernel } = fixture;
    let x = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = record(&device);
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).unwrap();
    let line = line!();
    let outer = range!("outer");
    stream.memset(&mut y, 1).unwrap();
    {
        let _inner = range!("inner");
        kernel.launch(&stream, two(), (3_000,)).unwrap();
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
    assert!(trace.kernels.iter().all(|kernel| text(&trace, kernel.captured_in) == "outer > inner"));
    let outer = |copy: &&Transfer| text(&trace, copy.captured_in) == "outer";
    assert_eq!(trace.transfers.iter().filter(outer).count(), 3, "those after its end are not of it");
    let summary = trace.summary();
    let row = |name: &str| summary.ranges.iter().find(|row| row.name == name).unwrap();
    let launches = ["outer", "inner", "launches"].map(|name| row(name).launches);
    assert_eq!(launches, [6, 3, 3], "a node captured outside of ranges is of that of its launch");
    let of_line = format!("{}:{}", file!(), line + 5);
    assert!(summary.lines.iter().any(|row| row.name == of_line && row.count == 3), "{:?}", summary.lines);
}

pub fn added_nodes_have_range_and_line(fixture: Fixture) {
    let Fixture { device, stream, kernel } = fixture;
    let x = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = record(&device);
    let mut graph = Graph::new(&device).unwrap();
    let host;
    let line = line!();
    let set = graph.add_memset(&mut y, 1, &[]).unwrap();
    let empty = graph.add_empty(&[set]).unwrap();
    {
        let _built = range!("built");
        let kernel = graph.add_kernel(&kernel, two(), (3_000,), &[empty]).unwrap();
        host = graph.add_host_function(|| (), &[kernel.node()]).unwrap();
    }
    graph.add_copy(&x, &mut y, &[host]).unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    (0..2).for_each(|_| launch(&exec, &stream));
    let trace = profiler.stop().unwrap();
    check(&trace);
    let once = at([("launches", line + 1), ("built", line + 5), ("launches", line + 8)]);
    assert_eq!(origins(&trace), again(&once, 2));
}

pub fn nodes_that_are_added_to_a_capture_join_it(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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

pub fn clones_and_children_keep_where_they_come_from(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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

pub fn conditional_parts_keep_where_they_come_from(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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

pub fn each_executable_of_a_graph_has_its_nodes(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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

pub fn an_update_brings_the_places_of_the_other_graph(fixture: Fixture) {
    let Fixture { device, stream, kernel } = fixture;
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = record(&device);
    let line = line!();
    let before = Graph::capture(&stream, || stream.memset(&mut y, 1)).unwrap();
    let after = Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap();
    let other = Graph::capture(&stream, || kernel.launch(&stream, two(), (3_000,)));
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

pub fn a_node_with_other_arguments_stays_where_it_was_added(fixture: Fixture) {
    let Fixture { device, stream, kernel } = fixture;
    let profiler = record(&device);
    let mut graph = Graph::new(&device).unwrap();
    let line = line!() + 1;
    let node = graph.add_kernel(&kernel, two(), (3_000,), &[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    launch(&exec, &stream);
    exec.set_kernel(&node, &kernel, Launch::grid_block(7, 32), (4_000,)).unwrap();
    launch(&exec, &stream);
    let trace = profiler.stop().unwrap();
    assert_eq!(origins(&trace), at([("launches", line), ("launches", line)]));
    assert_eq!(trace.kernels[1].grid, [7, 1, 1]);
}

pub fn streams_and_threads_of_a_capture_have_their_own_places(fixture: Fixture) {
    let Fixture { device, stream: first, .. } = fixture;
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
    let places = [("of this thread", line + 3), ("of the other", line + 8), ("of this thread", line + 12)];
    assert_eq!(origins(&trace), at(places));
}

pub fn an_abandoned_capture_leaves_nothing(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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

pub fn work_of_libraries_in_a_capture_has_its_line(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
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
    assert_eq!(origins(&trace), at([("launches", line + 4), ("launches", line + 6)]));
}

pub fn a_graph_captured_before_has_lines_and_says_so(fixture: Fixture) {
    let Fixture { device, stream, kernel } = fixture;
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let line = line!();
    let captured = Graph::capture(&stream, || {
        let _range = range!("nothing listens");
        kernel.launch(&stream, two(), (3_000,))
    });
    let mut graph = captured.unwrap();
    graph.add_memset(&mut y, 2, &[]).unwrap();
    let mut outer = Graph::new(&device).unwrap();
    outer.add_child(&graph, &[]).unwrap();
    let exec = outer.instantiate().unwrap();
    let profiler = record(&device);
    launch(&exec, &stream);
    let later = outer.instantiate().unwrap();
    drop((graph, outer));
    launch(&later, &stream);
    let trace = profiler.stop().unwrap();
    check(&trace);
    let once = at([("launches", line + 3), ("launches", line + 6)]);
    assert_eq!(origins(&trace), again(&once, 2));
    assert_eq!(text(&trace, trace.kernels[0].name), kernel.function().spec().name);
    let fact = "4 captured before the recording: range of the launch, line of the capture";
    assert_eq!(unknown(&trace).unwrap(), fact);
}

pub fn a_later_recording_knows_the_lines(fixture: Fixture) {
    let Fixture { device, stream, .. } = fixture;
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = record(&device);
    let line = line!() + 3;
    let captured = Graph::capture(&stream, || {
        let _range = range!("captured");
        stream.memset(&mut y, 1)
    });
    let exec = captured.unwrap().instantiate().unwrap();
    launch(&exec, &stream);
    let first = profiler.stop().unwrap();
    assert_eq!(origins(&first), at([("captured", line)]));
    let profiler = record(&device);
    launch(&exec, &stream);
    let second = profiler.stop().unwrap();
    assert_eq!(origins(&second), at([("launches", line)]));
    assert!(unknown(&second).unwrap().starts_with("1 captured before the recording"));
}
