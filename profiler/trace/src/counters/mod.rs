//! Hardware counters of kernels, as a report: memory traffic, hit rates, occupancy, stalls.
//!
//! It is a document of its own, not a part of a trace: to be counted, kernels run several times and one after the other, so that
//! nothing else can be measured beside.
//!
//! ```
//! use warpsmith_trace::counters::{CounterReport, KernelCounters};
//!
//! let mut report = CounterReport::default();
//! let mut kernel = KernelCounters { name: "axpy<f32>".to_owned(), launches: 3, counted: 3, ..Default::default() };
//! (kernel.time, kernel.read, kernel.written) = (Some(1000.0), Some(2.0e6), Some(1.0e6));
//! report.kernels.push(kernel);
//! assert_eq!(report.kernels[0].bandwidth(), Some(3.0e12));
//! assert_eq!(CounterReport::parse(report.json().as_bytes()), Ok(report));
//! ```

mod text;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::definitions::{Definitions, KernelCounted};
use crate::error::TraceError;

/// The form of the document.
const SCHEMA: u32 = 1;
/// The largest report, in bytes: a kernel takes some hundred.
const MOST_BYTES: u64 = 64 << 20;

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterReport {
    /// The form of the document: 1.
    pub schema: u32,
    /// What the report says of itself, such as the program.
    pub about: BTreeMap<String, String>,
    /// The devices that were counted on.
    pub devices: Vec<CounterDevice>,
    /// Each kernel on each device, those with the most time first: the average time, times the launches.
    pub kernels: Vec<KernelCounters>,
    /// The number of launches, launches of graphs and calls of libraries that enqueued work meanwhile.
    pub operations: u64,
    /// How many of them were counted.
    pub counted: u64,
    /// Kernels of graphs and library calls for which there was no space.
    pub dropped: u64,
    /// Why the others were not, and how many for that reason.
    pub not_counted: BTreeMap<String, u64>,
}

/// A device that was counted on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CounterDevice {
    /// Its ordinal.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// The vendor's name of its chip, for example `GH100`.
    pub chip: String,
    /// What counted, for example `CUPTI 13.0`.
    pub source: String,
    /// Peak bandwidth of its memory in bytes a second; 0 when unknown.
    pub bandwidth: u64,
    /// How often each kernel ran to be counted.
    pub passes: u64,
}

/// The counters of a kernel on a device. Values are averages of the launches that were counted; `None` where the device does
/// not have the counter, or none was counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KernelCounters {
    /// The ordinal of the device.
    pub device: u32,
    /// The kernel; or the graph or call of a library in which it ran.
    pub name: String,
    /// Its symbol in the GPU image, by which Nsight Compute names it; `None` of a graph or a call of a library.
    pub symbol: Option<String>,
    /// The source line that launched it first, where it is known.
    pub line: Option<String>,
    /// How often it was launched.
    pub launches: u64,
    /// How many kernels were counted.
    pub counted: u64,
    /// Nanoseconds.
    pub time: Option<f64>,
    /// Bytes read from the device's memory.
    pub read: Option<f64>,
    /// Bytes written to the device's memory.
    pub written: Option<f64>,
    /// The share of the peak bandwidth of the device's memory.
    pub of_peak: Option<f64>,
    /// The share of accesses to the L2 cache that it served.
    pub l2_hits: Option<f64>,
    /// Achieved occupancy: resident warps, as a share of those that a multiprocessor can hold.
    pub occupancy: Option<f64>,
    /// The share of cycles in which tensor cores worked.
    pub tensor: Option<f64>,
    /// Why warps did not issue instructions, the most frequent reason first.
    pub stalls: Vec<Stall>,
    /// Every metric by the vendor's name, in the vendor's unit.
    pub metrics: BTreeMap<String, MetricValues>,
}

/// A reason for which warps wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// The vendor's name of it, for example `long_scoreboard`: data from memory.
    pub reason: String,
    /// Cycles that a warp waits for this reason, from one of its instructions to the next.
    pub cycles: f64,
    /// Of all cycles from one instruction to the next, the share.
    pub share: f64,
}

/// The values of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// Of all kernels with a value.
    pub average: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Default for CounterReport {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            about: BTreeMap::new(),
            devices: Vec::new(),
            kernels: Vec::new(),
            operations: 0,
            counted: 0,
            dropped: 0,
            not_counted: BTreeMap::new(),
        }
    }
}

impl KernelCounters {
    /// Bytes a second, read and written.
    pub fn bandwidth(&self) -> Option<f64> {
        let (bytes, time) = (self.read? + self.written?, self.time?);
        (time > 0.0).then(|| bytes / time * 1e9)
    }
}

impl CounterReport {
    /// The tables as text, with up to `rows` rows each.
    pub fn text(&self, rows: usize) -> String {
        text::text(self, rows)
    }

    /// Has the kernels of a trace with these definitions carry what was counted, as arguments: those with the same name, or
    /// symbol, on the same device. Every launch has the averages.
    pub fn annotate(&self, definitions: &mut Definitions) {
        for kernel in self.kernels.iter().filter(|kernel| kernel.counted > 0) {
            let stalls: Vec<String> = kernel.stalls.iter().take(3).map(text::reason_text).collect();
            let bytes = |bytes: Option<f64>| bytes.map_or(0, |bytes| bytes.round() as u64);
            let counted = KernelCounted {
                read: bytes(kernel.read),
                written: bytes(kernel.written),
                l2_hits: kernel.l2_hits,
                occupancy: kernel.occupancy,
                stalls: definitions.names.intern(&stalls.join(", ")),
            };
            for name in [Some(&kernel.name), kernel.symbol.as_ref()].into_iter().flatten() {
                let name = definitions.names.intern(name);
                definitions.counted.insert((kernel.device, name), counted);
            }
        }
    }

    /// The document as JSON.
    pub fn json(&self) -> String {
        // Values that JSON lacks are not put into reports, and become `null` otherwise.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The report of a document.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(document)
            .map_err(|error| format!("is no report of hardware counters: {error}"))?;
        if report.schema != SCHEMA {
            return Err(format!(
                "has the form {}, and this version reads {SCHEMA}; use the version that wrote it",
                report.schema
            ));
        }
        Ok(report)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`TraceError`], which names the cause.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let failed = |reason| TraceError { path: path.to_path_buf(), reason };
        let mut document = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut document));
        read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        if document.len() as u64 > MOST_BYTES {
            return Err(failed("is larger than any report; give another file".to_owned()));
        }
        Self::parse(&document).map_err(failed)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// [`TraceError`], which names the cause.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TraceError> {
        let path = path.as_ref();
        std::fs::write(path, self.json()).map_err(|error| TraceError {
            path: path.to_path_buf(),
            reason: format!("cannot be written: {error}"),
        })
    }
}
