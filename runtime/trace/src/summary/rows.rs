//! Rows by name.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::work::Work;
use crate::definitions::StreamId;
use crate::names::Name;
use crate::trace::Trace;

/// What has one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The time of all.
    pub total: u64,
    /// The time of one on average.
    pub average: f64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// The share of the time of all rows.
    pub share: f64,
    /// Bytes of those whose bytes are known.
    pub bytes: u64,
    /// Bytes a second of those; 0 when none are known.
    pub bandwidth: f64,
    /// That as a share of the peak bandwidth of the device's memory; 0 when unknown.
    pub of_peak: f64,
}

/// Ranges of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RangeRow {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Their time on the host, ranges of the same name inside counted too.
    pub host: u64,
    /// The time on devices of what was enqueued in them.
    pub device: u64,
    /// Kernels and copies that were enqueued in them.
    pub launches: u64,
}

#[derive(Default)]
struct Sum {
    count: u64,
    total: u64,
    min: u64,
    max: u64,
    bytes: u64,
    /// The time of those whose bytes are known.
    timed: u64,
    /// Bytes that could have moved in that time.
    peak: f64,
}

impl Sum {
    fn add(&mut self, duration: u64, bytes: u64, peak: u64) {
        self.min = if self.count == 0 { duration } else { self.min.min(duration) };
        self.max = self.max.max(duration);
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        if bytes > 0 {
            self.bytes = self.bytes.saturating_add(bytes);
            self.timed = self.timed.saturating_add(duration);
            self.peak += peak as f64 * duration as f64 * 1e-9;
        }
    }
}

fn rows<'a, K: Ord + std::hash::Hash>(sums: HashMap<K, Sum>, name: impl Fn(&K) -> &'a str) -> Vec<Row> {
    let all: u64 = sums.values().fold(0, |all, sum| all.saturating_add(sum.total));
    let row = |(key, sum): (K, Sum)| Row {
        name: name(&key).to_owned(),
        count: sum.count,
        total: sum.total,
        average: sum.total as f64 / sum.count as f64,
        min: sum.min,
        max: sum.max,
        share: ratio(sum.total as f64, all as f64),
        bytes: sum.bytes,
        bandwidth: ratio(sum.bytes as f64, sum.timed as f64 * 1e-9),
        of_peak: ratio(sum.bytes as f64, sum.peak),
    };
    let mut rows: Vec<Row> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| (Reverse(a.total), &a.name).cmp(&(Reverse(b.total), &b.name)));
    rows
}

/// 0 where there is nothing to divide by.
pub(super) fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

fn peak(trace: &Trace, stream: StreamId) -> u64 {
    let stream = trace.definitions.streams().get(stream.index());
    stream
        .and_then(|stream| trace.definitions.devices.get(&stream.device))
        .map_or(0, |device| device.bandwidth)
}

pub(super) fn kernels(trace: &Trace) -> Vec<Row> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for kernel in &trace.kernels {
        let duration = kernel.end.saturating_sub(kernel.start);
        sums.entry(kernel.name).or_default().add(duration, kernel.bytes, peak(trace, kernel.stream));
    }
    rows(sums, |name| trace.text(*name))
}

pub(super) fn transfers(trace: &Trace) -> Vec<Row> {
    let mut sums: HashMap<&str, Sum> = HashMap::new();
    for copy in &trace.transfers {
        // The bandwidth of the device's memory does not limit copies to the host.
        sums.entry(copy.kind.name()).or_default().add(copy.end.saturating_sub(copy.start), copy.bytes, 0);
    }
    rows(sums, |name| name)
}

pub(super) fn calls(trace: &Trace) -> Vec<Row> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for call in &trace.calls {
        sums.entry(call.name).or_default().add(call.end.saturating_sub(call.start), 0, 0);
    }
    rows(sums, |name| trace.text(*name))
}

