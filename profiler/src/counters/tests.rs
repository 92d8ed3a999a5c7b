//! Tests of counting on the emulated device, with simulated counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpsmith_runtime::driver::counters::{
    Counted, Counter, CounterError, CounterKind, CounterResult, CounterSetup,
};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Capture, Launch};
use warpsmith_runtime::{Device, DeviceBuffer, Stream, TypedKernel};
use warpsmith_trace::counters::CounterReport;

use super::kernels::{Empty, IMAGE, Spin};
use super::source::Source;
use super::{CounterOptions, Counters};
use crate::{Profiler, ProfilerError, ProfilerOptions};

/// State of the simulated hardware.
#[derive(Default)]
struct Hardware {
    calls: Mutex<Vec<String>>,
    /// Number of kernels in each of the next operations. Later operations have one kernel.
    kernels: Mutex<Vec<usize>>,
    dropped: AtomicU64,
    opening: Mutex<Option<CounterError>>,
    /// Number of devices without counters among the next devices to be opened.
    without: AtomicU64,
    ending: Mutex<Option<CounterError>>,
    /// Index of the next kernel, which determines the kernel's values.
    number: AtomicU64,
}

struct Made(Arc<Hardware>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Made {
    fn note(&self, call: &str) {
        lock(&self.0.calls).push(call.to_owned());
    }
}

impl Source for Made {
    fn open(&self, _: &Device) -> CounterResult<CounterSetup> {
        self.note("open");
        if let Some(error) = lock(&self.0.opening).clone() {
            return Err(error);
        }
        let take = |left: u64| left.checked_sub(1);
        if self.0.without.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Err(CounterError::Unsupported { driver: "emulated" });
        }
        let stall = |reason: &str| CounterKind::Stall(reason.to_owned());
        let kinds = [
            (CounterKind::Duration, "time"),
            (CounterKind::MemoryRead, "read"),
            (CounterKind::MemoryWritten, "written"),
            (CounterKind::Occupancy, "warps"),
            (stall("wait"), "wait"),
            (stall("selected"), "selected"),
            (stall("long_scoreboard"), "long"),
        ];
        let counters = kinds.map(|(kind, name)| Counter { kind, name: name.to_owned() }).into();
        Ok(CounterSetup { source: "made up".to_owned(), chip: "M1".to_owned(), passes: 6, counters })
    }

    fn begin(&self, _: &Device) -> CounterResult<()> {
        self.note("begin");
        Ok(())
    }

    fn end(&self, _: &Device) -> CounterResult<Counted> {
        self.note("end");
        if let Some(error) = lock(&self.0.ending).take() {
            return Err(error);
        }
        let mut kernels = lock(&self.0.kernels);
        let count = if kernels.is_empty() { 1 } else { kernels.remove(0) };
        let values = |_| {
            let number = self.0.number.fetch_add(1, Ordering::Relaxed) as f64;
            [1000.0 + number, 3e6, 1e6, 50.0, 2.0, 1.0, 5.0].map(Some).into()
        };
        Ok(Counted {
            kernels: (0..count).map(values).collect(),
            dropped: self.0.dropped.swap(0, Ordering::Relaxed),
        })
    }

    fn close(&self, _: &Device) {
        self.note("close");
    }
}

struct Fixture {
    device: Device,
    stream: Stream,
    empty: TypedKernel<Empty>,
    spin: TypedKernel<Spin>,
    hardware: Arc<Hardware>,
    /// Lock that serializes the tests, because a process can run only one counter or profiler at a time.
    _turn: MutexGuard<'static, ()>,
}

fn fixture() -> Fixture {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = lock(&TURN);
    let device = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let module = device.load(&IMAGE).unwrap();
    let (empty, spin) = (module.kernel().unwrap(), module.kernel().unwrap());
    Fixture { device, stream, empty, spin, hardware: Arc::default(), _turn: turn }
}

impl Fixture {
    fn options(&self) -> CounterOptions {
        CounterOptions::default().device(&self.device)
    }

    fn start(&self, options: CounterOptions) -> Counters {
        Counters::start_with(options, Box::new(Made(Arc::clone(&self.hardware)))).unwrap()
    }

    fn launch(&self) {
        self.empty.launch(&self.stream, Launch::grid_block(1, 1), ()).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        lock(&self.hardware.calls).clone()
    }
}

/// Checks that every operation was counted or has a reason why it was not.
fn check(report: &CounterReport) {
    let left_out: u64 = report.not_counted.values().sum();
    assert_eq!(report.operations, report.counted + left_out, "{report:?}");
}

