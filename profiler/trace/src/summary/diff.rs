//! What changed between two traces.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::rows::ratio;
use super::{RangeRow, Row, Summary};

/// What changed from an old trace to a new one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// The spans, old and new.
    pub span: (u64, u64),
    /// The time in which devices were busy, the sum over all, old and new.
    pub busy: (u64, u64),
    /// The time in which they were idle, old and new.
    pub idle: (u64, u64),
    /// By kernel, the largest change of time first.
    pub kernels: Vec<Change>,
    /// By kind of copy.
    pub transfers: Vec<Change>,
    /// By range, the time on devices.
    pub ranges: Vec<Change>,
}

/// What changed of what has one name; 0 where it is not there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The name.
    pub name: String,
    /// How often, old and new.
    pub count: (u64, u64),
    /// The time of all, old and new.
    pub total: (u64, u64),
    /// The time of one on average, old and new.
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

    /// The changes as text, no more than `rows` rows a table.
    pub fn text(&self, rows: usize) -> String {
        super::text::diff(self, rows)
    }
}

/// Name, count and time of rows.
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
