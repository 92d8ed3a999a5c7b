//! Differences between two traces.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::rows::ratio;
use super::{RangeRow, Row, Summary};

/// Changes from an old trace to a new one. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Durations of the old and the new trace.
    pub span: (u64, u64),
    /// Busy time of the devices in the old and the new trace, summed over all devices.
    pub busy: (u64, u64),
    /// Idle time of the devices in the old and the new trace.
    pub idle: (u64, u64),
    /// Changes by kernel, with the largest change of time first.
    pub kernels: Vec<Change>,
    /// Changes by kind of copy.
    pub transfers: Vec<Change>,
    /// Changes of device time by range.
    pub ranges: Vec<Change>,
}

/// Change of the rows with one name. Values are 0 in a trace without the name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Name of the rows.
    pub name: String,
    /// Number of occurrences, old and new.
    pub count: (u64, u64),
    /// Total time, old and new.
    pub total: (u64, u64),
    /// Average time, old and new.
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

    /// Formats the changes as text, with at most `rows` rows per table.
    pub fn text(&self, rows: usize) -> String {
        super::text::diff(self, rows)
    }
}

/// Returns the name, the count and the total time of rows.
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