/// Returns the name, the launches and the counted kernels of each row.
fn rows(report: &CounterReport) -> Vec<(&str, u64, u64)> {
    report.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.launches, kernel.counted)).collect()
}

#[test]
fn counters_are_averages_by_kernel() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    let line = line!() + 1;
    fixture.spin.launch(&fixture.stream, Launch::grid_block(1, 1), (5,)).unwrap();
    (0..3).for_each(|_| fixture.launch());
    let x = DeviceBuffer::from_host(&fixture.stream, &[1u32; 8]).unwrap();
    let report = counters.stop().unwrap();
    drop(x);
    check(&report);
    assert_eq!(rows(&report), [("none", 3, 3), ("spin", 1, 1)], "copies are not counted");
    let (none, spin) = (&report.kernels[0], &report.kernels[1]);
    assert_eq!((&spin.line, spin.symbol.as_deref()), (&Some(format!("{}:{line}", file!())), Some("spin")));
    assert_eq!(
        (none.time, none.read, none.occupancy, none.l2_hits),
        (Some(1002.0), Some(3e6), Some(0.5), None)
    );
    let time = none.metrics["time"];
    assert_eq!((time.average, time.minimum, time.maximum), (1002.0, 1001.0, 1003.0));
    assert_eq!(none.bandwidth(), Some(4e6 / 1002.0 * 1e9));
    let peak = fixture.device.properties().memory_bandwidth;
    assert_eq!(none.of_peak, (peak > 0).then(|| 4e6 / 1002.0 * 1e9 / peak as f64));
    let stalls: Vec<_> = none.stalls.iter().map(|stall| (stall.reason.as_str(), stall.share)).collect();
    assert_eq!(stalls, [("long_scoreboard", 0.625), ("wait", 0.25)], "the issue itself is no stall");
    let device = &report.devices[0];
    assert_eq!((device.chip.as_str(), device.source.as_str(), device.passes), ("M1", "made up", 6));
    let calls = fixture.calls();
    assert_eq!((calls.len(), calls[0].as_str(), calls[9].as_str()), (10, "open", "close"));
}

#[test]
fn launches_over_the_limit_run_uncounted() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options().launches(2));
    (0..5).for_each(|_| fixture.launch());
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!(rows(&report), [("none", 5, 2)]);
    assert_eq!(report.not_counted["beyond the limit of 2 launches per kernel"], 3);
    assert_eq!(fixture.calls().iter().filter(|call| *call == "begin").count(), 2);
}

#[test]
fn kernels_may_be_chosen_by_name() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options().kernel("pin").kernel("sum"));
    (0..3).for_each(|_| fixture.launch());
    fixture.spin.launch(&fixture.stream, Launch::grid_block(1, 1), (5,)).unwrap();
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!(rows(&report), [("spin", 1, 1)]);
    assert_eq!((report.operations, report.not_counted["not selected by name"]), (4, 3));
    assert_eq!(fixture.calls(), ["open", "begin", "end", "close"]);
}

#[test]
fn graphs_are_left_out() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    let capture =
        Capture::begin(&fixture.stream, warpsmith_runtime::graph::CaptureMode::ThreadLocal).unwrap();
    (0..3).for_each(|_| fixture.launch());
    let exec = capture.end().unwrap().instantiate().unwrap();
    let line = line!() + 1;
    (0..2).for_each(|_| exec.launch(&fixture.stream).unwrap());
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!(fixture.calls(), ["open", "close"]);
    assert_eq!(rows(&report), [(&*format!("graph launched at {}:{line}", file!()), 2, 0)]);
    assert_eq!(report.not_counted["kernels in graphs cannot be counted; launch them without a graph"], 2);
}

#[test]
fn nothing_is_counted_while_a_stream_captures() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    let other = Stream::new(&fixture.device).unwrap();
    let capture = Capture::begin(&other, warpsmith_runtime::graph::CaptureMode::ThreadLocal).unwrap();
    fixture.launch();
    capture.end().unwrap();
    fixture.launch();
    let report = counters.stop().unwrap();
    assert_eq!((report.operations, report.counted), (2, 1));
    assert_eq!(
        report.not_counted["a stream was being captured, and counting would invalidate the capture"],
        1
    );
    assert_eq!(fixture.calls(), ["open", "begin", "end", "close"]);
}

#[test]
fn calls_of_libraries_are_counted_as_a_whole() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    *lock(&fixture.hardware.kernels) = vec![2];
    fixture.hardware.dropped.store(4, Ordering::Relaxed);
    // SAFETY: the function does nothing.
    unsafe { fixture.stream.enqueue_host_named("product", &[], || {}) }.unwrap();
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!((report.counted, report.dropped), (1, 4));
    assert!(report.text(9).contains("4 kernels had no space"), "{}", report.text(9));
    let mut found = rows(&report);
    found.sort_unstable();
    assert_eq!(
        found,
        [("product", 1, 0), ("product, kernel 1 of 2", 1, 1), ("product, kernel 2 of 2", 1, 1)]
    );
}

