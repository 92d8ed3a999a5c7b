//! Device work, and the calls that enqueued it.

use std::collections::HashMap;

use crate::definitions::{StreamId, ThreadId};
use crate::names::Name;
use crate::trace::Trace;

/// Call that enqueued work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) thread: ThreadId,
}

/// Calls by correlation ID.
#[derive(Debug)]
pub(super) struct Calls(HashMap<u64, Launch>);

impl Calls {
    pub(super) fn of(trace: &Trace) -> Self {
        let calls = trace.calls.iter().map(|call| (call.correlation, call.start, call.end, call.thread));
        let graphs =
            trace.graphs.iter().map(|graph| (graph.correlation, graph.start, graph.end, graph.thread));
        let with_correlation = calls.chain(graphs).filter(|call| call.0 != 0);
        Calls(with_correlation.map(|(id, start, end, thread)| (id, Launch { start, end, thread })).collect())
    }
}

/// Kernel or copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) stream: StreamId,
    pub(super) device: u32,
    pub(super) is_kernel: bool,
    pub(super) is_in_graph: bool,
    /// Name of the kernel; empty for a copy.
    pub(super) name: Name,
    pub(super) line: Name,
    pub(super) range: u64,
    pub(super) correlation: u64,
    pub(super) launch: Option<Launch>,
    /// Latest time at which the launch can have reached the device. It is the start of the call plus the shortest time
    /// that any work of the same kind took from its call to its start on the device.
    pub(super) arrived: Option<u64>,
}

impl Work {
    pub(super) fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Returns all work, ordered by start.
pub(super) fn work(trace: &Trace, calls: &Calls) -> Vec<Work> {
    let streams = trace.definitions.streams();
    let device = |stream: StreamId| streams.get(stream.index()).map_or(0, |stream| stream.device);
    let launch = |correlation: u64| calls.0.get(&correlation).copied();
    let kernels = trace.kernels.iter().map(|kernel| Work {
        start: kernel.start,
        end: kernel.end.max(kernel.start),
        stream: kernel.stream,
        device: device(kernel.stream),
        is_kernel: true,
        is_in_graph: kernel.graph != 0,
        name: kernel.name,
        line: kernel.line,
        range: kernel.range,
        correlation: kernel.correlation,
        launch: launch(kernel.correlation),
        arrived: None,
    });
    let transfers = trace.transfers.iter().map(|copy| Work {
        start: copy.start,
        end: copy.end.max(copy.start),
        stream: copy.stream,
        device: device(copy.stream),
        is_kernel: false,
        is_in_graph: copy.graph != 0,
        name: Name::NONE,
        line: copy.line,
        range: copy.range,
        correlation: copy.correlation,
        launch: launch(copy.correlation),
        arrived: None,
    });
    let mut work: Vec<Work> = kernels.chain(transfers).collect();
    work.sort_by_key(|work| (work.start, work.end));
    let mut latencies: HashMap<(u32, bool, bool), u64> = HashMap::new();
    let kind = |work: &Work| (work.device, work.is_kernel, work.is_in_graph);
    for work in &work {
        if let Some(taken) = work.launch.and_then(|call| work.start.checked_sub(call.start)) {
            let minimum = latencies.entry(kind(work)).or_insert(taken);
            *minimum = taken.min(*minimum);
        }
    }
    for work in &mut work {
        let latency = latencies.get(&kind(work)).copied().unwrap_or(0);
        work.arrived = work.launch.map(|call| call.start.saturating_add(latency));
    }
    work
}

/// Union of time intervals. The intervals are sorted, and neither overlap nor touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Union(Vec<(u64, u64)>);

impl Union {
    /// Creates the union of intervals that are sorted by start.
    pub(super) fn of(intervals: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut union: Vec<(u64, u64)> = Vec::new();
        for (start, end) in intervals {
            match union.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => union.push((start, end)),
            }
        }
        Union(union)
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns how much of an interval the union covers, as a length.
    pub(super) fn covers(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let within = self.0[first..].iter().take_while(|(start, _)| *start < to);
        within.map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum()
    }

    /// Returns the total length of the intersection of two unions.
    pub(super) fn overlap(&self, other: &Union) -> u64 {
        self.0.iter().map(|(start, end)| other.covers(*start, *end)).sum()
    }

    /// Returns the time from the first start to the last end.
    pub(super) fn span(&self) -> u64 {
        match (self.0.first(), self.0.last()) {
            (Some((start, _)), Some((_, end))) => end - start,
            _ => 0,
        }
    }
}
