//! Tests the launches and times of timings on an emulated device, on which a memset takes 1 µs per byte and a copy
//! takes 500 µs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpsmith_runtime::emulated::{Call, EmulatedDriver, Schedule, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use super::*;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::value::Configuration;
use crate::verify::Check;

/// Case whose launches set as many bytes as the configuration specifies. It records the number of bytes and the copy of
/// each launch.
struct Recorder {
    stream: Stream,
    buffers: Vec<DeviceBuffer<u8>>,
    bytes: usize,
    launches: Vec<(usize, usize)>,
    /// Number of launches that succeed before all later ones fail.
    lasts: usize,
}

impl Case for Recorder {
    fn copies(&self) -> usize {
        self.buffers.len()
    }

    fn select(&mut self, configuration: &Configuration) -> Result<()> {
        self.bytes = configuration.number("bytes")? as usize;
        Ok(())
    }

    fn launch(&mut self, copy: usize) -> Result<()> {
        if self.launches.len() == self.lasts {
            return Err(Error::NothingSelected);
        }
        self.launches.push((self.bytes, copy));
        Ok(self.stream.memset(self.buffers[copy].slice_mut(..self.bytes), 1)?)
    }

    fn check(&mut self) -> Result<Check> {
        unreachable!("timing checks nothing")
    }
}

impl Recorder {
    /// Returns the index of the buffer copy of each launch.
    fn copies(&self) -> Vec<usize> {
        self.launches.iter().map(|(_, copy)| *copy).collect()
    }
}

struct Bench {
    driver: Arc<EmulatedDriver>,
    case: Recorder,
    watch: Stopwatch,
}

impl Bench {
    fn new() -> Self {
        Self::with(|work| match work {
            SimulatedWork::Set { bytes } => *bytes as f64,
            SimulatedWork::Copy { .. } => 500.0,
            SimulatedWork::Kernel { .. } => unreachable!("nothing is launched but fills and copies"),
        })
    }

    fn with(model: impl Fn(&SimulatedWork<'_>) -> f64 + Send + Sync + 'static) -> Self {
        let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffers = (0..3).map(|_| DeviceBuffer::zeros(&stream, 4096).unwrap()).collect();
        let mut watch = Stopwatch::new(&stream).unwrap();
        watch.set_guard(Guard { rest: Duration::ZERO, ..Guard::default() });
        let case = Recorder { stream, buffers, bytes: 0, launches: Vec::new(), lasts: usize::MAX };
        Self { driver, case, watch }
    }

    /// Makes the device behave like one that waits for the host.
    fn covered(mut self) -> Self {
        self.watch.cover_with(64).unwrap();
        self.driver.reset_calls();
        self
    }

    fn time(&mut self, bytes: u32, mode: Mode, effort: Effort) -> Result<Timing> {
        self.watch.time(&mut self.case, &configuration(bytes), mode, effort)
    }
}

fn configuration(bytes: u32) -> Configuration {
    Configuration::default().with("bytes", bytes)
}

#[test]
fn cold_launches_cycle_through_copies_hot_ones_stay() {
    let mut bench = Bench::new();
    let timing = bench.time(150, Mode::Cold, Effort::samples(6)).unwrap();
    assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![150.0; 6], 1));
    assert_eq!((timing.mode, timing.stop), (Mode::Cold, StopReason::Samples));
    assert_eq!(bench.case.copies(), [0, 1, 2, 0, 1, 2, 0], "one to see how long it takes");
    let mut bench = Bench::new();
    let timing = bench.time(150, Mode::Hot, Effort::samples(6)).unwrap();
    assert_eq!((timing.samples_us, timing.mode), (vec![150.0; 6], Mode::Hot));
    assert_eq!(bench.case.copies(), [0; 7]);
}

