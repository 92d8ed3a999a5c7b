//! Comparisons on the device under test, which is `WARPSMITH_TEST_DEVICE`, or the emulated device if the variable is
//! not set. The tests fail if the device does not exist.
//!
//! The timed kernels are copies on the device. The emulated device runs them on a CPU with other load, so the tests
//! only check there that samples are taken correctly.

use std::sync::{Mutex, PoisonError};

use warpsmith_runtime::{Device, DeviceBuffer, Stream};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::compare::Change;
use warpsmith_tuner::error::Result;
use warpsmith_tuner::measure::{Effort, Mode, Stopwatch, Timing};
use warpsmith_tuner::stats::paired_ratio;
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

/// Lock that a test acquires while it uses the device, so that other tests do not disturb its times.
static ALONE: Mutex<()> = Mutex::new(());

fn device() -> Device {
    let name = std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_TEST_DEVICE={name}: {error}"))
}

/// Case that copies a percentage of its buffers, which the configuration specifies.
struct Copies {
    buffers: Vec<[DeviceBuffer<u8>; 2]>,
    bytes: usize,
    part: usize,
}

impl Copies {
    fn new(stream: &Stream) -> Self {
        let (bytes, sets) = if stream.device().is_emulated() { (1 << 20, 2) } else { (64 << 20, 4) };
        let buffer = || DeviceBuffer::zeros(stream, bytes).unwrap();
        Self { buffers: (0..sets).map(|_| [buffer(), buffer()]).collect(), bytes, part: 0 }
    }
}

impl Case for Copies {
    fn copies(&self) -> usize {
        self.buffers.len()
    }

    fn select(&mut self, configuration: &Configuration) -> Result<()> {
        self.part = self.bytes / 100 * configuration.number("percent")? as usize;
        Ok(())
    }

    fn launch(&mut self, copy: usize) -> Result<()> {
        let [from, to] = &mut self.buffers[copy];
        let to = to.slice_mut(..self.part);
        Ok(to.stream().copy(from.slice(..self.part), to)?)
    }

    fn check(&mut self) -> Result<Check> {
        unreachable!("timing checks nothing")
    }
}

fn compare(watch: &mut Stopwatch, case: &mut Copies, percent: [u32; 2], rounds: usize) -> [Timing; 2] {
    let configurations = percent.map(|percent| Configuration::default().with("percent", percent));
    watch.interleave(case, configurations.each_ref(), Mode::Cold, rounds).unwrap()
}

fn verdict(trials: &[Timing]) -> Change {
    let ratio = paired_ratio(&trials[0].samples_us, &trials[1].samples_us).unwrap();
    Change::of(ratio.interval, 0.01)
}

#[test]
fn copies_equal_themselves_and_longer_ones_are_slower() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let (mut watch, mut case) = (Stopwatch::new(&stream).unwrap(), Copies::new(&stream));
    if device.is_emulated() {
        let trials = compare(&mut watch, &mut case, [100, 50], 8);
        assert!(trials.iter().all(|timing| timing.samples_us.len() == 8 && timing.samples_us[0] > 0.0));
        return;
    }
    let (mut alarms, mut slower) = (0, 0);
    for _ in 0..50 {
        let same = verdict(&compare(&mut watch, &mut case, [90, 90], 60));
        alarms += usize::from(!matches!(same, Change::Same | Change::Ambiguous));
        slower += usize::from(verdict(&compare(&mut watch, &mut case, [95, 90], 60)) == Change::Slower);
    }
    println!("of 50 pairs {alarms} false alarms, {slower} found");
    assert!(alarms <= 1, "{alarms} false alarms in 50 pairs");
    assert!(slower >= 48, "5 % more bytes were slower in {slower} of 50 pairs");
}

#[test]
fn every_mode_times_copies_on_the_device() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let (mut watch, mut case) = (Stopwatch::new(&stream).unwrap(), Copies::new(&stream));
    let whole = Configuration::default().with("percent", 100);
    let mut median = |mode| {
        let timing = watch.time(&mut case, &whole, mode, Effort::QUICK).unwrap();
        assert_eq!((timing.mode, timing.clocks_mhz.len() % timing.samples_us.len()), (mode, 0));
        println!("{mode:?}: {:?}, {:?}", timing.summary(), timing.stop);
        timing.summary().unwrap().median
    };
    let [cold, hot, graph] = [Mode::Cold, Mode::Hot, Mode::Graph].map(&mut median);
    assert!(cold > 0.0 && hot > 0.0 && graph > 0.0);
    if !device.is_emulated() {
        assert!(
            (0.8..2.0).contains(&(graph / cold)),
            "both go round over more than the cache, and a copy takes longer as a node: {graph} {cold}"
        );
    }
}
