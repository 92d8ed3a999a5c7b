//! Comparisons and intervals must be correct on an emulated device whose times contain known noise, outliers and a slow
//! drift.
//!
//! Every launch takes 120 µs, or 122.4 µs in the configuration `slow=1`. This is multiplied by lognormal noise of 1 %,
//! by 1.3 for one launch in fifty, and by a wave of 1 % peak to peak. The tests compare interleaved samples.

use std::sync::Mutex;

use fastrand::Rng;
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::compare::{Change, THRESHOLD};
use warpsmith_tuner::error::Result;
use warpsmith_tuner::measure::{Effort, Mode, StopReason, Stopwatch, Timing};
use warpsmith_tuner::stats::{paired_ratio, ratio};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

use super::fakes::normal;

/// Bytes that are set in the usual configuration. The slow configuration sets one more.
const BYTES: usize = 64;
/// Period of the drift in microseconds, which is slow compared to all timings here.
const SLOW_DRIFT_US: f64 = 3e6;

/// Case that sets a few bytes. The simulated device determines how long this takes.
struct Fill {
    stream: Stream,
    buffer: DeviceBuffer<u8>,
    bytes: usize,
}

impl Case for Fill {
    fn copies(&self) -> usize {
        1
    }

    fn select(&mut self, configuration: &Configuration) -> Result<()> {
        self.bytes = BYTES + configuration.number("slow")? as usize;
        Ok(())
    }

    fn launch(&mut self, _: usize) -> Result<()> {
        Ok(self.stream.memset(self.buffer.slice_mut(..self.bytes), 1)?)
    }

    fn check(&mut self) -> Result<Check> {
        unreachable!("timing checks nothing")
    }
}

fn bench(seed: u64, period_us: f64) -> (Fill, Stopwatch) {
    let state = Mutex::new((Rng::with_seed(seed), 0.0));
    let model = move |work: &SimulatedWork<'_>| {
        let SimulatedWork::Set { bytes } = work else { return 0.0 };
        let (random, now_us) = &mut *state.lock().unwrap();
        let mut us = if *bytes == BYTES as u64 + 1 { 122.4 } else { 120.0 };
        us *= (0.01 * normal(random)).exp();
        us *= if random.f64() < 0.02 { 1.3 } else { 1.0 };
        us *= 1.0 + 0.005 * (*now_us / period_us * std::f64::consts::TAU).sin();
        *now_us += us;
        us
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    let device = Device::with_driver(driver, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = DeviceBuffer::zeros(&stream, 2 * BYTES).unwrap();
    let watch = Stopwatch::new(&stream).unwrap();
    (Fill { stream, buffer, bytes: BYTES }, watch)
}

fn configuration(slow: u32) -> Configuration {
    Configuration::default().with("slow", slow)
}

/// Takes interleaved samples of two configurations.
fn compare(case: &mut Fill, watch: &mut Stopwatch, slow: [u32; 2], rounds: usize) -> [Timing; 2] {
    let configurations = slow.map(configuration);
    watch.interleave(case, configurations.each_ref(), Mode::Cold, rounds).unwrap()
}

/// Returns the verdict on an old and a new configuration.
fn verdict(case: &mut Fill, watch: &mut Stopwatch, slow: [u32; 2]) -> Change {
    let [old, new] = compare(case, watch, slow, 100);
    Change::of(paired_ratio(&new.samples_us, &old.samples_us).unwrap().interval, THRESHOLD)
}

#[test]
fn kernels_do_not_differ_from_themselves() {
    let (mut case, mut watch) = bench(1, SLOW_DRIFT_US);
    let (mut alarms, mut same) = (0, 0);
    for _ in 0..500 {
        match verdict(&mut case, &mut watch, [0, 0]) {
            Change::Same => same += 1,
            Change::Ambiguous => {}
            _ => alarms += 1,
        }
    }
    assert!(alarms <= 5 && same >= 490, "{alarms} false alarms in 500 pairs, {same} the same");
}

#[test]
fn intervals_hold_the_truth_at_their_rate() {
    let (mut case, mut watch) = bench(8, SLOW_DRIFT_US);
    let covered = (0..300).filter(|_| {
        let [new, old] = compare(&mut case, &mut watch, [0, 0], 60);
        paired_ratio(&new.samples_us, &old.samples_us).unwrap().interval.contains(1.0)
    });
    let covered = covered.count();
    // An interval that is too narrow contains the ratio less often, and an interval that is too wide always contains
    // it.
    assert!((279..300).contains(&covered), "the interval of the ratio has 1 in {covered} of 300 pairs");
}

#[test]
fn two_percent_slower_is_found() {
    let (mut case, mut watch) = bench(2, SLOW_DRIFT_US);
    let (mut slower, mut faster) = (0, 0);
    for _ in 0..200 {
        slower += usize::from(verdict(&mut case, &mut watch, [0, 1]) == Change::Slower);
        faster += usize::from(verdict(&mut case, &mut watch, [1, 0]) == Change::Faster);
    }
    assert!(slower >= 190 && faster >= 190, "of 200 found {slower} slower, {faster} faster");
}

#[test]
fn two_runs_agree_within_their_uncertainty() {
    // The waves are shorter than a run. Slower waves are handled by interleaved samples, as tested below.
    let (mut case, mut watch) = bench(3, 3000.0);
    let effort = Effort { minimum: 10, most: 1000, budget_us: 1e9, precision: 0.003, launches: None };
    let (mut agree, mut widest) = (0, 0.0f64);
    for _ in 0..200 {
        let mut run = || {
            let timing = watch.time(&mut case, &configuration(0), Mode::Cold, effort).unwrap();
            assert_eq!(timing.stop, StopReason::Precision);
            timing.samples_us
        };
        let difference = ratio(&run(), &run()).unwrap().interval;
        widest = widest.max(difference.half_width());
        agree += usize::from(difference.contains(1.0));
    }
    assert!(agree >= 190, "{agree} of 200 pairs of runs agree");
    assert!(widest < 0.01, "they would agree on anything: {widest}");
}
