//! A line of the log: what was measured, and what came out.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use warpsmith_runtime::Device;

use crate::document::Outcome;
use crate::measure::{Effort, Mode, StopReason, Timing};
use crate::value::Configuration;

/// The version of a line's form. Lines of others are skipped.
const VERSION: u32 = 1;

/// What a measurement is of, apart from the configuration. Measurements are found again for equal ones only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The device's name.
    pub device: String,
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Its L2 cache in bytes.
    pub l2_bytes: u64,
    /// The driver's major version.
    pub driver: String,
    /// The hash of the loaded code, in hexadecimal digits; on an emulated device what tells the program from others.
    pub image: String,
    /// The benchmark's name.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements, exactly.
    pub n: u64,
    /// The least alignment of the arrays in bytes.
    pub alignment: u32,
    /// What is timed.
    pub mode: Mode,
    /// How long, as [`Subject::effort`] writes it.
    pub effort: String,
    /// Copies of the buffers.
    pub copies: usize,
    /// What compiled the code.
    pub toolchain: String,
}

impl Subject {
    /// Of a device; the rest is for the caller to fill in.
    pub fn of(device: &Device) -> Self {
        let properties = device.properties();
        let driver = properties.driver_version.split('.').next().unwrap_or_default();
        Self {
            device: properties.name.clone(),
            capability: properties.capability,
            multiprocessors: properties.multiprocessors,
            l2_bytes: properties.l2_cache,
            driver: driver.to_owned(),
            image: String::new(),
            kernel: String::new(),
            dtype: String::new(),
            n: 0,
            alignment: 16,
            mode: Mode::default(),
            effort: String::new(),
            copies: 1,
            toolchain: String::new(),
        }
    }

    /// An effort as text: equal for equal ones.
    pub fn effort(effort: &Effort) -> String {
        format!("{effort:?}")
    }
}

/// What came out of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What became of it.
    pub outcome: Outcome,
    /// What was wrong; empty when nothing was.
    pub problem: String,
    /// The largest difference from the reference.
    pub max_error: Option<f64>,
    /// The median in microseconds; absent for what was not timed.
    pub median_us: Option<f64>,
    /// The median's 95 % interval in microseconds, as far as the samples give one.
    pub interval_us: Option<(f64, f64)>,
    /// Accepted samples.
    pub samples: usize,
    /// Launches in each; absent for what was not timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches_per_sample: Option<u32>,
    /// What ended the sampling; absent for what was not timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Samples that were thrown away because the clock was low.
    pub rejected: u32,
    /// Whether the clock stayed low.
    pub throttled: bool,
    /// Seconds that checking and timing took.
    pub seconds: f64,
    /// What the device needed for the bytes (or operations) in microseconds by the probes that were timed beside it; absent
    /// without probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_us: Option<f64>,
}

impl Entry {
    /// Of a timing, or of none.
    pub fn of(
        (outcome, problem): (Outcome, String),
        max_error: Option<f64>,
        timing: Option<&Timing>,
        seconds: f64,
    ) -> Self {
        Self {
            outcome,
            problem,
            max_error,
            median_us: timing.and_then(Timing::summary).map(|summary| summary.median),
            interval_us: timing.and_then(Timing::interval).map(|interval| (interval.low, interval.high)),
            samples: timing.map_or(0, Timing::count),
            launches_per_sample: timing.map(|timing| timing.launches_per_sample),
            stop: timing.map(|timing| timing.stop),
            rejected: timing.map_or(0, |timing| timing.rejected),
            throttled: timing.is_some_and(|timing| timing.throttled),
            seconds,
            probe_us: None,
        }
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    version: u32,
    /// Seconds since 1970.
    time: u64,
    /// Whether what came before of this configuration is not used any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anew: bool,
    #[serde(flatten)]
    subject: Subject,
    configuration: Configuration,
    #[serde(flatten)]
    entry: Entry,
}

/// Why a line is not used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    OtherVersion,
    Damaged(String),
}

/// Whether a line of the log can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    match Line::read(line) {
        Ok(_) => Ok(()),
        Err(Unread::OtherVersion) => Err(format!("it is not of version {VERSION}")),
        Err(Unread::Damaged(reason)) => Err(reason),
    }
}

impl Line {
    pub fn of(subject: &Subject, configuration: &Configuration, entry: &Entry, anew: bool) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self {
            version: VERSION,
            time,
            anew,
            subject: subject.clone(),
            configuration: configuration.clone(),
            entry: entry.clone(),
        }
    }

    /// The line, with its end.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain data always becomes JSON") + "\n"
    }

    pub fn read(text: &[u8]) -> Result<Self, Unread> {
        let damaged = |error: serde_json::Error| Unread::Damaged(error.to_string());
        let value: serde_json::Value = serde_json::from_slice(text).map_err(damaged)?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(_) => return Err(Unread::OtherVersion),
            None => return Err(Unread::Damaged("it has no version".to_owned())),
        }
        let line: Self = serde_json::from_value(value).map_err(damaged)?;
        if line.entry.median_us.is_some_and(|us| !(us.is_finite() && us > 0.0)) {
            return Err(Unread::Damaged("its median is no time".to_owned()));
        }
        if line.entry.outcome == Outcome::Correct && line.entry.median_us.is_none() {
            return Err(Unread::Damaged("it is of a correct configuration without a time".to_owned()));
        }
        Ok(line)
    }

    pub fn is_anew(&self) -> bool {
        self.anew
    }

    pub fn parts(self) -> (Subject, Configuration, Entry) {
        (self.subject, self.configuration, self.entry)
    }
}
