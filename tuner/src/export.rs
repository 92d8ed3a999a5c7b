//! Documents as comma-separated values. (JSON is the document itself: [`Document::to_json`].)
//!
//! Guarantees: every record of a document is in the output, wrong and failed ones as such, in the document's order.

use crate::document::{Document, Record};
use crate::measure::{Mode, Timing};
use crate::stats::summarise;

/// The columns and what is in them. After them comes one column for each axis, named `axis:` and the axis.
///
/// Cells of what is not known are empty. Times are in microseconds a launch, of accepted samples.
pub const COLUMNS: [(&str, &str); 42] = [
    ("device", "the device's name"),
    ("kernel", "the kernel's name"),
    ("dtype", "the element type"),
    ("n", "elements"),
    ("mode", "what the times are of: cold, hot, graph or enqueue; empty without times"),
    ("configuration", "axes and values, as --config takes them"),
    ("is_default", "true for what is launched when nothing is known"),
    ("is_winner", "true for what a tuning run chose"),
    ("outcome", "correct, wrong, failed or crashed"),
    ("problem", "what was wrong"),
    ("max_error", "the largest difference from the float64 reference"),
    ("samples", "how many"),
    ("median_us", "the median time"),
    ("low_us", "the lower end of the median's 95 % confidence interval"),
    ("high_us", "its upper end"),
    ("min_us", "the shortest time"),
    ("p10_us", "the 10th percentile"),
    ("p90_us", "the 90th percentile"),
    ("p99_us", "the 99th percentile"),
    ("max_us", "the longest time"),
    ("rejected", "samples that were thrown away because the clock was low"),
    ("throttled", "true where the clock stayed low"),
    ("clock_mhz", "the median clock of the multiprocessors in MHz"),
    ("launches_per_sample", "launches between the events of a sample"),
    ("stop", "what ended the sampling: precision, entropy, samples or budget"),
    ("logged", "true where an earlier run took the samples: there are no percentiles of them"),
    ("bytes", "bytes that a launch must read and write"),
    ("flops", "floating-point operations of a launch; 0 where they do not matter"),
    ("gbps", "GB/s (10^9 bytes a second) at the median"),
    ("gflops", "GFLOP/s at the median"),
    ("of_datasheet", "the share of the data sheet's memory bandwidth; 1 is all of it"),
    ("of_probe", "the share of what the probe reached in turn with it"),
    ("driver", "the version of the driver, of every row of a run as all that follows"),
    ("cuda", "the version of CUDA that the driver is for"),
    ("version", "the version of Warpsmith"),
    ("toolchain", "what compiled the kernels"),
    ("started", "seconds since 1970 when the run began"),
    ("memory_clock_mhz", "the clock of the memory in MHz when the run ended"),
    ("temperature_before_c", "degrees Celsius when the run began"),
    ("temperature_after_c", "and when it ended"),
    ("power_before_w", "watts when the run began"),
    ("power_after_w", "and when it ended"),
];