#[test]
fn ambiguous_kernels_are_left_out() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    *lock(&fixture.hardware.kernels) = vec![2, 0];
    (0..3).for_each(|_| fixture.launch());
    *lock(&fixture.hardware.ending) =
        Some(CounterError::Cupti { call: "decode", code: 9, text: "broken".to_owned() });
    fixture.launch();
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!(rows(&report), [("none", 4, 1)]);
    let reasons: Vec<&str> = report.not_counted.keys().map(String::as_str).collect();
    let wanted = [
        "decode failed with CUPTI error 9: broken",
        "other code launched kernels on the device at the same time",
        "the counters saw no kernel",
    ];
    assert_eq!(reasons, wanted);
}

#[test]
fn a_device_that_cannot_count_is_an_error() {
    let fixture = fixture();
    let error = Counters::start(fixture.options()).unwrap_err().to_string();
    assert!(error.contains("emulated devices have no hardware counters; use a CUDA device"), "{error}");
    *lock(&fixture.hardware.opening) = Some(CounterError::Forked);
    let made = Box::new(Made(Arc::clone(&fixture.hardware)));
    let error = Counters::start_with(fixture.options(), made).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(ProfilerError::Counters { error: CounterError::Forked, .. })),
        "{error}"
    );
    *lock(&fixture.hardware.opening) = None;
    drop(fixture.start(fixture.options()));
    assert_eq!(fixture.calls(), ["open", "open", "close"], "nothing stays taken");
}

#[test]
fn counting_and_recording_exclude_each_other() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    let profiler = || Profiler::start(ProfilerOptions::default().device(&fixture.device));
    assert_eq!(profiler().unwrap_err().downcast_ref(), Some(&ProfilerError::Recording));
    drop(counters);
    let profiler = profiler().unwrap();
    assert_eq!(
        Counters::start(fixture.options()).unwrap_err().downcast_ref(),
        Some(&ProfilerError::Recording)
    );
    drop(profiler);
    drop(fixture.start(fixture.options()));
}

#[test]
fn launches_of_two_threads_take_turns() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options().launches(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| fixture.launch()));
        }
    });
    let report = counters.stop().unwrap();
    check(&report);
    assert_eq!(rows(&report), [("none", 200, 200)]);
    let calls = fixture.calls();
    let between = &calls[1..calls.len() - 1];
    assert!(between.chunks(2).all(|pair| pair == ["begin", "end"]), "{between:?}");
}

#[test]
fn stopping_waits_for_the_operation_that_is_counted() {
    let fixture = fixture();
    let counters = fixture.start(fixture.options());
    let (begun, has_begun) = channel();
    let (proceed, may_proceed) = channel::<()>();
    std::thread::scope(|scope| {
        let stream = &fixture.stream;
        scope.spawn(move || {
            // SAFETY: nothing is enqueued.
            let enqueued = unsafe {
                stream.enqueue_named("slow", &[], |_| {
                    begun.send(()).unwrap();
                    may_proceed.recv().unwrap();
                    Ok::<(), warpsmith_runtime::Error>(())
                })
            };
            enqueued.unwrap();
        });
        has_begun.recv().unwrap();
        let stopping = scope.spawn(|| counters.stop().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!stopping.is_finished());
        proceed.send(()).unwrap();
        let report = stopping.join().unwrap();
        assert_eq!(rows(&report), [("slow", 1, 1)]);
    });
    assert_eq!(fixture.calls(), ["open", "begin", "end", "close"]);
}

#[test]
fn devices_without_counters_are_passed_over_unless_chosen() {
    let fixture = fixture();
    *lock(&fixture.hardware.opening) = Some(CounterError::Unsupported { driver: "emulated" });
    let other = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
    let made = || Box::new(Made(Arc::clone(&fixture.hardware)));
    let all = CounterOptions::default();
    let error = Counters::start_with(all.clone(), made()).unwrap_err();
    assert!(
        matches!(
            error.downcast_ref(),
            Some(ProfilerError::Counters { error: CounterError::Unsupported { .. }, .. })
        ),
        "{error}"
    );
    *lock(&fixture.hardware.opening) = None;
    fixture.hardware.without.store(1, Ordering::Relaxed);
    let counters = Counters::start_with(all, made()).unwrap();
    drop((counters, other));
}
