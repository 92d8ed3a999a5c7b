//! The tables of a trace: what took the time, and why devices were idle.
//!
//! Times are nanoseconds, shares are of 1. Every trace has a summary, also one whose times make no sense.

mod diff;
mod launches;
mod rows;
mod streams;
mod text;
mod work;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::diff::{Change, Diff};
pub use self::launches::Launches;
pub use self::rows::{RangeRow, Row};
pub use self::streams::{DeviceRow, StreamRow};

use crate::definitions::Loss;
use crate::trace::Trace;

/// The tables of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Records of any kind.
    pub records: usize,
    /// From the first record to the end of the last.
    pub span: u64,
    /// What became of the records.
    pub loss: Loss,
    /// What the trace says of itself.
    pub about: BTreeMap<String, String>,
    /// Each device: busy and idle, and how much of its copies ran beside kernels.
    pub devices: Vec<DeviceRow>,
    /// Each stream: busy, and idle by cause.
    pub streams: Vec<StreamRow>,
    /// From calls to kernels.
    pub launches: Launches,
    /// By kernel, those with the most time first.
    pub kernels: Vec<Row>,
    /// By kind of copy, memsets too.
    pub transfers: Vec<Row>,
    /// By range, those with the most time on devices first.
    pub ranges: Vec<RangeRow>,
    /// By source line, kernels and copies together.
    pub lines: Vec<Row>,
    /// By function, calls on the host.
    pub calls: Vec<Row>,
}

impl Trace {
    /// The tables of the trace.
    pub fn summary(&self) -> Summary {
        let first = self.records().map(|record| record.start()).min().unwrap_or(0);
        let last = self.records().map(|record| record.end()).max().unwrap_or(0);
        let launched = work::Calls::of(self);
        let work = work::work(self, &launched);
        Summary {
            records: self.len(),
            span: last.saturating_sub(first),
            loss: self.definitions.loss,
            about: self.definitions.about.clone(),
            devices: streams::devices(self, &work),
            streams: streams::streams(self, &work),
            launches: launches::launches(&work),
            kernels: rows::kernels(self),
            transfers: rows::transfers(self),
            ranges: rows::ranges(self, &work),
            lines: rows::lines(self),
            calls: rows::calls(self),
        }
    }
}

impl Summary {
    /// The summary as text, no more than `rows` rows a table.
    pub fn text(&self, rows: usize) -> String {
        text::text(self, rows)
    }

    /// What changed from `old` to this one.
    pub fn since(&self, old: &Summary) -> Diff {
        Diff::of(old, self)
    }
}
