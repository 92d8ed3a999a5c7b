//! Differences between two traces.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::rows::ratio;
use super::{RangeRow, Row, Summary};

/// Changes from an old trace to a new one. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Duration of the old trace and of the new one.
    pub span: (u64, u64),
    /// Busy time of the devices in the old and in the new trace, summed over all devices.
    pub busy: (u64, u64),
    /// Idle time of the devices in the old and in the new trace.
    pub idle: (u64, u64),
    /// Changes by kernel, largest change of time first.
    pub kernels: Vec<Change>,
    /// Changes by kind of copy.
    pub transfers: Vec<Change>,
    /// Changes in device time, by range.
    pub ranges: Vec<Change>,
}

/// Change of the rows that have the same name. If a trace does not contain the name, its values are 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Name that the rows share.
    pub name: String,
    /// Number of occurrences in the old and in the new trace.
    pub count: (u64, u64),
    /// Total time in the old and in the new trace.
    pub total: (u64, u64),
    /// Average time in the old and in the new trace.
    pub average: (f64, f64),
}

impl Diff {
    pub(super) fn of(old: &Summary, new: &Summary) -> Diff {
        let sum =
            |summary: &Summary, part: fn(&super::DeviceRow) -> u64| summary.devices.iter().map(part).sum();
        Diff {
            span: (old.span, new.span),
            busy: (sum(old, |row| row.busy), sum(new, |row| row.busy)),
            idle: (sum(old, |row| row.idle), sum(new, |row| row.idle)),
            kernels: changes(of_rows(&old.kernels), of_rows(&new.kernels)),
            transfers: changes(of_rows(&old.transfers), of_rows(&new.transfers)),
            ranges: changes(of_ranges(&old.ranges), of_ranges(&new.ranges)),
        }
    }

    /// Formats the changes as text tables with at most `rows` rows each.
    pub fn text(&self, rows: usize) -> String {
        super::text::diff(self, rows)
    }
}

/// Returns the name, the count and the total time of each row.
fn of_rows(rows: &[Row]) -> impl Iterator<Item = (&str, u64, u64)> {
    rows.iter().map(|row| (row.name.as_str(), row.count, row.total))
}

fn of_ranges(rows: &[RangeRow]) -> impl Iterator<Item = (&str, u64, u64)> {
    rows.iter().map(|row| (row.name.as_str(), row.count, row.device))
}

fn changes<'a>(
    old: impl Iterator<Item = (&'a str, u64, u64)>,
    new: impl Iterator<Item = (&'a str, u64, u64)>,
) -> Vec<Change> {
    let mut both: BTreeMap<&str, [(u64, u64); 2]> = BTreeMap::new();
    for (name, count, total) in old {
        both.entry(name).or_default()[0] = (count, total);
    }
    for (name, count, total) in new {
        both.entry(name).or_default()[1] = (count, total);
    }
    let average = |(count, total): (u64, u64)| ratio(total as f64, count as f64);
    let change = |(name, [old, new]): (&str, [(u64, u64); 2])| Change {
        name: name.to_owned(),
        count: (old.0, new.0),
        total: (old.1, new.1),
        average: (average(old), average(new)),
    };
    let mut changes: Vec<Change> = both.into_iter().map(change).collect();
    changes.sort_by_key(|change| Reverse(change.total.0.abs_diff(change.total.1)));
    changes
}
