//! Benchmark whose configurations cover all possible failures, and devices on which to run it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gpu_spec::{KernelSpec, TypeArgument};
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::emulated::{EmulatedDriver, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Suite, Work};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::measure::{Effort, Mode};
use warpsmith_tuner::run::{Plan, Request};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::tune::{Event, Totals, Tuned, Tuning, tune};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::{Check, Mismatch};

static IMAGE: GpuImage = GpuImage::without_code("fakes", "0.0.0", "these kernels are not compiled for GPUs");

/// Kernel instance of every configuration.
pub static SPEC: KernelSpec = {
    let mut spec = KernelSpec::new("fakes", "0.0.0", "fake__f32", &[], entry);
    spec.info.name = "fake";
    spec.info.types = &[TypeArgument { parameter: "T", name: "f32" }];
    spec
};

unsafe fn entry(_: *const *const c_void) {}

/// Kernel that fills one byte for each microsecond that its block size should take.
pub struct Fake {
    /// Values of the axis `does`, which is the additional behavior of a configuration.
    pub does: Vec<&'static str>,
    /// Driver of the device that the behavior `stops` stops.
    pub driver: Option<Arc<EmulatedDriver>>,
    /// Configurations that were checked or launched in this process, in order and without consecutive duplicates.
    pub seen: Arc<Mutex<Vec<String>>>,
}

/// Microseconds for each block size on the device of [`simulated`]; 128 is the default.
pub const TIMES: [(u32, usize); 4] = [(64, 400), (128, 300), (256, 200), (512, 250)];

impl Fake {
    pub fn new(does: &[&'static str]) -> Self {
        let does = std::iter::once("well").chain(does.iter().copied()).collect();
        Self { does, driver: None, seen: Arc::default() }
    }
}

impl Benchmark for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn image(&self) -> &'static GpuImage {
        &IMAGE
    }

    fn space(&self, _: &str, _: &Device) -> Space {
        Space::new()
            .axis("block", TIMES.map(|(block, _)| block))
            .axis("does", self.does.iter().copied())
            .restrict("trouble in blocks of 256", |c| {
                c.get("does").is_some_and(|does| does.to_string() == "well")
                    || c.number("block").is_ok_and(|b| b == 256)
            })
    }

    fn default_configuration(&self, _: &str, _: u64, _: &Device) -> Configuration {
        "block=128 does=well".parse().unwrap()
    }

    fn work(&self, _: &str, n: u64) -> Work {
        Work { bytes: 4 * n, flops: 0, footprint: 4 * n, spare: 0 }
    }

    fn instance(&self, _: &str, _: &Configuration) -> Option<&'static KernelSpec> {
        Some(&SPEC)
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        Ok(Box::new(FakeCase {
            stream: setup.stream.clone(),
            buffer: DeviceBuffer::zeros(setup.stream, 4096)?,
            chosen: None,
            launches: 0,
            checks: HashMap::new(),
            driver: self.driver.clone(),
            seen: self.seen.clone(),
        }))
    }
}

