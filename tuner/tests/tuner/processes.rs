//! Two processes say the same of a configuration, also when one is told to measure and the other to tune. What is timed
//! are copies of about 3 µs to 1 ms of simulated time: as many microseconds as there are 64 bytes, with 1 % of noise, one
//! in fifty a third slower, and a wave that is shorter than a timing. Each process has noise of its own. That processes
//! agree on a GPU is tested with real kernels, by the command line.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use gpu_spec::KernelSpec;
use serde::{Deserialize, Serialize};
use warpsmith_runtime::driver::emulated::{EmulatedDriver, Schedule, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_store::LaunchStore;
use warpsmith_tuner::benchmark::{Benchmark, Probe, Setup, Suite, Work};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::document::Record;
use warpsmith_tuner::error::Result;
use warpsmith_tuner::log::Log;
use warpsmith_tuner::measure::{Effort, Mode};
use warpsmith_tuner::run::{Plan, Request};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::stats::ratio;
use warpsmith_tuner::tune::{Event, Tuning, tune};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

use super::fakes::normal;

/// What a child does: `bench` or `tune`, and the seed of its noise.
const CHILD: &str = "WARPSMITH_TEST_PROCESS";
/// What the lines of a child begin with that are results.
const PREFIX: &str = "measured:";
/// What an empty pair of events reads on a GPU, in microseconds. Simulated events read nothing.
const EVENTS_US: f64 = 1.5;
/// By how much medians may differ whose intervals do not hold each other.
const NEAR: f64 = 0.02;

static IMAGE: GpuImage = GpuImage::without_code("moves", "0.0.0", "these copies are no kernels");

/// A copy of as many bytes as its size. Its two configurations are the same.
struct Moves;

struct Buffers {
    stream: Stream,
    pairs: Vec<[DeviceBuffer<u8>; 2]>,
}

impl Buffers {
    fn new(stream: &Stream, bytes: usize, pairs: usize) -> Result<Self> {
        let pair = || Ok([DeviceBuffer::zeros(stream, bytes)?, DeviceBuffer::zeros(stream, bytes)?]);
        Ok(Self { stream: stream.clone(), pairs: (0..pairs).map(|_| pair()).collect::<Result<_>>()? })
    }
}

impl Case for Buffers {
    fn copies(&self) -> usize {
        self.pairs.len()
    }

    fn select(&mut self, _: &Configuration) -> Result<()> {
        Ok(())
    }

    fn launch(&mut self, copy: usize) -> Result<()> {
        let [from, to] = &mut self.pairs[copy];
        Ok(to.copy_from(&*from)?)
    }

    fn check(&mut self) -> Result<Check> {
        self.launch(0)?;
        self.stream.synchronize()?;
        Ok(Check { wrong: 0, max_error: 0.0, first: None })
    }
}

fn work(bytes: u64) -> Work {
    Work { bytes: 2 * bytes, flops: 0, footprint: 2 * bytes, spare: bytes }
}

impl Benchmark for Moves {
    fn name(&self) -> &str {
        "moves"
    }

    fn image(&self) -> &'static GpuImage {
        &IMAGE
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        Space::new().axis("block", [64, 128])
    }

    fn default_configuration(&self, _: &str, _: u64, _: &Device) -> Configuration {
        Configuration::default().with("block", 64)
    }

    fn work(&self, _: &str, n: u64) -> Work {
        work(n)
    }

    fn instance(&self, _: &str, _: &Configuration) -> Option<&'static KernelSpec> {
        None
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        Ok(Box::new(Buffers::new(setup.stream, setup.n, setup.copies)?))
    }
}

fn probes(stream: &Stream) -> Result<Vec<Probe>> {
    let bytes: u64 = 1 << 14;
    let case = Box::new(Buffers::new(stream, bytes as usize, 2)?);
    Ok(vec![Probe { name: "copy", work: work(bytes), configuration: Configuration::default(), case }])
}

fn simulated(seed: u64) -> Device {
    let state = Mutex::new((Rng::with_seed(seed), 0.0));
    let model = move |work: &SimulatedWork<'_>| {
        let SimulatedWork::Copy { bytes } = work else { return 0.0 };
        let (random, now_us) = &mut *state.lock().unwrap();
        let mut us = *bytes as f64 / 64.0 * (0.01 * normal(random)).exp();
        us *= if random.f64() < 0.02 { 1.3 } else { 1.0 };
        us *= 1.0 + 0.005 * (*now_us / 3000.0 * std::f64::consts::TAU).sin();
        *now_us += us;
        us
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    Device::with_driver(driver, 0).unwrap()
}

