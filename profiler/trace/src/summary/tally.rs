//! [`Tally`]: totals that are accumulated record by record, and are therefore available for traces of any size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::rows::{Row, Sum, ratio, rows};
use crate::definitions::{CounterId, Definitions, StreamId};
use crate::names::Name;
use crate::record::*;

/// Memory of a device.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryRow {
    /// Ordinal of the device.
    pub device: u32,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of frees.
    pub frees: u64,
    /// Total bytes of all allocations.
    pub bytes: u64,
    /// Peak bytes in use.
    pub peak_allocated: u64,
    /// Maximum number of bytes reserved from the device.
    pub peak_reserved: u64,
    /// Number of bytes in use at the end.
    pub allocated: u64,
}

/// Allocations made by one source line.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AllocationRow {
    /// Source line; may be empty.
    pub line: String,
    /// Number of allocations.
    pub count: u64,
    /// Total bytes of the allocations.
    pub bytes: u64,
    /// Bytes in allocations that have not been freed.
    pub live: u64,
}

/// Graph with its launches.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GraphRow {
    /// ID of the graph.
    pub graph: u32,
    /// Number of nodes; 0 if unknown.
    pub nodes: u32,
    /// Number of launches.
    pub launches: u64,
    /// Total duration of the calls that launched the graph.
    pub launch_time: u64,
    /// Total duration of the captures and instantiations of the graph.
    pub build_time: u64,
    /// Number of kernels and copies that ran as nodes of the graph.
    pub ran: u64,
    /// Device time of the graph's nodes.
    pub device: u64,
}

/// Waits that the runtime inserted between two streams because both use the same buffer.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WaitRow {
    /// Stream that waits, identified by device and ID.
    pub stream: (u32, i64),
    /// Stream for which the waiting stream waits.
    pub on: (u32, i64),
    /// Buffer; may be empty.
    pub buffer: String,
    /// Source line of the operation that requires the waits; may be empty.
    pub line: String,
    /// Number of waits.
    pub count: u64,
}

/// Statistics of a counter.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CounterRow {
    /// Ordinal of the device; `None` for the host.
    pub device: Option<u32>,
    /// Name of the sampled quantity.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Number of samples.
    pub samples: u64,
    /// Minimum value.
    pub min: f64,
    /// Average of the samples.
    pub average: f64,
    /// Maximum value.
    pub max: f64,
}

#[derive(Debug, Clone, Copy)]
struct Values {
    samples: u64,
    sum: f64,
    min: f64,
    max: f64,
}

/// Totals of the records added so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(super) records: usize,
    times: Option<(u64, u64)>,
    kernels: HashMap<Name, Sum>,
    transfers: HashMap<&'static str, Sum>,
    lines: HashMap<Name, Sum>,
    /// Calls, by the level of their library. Calls of different levels can be nested in each other.
    calls: [HashMap<Name, Sum>; 3],
    memory: BTreeMap<u32, MemoryRow>,
    allocations: HashMap<Name, AllocationRow>,
    /// Source line and size in bytes of each allocation that has not been freed, by device and address.
    live: HashMap<(u32, u64), (Name, u64)>,
    graphs: BTreeMap<u32, GraphRow>,
    waits: HashMap<(StreamId, StreamId, Name, Name), u64>,
    counters: BTreeMap<CounterId, Values>,
}