struct FakeCase {
    stream: Stream,
    buffer: DeviceBuffer<u8>,
    chosen: Option<(usize, String)>,
    /// Number of launches of the selected configuration.
    launches: usize,
    /// Number of checks per configuration.
    checks: HashMap<String, usize>,
    driver: Option<Arc<EmulatedDriver>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Case for FakeCase {
    fn copies(&self) -> usize {
        1
    }

    fn select(&mut self, configuration: &Configuration) -> Result<()> {
        let mut seen = self.seen.lock().unwrap();
        if seen.last() != Some(&configuration.to_string()) {
            seen.push(configuration.to_string());
        }
        let block = configuration.number("block")?;
        let does = configuration.get("does").unwrap().to_string();
        let bytes = match does.as_str() {
            "races" => 100,
            _ => TIMES.iter().find(|(known, _)| *known == block).unwrap().1,
        };
        self.launches = 0;
        self.chosen = Some((bytes, does));
        Ok(())
    }

    fn launch(&mut self, _: usize) -> Result<()> {
        let (bytes, does) = self.chosen.clone().ok_or(Error::NothingSelected)?;
        self.launches += 1;
        match does.as_str() {
            "fails" => return Err(Error::Launch("too many resources requested".into())),
            "stops" => {
                let (kind, message) = (FaultKind::Panic, "index out of bounds".to_owned());
                let (location, kernel, block, thread) = (None, None, None, None);
                let fault = Fault { kind, message, location, kernel, block, thread };
                self.driver.as_ref().unwrap().poison(0, fault);
            }
            _ => {}
        }
        Ok(self.stream.memset(self.buffer.slice_mut(..bytes), 1)?)
    }

    fn check(&mut self) -> Result<Check> {
        self.launch(0)?;
        self.stream.synchronize()?;
        let incorrect = self.chosen.as_ref().is_some_and(|(_, does)| match does.as_str() {
            "errs" => true,
            "wears" => self.launches > 1,
            "races" => {
                let checks = self.checks.entry(does.clone()).or_default();
                *checks += 1;
                // It is correct only before and after its first timing.
                *checks > 2
            }
            _ => false,
        });
        Ok(match incorrect {
            true => {
                let first = Mismatch { index: 2, found: 1.0, expected: 0.0, allowed: 0.5 };
                Check { compared: 9, incorrect: 3, max_error: 1.0, first: Some(first) }
            }
            false => Check { compared: 9, incorrect: 0, max_error: 0.0, first: None },
        })
    }
}

/// Creates a device on which filling a byte takes a microsecond.
pub fn simulated() -> (Arc<EmulatedDriver>, Device) {
    let model = |work: &SimulatedWork<'_>| match work {
        SimulatedWork::Set { bytes } => *bytes as f64,
        _ => 1.0,
    };
    let driver = EmulatedDriver::builder().memory(64 << 20).simulated_time(model).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

pub fn suite(fake: Fake) -> Suite {
    Suite { benchmarks: vec![Box::new(fake)], left_out: Vec::new(), probes: |_| Ok(Vec::new()) }
}

pub fn request(sizes: &[u64]) -> Request {
    Request {
        kernels: vec!["fake".to_owned()],
        dtypes: Vec::new(),
        sizes: sizes.to_vec(),
        axes: Vec::new(),
        mode: Mode::Cold,
        effort: Effort { minimum: 6, most: 6, ..Effort::QUICK },
        seed: Some(7),
    }
}

/// Result of a run, with its cases and its notes.
pub struct Outcomes {
    pub totals: Result<Totals>,
    pub cases: Vec<Tuned>,
    pub notes: Vec<String>,
}

impl Outcomes {
    /// Returns the record of a configuration in the only case.
    pub fn record(&self, configuration: &str) -> &warpsmith_tuner::document::Record {
        let records = &self.cases[0].records;
        records.iter().find(|record| record.configuration.to_string() == configuration).unwrap_or_else(|| {
            panic!(
                "{configuration} is not among {:?}",
                records.iter().map(|r| r.configuration.to_string()).collect::<Vec<_>>()
            )
        })
    }

    pub fn winner(&self) -> String {
        self.cases[0].winner().unwrap().configuration.to_string()
    }
}

/// Tunes all cases, and ends after `most` trials.
pub fn run(suite: &Suite, device: &Device, sizes: &[u64], tuning: &Tuning, most: usize) -> Outcomes {
    let plan = Plan::new(suite, device, &request(sizes)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    let totals = tune(&plan, tuning, &stop, &mut |event| match event {
        Event::Measured { trials, .. } => {
            if trials >= most {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Event::Done { tuned, .. } => cases.push(tuned.clone()),
        Event::Probed(_) => {}
        Event::Note(note) => notes.push(note.to_owned()),
    });
    Outcomes { totals, cases, notes }
}

/// New folder, which is removed when the value is dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warpsmith-tune-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Draws from the standard normal distribution (Box-Muller transform).
pub fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}