/// One row a record, after a row with the names of the columns ([`COLUMNS`]): RFC 4180, UTF-8, lines ending in CR LF.
///
/// ```
/// # use warpsmith_tuner::document::Document;
/// # fn write(document: &Document) -> std::io::Result<()> {
/// std::fs::write("results.csv", warpsmith_tuner::export::csv(document))
/// # }
/// ```
pub fn csv(document: &Document) -> String {
    let mut axes: Vec<&str> = Vec::new();
    for (axis, _) in document.results.iter().flat_map(|record| record.configuration.iter()) {
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    let mut text = String::new();
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    line(&mut text, names.chain(axes.iter().map(|axis| format!("axis:{axis}"))));
    for record in &document.results {
        let values = axes.iter().map(|axis| optional(record.configuration.get(axis)));
        line(&mut text, cells(document, record).into_iter().chain(values));
    }
    text
}

fn cells(document: &Document, record: &Record) -> [String; COLUMNS.len()] {
    let timing = record.timing.as_ref();
    let summary = timing.and_then(Timing::percentiles);
    let interval = timing.and_then(Timing::interval);
    let clocks: Vec<f64> =
        timing.map_or(Vec::new(), |timing| timing.clocks_mhz.iter().map(|clock| f64::from(*clock)).collect());
    let moves = record.bytes > 0;
    let computes = record.flops > 0 && record.mode() != Mode::Enqueue;
    let gflops = record.median_us().filter(|_| computes).map(|us| record.flops as f64 / us / 1e3);
    let Document { device, run, .. } = document;
    [
        device.name.clone(),
        record.kernel.clone(),
        record.dtype.clone(),
        record.n.to_string(),
        optional(timing.map(|timing| name(&timing.mode))),
        record.configuration.to_string(),
        record.is_default.to_string(),
        record.is_winner.to_string(),
        name(&record.outcome),
        record.problem.clone(),
        optional(record.max_error),
        optional(timing.map(Timing::count)),
        optional(record.median_us()),
        optional(interval.map(|interval| interval.low)),
        optional(interval.map(|interval| interval.high)),
        optional(summary.map(|summary| summary.min)),
        optional(summary.map(|summary| summary.p10)),
        optional(summary.map(|summary| summary.p90)),
        optional(summary.map(|summary| summary.p99)),
        optional(summary.map(|summary| summary.max)),
        optional(timing.map(|timing| timing.rejected)),
        optional(timing.map(|timing| timing.throttled)),
        optional(summarise(&clocks).map(|summary| summary.median)),
        optional(timing.map(|timing| timing.launches_per_sample)),
        optional(timing.map(|timing| name(&timing.stop))),
        optional(timing.map(|timing| timing.logged.is_some())),
        record.bytes.to_string(),
        record.flops.to_string(),
        optional(record.gbps().filter(|_| moves)),
        optional(gflops),
        optional(record.of_datasheet(device).filter(|_| moves)),
        optional(record.of_probe()),
        device.driver.clone(),
        device.cuda.clone(),
        run.version.clone(),
        run.toolchain.clone(),
        run.started.to_string(),
        optional(device.after.memory_clock_mhz),
        optional(device.before.temperature_c),
        optional(device.after.temperature_c),
        optional(device.before.power_w),
        optional(device.after.power_w),
    ]
}

/// A name as the document writes it.
fn name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            text.push(',');
        }
        if cell.contains([',', '"', '\r', '\n']) {
            text.push('"');
            text.push_str(&cell.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(&cell);
        }
    }
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use crate::document::tests::{document, record};
    use crate::measure::Logged;

    /// What RFC 4180 says a reader must make of it.
    fn parse(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            match (quoted, char) {
                (true, '"') if chars.peek() == Some(&'"') => cell.extend(chars.next()),
                (_, '"') => quoted = !quoted,
                (false, ',') => row.push(std::mem::take(&mut cell)),
                (false, '\r') => {
                    assert_eq!(chars.next(), Some('\n'));
                    row.push(std::mem::take(&mut cell));
                    rows.push(std::mem::take(&mut row));
                }
                (_, char) => cell.push(char),
            }
        }
        assert!(row.is_empty() && cell.is_empty() && !quoted, "the text ends with a line");
        rows
    }

    #[test]
    fn each_record_is_a_row_of_as_many_cells_as_there_are_columns() {
        let mut failed = record("axpy", 256, 1.0, Outcome::Failed);
        (failed.timing, failed.probe_us) = (None, None);
        failed.problem = "too many \"threads\",\r\nand so on".into();
        failed.configuration = failed.configuration.with("tile", "a,b");
        let mut winner = record("copy", 128, 10.0, Outcome::Correct);
        winner.is_winner = true;
        let mut document = document(vec![winner, failed.clone()]);
        (document.run.version, document.run.toolchain) = ("0.1.0".into(), "rustc 1.96, ptxas 13.0".into());
        (document.device.before.temperature_c, document.device.after.power_w) = (Some(34), Some(402.5));
        let rows = parse(&csv(&document));
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len() + 4), "{rows:?}");
        let cell =
            |row: usize, name: &str| &rows[row][rows[0].iter().position(|known| known == name).unwrap()];
        assert_eq!(cell(1, "kernel"), "copy");
        assert_eq!((&cell(1, "is_winner")[..], &cell(2, "is_winner")[..]), ("true", "false"));
        assert_eq!((&cell(1, "median_us")[..], &cell(1, "samples")[..]), ("10", "5"));
        assert_eq!((&cell(1, "mode")[..], &cell(1, "stop")[..]), ("cold", "precision"));
        assert_eq!((&cell(1, "gbps")[..], &cell(1, "clock_mhz")[..]), ("52.4288", "1980"));
        for row in [1, 2] {
            let all = ["driver", "cuda", "version", "toolchain", "temperature_before_c", "power_after_w"]
                .map(|name| cell(row, name).as_str());
            assert_eq!(all, ["580.95", "13.0", "0.1.0", "rustc 1.96, ptxas 13.0", "34", "402.5"]);
            assert_eq!(cell(row, "temperature_after_c"), "");
        }
        assert_eq!(cell(1, "low_us"), "", "five samples have no interval");
        assert_eq!((&cell(1, "axis:block")[..], &cell(1, "axis:tile")[..]), ("128", ""));
        assert_eq!(cell(2, "problem"), &failed.problem);
        assert_eq!((&cell(2, "outcome")[..], &cell(2, "mode")[..]), ("failed", ""));
        assert_eq!((&cell(2, "median_us")[..], &cell(2, "axis:tile")[..]), ("", "a,b"));
    }

    #[test]
    fn records_of_an_earlier_run_say_so_and_times_of_the_host_have_no_rates() {
        let mut known = record("copy", 128, 10.0, Outcome::Correct);
        known.timing.as_mut().unwrap().logged = Some(Logged { samples: 37, interval_us: Some((9.5, 10.25)) });
        let mut host = record("axpy", 128, 3.0, Outcome::Correct);
        host.flops = 4096;
        let device = host.clone();
        host.timing.as_mut().unwrap().mode = Mode::Enqueue;
        let rows = parse(&csv(&document(vec![known, host, device])));
        let column = |name: &str| -> Vec<&str> {
            let index = rows[0].iter().position(|known| known == name).unwrap();
            rows[1..].iter().map(|row| row[index].as_str()).collect()
        };
        assert_eq!(column("logged"), ["true", "false", "false"]);
        assert_eq!((column("samples")[0], column("p10_us")[0], column("high_us")[0]), ("37", "", "10.25"));
        let is_there = |name: &str| column(name).iter().map(|cell| !cell.is_empty()).collect::<Vec<_>>();
        assert_eq!(is_there("gflops"), [false, false, true]);
        assert_eq!(is_there("gbps"), [true, false, true]);
    }

    #[test]
    fn an_empty_document_has_only_its_columns() {
        assert_eq!(parse(&csv(&document(vec![]))).len(), 1);
    }
}
