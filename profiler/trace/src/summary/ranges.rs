//! Ranges: time on the host, and on devices of what was enqueued in them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::work::Work;
use crate::names::Name;
use crate::trace::Trace;

/// Ranges of one name. A range inside one of the same name counts once for what is enqueued in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RangeRow {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Their time on the host, ranges of the same name inside counted too.
    pub host: u64,
    /// That without the ranges directly inside.
    pub host_self: u64,
    /// The time on devices of what was enqueued in them.
    pub device: u64,
    /// That without what was enqueued in ranges inside.
    pub device_self: u64,
    /// Kernels and copies that were enqueued in them.
    pub launches: u64,
    /// The time in which devices were idle, because the host had not enqueued the next of these yet.
    pub host_late: u64,
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
        for (index, range) in ranges.iter().enumerate().filter(|(_, range)| range.id != 0) {
            parents[index] = by_id.get(&range.parent).copied().filter(|parent| *parent != index);
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

/// The rows; `late` is how long a device was idle before each piece of work, because it was enqueued late.
pub(super) fn ranges(trace: &Trace, work: &[Work], late: &[u64]) -> Vec<RangeRow> {
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
    for (work, late) in work.iter().zip(late) {
        let Some(innermost) = nesting.around(work) else { continue };
        seen.clear();
        for index in nesting.chain(innermost) {
            let name = trace.ranges[index].name;
            if let Some(row) = rows.get_mut(&name).filter(|_| seen.insert(name)) {
                row.device = row.device.saturating_add(work.duration());
                row.host_late = row.host_late.saturating_add(*late);
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