#[test]
fn short_launches_share_a_sample() {
    for (bytes, launches) in [(3, 34), (19, 6), (99, 2), (100, 1), (2, 50), (1, 64)] {
        let mut bench = Bench::new();
        let timing = bench.time(bytes, Mode::Cold, Effort::samples(5)).unwrap();
        assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![f64::from(bytes); 5], launches));
        assert_eq!(bench.case.launches.len(), 1 + 5 * launches as usize);
        assert!(bench.case.copies().iter().enumerate().all(|(index, copy)| index % 3 == *copy));
    }
}

#[test]
fn graphs_last_long_enough_and_cycle_through_copies() {
    for (bytes, launches) in [(7, 29), (250, 1), (1, 200)] {
        let mut bench = Bench::new();
        let timing = bench.time(bytes, Mode::Graph, Effort::samples(4)).unwrap();
        assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![f64::from(bytes); 4], launches));
        assert_eq!(bench.driver.calls(Call::GraphLaunch), 4);
        let copies = bench.case.copies();
        assert_eq!(copies.len(), 1 + launches as usize, "each was captured once");
        assert!(copies.iter().enumerate().all(|(index, copy)| index % 3 == *copy));
    }
    // The duration of these launches is negligible.
    let timing = Bench::with(|_| 0.001).time(1, Mode::Graph, Effort::samples(2)).unwrap();
    assert_eq!(timing.launches_per_sample, 1000);
}

#[test]
fn covering_work_is_in_no_time() {
    let mut bench = Bench::new().covered();
    let timing = bench.time(25, Mode::Cold, Effort::samples(5)).unwrap();
    assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![25.0; 5], 4));
    // One cover copy precedes each of the three probe samples and each sample.
    assert_eq!(bench.driver.calls(Call::CopyDevice), 3 + 5);
    // One untimed launch follows each cover copy.
    assert_eq!(bench.case.launches.len(), 1 + 3 * (1 + 4) + 1 + 5 * (1 + 4));
    assert!(bench.case.copies().iter().enumerate().all(|(index, copy)| index % 3 == *copy));
    let mut bench = Bench::new().covered();
    let timing = bench.time(25, Mode::Hot, Effort::samples(5)).unwrap();
    assert_eq!(timing.samples_us, [25.0; 5]);
    assert_eq!(
        bench.case.launches.len(),
        1 + 3 * (1 + 4) + 1 + 5 * (1 + 4),
        "each sample's data come to the cache first"
    );
}

#[test]
fn an_untimed_launch_leads_single_launches() {
    for mode in [Mode::Cold, Mode::Hot, Mode::Graph] {
        let mut bench = Bench::new().covered();
        let timing = bench.time(300, mode, Effort::samples(15)).unwrap();
        assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![300.0; 15], 1));
        let copies = bench.case.copies();
        match mode {
            // Fifteen samples are needed from the outset.
            Mode::Cold => assert!(copies.len() == 32 && copies.iter().enumerate().all(|(i, c)| i % 3 == *c)),
            Mode::Hot => assert_eq!(copies[16..], [0; 16]),
            _ => assert_eq!((copies.len(), bench.driver.calls(Call::GraphLaunch)), (17, 16)),
        }
    }
}

#[test]
fn the_budget_ends_sampling_after_the_minimum_of_samples() {
    let effort = Effort { minimum: 3, most: 1000, budget_us: 4000.0, ..Effort::NORMAL };
    let noisy = Mutex::new(0u64);
    let mut bench = Bench::with(move |_| {
        let mut count = noisy.lock().unwrap();
        *count += 1;
        190.0 + (*count * 7 % 21) as f64
    });
    let timing = bench.time(100, Mode::Cold, effort).unwrap();
    assert_eq!(timing.stop, StopReason::Budget);
    assert!((19..=23).contains(&timing.samples_us.len()), "{timing:?}");
    let timing = bench.time(100, Mode::Cold, Effort { budget_us: 1.0, ..effort }).unwrap();
    assert_eq!((timing.samples_us.len(), timing.stop), (3, StopReason::Budget));
}

#[test]
fn devices_are_warmed_up_by_device_time() {
    let mut bench = Bench::new();
    bench.case.select(&configuration(100)).unwrap();
    bench.watch.warm_up(&mut bench.case, 2500.0).unwrap();
    assert_eq!(bench.case.launches.len(), 1 + 30, "in tens");
}

