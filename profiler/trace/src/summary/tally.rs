//! What can be summed up record by record, so that it is known of traces of any size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::rows::{Row, Sum, ratio, rows};
use crate::definitions::{CounterId, Definitions, StreamId};
use crate::names::Name;
use crate::record::*;

/// The memory of a device.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryRow {
    /// The ordinal of the device.
    pub device: u32,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes of all allocations.
    pub bytes: u64,
    /// The most bytes in use.
    pub peak_allocated: u64,
    /// The most bytes reserved from the device.
    pub peak_reserved: u64,
    /// Bytes in use at the end.
    pub allocated: u64,
}

/// Allocations of one source line.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AllocationRow {
    /// The line; may be empty.
    pub line: String,
    /// Allocations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those that were not freed.
    pub live: u64,
}

/// A graph.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GraphRow {
    /// Its number.
    pub graph: u32,
    /// Its nodes; 0 when unknown.
    pub nodes: u32,
    /// Launches.
    pub launches: u64,
    /// The time of the calls that launched it.
    pub launch_time: u64,
    /// The time of its captures and instantiations.
    pub build_time: u64,
    /// Kernels and copies that ran as its nodes.
    pub ran: u64,
    /// Their time on devices.
    pub device: u64,
}

/// Waits that the runtime inserted between two streams for one buffer.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WaitRow {
    /// The stream that waits, by device and id.
    pub stream: (u32, i64),
    /// The stream that it waits for.
    pub on: (u32, i64),
    /// The buffer; may be empty.
    pub buffer: String,
    /// The source line of the operation that needs it; may be empty.
    pub line: String,
    /// How often.
    pub count: u64,
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CounterRow {
    /// The ordinal of the device; `None` for the host.
    pub device: Option<u32>,
    /// What it is.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// Samples.
    pub samples: u64,
    /// The least value.
    pub min: f64,
    /// The average of the samples.
    pub average: f64,
    /// The greatest value.
    pub max: f64,
}

#[derive(Debug, Clone, Copy)]
struct Values {
    samples: u64,
    sum: f64,
    min: f64,
    max: f64,
}

/// The sums of the records so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(super) records: usize,
    times: Option<(u64, u64)>,
    kernels: HashMap<Name, Sum>,
    transfers: HashMap<&'static str, Sum>,
    lines: HashMap<Name, Sum>,
    /// By where they went, which may be inside each other.
    calls: [HashMap<Name, Sum>; 3],
    memory: BTreeMap<u32, MemoryRow>,
    allocations: HashMap<Name, AllocationRow>,
    /// The line and the bytes of what is allocated, by device and address.
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
                // The bandwidth of the device's memory does not limit copies to the host.
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
            // Without an address it is not known when it is freed.
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

    /// From the first record to the end of the last.
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

    /// Those with the most bytes first.
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

    /// The most frequent first.
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

/// The table of calls of a library. Calls of the runtime and of libraries make those of the driver.
fn level(library: Library) -> usize {
    match library {
        Library::Runtime | Library::Other => 0,
        Library::Driver => 1,
        Library::Overhead => 2,
    }
}
