//! [`Document`]: the results of a run.
//!
//! After [`Document::write`], the file contains either the whole new document or its previous contents. Times that have
//! been read from a document are positive and finite. Fields can be added within a [`SCHEMA`] version, but are neither
//! changed nor removed.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use warpsmith_runtime::Device;

use crate::error::{Error, Result};
use crate::file::{read_text, write_text};
use crate::measure::{Mode, Timing};
use crate::size::format_size;
use crate::stats::{Summary, summarize};
use crate::value::Configuration;

/// Version of the document format.
pub const SCHEMA: u32 = 2;

/// Fraction of the maximum clock below which the clocks of a run are considered low.
const LOW_CLOCK: f64 = 0.95;

/// Maximum size of a file to be read, in bytes.
const MAX_BYTES: u64 = 128 << 20;

/// Part of a document that determines whether the rest can be read.
#[derive(Deserialize)]
struct Schema {
    schema: Option<u32>,
}

/// All results of a run on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Version of the format: [`SCHEMA`].
    pub schema: u32,
    /// Command, time and versions of the run.
    pub run: RunInfo,
    /// Device on which the run was measured.
    pub device: DeviceInfo,
    /// Peak rates measured on the device, in the order in which the probes were first timed.
    pub probes: Vec<ProbeResult>,
    /// One record for each kernel, type, size, mode and configuration.
    pub results: Vec<Record>,
}

/// Command, time and versions of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Command: `bench` or `tune`.
    pub command: String,
    /// Start time in seconds since 1970.
    pub started: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Version of Warpsmith.
    pub version: String,
    /// Toolchain of the kernels: the versions of rustc, LLVM and ptxas. For an emulated device, the version of the
    /// rustc that compiled the program.
    pub toolchain: String,
    /// True if the run was stopped early.
    pub interrupted: bool,
}

/// Device of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Device ID as passed to `--device`, for example `cuda:0` or `cpu:0`.
    pub id: String,
    /// Product name.
    pub name: String,
    /// True for the emulated device, whose times do not represent a GPU.
    pub emulated: bool,
    /// Compute capability, for example `9.0`.
    pub capability: String,
    /// Number of SMs.
    pub multiprocessors: u32,
    /// Device memory in bytes.
    pub memory: u64,
    /// L2 cache in bytes.
    pub l2_cache: u64,
    /// Memory bandwidth according to the data sheet, in GB/s (10^9 bytes per second); `None` for an emulated device.
    pub memory_gbps: Option<f64>,
    /// Driver version.
    pub driver: String,
    /// CUDA version that the driver supports; empty in older documents and for an emulated device.
    #[serde(default)]
    pub cuda: String,
    /// State of the device when the run started.
    pub before: Condition,
    /// State of the device when the run ended.
    pub after: Condition,
}

/// State that a device reports. Fields that the device does not report are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Maximum SM clock in MHz.
    pub max_sm_clock_mhz: Option<u32>,
    /// Memory clock in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power draw in watts.
    pub power_w: Option<f64>,
    /// Power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Reasons for low clocks; empty if the device is not throttled.
    pub throttle_reasons: Vec<String>,
}

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Name: `copy`, `read` or `fma`.
    pub name: String,
    /// Throughput in GB/s (10^9 bytes per second); 0 for a probe that only computes.
    pub gbps: f64,
    /// Arithmetic rate in GFLOP/s; 0 for a probe that only moves data.
    pub gflops: f64,
    /// Number of samples. They were interleaved with the samples of the kernels.
    pub samples: usize,
}

/// Outcome of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The whole output matched the float64 reference.
    Correct,
    /// At least one output element did not match the float64 reference.
    Incorrect,
    /// The configuration was rejected, or its launch failed.
    Failed,
    /// The process or the device crashed.
    Crashed,
}

/// Result of one measurement of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    /// Outcome of the configuration.
    pub outcome: Outcome,
    /// Error message; empty if there was no error.
    pub problem: String,
    /// Largest difference from the reference.
    pub max_error: Option<f64>,
    /// Times of the configuration, provided that it is correct.
    pub timing: Option<Timing>,
}