impl Tally {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &Record, definitions: &Definitions) {
        self.records += 1;
        let (start, end) = (record.start(), record.end());
        let (first, last) = self.times.unwrap_or((start, end));
        self.times = Some((first.min(start), last.max(end)));
        let duration = end.saturating_sub(start);
        match record {
            Record::Kernel(kernel) => {
                let device =
                    definitions.streams().get(kernel.stream.index()).map_or(0, |stream| stream.device);
                let bytes = kernel.bytes;
                self.kernels.entry(kernel.name).or_default().move_bytes(duration, bytes, Some(device));
                self.work(kernel.line, kernel.graph, duration, |sum| {
                    sum.move_bytes(duration, bytes, Some(device));
                });
            }
            Record::Transfer(copy) => {
                // Copies to and from the host are not limited by the memory bandwidth of the device.
                self.transfers.entry(copy.kind.name()).or_default().move_bytes(duration, copy.bytes, None);
                self.work(copy.line, copy.graph, duration, |sum| sum.add(duration));
            }
            Record::Call(call) => {
                self.calls[level(call.library)].entry(call.name).or_default().add(duration);
            }
            Record::Graph(graph) => self.graph(graph, duration),
            Record::Memory(memory) => self.memory(memory),
            Record::Wait(wait) => {
                *self.waits.entry((wait.stream, wait.on, wait.buffer, wait.line)).or_default() += 1;
            }
            Record::Sample(sample) if sample.value.is_finite() => {
                let value = sample.value;
                let first = Values { samples: 0, sum: 0.0, min: value, max: value };
                let values = self.counters.entry(sample.counter).or_insert(first);
                values.samples += 1;
                values.sum += value;
                (values.min, values.max) = (values.min.min(value), values.max.max(value));
            }
            Record::Sample(_) | Record::Sync(_) | Record::Range(_) | Record::Mark(_) => {}
        }
    }

    fn work(&mut self, line: Name, graph: u32, duration: u64, add: impl Fn(&mut Sum)) {
        if !line.is_none() {
            add(self.lines.entry(line).or_default());
        }
        if graph != 0 {
            let row = self.graphs.entry(graph).or_default();
            row.ran += 1;
            row.device = row.device.saturating_add(duration);
        }
    }

    fn graph(&mut self, graph: &Graph, duration: u64) {
        let row = self.graphs.entry(graph.graph).or_default();
        row.nodes = row.nodes.max(graph.nodes);
        let time = match graph.kind {
            GraphKind::Launch => {
                row.launches += 1;
                &mut row.launch_time
            }
            GraphKind::Capture | GraphKind::Instantiate => &mut row.build_time,
        };
        *time = time.saturating_add(duration);
    }

    fn memory(&mut self, memory: &Memory) {
        let row = self.memory.entry(memory.device).or_default();
        row.peak_allocated = row.peak_allocated.max(memory.allocated);
        row.peak_reserved = row.peak_reserved.max(memory.reserved);
        row.allocated = memory.allocated;
        let bytes = memory.bytes.unsigned_abs();
        if memory.bytes >= 0 {
            row.allocations += 1;
            row.bytes = row.bytes.saturating_add(bytes);
            let row = self.allocations.entry(memory.line).or_default();
            row.count += 1;
            row.bytes = row.bytes.saturating_add(bytes);
            // Without an address, the matching release cannot be found.
            if memory.address != 0 {
                row.live = row.live.saturating_add(bytes);
                self.live.insert((memory.device, memory.address), (memory.line, bytes));
            }
        } else {
            row.frees += 1;
            if let Some((line, bytes)) = self.live.remove(&(memory.device, memory.address))
                && let Some(row) = self.allocations.get_mut(&line)
            {
                row.live = row.live.saturating_sub(bytes);
            }
        }
    }

    /// Returns the time from the first record to the end of the last one.
    pub(super) fn span(&self) -> u64 {
        self.times.map_or(0, |(first, last)| last.saturating_sub(first))
    }

    pub(super) fn kernels(&self, definitions: &Definitions) -> Vec<Row> {
        rows(&self.kernels, definitions, |name| definitions.names.text(*name))
    }

    pub(super) fn transfers(&self, definitions: &Definitions) -> Vec<Row> {
        rows(&self.transfers, definitions, |name| name)
    }

    pub(super) fn lines(&self, definitions: &Definitions) -> Vec<Row> {
        rows(&self.lines, definitions, |name| definitions.names.text(*name))
    }

    pub(super) fn calls(&self, library: Library, definitions: &Definitions) -> Vec<Row> {
        rows(&self.calls[level(library)], definitions, |name| definitions.names.text(*name))
    }

    pub(super) fn memory_rows(&self) -> Vec<MemoryRow> {
        self.memory.iter().map(|(device, row)| MemoryRow { device: *device, ..row.clone() }).collect()
    }

    /// Returns the allocations, most bytes first.
    pub(super) fn allocations(&self, definitions: &Definitions) -> Vec<AllocationRow> {
        let row = |(line, row): (&Name, &AllocationRow)| {
            let line = definitions.names.text(*line).to_owned();
            AllocationRow { line, ..row.clone() }
        };
        let mut rows: Vec<AllocationRow> = self.allocations.iter().map(row).collect();
        rows.sort_by(|a, b| (Reverse(a.bytes), &a.line).cmp(&(Reverse(b.bytes), &b.line)));
        rows
    }

    pub(super) fn graphs(&self) -> Vec<GraphRow> {
        self.graphs.iter().map(|(graph, row)| GraphRow { graph: *graph, ..row.clone() }).collect()
    }

    /// Returns the waits, most frequent first.
    pub(super) fn waits(&self, definitions: &Definitions) -> Vec<WaitRow> {
        let stream = |id: StreamId| {
            definitions.streams().get(id.index()).map_or((0, 0), |stream| (stream.device, stream.id))
        };
        let row = |(&(waits, on, buffer, line), count): (&(StreamId, StreamId, Name, Name), &u64)| WaitRow {
            stream: stream(waits),
            on: stream(on),
            buffer: definitions.names.text(buffer).to_owned(),
            line: definitions.names.text(line).to_owned(),
            count: *count,
        };
        let mut rows: Vec<WaitRow> = self.waits.iter().map(row).collect();
        let key =
            |row: &WaitRow| (Reverse(row.count), row.stream, row.on, row.buffer.clone(), row.line.clone());
        rows.sort_by_cached_key(key);
        rows
    }

    pub(super) fn counters(&self, definitions: &Definitions) -> Vec<CounterRow> {
        let row = |(id, values): (&CounterId, &Values)| {
            let counter = definitions.counters().get(id.index()).cloned().unwrap_or_default();
            CounterRow {
                device: counter.device,
                name: counter.name,
                unit: counter.unit,
                samples: values.samples,
                min: values.min,
                average: ratio(1.0, values.samples as f64) * values.sum,
                max: values.max,
            }
        };
        self.counters.iter().map(row).collect()
    }
}

/// Returns the index of the table for a library's calls. Runtime and library calls contain driver calls.
fn level(library: Library) -> usize {
    match library {
        Library::Runtime | Library::Other => 0,
        Library::Driver => 1,
        Library::Overhead => 2,
    }
}
