//! The tables of a trace: what took the time, and why devices were idle.
//!
//! Times are nanoseconds, shares are of 1. Every trace has a summary, also one whose times make no sense.

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

/// The tables of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Records of any kind.
    pub records: usize,
    /// How many of them, the first, the tables are of that relate records: devices, streams, launches, late launches and
    /// ranges. Fewer than all in a [`Digest`] of a large file.
    pub related: usize,
    /// From the first record to the end of the last.
    pub span: u64,
    /// What became of the records.
    pub loss: Loss,
    /// What the trace says of itself.
    pub about: BTreeMap<String, String>,
    /// Each device: busy and idle, and how much of its copies ran beside kernels.
    pub devices: Vec<DeviceRow>,
    /// Each stream: busy, and idle by cause.
    pub streams: Vec<StreamRow>,
    /// From calls to kernels.
    pub launches: Launches,
    /// The time in which devices were idle because the host was late, by the source line whose kernel or copy came late, else
    /// by its kernel.
    pub late: Vec<Row>,
    /// By kernel, those with the most time first.
    pub kernels: Vec<Row>,
    /// By kind of copy, memsets too.
    pub transfers: Vec<Row>,
    /// By range, those with the most time on devices first.
    pub ranges: Vec<RangeRow>,
    /// By source line, kernels and copies together; bytes and bandwidth are of kernels.
    pub lines: Vec<Row>,
    /// By function, calls of the runtime and of libraries on the host.
    pub calls: Vec<Row>,
    /// By function, calls of the driver, of which most are made inside those.
    pub driver_calls: Vec<Row>,
    /// By kind, what the profiler or the driver spent besides.
    pub overhead: Vec<Row>,
    /// Each graph.
    pub graphs: Vec<GraphRow>,
    /// Waits that the runtime inserted, the most frequent first.
    pub waits: Vec<WaitRow>,
    /// The memory of each device.
    pub memory: Vec<MemoryRow>,
    /// Allocations by source line, those with the most bytes first.
    pub allocations: Vec<AllocationRow>,
    /// Each counter.
    pub counters: Vec<CounterRow>,
}

impl Trace {
    /// The tables of the trace.
    pub fn summary(&self) -> Summary {
        let mut tally = Tally::default();
        for record in self.records() {
            tally.add(&record, &self.definitions);
        }
        summary(self, &tally)
    }
}

/// The tables of records that were summed up; those that relate records are of `trace`.
fn summary(trace: &Trace, tally: &Tally) -> Summary {
    let definitions = &trace.definitions;
    let work = work::work(trace, &work::Calls::of(trace));
    let late = streams::late(&work);
    Summary {
        records: tally.records,
        related: trace.len(),
        span: tally.span(),
        loss: definitions.loss,
        about: definitions.about.clone(),
        devices: streams::devices(trace, &work, &late),
        streams: streams::streams(trace, &work),
        launches: launches::launches(&work),
        late: late_rows(trace, &work, &late),
        kernels: tally.kernels(definitions),
        transfers: tally.transfers(definitions),
        ranges: ranges::ranges(trace, &work, &late),
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

fn late_rows(trace: &Trace, work: &[Work], late: &[u64]) -> Vec<Row> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for (work, late) in work.iter().zip(late).filter(|(_, late)| **late > 0) {
        sums.entry(if work.line.is_none() { work.name } else { work.line }).or_default().add(*late);
    }
    rows::rows(&sums, &trace.definitions, |name| match trace.text(*name) {
        "" => "copy",
        name => name,
    })
}

impl Summary {
    /// The summary as text, no more than `rows` rows a table.
    pub fn text(&self, rows: usize) -> String {
        text::text(self, rows)
    }

    /// What changed from `old` to this one.
    pub fn since(&self, old: &Summary) -> Diff {
        Diff::of(old, self)
    }
}