impl Measured {
    /// Returns the median time in microseconds.
    pub fn median_us(&self) -> Option<f64> {
        self.timing.as_ref()?.summary().map(|summary| summary.median)
    }
}

/// Configuration that was measured and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the kernel.
    pub kernel: String,
    /// Element type.
    pub dtype: String,
    /// Number of elements.
    pub n: u64,
    /// Launch configuration.
    pub configuration: Configuration,
    /// True for the configuration that is used without tuning.
    pub is_default: bool,
    /// True if a tuning run selected this configuration; always false in other documents.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_winner: bool,
    /// Outcome of the configuration.
    pub outcome: Outcome,
    /// Error message; empty if there was no error.
    pub problem: String,
    /// Largest difference from the reference; `null` if the output was not compared, or if the difference is NaN or
    /// infinite.
    pub max_error: Option<f64>,
    /// Minimum number of bytes that the kernel reads and writes.
    pub bytes: u64,
    /// Floating-point operations of the kernel; 0 if they are irrelevant to its speed.
    pub flops: u64,
    /// Times; `None` if the configuration was rejected, failed or was incorrect.
    pub timing: Option<Timing>,
    /// Time in microseconds that the probe, interleaved with the kernel, takes for the same bytes or operations; `None`
    /// without probes.
    pub probe_us: Option<f64>,
    /// Requested mode.
    #[serde(default)]
    pub mode: Mode,
}

impl Record {
    /// Returns the percentiles of the times.
    pub fn summary(&self) -> Option<Summary> {
        summarize(&self.timing.as_ref()?.samples_us)
    }

    /// Returns the median time in microseconds.
    pub fn median_us(&self) -> Option<f64> {
        self.summary().map(|summary| summary.median)
    }

    /// Returns true if the result is correct and the configuration was timed.
    pub fn is_usable(&self) -> bool {
        self.outcome == Outcome::Correct && self.median_us().is_some()
    }

    /// Returns the mode of the times or, if there are no times, the requested mode.
    pub fn mode(&self) -> Mode {
        self.timing.as_ref().map_or(self.mode, |timing| timing.mode)
    }

    /// Returns the throughput at the median time, in GB/s (10^9 bytes per second). Returns `None` if the kernel does
    /// not move bytes.
    pub fn gbps(&self) -> Option<f64> {
        if self.bytes == 0 {
            return None;
        }
        self.median_us().map(|us| self.bytes as f64 / us / 1e3)
    }

    /// Returns the throughput as a fraction of the memory bandwidth according to the data sheet; 1 means 100 %.
    pub fn of_datasheet(&self, device: &DeviceInfo) -> Option<f64> {
        Some(self.gbps()? / device.memory_gbps?)
    }

    /// Returns the throughput as a fraction of the interleaved probe's throughput. Returns `None` if there are no
    /// times, or if the kernel neither moves bytes nor computes.
    pub fn of_probe(&self) -> Option<f64> {
        if self.bytes.max(self.flops) == 0 {
            return None;
        }
        Some(self.probe_us? / self.median_us()?)
    }

    /// Returns the kernel, the type, the size and the mode.
    pub fn case(&self) -> (&str, &str, u64, Mode) {
        (&self.kernel, &self.dtype, self.n, self.mode())
    }
}

impl DeviceInfo {
    /// Reads the properties of a device.
    pub fn of(device: &Device) -> Self {
        let properties = device.properties();
        let bandwidth = properties.memory_bandwidth;
        Self {
            id: device.id().to_string(),
            name: properties.name.clone(),
            emulated: device.is_emulated(),
            capability: format!("{}.{}", properties.capability.0, properties.capability.1),
            multiprocessors: properties.multiprocessors,
            memory: properties.total_memory,
            l2_cache: properties.l2_cache,
            memory_gbps: (!device.is_emulated() && bandwidth > 0).then_some(bandwidth as f64 / 1e9),
            driver: device
                .telemetry()
                .ok()
                .and_then(|now| now.driver_version)
                .unwrap_or_else(|| properties.driver_version.clone()),
            cuda: if device.is_emulated() { String::new() } else { properties.driver_version.clone() },
            before: Condition::default(),
            after: Condition::default(),
        }
    }
}