pub(super) fn lines(trace: &Trace) -> Vec<Row> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    let kernels = trace.kernels.iter().map(|kernel| (kernel.line, kernel.start, kernel.end));
    let copies = trace.transfers.iter().map(|copy| (copy.line, copy.start, copy.end));
    for (line, start, end) in kernels.chain(copies).filter(|work| !work.0.is_none()) {
        sums.entry(line).or_default().add(end.saturating_sub(start), 0, 0);
    }
    rows(sums, |name| trace.text(*name))
}

/// The most ranges that are looked through around one; more is a circle in a damaged file.
const DEEPEST: usize = 1000;

/// Ranges, each with the one around it: by its id, else by the times on its thread.
struct Nesting<'a> {
    trace: &'a Trace,
    parents: Vec<Option<usize>>,
    by_id: HashMap<u64, usize>,
    /// Per thread, by start, the longer first.
    by_thread: HashMap<u32, Vec<usize>>,
}

impl<'a> Nesting<'a> {
    fn of(trace: &'a Trace) -> Self {
        let ranges = &trace.ranges;
        let with_id = ranges.iter().enumerate().filter(|(_, range)| range.id != 0);
        let by_id: HashMap<u64, usize> = with_id.map(|(index, range)| (range.id, index)).collect();
        let mut by_thread: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, range) in ranges.iter().enumerate() {
            by_thread.entry(range.thread.0).or_default().push(index);
        }
        let mut parents = vec![None; ranges.len()];
        for indices in by_thread.values_mut() {
            indices.sort_by_key(|index| (ranges[*index].start, Reverse(ranges[*index].end)));
            let mut open: Vec<usize> = Vec::new();
            for &index in indices.iter() {
                while open.pop_if(|open| ranges[*open].end < ranges[index].end).is_some() {}
                parents[index] = open.last().copied();
                open.push(index);
            }
        }
        for (index, range) in ranges.iter().enumerate() {
            if let Some(parent) = by_id.get(&range.parent).filter(|parent| **parent != index) {
                parents[index] = Some(*parent);
            }
        }
        Nesting { trace, parents, by_id, by_thread }
    }

    /// The innermost range that work was enqueued in.
    fn around(&self, work: &Work) -> Option<usize> {
        if let Some(index) = self.by_id.get(&work.range) {
            return Some(*index);
        }
        let launch = work.launch?;
        let indices = self.by_thread.get(&launch.thread.0)?;
        let after = indices.partition_point(|index| self.trace.ranges[*index].start <= launch.start);
        let last = *indices.get(after.checked_sub(1)?)?;
        self.chain(last).find(|index| self.trace.ranges[*index].end >= launch.end)
    }

    /// A range and those around it.
    fn chain(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |index| self.parents[*index]).take(DEEPEST)
    }
}

pub(super) fn ranges(trace: &Trace, work: &[Work]) -> Vec<RangeRow> {
    let nesting = Nesting::of(trace);
    let mut rows: HashMap<Name, RangeRow> = HashMap::new();
    for range in &trace.ranges {
        let row = rows.entry(range.name).or_insert_with(|| RangeRow {
            name: trace.text(range.name).to_owned(),
            count: 0,
            host: 0,
            device: 0,
            launches: 0,
        });
        row.count += 1;
        row.host = row.host.saturating_add(range.end.saturating_sub(range.start));
    }
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    for work in work {
        let Some(index) = nesting.around(work) else { continue };
        seen.clear();
        for index in nesting.chain(index) {
            let name = trace.ranges[index].name;
            // A range inside one of the same name counts once.
            if seen.insert(name)
                && let Some(row) = rows.get_mut(&name)
            {
                row.device = row.device.saturating_add(work.duration());
                row.launches += 1;
            }
        }
    }
    let mut rows: Vec<RangeRow> = rows.into_values().collect();
    rows.sort_by(|a, b| (Reverse((a.device, a.host)), &a.name).cmp(&(Reverse((b.device, b.host)), &b.name)));
    rows
}