/// Bytes; where a launch is about as long as a sample must be, or a whole part of it, processes are likeliest to differ.
fn sizes() -> Vec<u64> {
    [3.0, 6.5, 19.9, 33.4, 99.5, 250.0, 1000.0].map(|us| (us * 64.0) as u64).to_vec()
}

/// What a process says of a configuration.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    n: u64,
    configuration: String,
    samples_us: Vec<f64>,
    launches: u32,
}

/// The child: this very test, when it is started so.
#[test]
fn measures_when_it_is_a_child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (command, seed) = what.split_once(' ').unwrap();
    let device = simulated(seed.parse().unwrap());
    LaunchStore::in_memory().install(&device);
    let suite = Suite { benchmarks: vec![Box::new(Moves)], probes };
    let request = Request {
        kernels: vec!["moves".to_owned()],
        dtypes: Vec::new(),
        sizes: sizes(),
        axes: Vec::new(),
        mode: Mode::Cold,
        effort: Effort::NORMAL,
    };
    let plan = Plan::new(&suite, &device, &request).unwrap();
    let (stop, mut records) = (Arc::default(), Vec::<Record>::new());
    if command == "tune" {
        let tuning = Tuning { probes: true, ..Tuning::default() };
        tune(&plan, &tuning, &mut Log::in_memory(), &stop, &mut |event| match event {
            Event::Done { tuned, .. } => records.extend_from_slice(&tuned.records),
            Event::Note(note) => panic!("{note}"),
            _ => {}
        })
        .unwrap();
    } else {
        plan.run(true, &stop, |_, record| records.push(record)).unwrap();
    }
    for record in records {
        assert!(record.probe_us.is_some(), "{record:?}");
        let timing = record.timing.unwrap();
        let said = Said {
            n: record.n,
            configuration: record.configuration.to_string(),
            samples_us: timing.samples_us,
            launches: timing.launches_per_sample,
        };
        println!("\n{PREFIX}{}", serde_json::to_string(&said).unwrap());
    }
}

fn child(command: &str, seed: usize) -> Vec<Said> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::measures_when_it_is_a_child", "--nocapture"])
        .env(CHILD, format!("{command} {seed}"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.lines().filter_map(|line| Some(serde_json::from_str(line.strip_prefix(PREFIX)?).unwrap())).collect()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The samples with what the events of each cost.
fn with_events(said: &Said) -> Vec<f64> {
    let events_us = EVENTS_US / f64::from(said.launches);
    said.samples_us.iter().map(|us| us + events_us).collect()
}

#[test]
fn a_process_that_measures_and_one_that_tunes_agree_and_so_do_two_that_measure() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let (mut agree, mut all, mut worst) = (0, 0, 0.0f64);
    for round in 0..2 {
        let first = child("bench", 3 * round + 1);
        let others = [child("tune", 3 * round + 2), child("bench", 3 * round + 3)];
        assert_eq!(first.len(), 2 * sizes().len());
        for (command, other) in ["tune", "bench"].into_iter().zip(others) {
            assert_eq!(other.len(), first.len(), "{command}");
            for one in &first {
                let same = |said: &&Said| (said.n, &said.configuration) == (one.n, &one.configuration);
                let said = other.iter().find(same).unwrap();
                let samples = [one, said].map(with_events);
                let [a, b] = samples.each_ref().map(|samples| median(samples));
                let within =
                    ratio(&samples[0], &samples[1]).is_some_and(|ratio| ratio.interval.contains(1.0));
                let difference = (a / b - 1.0).abs();
                all += 1;
                agree += usize::from(within || difference <= NEAR);
                worst = worst.max(difference);
                if !(within || difference <= NEAR) {
                    let (n, configuration, launches) = (one.n, &one.configuration, one.launches);
                    println!(
                        "{n} {configuration}: bench {a:.3} us of {launches} launches, {command} {b:.3} us of {}: {:+.2} %",
                        said.launches,
                        (b / a - 1.0) * 100.0
                    );
                }
            }
        }
    }
    println!("{agree} of {all} agree; the largest difference is {:.2} %", worst * 100.0);
    assert!(agree * 100 >= all * 95, "{agree} of {all} agree");
}