impl Condition {
    /// Reads the current state of a device. Fields that the device does not report are `None`.
    pub fn of(device: &Device) -> Self {
        let now = device.telemetry().unwrap_or_default();
        Self {
            sm_clock_mhz: now.sm_clock_mhz,
            max_sm_clock_mhz: now.max_sm_clock_mhz,
            memory_clock_mhz: now.memory_clock_mhz,
            temperature_c: now.temperature_c,
            power_w: now.power_w,
            power_limit_w: now.power_limit_w,
            throttle_reasons: now.throttle_reasons,
        }
    }
}

impl Document {
    /// Returns true if every configuration was correct.
    pub fn all_correct(&self) -> bool {
        self.results.iter().all(|record| record.outcome == Outcome::Correct)
    }

    /// Groups the records by kernel, type, size and mode, in the order of measurement.
    pub fn cases(&self) -> Vec<Vec<&Record>> {
        let (mut cases, mut places) = (Vec::<Vec<&Record>>::new(), HashMap::new());
        for record in &self.results {
            let place = *places.entry(record.case()).or_insert(cases.len());
            if place == cases.len() {
                cases.push(Vec::new());
            }
            cases[place].push(record);
        }
        cases
    }

    /// Returns the best record for each kernel, type, size and mode. The best record is the winner of a tuning run or,
    /// if no record is a winner, the fastest correct configuration. The order is the same as in [`Self::cases`].
    pub fn best(&self) -> Vec<&Record> {
        self.cases().iter().filter_map(|case| best(case)).collect()
    }

    /// Returns the median clock of all samples and the maximum clock of the device, in MHz, if the median is below 95 %
    /// of the maximum.
    pub fn low_clock(&self) -> Option<(u32, u32)> {
        let highest = self.device.after.max_sm_clock_mhz.or(self.device.before.max_sm_clock_mhz)?;
        let timings = self.results.iter().filter_map(|record| record.timing.as_ref());
        let mut clocks: Vec<u32> = timings.flat_map(|timing| timing.clocks_mhz.iter().copied()).collect();
        clocks.sort_unstable();
        let usual = *clocks.get(clocks.len() / 2)?;
        (f64::from(usual) < LOW_CLOCK * f64::from(highest)).then_some((usual, highest))
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Returns [`Error::Read`] if the file does not exist or is larger than 128 MiB, or if [`Self::from_json`] fails.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, MAX_BYTES)?;
        Self::from_json(&text).map_err(|reason| Error::Read { path: path.to_path_buf(), reason })
    }

    /// Parses a document from JSON text.
    ///
    /// # Errors
    /// Returns a message with the cause: malformed JSON, a different schema, or an impossible launch time.
    pub fn from_json(text: &str) -> std::result::Result<Self, String> {
        let no_document = |error: serde_json::Error| format!("it is not a results file: {error}");
        match serde_json::from_str(text).map_err(no_document)? {
            Schema { schema: Some(SCHEMA) } => {}
            Schema { schema: Some(schema) } => {
                return Err(format!(
                    "its schema is {schema}, but this version reads {SCHEMA}; measure again"
                ));
            }
            Schema { schema: None } => {
                return Err("it is not a results file: it has no schema".to_owned());
            }
        }
        let document: Self = serde_json::from_str(text).map_err(no_document)?;
        let mut times = document
            .results
            .iter()
            .enumerate()
            .filter_map(|(i, r)| Some((i, r, r.timing.as_ref()?.impossible()?)));
        match times.next() {
            None => Ok(document),
            Some((index, Record { kernel, dtype, n, configuration, .. }, us)) => Err(format!(
                "record {} ({kernel} {dtype} {} {configuration}) has a time of {us} µs, which is impossible; measure again",
                index + 1,
                format_size(*n)
            )),
        }
    }

    /// Formats the document as JSON text that ends with a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data always becomes JSON");
        text.push('\n');
        text
    }

    /// Writes the document to `path`, creating missing parent folders.
    ///
    /// # Errors
    /// Returns [`Error::Write`], which contains the path and the system's error.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_text(path, &self.to_json())
    }
}

