//! Input data for the script of the page.
//!
//! Records are in the order of their documents. Only the best and the default record of each case contain samples,
//! because only their distributions are drawn. Therefore, even a page with ten thousand records is small.

use std::collections::HashSet;

use rayon::prelude::*;
use serde::Serialize;

use crate::document::{DeviceInfo, Document, Outcome, ProbeResult, Record, RunInfo};
use crate::measure::{Mode, StopReason};
use crate::stats::summarize;
use crate::value::Value;

/// Number of significant digits of times; it exceeds the precision of any clock.
const DIGITS: usize = 6;

#[derive(Serialize)]
pub(super) struct Page<'a> {
    runs: Vec<Run<'a>>,
    records: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    #[serde(flatten)]
    info: &'a RunInfo,
    device: &'a DeviceInfo,
    /// Median clock of the run and maximum clock, in MHz; present only if the median clock is low.
    #[serde(skip_serializing_if = "Option::is_none")]
    low_clock: Option<(u32, u32)>,
    probes: &'a [ProbeResult],
}

#[derive(Serialize)]
struct Row<'a> {
    run: usize,
    kernel: &'a str,
    dtype: &'a str,
    n: u64,
    mode: Mode,
    /// Pairs instead of an object, because an axis can have any name.
    configuration: Vec<(&'a str, &'a Value)>,
    is_default: bool,
    is_best: bool,
    /// True if a tuning run selected this configuration.
    is_winner: bool,
    outcome: Outcome,
    problem: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_error: Option<f64>,
    bytes: u64,
    flops: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_datasheet: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_probe: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_us: Option<f64>,
    #[serde(flatten)]
    times: Option<Times>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples: Vec<f64>,
}

#[derive(Serialize)]
struct Times {
    median: f64,
    /// Lower end of the 95 % confidence interval of the median; `high` is the upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
    p10: f64,
    p90: f64,
    count: usize,
    /// Median clock in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<f64>,
    rejected: u32,
    throttled: bool,
    launches: u32,
    stop: StopReason,
}

impl<'a> Page<'a> {
    pub(super) fn of(documents: &'a [Document]) -> Self {
        let runs = documents.iter().map(|document| Run {
            info: &document.run,
            device: &document.device,
            low_clock: document.low_clock(),
            probes: &document.probes,
        });
        let records = documents.iter().enumerate().flat_map(|(run, document)| {
            let best: HashSet<_> = document.best().into_iter().map(address).collect();
            let rows = document
                .results
                .par_iter()
                .map(|record| row(run, document, record, best.contains(&address(record))));
            rows.collect::<Vec<_>>()
        });
        Self { runs: runs.collect(), records: records.collect() }
    }
}

fn address(record: &Record) -> usize {
    std::ptr::from_ref(record).addr()
}

fn row<'a>(run: usize, document: &Document, record: &'a Record, is_best: bool) -> Row<'a> {
    let samples = match &record.timing {
        Some(timing) if record.is_usable() && (is_best || record.is_default) => &timing.samples_us[..],
        _ => &[],
    };
    Row {
        run,
        kernel: &record.kernel,
        dtype: &record.dtype,
        n: record.n,
        mode: record.mode(),
        configuration: record.configuration.iter().collect(),
        is_default: record.is_default,
        is_best,
        is_winner: record.is_winner,
        outcome: record.outcome,
        problem: &record.problem,
        max_error: record.max_error,
        bytes: record.bytes,
        flops: record.flops,
        gbps: record.gbps().map(round),
        of_datasheet: record.of_datasheet(&document.device).map(round),
        of_probe: record.of_probe().map(round),
        probe_us: record.probe_us.map(round),
        times: times(record),
        samples: samples.iter().copied().map(round).collect(),
    }
}

fn times(record: &Record) -> Option<Times> {
    let timing = record.timing.as_ref()?;
    let summary = timing.summary()?;
    let interval = timing.interval();
    let clocks: Vec<f64> = timing.clocks_mhz.iter().map(|clock| f64::from(*clock)).collect();
    Some(Times {
        median: round(summary.median),
        low: interval.map(|interval| round(interval.low)),
        high: interval.map(|interval| round(interval.high)),
        p10: round(summary.p10),
        p90: round(summary.p90),
        count: summary.count,
        clock: summarize(&clocks).map(|summary| summary.median),
        rejected: timing.rejected,
        throttled: timing.throttled,
        launches: timing.launches_per_sample,
        stop: timing.stop,
    })
}

/// Rounds to [`DIGITS`] significant digits.
fn round(number: f64) -> f64 {
    format!("{number:.*e}", DIGITS - 1).parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::{document, record};

    fn model(documents: &[Document]) -> serde_json::Value {
        serde_json::to_value(Page::of(documents)).unwrap()
    }

    #[test]
    fn only_best_and_default_have_samples() {
        let page = model(&[document(vec![
            record("copy", 128, 10.0, Outcome::Correct),
            record("copy", 256, 8.0, Outcome::Correct),
            record("copy", 512, 9.0, Outcome::Correct),
            record("copy", 1024, 1.0, Outcome::Incorrect),
        ])]);
        let rows = page["records"].as_array().unwrap();
        let has: Vec<bool> = rows.iter().map(|row| row.get("samples").is_some()).collect();
        assert_eq!(has, [true, true, false, false]);
        let best: Vec<bool> = rows.iter().map(|row| row["is_best"].as_bool().unwrap()).collect();
        assert_eq!(best, [false, true, false, false]);
        assert_eq!(rows[3]["outcome"], "incorrect");
    }

    #[test]
    fn figures_are_those_of_the_record() {
        let mut failed = record("copy", 256, 1.0, Outcome::Failed);
        (failed.timing, failed.probe_us) = (None, None);
        let mut timed = record("copy", 128, 10.0, Outcome::Correct);
        timed.timing.as_mut().unwrap().samples_us = (0..9).map(|i| 10.0 + f64::from(i)).collect();
        let page = model(&[document(vec![timed]), document(vec![failed])]);
        let (first, second) = (&page["records"][0], &page["records"][1]);
        assert_eq!((&first["median"], &first["count"]), (&14.0.into(), &9.into()));
        assert!(first["low"].as_f64() < Some(14.0) && first["high"].as_f64() > Some(14.0));
        assert_eq!(
            (&first["mode"], &first["stop"], &first["clock"]),
            (&"cold".into(), &"precision".into(), &1980.0.into())
        );
        assert_eq!(first["configuration"][1], serde_json::json!(["grid", "waves:4"]));
        assert_eq!((&first["run"], &second["run"]), (&0.into(), &1.into()));
        assert!(second.get("median").is_none() && second["mode"] == "cold");
    }

    #[test]
    fn numbers_keep_six_digits() {
        assert_eq!(round(1234.56789), 1234.57);
        assert_eq!(round(0.000123456789), 0.000123457);
        assert_eq!(round(0.0), 0.0);
        assert!(round(f64::INFINITY).is_infinite());
    }
}
