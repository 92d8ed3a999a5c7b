//! Documents as comma-separated values. (JSON is the document itself: [`Document::to_json`].)
//!
//! Guarantees: every record of a document is in the output, wrong and failed ones as such, in the document's order.

use serde::Serialize;

use crate::document::{Document, Record};
use crate::measure::Timing;

/// One row a record: RFC 4180, UTF-8, lines ending in CR LF, after a row with the names of the columns. The last columns are
/// the axes, named `axis:` and the axis. Cells of what is not known are empty. Times are in microseconds a launch.
///
/// ```
/// # use warpsmith_tuner::document::Document;
/// # fn write(document: &Document) -> std::io::Result<()> {
/// std::fs::write("results.csv", warpsmith_tuner::export::csv(document))
/// # }
/// ```
pub fn csv(document: &Document) -> String {
    let axes: std::collections::BTreeSet<&str> = document
        .results
        .iter()
        .flat_map(|record| record.configuration.iter())
        .map(|(axis, _)| axis)
        .collect();
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows[0].extend(axes.iter().map(|axis| format!("axis:{axis}")));
    for record in &document.results {
        let mut row = cells(document, record).to_vec();
        row.extend(axes.iter().map(|axis| optional(record.configuration.get(axis))));
        rows.push(row);
    }
    let line = |row: &Vec<String>| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\r\n";
    rows.iter().map(line).collect()
}

const COLUMNS: [&str; 30] = [
    "device",
    "kernel",
    "dtype",
    "n",
    "mode",
    "is_default",
    "is_winner",
    "outcome",
    "problem",
    "max_error",
    "samples",
    "median_us",
    // The ends of the median's 95 % confidence interval.
    "low_us",
    "high_us",
    "p10_us",
    "p90_us",
    "p99_us",
    "rejected",
    "throttled",
    "launches_per_sample",
    "bytes",
    "flops",
    "gbps",
    "of_datasheet",
    "of_probe",
    "driver",
    "version",
    "toolchain",
    "temperature_after_c",
    "power_after_w",
];

fn cells(Document { device, run, .. }: &Document, record: &Record) -> [String; COLUMNS.len()] {
    let timing = record.timing.as_ref();
    let summary = timing.and_then(Timing::percentiles);
    let interval = timing.and_then(Timing::interval);
    [
        device.name.clone(),
        record.kernel.clone(),
        record.dtype.clone(),
        record.n.to_string(),
        record.mode().to_string(),
        record.is_default.to_string(),
        record.is_winner.to_string(),
        name(&record.outcome),
        record.problem.clone(),
        optional(record.max_error),
        optional(timing.map(Timing::count)),
        optional(record.median_us()),
        optional(interval.map(|interval| interval.low)),
        optional(interval.map(|interval| interval.high)),
        optional(summary.map(|summary| summary.p10)),
        optional(summary.map(|summary| summary.p90)),
        optional(summary.map(|summary| summary.p99)),
        optional(timing.map(|timing| timing.rejected)),
        optional(timing.map(|timing| timing.throttled)),
        optional(timing.map(|timing| timing.launches_per_sample)),
        record.bytes.to_string(),
        record.flops.to_string(),
        optional(record.gbps()),
        optional(record.of_datasheet(device)),
        optional(record.of_probe()),
        device.driver.clone(),
        run.version.clone(),
        run.toolchain.clone(),
        optional(device.after.temperature_c),
        optional(device.after.power_w),
    ]
}

/// A name as the document writes it.
fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use crate::document::tests::{document, record};
    use crate::measure::Logged;

    #[test]
    fn each_record_is_a_row() {
        let mut failed = record("axpy", 256, 1.0, Outcome::Failed);
        (failed.timing, failed.probe_us) = (None, None);
        failed.problem = "too many \"threads\",\r\nand so on".into();
        failed.configuration = failed.configuration.with("tile", "a,b");
        let mut known = record("copy", 128, 10.0, Outcome::Correct);
        known.timing.as_mut().unwrap().logged = Some(Logged { samples: 37, interval_us: Some((9.5, 10.25)) });
        let mut document = document(vec![known, failed]);
        document.run.toolchain = "rustc 1.96, ptxas 13.0".into();
        assert_eq!(
            csv(&document),
            "device,kernel,dtype,n,mode,is_default,is_winner,outcome,problem,max_error,samples,median_us,low_us,high_us,\
             p10_us,p90_us,p99_us,rejected,throttled,launches_per_sample,bytes,flops,gbps,of_datasheet,of_probe,driver,\
             version,toolchain,temperature_after_c,power_after_w,axis:block,axis:grid,axis:items,axis:tile\r\n\
             NVIDIA H200,copy,f32,65536,cold,true,false,correct,,0,37,10,9.5,10.25,,,,0,false,8,524288,0,52.4288,\
             0.010922666666666667,0.9,580.95,,\"rustc 1.96, ptxas 13.0\",,,128,waves:4,2,\r\n\
             NVIDIA H200,axpy,f32,65536,cold,false,false,failed,\"too many \"\"threads\"\",\r\nand so on\",,,,,,,,,,,,524288,\
             0,,,,580.95,,\"rustc 1.96, ptxas 13.0\",,,256,waves:4,2,\"a,b\"\r\n"
        );
    }
}