/// Returns the best usable record of a case: the winner of a tuning run or, if no record is a winner, the fastest
/// record.
pub fn best<'a>(case: &[&'a Record]) -> Option<&'a Record> {
    case.iter().copied().rfind(|record| record.is_winner && record.is_usable()).or_else(|| fastest(case))
}

/// Returns the fastest usable record of a case.
pub fn fastest<'a>(case: &[&'a Record]) -> Option<&'a Record> {
    let usable = case.iter().copied().filter(|record| record.is_usable());
    usable.min_by(|a, b| {
        a.median_us().unwrap_or(f64::INFINITY).total_cmp(&b.median_us().unwrap_or(f64::INFINITY))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::file::check_writable;
    use crate::measure::StopReason;

    pub(crate) fn record(kernel: &str, block: u32, median_us: f64, outcome: Outcome) -> Record {
        Record {
            kernel: kernel.to_string(),
            dtype: "f32".to_string(),
            n: 65536,
            configuration: Configuration::default()
                .with("block", block)
                .with("grid", "waves:4")
                .with("items", 2u32),
            is_default: block == 128,
            is_winner: false,
            outcome,
            problem: String::new(),
            max_error: (outcome == Outcome::Correct).then_some(0.0),
            bytes: 524288,
            flops: 0,
            timing: Some(Timing {
                mode: Mode::Cold,
                samples_us: [0.9, 1.0, 1.0, 1.0, 1.1].map(|factor| factor * median_us).to_vec(),
                clocks_mhz: vec![1980; 5],
                rejected: 0,
                throttled: false,
                launches_per_sample: 8,
                stop: StopReason::Precision,
            }),
            probe_us: Some(median_us * 0.9),
            mode: Mode::Cold,
        }
    }

    pub(crate) fn document(results: Vec<Record>) -> Document {
        let device = DeviceInfo {
            id: "cuda:0".to_string(),
            name: "NVIDIA H200".to_string(),
            emulated: false,
            capability: "9.0".to_string(),
            multiprocessors: 132,
            memory: 1 << 37,
            l2_cache: 50 << 20,
            memory_gbps: Some(4800.0),
            driver: "580.95".to_string(),
            cuda: "13.0".to_string(),
            before: Condition::default(),
            after: Condition::default(),
        };
        let run = RunInfo { command: "bench".to_string(), ..RunInfo::default() };
        Document { schema: SCHEMA, run, device, probes: Vec::new(), results }
    }

    #[test]
    fn the_json_has_the_promised_shape() {
        let document = document(vec![
            record("copy", 256, 10.0, Outcome::Correct),
            record("copy", 512, 9.0, Outcome::Incorrect),
        ]);
        let value: serde_json::Value = serde_json::from_str(&document.to_json()).unwrap();
        assert_eq!(value["schema"], 2);
        assert_eq!(value["device"]["memory_gbps"], 4800.0);
        let first = value["results"][0].as_object().unwrap();
        for key in "kernel dtype n configuration outcome max_error bytes timing probe_us".split(' ') {
            assert!(first.contains_key(key), "{key}");
        }
        assert_eq!(first["configuration"], serde_json::json!({"block": 256, "grid": "waves:4", "items": 2}));
        assert!(value["results"][1]["max_error"].is_null());
        assert_eq!(serde_json::from_value::<Document>(value).unwrap(), document);
    }

    #[test]
    fn an_incorrect_configuration_is_never_the_best() {
        let document = document(vec![
            record("copy", 128, 10.0, Outcome::Correct),
            record("copy", 256, 1.0, Outcome::Incorrect),
            record("copy", 512, 9.0, Outcome::Correct),
            record("axpy", 128, 5.0, Outcome::Correct),
        ]);
        let best: Vec<_> = document
            .best()
            .iter()
            .map(|r| (r.kernel.as_str(), r.configuration.number("block").unwrap()))
            .collect();
        assert_eq!(best, [("copy", 512), ("axpy", 128)]);
        assert!(!document.all_correct());
        assert_eq!(document.cases().len(), 2);
    }

    #[test]
    fn a_chosen_record_is_best_before_faster_ones() {
        let mut records =
            vec![record("copy", 128, 10.0, Outcome::Correct), record("copy", 256, 9.99, Outcome::Correct)];
        records[0].is_winner = true;
        let block = |document: &Document| document.best()[0].configuration.number("block").unwrap();
        assert_eq!(block(&document(records.clone())), 128);
        records[0].outcome = Outcome::Incorrect;
        assert_eq!(block(&document(records)), 256, "an incorrect configuration never wins");
    }

    #[test]
    fn low_clocks_are_seen_from_the_start() {
        let mut document = document(vec![record("copy", 128, 10.0, Outcome::Correct)]);
        assert_eq!(document.low_clock(), None, "the highest is not known");
        for (highest, low) in [(1980, None), (2084, None), (2085, Some((1980, 2085)))] {
            document.device.before.max_sm_clock_mhz = Some(highest);
            assert_eq!(document.low_clock(), low, "{highest}");
        }
        document.results.clear();
        assert_eq!(document.low_clock(), None);
    }

    #[test]
    fn figures_follow_from_the_times() {
        let document = document(vec![record("copy", 128, 10.0, Outcome::Correct)]);
        let record = &document.results[0];
        assert_eq!(record.median_us(), Some(10.0));
        assert!((record.gbps().unwrap() - 52.4288).abs() < 1e-9);
        assert!((record.of_datasheet(&document.device).unwrap() - 52.4288 / 4800.0).abs() < 1e-9);
        assert!((record.of_probe().unwrap() - 0.9).abs() < 1e-9);
        let none =
            |record: &Record| (record.gbps(), record.of_datasheet(&document.device), record.of_probe());
        let nothing = Record { bytes: 0, ..record.clone() };
        assert_eq!(none(&nothing), (None, None, None));
        let failed = Record { timing: None, mode: Mode::Hot, ..record.clone() };
        assert_eq!(failed.mode(), Mode::Hot);
    }

    #[test]
    fn documents_are_written_whole_and_read_back() {
        let folder = std::env::temp_dir().join(format!("warpsmith-document-{}", std::process::id()));
        let path = folder.join("a/b/results.json");
        document(vec![record("copy", 128, 10.0, Outcome::Correct)]).write(&path).unwrap();
        let empty = document(vec![]);
        empty.write(&path).unwrap();
        assert_eq!(Document::read(&path).unwrap(), empty);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        check_writable(&folder.join("c/new.json")).unwrap();
        assert_eq!(fs::read_dir(folder.join("c")).unwrap().count(), 0);
        for (bad, name) in [(path.join("below-a-file.json"), "below-a-file.json"), (folder.join("c"), "c")] {
            for error in [check_writable(&bad).unwrap_err(), document(vec![]).write(&bad).unwrap_err()] {
                let message = error.to_string();
                assert!(message.contains(name) && message.contains("--out"), "{message}");
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn impossible_times_are_refused_with_their_record() {
        let good = record("copy", 128, 10.0, Outcome::Correct);
        assert!(Document::from_json(&document(vec![good.clone()]).to_json()).is_ok());
        for us in [0.0, -3.0] {
            let mut sampled = record("axpy", 256, 10.0, Outcome::Correct);
            sampled.timing.as_mut().unwrap().samples_us[2] = us;
            let message = Document::from_json(&document(vec![good.clone(), sampled]).to_json()).unwrap_err();
            for words in ["record 2 (axpy f32 2^16 block=256", &format!("a time of {us} µs")] {
                assert!(message.contains(words), "{words}: {message}");
            }
        }
        let mut odd = good.timing.unwrap();
        odd.samples_us[0] = f64::INFINITY;
        assert_eq!(odd.impossible(), Some(f64::INFINITY));
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let folder = std::env::temp_dir().join(format!("warpsmith-no-document-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file.json");
        for (text, words) in [
            ("{", "is not a results file"),
            ("{}", "no schema"),
            (r#"{"schema":1}"#, "schema is 1"),
            (r#"{"schema":2}"#, "is not a results file"),
        ] {
            fs::write(&path, text).unwrap();
            let message = Document::read(&path).unwrap_err().to_string();
            assert!(message.contains(words) && message.contains("file.json"), "{message}");
        }
        assert!(
            Document::read(&folder.join("missing.json")).unwrap_err().to_string().contains("missing.json")
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
