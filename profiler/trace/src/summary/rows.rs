//! Rows by name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde::Serialize;

use crate::definitions::Definitions;

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

/// What is summed up in a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) total: u64,
    min: u64,
    max: u64,
    bytes: u64,
    /// The time of those whose bytes are known.
    timed: u64,
    /// That of those whose bytes are limited by a device's memory, by device.
    limited: BTreeMap<u32, u64>,
}

impl Sum {
    pub(super) fn add(&mut self, duration: u64) {
        self.min = if self.count == 0 { duration } else { self.min.min(duration) };
        self.max = self.max.max(duration);
        self.count += 1;
        self.total = self.total.saturating_add(duration);
    }

    /// Adds something that moves bytes, to and from the memory of a device if that limits it.
    pub(super) fn move_bytes(&mut self, duration: u64, bytes: u64, limit: Option<u32>) {
        self.add(duration);
        if bytes > 0 {
            self.bytes = self.bytes.saturating_add(bytes);
            self.timed = self.timed.saturating_add(duration);
            if let Some(device) = limit {
                let time = self.limited.entry(device).or_default();
                *time = time.saturating_add(duration);
            }
        }
    }

    /// Bytes that the memory could have moved in that time.
    fn most_bytes(&self, definitions: &Definitions) -> f64 {
        let bandwidth =
            |device: &u32| definitions.devices.get(device).map_or(0.0, |device| device.bandwidth as f64);
        self.limited.iter().map(|(device, time)| bandwidth(device) * *time as f64 * 1e-9).sum()
    }
}

/// The rows of sums, those with the most time first.
pub(super) fn rows<'a, K: Eq + Hash>(
    sums: &HashMap<K, Sum>,
    definitions: &Definitions,
    name: impl Fn(&K) -> &'a str,
) -> Vec<Row> {
    let all: u64 = sums.values().fold(0, |all, sum| all.saturating_add(sum.total));
    let row = |(key, sum): (&K, &Sum)| Row {
        name: name(key).to_owned(),
        count: sum.count,
        total: sum.total,
        average: sum.total as f64 / sum.count as f64,
        min: sum.min,
        max: sum.max,
        share: ratio(sum.total as f64, all as f64),
        bytes: sum.bytes,
        bandwidth: ratio(sum.bytes as f64, sum.timed as f64 * 1e-9),
        of_peak: ratio(sum.bytes as f64, sum.most_bytes(definitions)),
    };
    let mut rows: Vec<Row> = sums.iter().map(row).collect();
    rows.sort_by(|a, b| (Reverse(a.total), &a.name).cmp(&(Reverse(b.total), &b.name)));
    rows
}

/// 0 where there is nothing to divide by.
pub(super) fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}
