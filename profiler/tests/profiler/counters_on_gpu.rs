//! Hardware counters of a GPU through CUPTI. CUPTI must be installed, and the process must have permission to read the
//! counters.

use warpsmith_profiler::trace::counters::CounterReport;
use warpsmith_profiler::{CounterOptions, Counters, Profiler, ProfilerError, ProfilerOptions};
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{Capture, Device, Launch, Stream, TypedKernel};

use crate::alone::only_alone;
use crate::fixture::{check, streams};
use crate::kernels::{Empty, IMAGE, Spin};
use crate::under_test::gpu;

fn fixture() -> (Device, Stream, TypedKernel<Empty>, TypedKernel<Spin>) {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let module = device.load(&IMAGE).unwrap();
    (device, stream, module.kernel().unwrap(), module.kernel().unwrap())
}

fn start(device: &Device) -> Counters {
    Counters::start(CounterOptions::default().device(device).launches(u64::MAX)).unwrap()
}

/// Returns a launch with one thread.
fn one() -> Launch {
    Launch::grid_block(1, 1)
}

/// Checks that every operation was counted.
fn complete(report: &CounterReport) {
    println!("{}", report.text(20));
    assert_eq!((report.counted, report.dropped), (report.operations, 0), "{:?}", report.not_counted);
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn a_kernel_has_its_counters() {
    only_alone!();
    let (device, stream, empty, spin) = fixture();
    let counters = start(&device);
    (0..3).for_each(|_| spin.launch(&stream, one(), (50_000,)).unwrap());
    empty.launch(&stream, one(), ()).unwrap();
    let report = counters.stop().unwrap();
    complete(&report);
    let spin = &report.kernels[0];
    assert_eq!((spin.name.as_str(), spin.launches, spin.counted), ("spin", 3, 3));
    let time = spin.time.unwrap();
    assert!((50_000.0..100_000.0).contains(&time), "{time}");
    assert!(spin.read.is_some() && spin.written.is_some() && spin.l2_hits.is_some(), "{spin:?}");
    let occupancy = spin.occupancy.unwrap();
    assert!(occupancy > 0.0 && occupancy < 0.05, "one warp of 64: {occupancy}");
    let share: f64 = spin.stalls.iter().map(|stall| stall.share).sum();
    assert!(!spin.stalls.is_empty() && share < 1.0, "{:?}", spin.stalls);
    assert!(report.devices[0].passes >= 2 && !report.devices[0].chip.is_empty());
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn graphs_are_left_out_and_run() {
    only_alone!();
    let (device, stream, _, spin) = fixture();
    let counters = start(&device);
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).unwrap();
    (0..3).for_each(|_| spin.launch(&stream, one(), (30_000,)).unwrap());
    let exec = capture.end().unwrap().instantiate().unwrap();
    (0..2).for_each(|_| exec.launch(&stream).unwrap());
    stream.synchronize().unwrap();
    spin.launch(&stream, one(), (20_000,)).unwrap();
    let report = counters.stop().unwrap();
    assert_eq!((report.operations, report.counted), (3, 1), "captured launches do not run: {report:?}");
    let reason = "kernels in graphs cannot be counted; launch them without a graph";
    assert_eq!(report.not_counted, [(reason.to_owned(), 2)].into());
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn counting_disturbs_no_capture() {
    only_alone!();
    let (device, _, _, spin) = fixture();
    let [captured, free] = streams(&device);
    let counters = start(&device);
    for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
        let capture = Capture::begin(&captured, mode).unwrap();
        spin.launch(&captured, one(), (10_000,)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| spin.launch(&free, one(), (20_000,)).unwrap());
        });
        capture.end().unwrap().instantiate().unwrap();
        spin.launch(&free, one(), (20_000,)).unwrap();
    }
    let report = counters.stop().unwrap();
    assert_eq!((report.operations, report.counted), (4, 2), "{report:?}");
    let reason = "a stream was being captured, and counting would invalidate the capture";
    assert_eq!(report.not_counted, [(reason.to_owned(), 2)].into());
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn threads_and_streams_have_their_own_counters() {
    only_alone!();
    let (device, _, empty, spin) = fixture();
    let streams: [Stream; 4] = streams(&device);
    let counters = start(&device);
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| {
                for _ in 0..5 {
                    spin.launch(stream, one(), (20_000,)).unwrap();
                    empty.launch(stream, one(), ()).unwrap();
                }
            });
        }
    });
    let report = counters.stop().unwrap();
    complete(&report);
    let spin = report.kernels.iter().find(|row| row.name == "spin").unwrap();
    let empty = report.kernels.iter().find(|row| row.name == "none").unwrap();
    assert_eq!((spin.counted, empty.counted), (20, 20));
    let time = |name: &str| report.kernels.iter().find(|row| row.name == name).unwrap().metrics["gpu__time_duration.sum"];
    assert!(time("spin").minimum >= 20_000.0 && time("none").maximum < 20_000.0, "none is taken for another");
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn profiler_and_counters_take_turns() {
    only_alone!();
    let (device, stream, _, spin) = fixture();
    let profiled = || {
        let profiler = ProfilerOptions::default().device(&device).start().unwrap();
        spin.launch(&stream, one(), (20_000,)).unwrap();
        let trace = profiler.stop().unwrap();
        check(&trace);
        assert_eq!(trace.kernels.len(), 1);
    };
    profiled();
    for _ in 0..2 {
        let counters = start(&device);
        assert_eq!(
            Profiler::start(ProfilerOptions::default()).unwrap_err().downcast_ref(),
            Some(&ProfilerError::Recording)
        );
        spin.launch(&stream, one(), (20_000,)).unwrap();
        complete(&counters.stop().unwrap());
        profiled();
    }
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn a_device_may_close_while_it_is_counted_on() {
    only_alone!();
    let counters = Counters::start(CounterOptions::default()).unwrap();
    for _ in 0..2 {
        let (device, stream, _, spin) = fixture();
        spin.launch(&stream, one(), (20_000,)).unwrap();
        drop((spin, stream, device));
    }
    let report = counters.stop().unwrap();
    complete(&report);
    assert_eq!(report.kernels[0].counted, 2);
}
