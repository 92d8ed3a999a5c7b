//! Rows by name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde::Serialize;

use crate::definitions::Definitions;

/// Totals of the records with the same name. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Number of occurrences.
    pub count: u64,
    /// Total time.
    pub total: u64,
    /// Average time.
    pub average: f64,
    /// Minimum time.
    pub min: u64,
    /// Maximum time.
    pub max: u64,
    /// Fraction of all rows' total time that this row accounts for.
    pub share: f64,
    /// Total number of bytes that occurrences with a known size moved.
    pub bytes: u64,
    /// Bandwidth of the occurrences with a known size, in bytes per second; 0 if no size is known.
    pub bandwidth: f64,
    /// Bandwidth as a fraction of the device's peak memory bandwidth; 0 if unknown.
    pub of_peak: f64,
}

/// Accumulated values of a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) total: u64,
    min: u64,
    max: u64,
    bytes: u64,
    /// Total time of the occurrences with a known number of bytes.
    timed: u64,
    /// Total time, by device, of the occurrences that are limited by that device's memory.
    limited: BTreeMap<u32, u64>,
}

impl Sum {
    pub(super) fn add(&mut self, duration: u64) {
        self.min = if self.count == 0 { duration } else { self.min.min(duration) };
        self.max = self.max.max(duration);
        self.count += 1;
        self.total = self.total.saturating_add(duration);
    }

    /// Adds an occurrence that moves bytes; `limit` is the device whose memory limits it, if any.
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

    /// Returns the number of bytes that the memory could have transferred in this time.
    fn max_bytes(&self, definitions: &Definitions) -> f64 {
        let bandwidth =
            |device: &u32| definitions.devices.get(device).map_or(0.0, |device| device.bandwidth as f64);
        self.limited.iter().map(|(device, time)| bandwidth(device) * *time as f64 * 1e-9).sum()
    }
}

/// Returns the rows for `sums`, longest total time first.
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
        of_peak: ratio(sum.bytes as f64, sum.max_bytes(definitions)),
    };
    let mut rows: Vec<Row> = sums.iter().map(row).collect();
    rows.sort_by(|a, b| (Reverse(a.total), &a.name).cmp(&(Reverse(b.total), &b.name)));
    rows
}

/// Returns the quotient, or 0 if the divisor is not positive.
pub(super) fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}
