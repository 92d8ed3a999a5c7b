//! Ranges, with their host time and the device time of the work enqueued in them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::work::Work;
use crate::names::Name;
use crate::trace::Trace;

/// Ranges with the same name. If ranges with the same name are nested, the work enqueued in them counts only once.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RangeRow {
    /// Name of the ranges.
    pub name: String,
    /// Number of ranges.
    pub count: u64,
    /// Host time, including nested ranges of the same name.
    pub host: u64,
    /// Host time minus the host time of directly nested ranges.
    pub host_self: u64,
    /// Device time of the work that was enqueued in the ranges.
    pub device: u64,
    /// Device time without the work enqueued in nested ranges.
    pub device_self: u64,
    /// Number of kernels and copies enqueued in the ranges.
    pub launches: u64,
    /// Launch-bound idle time: time in which devices waited because the host had not yet enqueued the next of these
    /// kernels and copies.
    pub launch_bound: u64,
}

/// Maximum nesting depth up to which ranges are followed. Deeper nesting means that a damaged file contains a cycle.
const DEEPEST: usize = 1000;

/// Ranges, each with its enclosing range, which is found by ID or, failing that, by the times on the thread.
struct Nesting<'a> {
    trace: &'a Trace,
    parents: Vec<Option<usize>>,
    by_id: HashMap<u64, usize>,
    /// Ranges of each thread, ordered by start; of several with the same start, the longest comes first.
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
        for (index, range) in ranges.iter().enumerate().filter(|(_, range)| range.id != 0) {
            parents[index] = by_id.get(&range.parent).copied().filter(|parent| *parent != index);
        }
        Nesting { trace, parents, by_id, by_thread }
    }

    /// Returns the innermost range in which work was enqueued.
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

    /// Returns a range, followed by the ranges that enclose it.
    fn chain(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |index| self.parents[*index]).take(DEEPEST)
    }
}

/// Returns the rows. `launch_bound` is the launch-bound idle time of the device before each kernel or copy.
pub(super) fn ranges(trace: &Trace, work: &[Work], launch_bound: &[u64]) -> Vec<RangeRow> {
    let nesting = Nesting::of(trace);
    let duration = |index: usize| {
        let range = &trace.ranges[index];
        range.end.saturating_sub(range.start)
    };
    let mut own: Vec<u64> = (0..trace.ranges.len()).map(duration).collect();
    for (index, parent) in nesting.parents.iter().enumerate() {
        if let Some(parent) = parent {
            own[*parent] = own[*parent].saturating_sub(duration(index));
        }
    }
    let mut rows: HashMap<Name, RangeRow> = HashMap::new();
    for (index, range) in trace.ranges.iter().enumerate() {
        let row = rows.entry(range.name).or_default();
        row.count += 1;
        row.host = row.host.saturating_add(duration(index));
        row.host_self = row.host_self.saturating_add(own[index]);
    }
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    for (work, launch_bound) in work.iter().zip(launch_bound) {
        let Some(innermost) = nesting.around(work) else { continue };
        seen.clear();
        for index in nesting.chain(innermost) {
            let name = trace.ranges[index].name;
            if let Some(row) = rows.get_mut(&name).filter(|_| seen.insert(name)) {
                row.device = row.device.saturating_add(work.duration());
                row.launch_bound = row.launch_bound.saturating_add(*launch_bound);
                row.launches += 1;
                if index == innermost {
                    row.device_self = row.device_self.saturating_add(work.duration());
                }
            }
        }
    }
    let named = |(name, row)| RangeRow { name: trace.text(name).to_owned(), ..row };
    let mut rows: Vec<RangeRow> = rows.into_iter().map(named).collect();
    rows.sort_by(|a, b| (Reverse((a.device, a.host)), &a.name).cmp(&(Reverse((b.device, b.host)), &b.name)));
    rows
}
