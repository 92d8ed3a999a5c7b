//! Measurements tell what is so: on an emulated device whose time has noise, outliers, a slow drift and falling clocks
//! that the tests know of.
//!
//! Every launch takes 120 µs, or 122.4 µs in the configuration `slow=1`, times 1 % of lognormal noise, times 1.3 for one
//! in fifty, times a wave of 1 % from its lowest to its highest. Comparisons are those that `compare --config`
//! makes: samples in turns, judged again and again until the verdict is clear.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use rayon::prelude::*;
use warpsmith_runtime::driver::emulated::{EmulatedDriver, Schedule, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::compare::{self, Change, Contender, Pair, Plan};
use warpsmith_tuner::error::Result;
use warpsmith_tuner::measure::{Effort, Entrant, Guard, Mode, Rule, StopReason, Stopwatch, Timing};
use warpsmith_tuner::stats::{paired_ratio, ratio};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

use super::fakes::normal;

const FULL_MHZ: u32 = 1980;
const LOW_MHZ: u32 = FULL_MHZ * 9 / 10;
/// Bytes that are set in the usual configuration; one more in the slow one.
const BYTES: usize = 64;

/// What the emulated device is like.
struct Nature {
    seed: u64,
    /// Microseconds from one crest of the drift to the next.
    period_us: f64,
    /// Whether the clock is low, at a time in microseconds.
    low: fn(f64) -> bool,
}

impl Nature {
    /// A drift that is slow against any of the timings here.
    const fn steady(seed: u64) -> Self {
        Self { seed, period_us: 3e6, low: |_| false }
    }
}

/// Sets bytes: a few of them in truth, which takes as long as the device's nature says.
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

fn bench(nature: Nature) -> (Fill, Stopwatch) {
    let Nature { seed, period_us, low } = nature;
    let state = Mutex::new((Rng::with_seed(seed), 0.0));
    let clock = Arc::new(AtomicU32::new(FULL_MHZ));
    let now = Arc::clone(&clock);
    let model = move |work: &SimulatedWork<'_>| {
        let SimulatedWork::Set { bytes } = work else { return 0.0 };
        let (random, now_us) = &mut *state.lock().unwrap();
        let mut us = if *bytes == BYTES as u64 + 1 { 122.4 } else { 120.0 };
        us *= (0.01 * normal(random)).exp();
        us *= if random.f64() < 0.02 { 1.3 } else { 1.0 };
        us *= 1.0 + 0.005 * (*now_us / period_us * std::f64::consts::TAU).sin();
        let mhz = if low(*now_us) { LOW_MHZ } else { FULL_MHZ };
        now.store(mhz, Ordering::Relaxed);
        us *= f64::from(FULL_MHZ) / f64::from(mhz);
        *now_us += us;
        us
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    driver.on_sm_clock(0, move || Some(clock.load(Ordering::Relaxed)));
    let device = Device::with_driver(driver, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = DeviceBuffer::zeros(&stream, 2 * BYTES).unwrap();
    let mut watch = Stopwatch::new(&stream).unwrap();
    watch.set_guard(Guard { rest: Duration::ZERO, ..Guard::default() });
    (Fill { stream, buffer, bytes: BYTES }, watch)
}

fn configuration(slow: u32) -> Configuration {
    Configuration::default().with("slow", slow)
}

/// Samples of two configurations taken in turns.
fn compare(case: &mut Fill, watch: &mut Stopwatch, slow: [u32; 2], rounds: usize) -> [Timing; 2] {
    let configurations = slow.map(configuration);
    let entrants = [0, 1].map(|of| Entrant { case: 0, configuration: &configurations[of], mode: Mode::Cold });
    watch.interleave(&mut [case], &entrants, rounds).unwrap().try_into().unwrap()
}

/// What a comparison of a new and an old configuration finds, as the command makes it.
fn verdict(case: &mut Fill, watch: &mut Stopwatch, slow: [u32; 2]) -> Change {
    let configurations = slow.map(configuration);
    let duel = RefCell::new((case, watch, [VecDeque::new(), VecDeque::new()]));
    let side = |of: usize| {
        let duel = &duel;
        move |samples: usize| -> Result<Vec<f64>> {
            let (case, watch, taken) = &mut *duel.borrow_mut();
            while taken[of].len() < samples {
                let timings = compare(case, watch, slow, 20);
                taken.iter_mut().zip(timings).for_each(|(taken, timing)| taken.extend(timing.samples_us));
            }
            Ok(taken[of].drain(..samples).collect())
        }
    };
    let (mut new, mut old) = (side(0), side(1));
    let [new_configuration, old_configuration] = configurations;
    let pair = Pair {
        kernel: "fill".to_owned(),
        dtype: "u8".to_owned(),
        n: BYTES as u64,
        mode: Mode::Cold,
        old: Contender { configuration: old_configuration, side: &mut old },
        new: Contender { configuration: new_configuration, side: &mut new },
    };
    compare::interleaved(&mut [pair], &Plan::default()).unwrap().rows[0].change
}

#[test]
fn a_kernel_is_not_faster_or_slower_than_itself() {
    let (mut case, mut watch) = bench(Nature::steady(1));
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
fn looking_again_and_again_at_noisy_times_raises_no_more_alarms() {
    // Nothing but noise of 5 %: each comparison goes on for most of its 400 rounds.
    let alarms = (0..500).into_par_iter().filter(|seed| {
        let mut random = Rng::with_seed(*seed);
        let mut side = |samples: usize| -> Result<Vec<f64>> {
            Ok((0..samples).map(|_| 120.0 * (0.05 * normal(&mut random)).exp()).collect())
        };
        let test = compare::self_test(&mut side, 1, &Plan::default()).unwrap();
        test.false_alarms > 0
    });
    let alarms = alarms.count();
    assert!(alarms <= 5, "{alarms} false alarms in 500 pairs");
}

#[test]
fn intervals_have_the_truth_as_often_as_they_say() {
    let (mut case, mut watch) = bench(Nature::steady(8));
    let covered = (0..500).filter(|_| {
        let [new, old] = compare(&mut case, &mut watch, [0, 0], 60);
        paired_ratio(&new.samples_us, &old.samples_us).unwrap().interval.contains(1.0)
    });
    let covered = covered.count();
    // Intervals that are too narrow have it less often, those that are too wide always.
    assert!((465..500).contains(&covered), "the interval of the ratio has 1 in {covered} of 500 pairs");
}

#[test]
fn a_kernel_that_is_two_percent_slower_is_found() {
    let (mut case, mut watch) = bench(Nature::steady(2));
    let (mut slower, mut faster) = (0, 0);
    for _ in 0..200 {
        slower += usize::from(verdict(&mut case, &mut watch, [1, 0]) == Change::Slower);
        faster += usize::from(verdict(&mut case, &mut watch, [0, 1]) == Change::Faster);
    }
    assert!(slower >= 190 && faster >= 190, "of 200 found {slower} slower, {faster} faster");
}

#[test]
fn two_runs_of_the_same_agree_within_their_uncertainty() {
    // Waves that are shorter than a run; what is slower is for samples in turns, see below.
    let (mut case, mut watch) = bench(Nature { period_us: 3000.0, ..Nature::steady(3) });
    let effort = Effort { rule: Rule::Precision, least: 10, most: 1000, budget_us: 1e9, precision: 0.003 };
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

#[test]
fn two_runs_agree_on_the_share_of_a_probe_however_slowly_the_device_drifts() {
    let (mut case, mut watch) = bench(Nature::steady(4));
    let mut run = || {
        let [kernel, probe] = compare(&mut case, &mut watch, [1, 0], 60);
        paired_ratio(&kernel.samples_us, &probe.samples_us).unwrap()
    };
    let agree = (0..200).filter(|_| run().agrees_with(&run())).count();
    assert!(agree >= 190, "{agree} of 200 pairs of runs agree");
}

/// Whether the clock is low, for 2 ms in every 23.
fn falls_now_and_then(us: f64) -> bool {
    (8000.0..10_000.0).contains(&(us % 23_000.0))
}

#[test]
fn samples_of_a_clock_that_fell_are_rejected() {
    let (mut case, mut watch) = bench(Nature { low: falls_now_and_then, ..Nature::steady(5) });
    let timing = watch.time(&mut case, &configuration(0), Mode::Cold, Effort::samples(300)).unwrap();
    assert_eq!((timing.samples_us.len(), timing.throttled), (300, false));
    assert!(timing.rejected >= 15, "{}", timing.rejected);
    assert!(timing.clocks_mhz.iter().all(|mhz| *mhz == FULL_MHZ), "{timing:?}");
    let p90 = timing.summary().unwrap().p90;
    assert!(p90 < 124.2, "the times of the low clock are over 131 µs: {p90}");
    let [new, old] = compare(&mut case, &mut watch, [0, 0], 200);
    assert!(new.rejected >= 8 && new.rejected == old.rejected, "{} {}", new.rejected, old.rejected);
    assert!(new.clocks_mhz.iter().chain(&old.clocks_mhz).all(|mhz| *mhz == FULL_MHZ));
    assert_eq!((new.samples_us.len(), old.samples_us.len()), (200, 200));
    // And without the guard they are not.
    watch.set_guard(Guard { share: 0.0, ..Guard::default() });
    let lax = watch.time(&mut case, &configuration(0), Mode::Cold, Effort::samples(300)).unwrap();
    assert!(lax.rejected == 0 && lax.clocks_mhz.contains(&LOW_MHZ) && lax.summary().unwrap().p90 > 131.0);
}

#[test]
fn a_clock_that_falls_for_good_is_told_with_the_times() {
    let (mut case, mut watch) = bench(Nature { low: |us| us > 24_000.0, ..Nature::steady(6) });
    let before = watch.time(&mut case, &configuration(0), Mode::Cold, Effort::samples(100)).unwrap();
    assert!(!before.throttled && before.rejected == 0);
    let during = watch.time(&mut case, &configuration(0), Mode::Cold, Effort::samples(200)).unwrap();
    assert!(during.throttled, "{during:?}");
    let after = watch.time(&mut case, &configuration(0), Mode::Cold, Effort::samples(100)).unwrap();
    assert!(after.throttled && after.clocks_mhz.iter().all(|mhz| *mhz == LOW_MHZ));
}
