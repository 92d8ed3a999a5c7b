//! Nodes of graphs in traces of the emulated device, in real and in simulated time.

use std::collections::BTreeSet;
use std::sync::mpsc;

use warpsmith_profiler::ProfilerOptions;
use warpsmith_profiler::trace::Trace;
use warpsmith_runtime::ranges::range;
use warpsmith_runtime::{DeviceBuffer, Graph, Stream};

use crate::alone::only_alone;
use crate::common::*;
use crate::fixture::*;
use crate::node_programs::{self, *};

macro_rules! tests {
    ($($program:ident)*) => {$(
        #[test]
        fn $program() {
            only_alone!();
            [device().1, simulated().1].into_iter().for_each(|device| node_programs::$program(Fixture::of(device)));
        }
    )*};
}

tests! {
    captured_nodes_have_range_and_line_of_their_capture
    added_nodes_have_range_and_line
    nodes_that_are_added_to_a_capture_join_it
    clones_and_children_keep_where_they_come_from
    conditional_parts_keep_where_they_come_from
    each_executable_of_a_graph_has_its_nodes
    an_update_brings_the_places_of_the_other_graph
    a_node_with_other_arguments_stays_where_it_was_added
    streams_and_threads_of_a_capture_have_their_own_places
    an_abandoned_capture_leaves_nothing
    work_of_libraries_in_a_capture_has_its_line
    a_graph_captured_before_has_lines_and_says_so
    a_later_recording_knows_the_lines
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
fn a_graph_launched_often_repeats_no_texts() {
    only_alone!();
    let (_, device, stream) = fixture();
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
    // Waits also have names, but their number depends on timing.
    let (few, many) = (texts(1), texts(1000));
    assert!(many < few + 10, "{many} and {few} texts");
}

#[test]
fn files_have_the_places_too() {
    only_alone!();
    let folder = std::env::temp_dir().join(format!("warpsmith-profiler-nodes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["trace.json.gz", "trace.json"] {
        let (_, device, stream) = fixture();
        let path = folder.join(name);
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        let profiler = ProfilerOptions::default().device(&device).to_file(&path).unwrap();
        let (sender, receiver) = mpsc::channel();
        let line = line!() + 6;
        // The records of the capture are written long before the launch on another thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let graph = Graph::capture(&stream, || {
                    let (_outer, _inner) = (range!("outer"), range!("inner"));
                    stream.memset(&mut y, 1)
                });
                sender.send(graph.unwrap().instantiate().unwrap()).unwrap();
            });
        });
        std::thread::sleep(std::time::Duration::from_millis(1200));
        launch(&receiver.recv().unwrap(), &stream);
        profiler.finish().unwrap();
        let trace = Trace::read(&path).unwrap().trace;
        assert_eq!(origins(&trace), at([("inner", line)]));
        assert_eq!(trace.text(trace.transfers[0].captured_in), "outer > inner");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
