//! Traces of a GPU through CUPTI, which must be installed.

use std::time::Duration;

use warpsmith_profiler::trace::{Library, Trace, TransferKind};
use warpsmith_profiler::{Profiler, ProfilerOptions};
use warpsmith_runtime::ranges::range;
use warpsmith_runtime::{Capture, Device, DeviceBuffer, Launch, Stream, TypedKernel};

use crate::alone::only_alone;
use crate::fixture::*;
use crate::kernels::{Empty, IMAGE, Spin};
use crate::under_test::gpu;

fn fixture() -> (Device, Stream, TypedKernel<Empty>, TypedKernel<Spin>) {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let module = device.load(&IMAGE).unwrap();
    (device, stream, module.kernel().unwrap(), module.kernel().unwrap())
}

fn cupti() -> Profiler {
    ProfilerOptions::default().start().unwrap()
}

/// Returns a launch with one thread.
fn one() -> Launch {
    Launch::grid_block(1, 1)
}

/// Runs a copy, kernels in a range, and a graph.
fn program(stream: &Stream, spin: &TypedKernel<Spin>) -> u32 {
    let mut x = DeviceBuffer::from_host(stream, &[1u8; 1 << 20]).unwrap();
    {
        let _range = range!("spins");
        (0..100).for_each(|_| spin.launch(stream, one(), (20_000,)).unwrap());
    }
    let capture = Capture::begin(stream, warpsmith_runtime::graph::CaptureMode::ThreadLocal).unwrap();
    let line = line!() + 1;
    stream.memset(&mut x, 1).unwrap();
    spin.launch(stream, one(), (30_000,)).unwrap();
    let exec = capture.end().unwrap().instantiate().unwrap();
    (0..3).for_each(|_| exec.launch(stream).unwrap());
    stream.synchronize().unwrap();
    line
}

fn check_program(trace: &Trace, line: u32) {
    check(trace);
    assert_eq!(trace.kernels.len(), 103);
    let (launched, nodes) = trace.kernels.split_at(100);
    let range = trace.ranges.iter().find(|range| trace.text(range.name) == "spins").unwrap();
    for kernel in launched {
        assert!(kernel.end - kernel.start >= 20_000, "{kernel:?}");
        assert_eq!(trace.text(kernel.name), "spin");
        assert_eq!(kernel.range, range.id);
        assert!(trace.text(kernel.line).starts_with(file!()), "{kernel:?}");
    }
    for kernel in nodes {
        assert_ne!((kernel.graph, kernel.node), (0, 0));
        assert_eq!(trace.text(kernel.line), format!("{}:{}", file!(), line + 1));
    }
    let memsets: Vec<_> =
        trace.transfers.iter().filter(|transfer| transfer.kind == TransferKind::Fill).collect();
    assert_eq!(memsets.len(), 3);
    assert!(memsets.iter().all(|memset| trace.text(memset.line) == format!("{}:{line}", file!())));
    assert_eq!(trace.summary().launches.before_call, 0, "no kernel begins before its call");
}

#[test]
#[ignore = "needs a GPU"]
fn cupti_makes_a_whole_trace() {
    only_alone!();
    let (_device, stream, _, spin) = fixture();
    let profiler = cupti();
    let line = program(&stream, &spin);
    check_program(&profiler.stop().unwrap(), line);
}

#[test]
#[ignore = "needs a GPU"]
fn the_environment_records_a_program_until_its_exit() {
    let file = std::env::temp_dir().join(format!("warpsmith-profiler-exit-{}.json.gz", std::process::id()));
    if crate::alone::alone!("WARPSMITH_PROFILE" => &file).is_none() {
        let (_device, stream, _, spin) = fixture();
        program(&stream, &spin);
        return;
    }
    let opened = Trace::read(&file).unwrap();
    assert_eq!(opened.damage, None);
    assert_eq!(opened.trace.kernels.len(), 103);
    std::fs::remove_file(file).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn later_recordings_are_whole_too() {
    only_alone!();
    let (_device, stream, _, spin) = fixture();
    for _ in 0..3 {
        let profiler = cupti();
        let line = program(&stream, &spin);
        check_program(&profiler.stop().unwrap(), line);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_million_launches_are_accounted_for() {
    only_alone!();
    let (_device, stream, empty, _) = fixture();
    let file = std::env::temp_dir().join(format!("warpsmith-profiler-{}.json.gz", std::process::id()));
    let profiler = Profiler::to_file(&file).unwrap();
    (0..1_000_000).for_each(|_| empty.launch(&stream, one(), ()).unwrap());
    let written = profiler.finish().unwrap();
    println!("{written:?}, {} bytes", std::fs::metadata(&file).unwrap().len());
    std::fs::remove_file(file).unwrap();
    assert_eq!((written.loss.issued, written.loss.unaccounted()), (1_000_000, 0));
}

#[test]
#[ignore = "needs a GPU"]
fn hardware_is_sampled() {
    only_alone!();
    let (_device, stream, _, spin) = fixture();
    let profiler = cupti();
    spin.launch(&stream, one(), (500_000_000,)).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let trace = profiler.stop().unwrap();
    for name in ["SM clock", "power", "temperature", "memory in use"] {
        let counter = trace.definitions.counters().iter().position(|counter| counter.name == name);
        let counter = counter.unwrap_or_else(|| panic!("no counter {name}"));
        let samples: Vec<_> =
            trace.samples.iter().filter(|sample| sample.counter.index() == counter).collect();
        assert!(samples.len() >= 5 && samples.iter().all(|sample| sample.value > 0.0), "{name}: {samples:?}");
    }
    assert!(trace.calls.iter().any(|call| call.library == Library::Driver));
}