#[test]
fn rounds_sample_each_in_random_order() {
    let mut bench = Bench::new();
    let configurations = [130, 140, 150].map(configuration);
    let timings = bench.watch.interleave(&mut bench.case, configurations.each_ref(), Mode::Cold, 40).unwrap();
    for (timing, us) in timings.iter().zip([130.0, 140.0, 150.0]) {
        assert_eq!((&timing.samples_us, timing.stop), (&vec![us; 40], StopReason::Samples));
    }
    let taken = &bench.case.launches[3..];
    assert!(bench.case.copies().iter().enumerate().all(|(index, copy)| index % 3 == *copy));
    let mut orders = std::collections::BTreeMap::new();
    for round in taken.chunks(3) {
        let order: Vec<usize> = round.iter().map(|(bytes, _)| *bytes).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [130, 140, 150]);
        *orders.entry(order).or_insert(0) += 1;
    }
    assert_eq!(orders.len(), 6, "{orders:?}");
}

#[test]
fn failing_launches_end_the_timing() {
    for mode in [Mode::Cold, Mode::Hot, Mode::Graph] {
        let mut bench = Bench::new();
        bench.case.lasts = 5;
        let error = bench.time(10, mode, Effort::NORMAL).unwrap_err();
        assert!(matches!(error, Error::NothingSelected), "{error}");
        bench.case.lasts = usize::MAX;
        assert_eq!(bench.time(100, mode, Effort::samples(3)).unwrap().samples_us.len(), 3);
    }
}

/// Returns a bench whose clock is `clock(n)` after n samples.
fn clocked(clock: impl Fn(u64) -> u32 + Send + Sync + 'static) -> Bench {
    let (taken, mhz) = (AtomicU64::new(0), Arc::new(AtomicU32::new(0)));
    let shown = Arc::clone(&mhz);
    let bench = Bench::with(move |_| {
        let now = clock(taken.fetch_add(1, Ordering::Relaxed));
        mhz.store(now, Ordering::Relaxed);
        // The clock limits this kernel.
        2e5 / f64::from(now)
    });
    bench.driver.on_sm_clock(0, move || Some(shown.load(Ordering::Relaxed)));
    bench
}

#[test]
fn samples_of_a_low_clock_are_taken_again() {
    // The samples are preceded by three fills, and by one launch that estimates the duration.
    for low in [4..30, 20..30, 4..5, 33..50] {
        let mut bench = clocked(move |at| if low.contains(&at) { 900 } else { 1000 });
        let timing = bench.time(100, Mode::Cold, Effort::samples(40)).unwrap();
        assert!(timing.samples_us.iter().all(|us| (us - 200.0).abs() < 1e-6), "{timing:?}");
        assert_eq!(timing.samples_us.len(), 40);
        assert_eq!(timing.clocks_mhz, [1000; 40]);
        assert!(timing.rejected > 0 && !timing.throttled, "{timing:?}");
    }
}

#[test]
fn clocks_within_the_limit_or_unknown_are_accepted() {
    let mut bench = clocked(|at| if at % 2 == 0 { 951 } else { 1000 });
    let timing = bench.time(100, Mode::Cold, Effort::samples(40)).unwrap();
    assert_eq!((timing.rejected, timing.samples_us.len()), (0, 40));
    bench.driver.on_sm_clock(0, || None);
    let timing = bench.time(100, Mode::Cold, Effort::samples(40)).unwrap();
    assert_eq!((timing.rejected, timing.throttled), (0, false));
    assert!(timing.clocks_mhz.is_empty());
}

