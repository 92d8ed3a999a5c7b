//! What changed between two traces.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::{Row, Summary};

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
            kernels: changes(&old.kernels, &new.kernels),
            transfers: changes(&old.transfers, &new.transfers),
        }
    }

    /// The changes as text, no more than `rows` rows a table.
    pub fn text(&self, rows: usize) -> String {
        super::text::diff(self, rows)
    }
}

fn changes(old: &[Row], new: &[Row]) -> Vec<Change> {
    let mut both: BTreeMap<&str, (Option<&Row>, Option<&Row>)> = BTreeMap::new();
    for row in old {
        both.entry(&row.name).or_default().0 = Some(row);
    }
    for row in new {
        both.entry(&row.name).or_default().1 = Some(row);
    }
    let change = |(name, (old, new)): (&str, (Option<&Row>, Option<&Row>))| Change {
        name: name.to_owned(),
        count: (old.map_or(0, |row| row.count), new.map_or(0, |row| row.count)),
        total: (old.map_or(0, |row| row.total), new.map_or(0, |row| row.total)),
        average: (old.map_or(0.0, |row| row.average), new.map_or(0.0, |row| row.average)),
    };
    let mut changes: Vec<Change> = both.into_iter().map(change).collect();
    changes.sort_by_key(|change| Reverse(change.total.0.abs_diff(change.total.1)));
    changes
}
