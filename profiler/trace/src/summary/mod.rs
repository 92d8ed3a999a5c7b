//! Tables of a trace that show where time was spent and why devices were idle.
//!
//! Times are in nanoseconds, and shares are fractions of 1. Every trace has a summary, even if its times are
//! inconsistent.

mod diff;
mod digest;
mod launches;
mod ranges;
mod rows;
mod streams;
mod tally;
pub(crate) mod text;
mod work;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

pub use self::diff::{Change, Diff};
pub use self::digest::Digest;
pub use self::launches::Launches;
pub use self::ranges::RangeRow;
pub use self::rows::Row;
pub use self::streams::{DeviceRow, StreamRow};
pub use self::tally::{AllocationRow, CounterRow, GraphRow, MemoryRow, WaitRow};

use self::rows::Sum;
use self::tally::Tally;
use self::work::Work;
use crate::definitions::Loss;
use crate::names::Name;
use crate::record::Library;
use crate::trace::Trace;

/// Tables that summarize a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Total number of records of all kinds.
    pub records: usize,
    /// Number of leading records that are covered by the tables that relate records to each other: devices, streams,
    /// launches, launch-bound gaps and ranges. For a [`Digest`] of a large file, it is less than the number of records.
    pub related: usize,
    /// Time from the start of the first record to the end of the last record.
    pub span: u64,
    /// Numbers of recorded and lost operations.
    pub loss: Loss,
    /// Facts about the trace.
    pub about: BTreeMap<String, String>,
    /// Devices, with busy and idle times, and with the overlap of copies and kernels.
    pub devices: Vec<DeviceRow>,
    /// Streams, with their busy times and, by cause, their idle times.
    pub streams: Vec<StreamRow>,
    /// Launch latency.
    pub launches: Launches,
    /// Launch-bound idle time of devices, by the source line of the kernel or copy that arrived late, or by the
    /// kernel's name if the line is unknown.
    pub launch_bound: Vec<Row>,
    /// Kernels, longest total time first.
    pub kernels: Vec<Row>,
    /// Copies and memsets by kind.
    pub transfers: Vec<Row>,
    /// Ranges, longest device time first.
    pub ranges: Vec<RangeRow>,
    /// Source lines, with the times of kernels and copies combined. The bytes and the bandwidth cover only kernels.
    pub lines: Vec<Row>,
    /// Runtime and library calls on the host, by function.
    pub calls: Vec<Row>,
    /// Driver calls by function. Most of these calls are made inside runtime and library calls.
    pub driver_calls: Vec<Row>,
    /// Overhead of the profiler or of the driver, by kind.
    pub overhead: Vec<Row>,
    /// Graphs.
    pub graphs: Vec<GraphRow>,
    /// Waits that the runtime inserted, most frequent first.
    pub waits: Vec<WaitRow>,
    /// Memory of each device.
    pub memory: Vec<MemoryRow>,
    /// Allocations by source line, most bytes first.
    pub allocations: Vec<AllocationRow>,
    /// Counters.
    pub counters: Vec<CounterRow>,
}

impl Trace {
    /// Computes the tables of the trace.
    pub fn summary(&self) -> Summary {
        let mut tally = Tally::default();
        for record in self.records() {
            tally.add(&record, &self.definitions);
        }
        summary(self, &tally)
    }
}

/// Computes the tables for records that have been tallied. The tables that relate records to each other cover only
/// `trace`.
fn summary(trace: &Trace, tally: &Tally) -> Summary {
    let definitions = &trace.definitions;
    let work = work::work(trace, &work::Calls::of(trace));
    let launch_bound = streams::launch_bound(&work);
    Summary {
        records: tally.records,
        related: trace.len(),
        span: tally.span(),
        loss: definitions.loss,
        about: definitions.about.clone(),
        devices: streams::devices(trace, &work, &launch_bound),
        streams: streams::streams(trace, &work),
        launches: launches::launches(&work),
        launch_bound: launch_bound_rows(trace, &work, &launch_bound),
        kernels: tally.kernels(definitions),
        transfers: tally.transfers(definitions),
        ranges: ranges::ranges(trace, &work, &launch_bound),
        lines: tally.lines(definitions),
        calls: tally.calls(Library::Runtime, definitions),
        driver_calls: tally.calls(Library::Driver, definitions),
        overhead: tally.calls(Library::Overhead, definitions),
        graphs: tally.graphs(),
        waits: tally.waits(definitions),
        memory: tally.memory_rows(),
        allocations: tally.allocations(definitions),
        counters: tally.counters(definitions),
    }
}

fn launch_bound_rows(trace: &Trace, work: &[Work], launch_bound: &[u64]) -> Vec<Row> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for (work, launch_bound) in work.iter().zip(launch_bound).filter(|(_, launch_bound)| **launch_bound > 0) {
        sums.entry(if work.line.is_none() { work.name } else { work.line }).or_default().add(*launch_bound);
    }
    rows::rows(&sums, &trace.definitions, |name| match trace.text(*name) {
        "" => "copy",
        name => name,
    })
}

impl Summary {
    /// Formats the summary as text tables with at most `rows` rows each.
    pub fn text(&self, rows: usize) -> String {
        text::text(self, rows)
    }

    /// Returns the changes from `old` to this summary.
    pub fn since(&self, old: &Summary) -> Diff {
        Diff::of(old, self)
    }
}