#[test]
fn a_lasting_low_clock_is_throttled() {
    let mut bench = clocked(|at| if at < 30 { 1000 } else { 800 });
    let effort = Effort { minimum: 10, most: 50, precision: 0.0, ..Effort::NORMAL };
    let enough = bench.time(100, Mode::Cold, effort).unwrap();
    assert!(enough.throttled && enough.clocks_mhz.iter().all(|mhz| *mhz == 1000), "{enough:?}");
    assert_eq!(enough.stop, StopReason::Budget);
    let throttled = bench.time(100, Mode::Cold, effort).unwrap();
    assert!(throttled.throttled && throttled.clocks_mhz.iter().all(|mhz| *mhz == 800), "{throttled:?}");
    assert!(throttled.samples_us.len() >= 10 && throttled.rejected <= 10, "{throttled:?}");
    bench.watch.set_guard(Guard { share: 0.5, ..Guard::default() });
    let lax = bench.time(100, Mode::Cold, effort).unwrap();
    assert_eq!((lax.throttled, lax.rejected), (false, 0));
}

#[test]
fn slowdowns_that_the_driver_reports_are_throttled() {
    use warpsmith_runtime::driver::Telemetry;

    let configuration = configuration(100);
    for (reasons, throttled) in [
        (&["hw_thermal_slowdown"][..], true),
        (&["sw_power_cap", "hw_power_brake_slowdown"], true),
        (&["sw_power_cap", "gpu_idle"], false),
        (&[], false),
    ] {
        let mut bench = clocked(|_| 800);
        let throttle_reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        bench.driver.set_telemetry(0, Telemetry { throttle_reasons, ..Telemetry::default() });
        let timing = bench.time(100, Mode::Cold, Effort::samples(10)).unwrap();
        assert_eq!((timing.throttled, timing.samples_us.len()), (throttled, 10), "{reasons:?}");
        let timings = bench.watch.interleave(&mut bench.case, [&configuration], Mode::Cold, 10).unwrap();
        assert_eq!(timings[0].throttled, throttled, "{reasons:?}");
    }
}

#[test]
fn rounds_with_a_low_clock_are_taken_again() {
    let mut bench = clocked(|at| if (25..36).contains(&at) { 900 } else { 1000 });
    let configurations = [30, 40].map(configuration);
    let timings = bench.watch.interleave(&mut bench.case, configurations.each_ref(), Mode::Cold, 30).unwrap();
    for timing in &timings {
        assert_eq!((timing.samples_us.len(), timing.throttled), (30, false));
        assert_eq!(timing.clocks_mhz, [1000; 30]);
        assert_eq!(timing.rejected, timings[0].rejected);
    }
    assert!((5..=7).contains(&timings[0].rejected), "{timings:?}");
    let mut bench = clocked(|at| if at < 25 { 1000 } else { 900 });
    let timings = bench.watch.interleave(&mut bench.case, configurations.each_ref(), Mode::Cold, 30).unwrap();
    assert!(timings.iter().all(|timing| timing.throttled && timing.samples_us.len() == 30));
}

#[test]
fn samples_have_the_given_number_of_launches() {
    let mut bench = Bench::new();
    for (bytes, launches) in [(25, 4), (10, 4), (250, 4), (500, 2)] {
        let effort = Effort { launches: Some(4), ..Effort::samples(5) };
        let timing = bench.time(bytes, Mode::Cold, effort).unwrap();
        assert_eq!((timing.samples_us, timing.launches_per_sample), (vec![f64::from(bytes); 5], launches));
    }
    let configurations = [25, 20, 100].map(configuration);
    let timings = bench.watch.interleave(&mut bench.case, configurations.each_ref(), Mode::Cold, 6).unwrap();
    assert!(timings.iter().all(|timing| timing.launches_per_sample == 4), "{timings:?}");
}

#[test]
fn ended_runs_keep_the_samples_so_far() {
    let mut bench = Bench::new();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
    bench.watch.set_stop(&stop);
    let timing = bench.time(100, Mode::Cold, Effort { minimum: 1, ..Effort::samples(1000) }).unwrap();
    assert_eq!((timing.stop, timing.samples_us.len()), (StopReason::Interrupted, 10));
    stop.store(false, Ordering::Relaxed);
    assert_eq!(bench.time(100, Mode::Cold, Effort::samples(40)).unwrap().stop, StopReason::Samples);
}
