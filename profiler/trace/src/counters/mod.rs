//! Report of hardware counters per kernel: memory traffic, hit rates, occupancy, and stalls.
//!
//! The report is not part of a trace, because counted kernels are replayed several times and serialized, so nothing
//! else can be measured at the same time.
//!
//! ```
//! use warpsmith_trace::counters::{CounterReport, KernelCounters};
//!
//! let mut report = CounterReport::default();
//! let mut kernel = KernelCounters { name: "axpy<f32>".to_owned(), launches: 3, counted: 3, ..Default::default() };
//! (kernel.time, kernel.read, kernel.written) = (Some(1000.0), Some(2.0e6), Some(1.0e6));
//! report.kernels.push(kernel);
//! assert_eq!(report.kernels[0].bandwidth(), Some(3.0e12));
//! assert_eq!(CounterReport::parse(report.json().as_bytes())?, report);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

mod text;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::definitions::{Definitions, KernelCounted};
use crate::error::{Result, TraceError};
use crate::trace::not_written;

/// Version of the document's schema.
const SCHEMA: u32 = 1;
/// Maximum size of a report, in bytes. Each kernel requires a few hundred bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Hardware counter report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterReport {
    /// Version of this document's schema, which is 1.
    pub schema: u32,
    /// Facts about the report, for example the name of the program.
    pub about: BTreeMap<String, String>,
    /// Devices whose counters were read.
    pub devices: Vec<CounterDevice>,
    /// Kernels of each device, ordered by total time (average duration times number of launches), largest first.
    pub kernels: Vec<KernelCounters>,
    /// Number of launches, graph launches and library calls that enqueued work while counting was active.
    pub operations: u64,
    /// Number of counted operations.
    pub counted: u64,
    /// Number of kernels in graphs and library calls that were not counted for lack of space.
    pub dropped: u64,
    /// Number of operations that were not counted, by reason.
    pub not_counted: BTreeMap<String, u64>,
}

/// Device whose counters were read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CounterDevice {
    /// Ordinal of the device.
    pub device: u32,
    /// Name of the device.
    pub name: String,
    /// Vendor's name of the chip, for example `GH100`.
    pub chip: String,
    /// Source of the counters, for example `CUPTI 13.0`.
    pub source: String,
    /// Peak memory bandwidth in bytes per second; 0 if unknown.
    pub bandwidth: u64,
    /// Number of passes in which each kernel is replayed.
    pub passes: u64,
}

/// Counters of a kernel on one device. All values are averages over the launches that were counted. A value is `None`
/// if the device does not provide the counter or no launch was counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Ordinal of the device.
    pub device: u32,
    /// Name of the kernel, or of the graph or library call that ran it.
    pub name: String,
    /// Symbol in the GPU image, as displayed by Nsight Compute; `None` for a graph or library call.
    pub symbol: Option<String>,
    /// Source line of the first launch, if known.
    pub line: Option<String>,
    /// Number of launches.
    pub launches: u64,
    /// Number of counted kernels.
    pub counted: u64,
    /// Duration in nanoseconds.
    pub time: Option<f64>,
    /// Bytes read from device memory.
    pub read: Option<f64>,
    /// Bytes written to device memory.
    pub written: Option<f64>,
    /// Memory throughput as a fraction of the peak memory bandwidth.
    pub of_peak: Option<f64>,
    /// L2 hit rate, as a fraction.
    pub l2_hits: Option<f64>,
    /// Achieved occupancy: resident warps as a fraction of the maximum per SM.
    pub occupancy: Option<f64>,
    /// Fraction of cycles in which the tensor cores were active.
    pub tensor: Option<f64>,
    /// Warp stall reasons, most frequent first.
    pub stalls: Vec<Stall>,
    /// All metrics, with the vendor's names and units.
    pub metrics: BTreeMap<String, MetricValues>,
}

/// Warp stall reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Vendor's name for the reason. For example, `long_scoreboard` means waiting for data from memory.
    pub reason: String,
    /// Cycles for which a warp waits for this reason between two consecutive instructions.
    pub cycles: f64,
    /// Fraction of all cycles between two consecutive instructions.
    pub share: f64,
}

/// Values of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// Average over all kernels that have a value.
    pub average: f64,
    /// Minimum.
    pub minimum: f64,
    /// Maximum.
    pub maximum: f64,
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
    /// Returns the memory throughput of reads and writes together, in bytes per second.
    pub fn bandwidth(&self) -> Option<f64> {
        let (bytes, time) = (self.read? + self.written?, self.time?);
        (time > 0.0).then(|| bytes / time * 1e9)
    }
}

impl CounterReport {
    /// Formats the report as text tables with at most `rows` rows each.
    pub fn text(&self, rows: usize) -> String {
        text::text(self, rows)
    }

    /// Adds the counters, as arguments, to the kernels in the definitions of a trace. Kernels are matched by device and
    /// by name or symbol. Every launch of a kernel gets the same averages.
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

    /// Formats the document as JSON.
    pub fn json(&self) -> String {
        // Reports never contain values that JSON cannot represent. Such values would become `null`.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Parses a document.
    ///
    /// # Errors
    /// Returns [`TraceError`], which names the cause.
    pub fn parse(document: &[u8]) -> Result<Self> {
        Self::of_document(document).map_err(|reason| TraceError::of(None, reason))
    }

    fn of_document(document: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(document)
            .map_err(|error| format!("is not a report of hardware counters: {error}"))?;
        if report.schema != SCHEMA {
            return Err(format!(
                "has format {}, but this version reads format {SCHEMA}; use the version that wrote it",
                report.schema
            ));
        }
        Ok(report)
    }

    /// Reads a report from a file.
    ///
    /// # Errors
    /// Returns [`TraceError`], which names the cause.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |reason| TraceError::of(Some(path), reason);
        let mut document = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut document));
        read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        if document.len() as u64 > MAX_BYTES {
            return Err(failed("is too large for a report; give another file".to_owned()));
        }
        Self::of_document(&document).map_err(failed)
    }

    /// Writes the report to a file.
    ///
    /// # Errors
    /// Returns [`TraceError`], which names the cause.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.json()).map_err(|error| not_written(path, &error.to_string()))
    }
}
