//! Tables of results, with one line per case or one per configuration.

use comfy_table::Cell;

use super::columns::{Column, fit};
use super::output::{bad, escape, good, note, plain};
use crate::document::{DeviceInfo, Document, Outcome, Record, best as chosen};
use crate::size::format_size;
use crate::stats::Summary;

/// Function that formats one cell of the row for a record.
type Show<'a> = &'a dyn Fn(&Record) -> Option<String>;

/// Formats the device, followed by one line per case, or per configuration if `all` is true, in `width` characters.
pub fn text(document: &Document, all: bool, width: Option<usize>) -> String {
    let mut text = heading(&document.device);
    text.push_str(&if all { configurations(document, width) } else { best(document, width) });
    for probe in &document.probes {
        let reached = match probe.gflops {
            0.0 => format!("{} GB/s", number(probe.gbps)),
            gflops => format!("{} GFLOP/s", number(gflops)),
        };
        text.push_str(&format!("probe {}: {reached}\n", escape(&probe.name)));
    }
    let throttled = throttled(document, all);
    if throttled > 0 {
        text.push_str(&format!(
            "note: {throttled} {} on a throttled device, whose clock stayed low: measure again\n",
            if throttled == 1 { "row was measured" } else { "rows were measured" }
        ));
    }
    if let Some((usual, highest)) = document.low_clock() {
        text.push_str(&format!(
            "note: the clock was {usual} MHz, below 95 % of the device's maximum ({highest} MHz), at which times \
             would be shorter\n"
        ));
    }
    if document.run.interrupted {
        text.push_str("ended early: not everything was measured\n");
    }
    text
}

/// Returns the number of rows whose times come from a throttled device.
fn throttled(document: &Document, all: bool) -> usize {
    let is_throttled = |record: &Record| record.timing.as_ref().is_some_and(|timing| timing.throttled);
    if all {
        return document.results.iter().filter(|record| is_throttled(record)).count();
    }
    let shows_throttled =
        |case: &&Vec<&Record>| chosen(case).into_iter().chain(usable_default(case)).any(is_throttled);
    document.cases().iter().filter(shows_throttled).count()
}

fn heading(device: &DeviceInfo) -> String {
    let mut text = format!("{}  {}", escape(&device.id), escape(&device.name));
    match device.memory_gbps {
        Some(peak) => text.push_str(&format!(", {peak:.0} GB/s by its data sheet")),
        None if device.emulated => text.push_str(": times are CPU times and say nothing about a GPU"),
        None => text.push_str(", memory bandwidth unknown"),
    }
    text + "\n\n"
}

/// Formats one line per case, with the fastest and the default configuration.
fn best(document: &Document, width: Option<usize>) -> String {
    let cases = document.cases();
    let best: Vec<Option<&Record>> = cases.iter().map(|case| chosen(case)).collect();
    let pairs = || cases.iter().zip(&best);
    // If no record of a case is correct, the case's first record is shown.
    let shown: Vec<&Record> = pairs().map(|(case, best)| best.unwrap_or(case[0])).collect();
    let of_best = |show: Show<'_>| -> Vec<Cell> {
        best.iter().map(|record| plain(record.and_then(show).unwrap_or_else(|| "-".to_owned()))).collect()
    };
    let mut columns = name(&shown);
    columns.push(Column::number("best us", 99, of_best(&|r| r.median_us().map(number))));
    columns.extend(figures(&document.device, &of_best));
    columns.push(configuration(of_best(&|r| Some(r.configuration.to_string()))));
    let of_default = |show: &dyn Fn(&Record, Option<&Record>) -> Option<String>| -> Vec<Cell> {
        pairs()
            .map(|(case, best)| usable_default(case).and_then(|record| show(record, *best)))
            .map(|text| plain(text.unwrap_or_else(|| "-".to_owned())))
            .collect()
    };
    columns.push(Column::number("default us", 50, of_default(&|r, _| r.median_us().map(number))));
    columns.push(Column::number(
        "gain",
        75,
        of_default(&|r, best| Some(format!("{:.2}x", r.median_us()? / best?.median_us()?))),
    ));
    columns.push(Column::text("check", 96, cases.iter().map(|case| tally(case))));
    fit(columns, width)
}

fn usable_default<'a>(case: &[&'a Record]) -> Option<&'a Record> {
    case.iter().copied().find(|record| record.is_default).filter(|record| record.is_usable())
}

/// Formats one line per configuration, the fastest one of each case first.
fn configurations(document: &Document, width: Option<usize>) -> String {
    let cases = document.cases();
    let mut rows: Vec<(&Record, Cell)> = Vec::new();
    for case in &cases {
        let best = chosen(case);
        let mut records = case.clone();
        let time = |record: &Record| record.median_us().unwrap_or(f64::INFINITY);
        records.sort_by(|a, b| time(a).total_cmp(&time(b)));
        rows.extend(records.into_iter().map(|record| {
            let is_best = best.is_some_and(|best| std::ptr::eq(best, record));
            let mark = match (is_best, record.is_default) {
                (true, true) => good("best, default"),
                (true, false) => good("best"),
                (false, true) => note("default"),
                (false, false) => plain(""),
            };
            (record, mark)
        }));
    }
    let records: Vec<&Record> = rows.iter().map(|(record, _)| *record).collect();
    let of_all = |show: Show<'_>| -> Vec<Cell> {
        records.iter().map(|record| plain(show(record).unwrap_or_else(|| "-".to_owned()))).collect()
    };
    let mut columns = name(&records);
    columns.push(configuration(of_all(&|r| Some(r.configuration.to_string()))));
    columns.push(Column::number("us", 99, of_all(&|r| r.median_us().map(number))));
    let of_summary = |value: fn(&Summary) -> f64| {
        of_all(&|r| r.timing.as_ref()?.summary().as_ref().map(value).map(number))
    };
    columns.push(Column::number("p10", 45, of_summary(|summary| summary.p10)));
    columns.push(Column::number("p90", 46, of_summary(|summary| summary.p90)));
    columns.push(Column::number("p99", 44, of_summary(|summary| summary.p99)));
    columns.extend(figures(&document.device, &of_all));
    columns.push(Column::number(
        "max error",
        35,
        of_all(&|r| r.max_error.map(|error| format!("{error:.1e}"))),
    ));
    columns.push(Column::text("check", 96, records.iter().map(|record| check(record))));
    columns.push(Column::text("note", 84, rows.iter().map(|(_, mark)| mark.clone())));
    fit(columns, width)
}

/// Creates the columns for the kernel, type, size and mode.
fn name(records: &[&Record]) -> Vec<Column> {
    let cells = |show: &dyn Fn(&Record) -> String| -> Vec<Cell> {
        records.iter().map(|record| plain(show(record))).collect()
    };
    vec![
        Column::text("kernel", 100, cells(&|r| r.kernel.clone())),
        Column::text("type", 95, cells(&|r| r.dtype.clone())),
        Column::number("size", 98, cells(&|r| format_size(r.n))),
        Column::text("mode", 40, cells(&|r| r.mode().to_string())),
    ]
}

/// Creates the columns that are derived from the times.
fn figures(device: &DeviceInfo, cells: &dyn Fn(Show<'_>) -> Vec<Cell>) -> Vec<Column> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let interval = |r: &Record| {
        let interval = r.timing.as_ref()?.interval()?;
        Some(format!("{}-{}", number(interval.low), number(interval.high)))
    };
    let clock = |r: &Record| {
        let timing = r.timing.as_ref()?;
        let mut clocks = timing.clocks_mhz.clone();
        clocks.sort_unstable();
        let clock = clocks.get(clocks.len() / 2).map(ToString::to_string);
        let throttled = timing.throttled.then(|| "throttled".to_owned());
        let said: Vec<String> = clock.into_iter().chain(throttled).collect();
        (!said.is_empty()).then(|| said.join(" "))
    };
    let rejected = |r: &Record| Some(r.timing.as_ref()?.rejected).filter(|&n| n > 0).map(|n| n.to_string());
    vec![
        Column::number("95 % interval", 60, cells(&interval)),
        Column::number("GB/s", 90, cells(&|r| r.gbps().filter(|&gbps| gbps > 0.0).map(number))),
        Column::number("peak", 72, cells(&|r| r.of_datasheet(device).map(percent))),
        Column::number("probe", 70, cells(&|r| r.of_probe().map(percent))),
        Column::number("samples", 30, cells(&|r| Some(r.timing.as_ref()?.samples_us.len().to_string()))),
        Column::number("rejected", 29, cells(&rejected)),
        Column::number("MHz", 28, cells(&clock)),
    ]
}

fn configuration(cells: Vec<Cell>) -> Column {
    Column::text("configuration", 97, cells)
}

fn check(record: &Record) -> Cell {
    match record.outcome {
        Outcome::Correct => good("ok"),
        Outcome::Incorrect => bad("INCORRECT"),
        Outcome::Failed => bad("FAILED"),
        Outcome::Crashed => bad("CRASHED"),
    }
}

fn tally(case: &[&Record]) -> Cell {
    let count = |outcome| case.iter().filter(|record| record.outcome == outcome).count();
    let bad_ones =
        [(Outcome::Incorrect, "INCORRECT"), (Outcome::Failed, "FAILED"), (Outcome::Crashed, "CRASHED")]
            .map(|(outcome, word)| (count(outcome), word));
    let said: Vec<String> = bad_ones
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match said.is_empty() {
        true => good(format!("{} correct", case.len())),
        false => bad(format!("{} of {}", said.join(", "), case.len())),
    }
}

/// Formats a number with about four significant digits.
pub fn number(value: f64) -> String {
    let digits = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::{document, record};

    fn sample() -> Document {
        let mut sample = document(vec![
            record("reduce_argmax", 128, 20.0, Outcome::Correct),
            record("reduce_argmax", 256, 10.0, Outcome::Correct),
            record("reduce_argmax", 512, 5.0, Outcome::Incorrect),
            record("copy", 64, 5.0, Outcome::Crashed),
        ]);
        for timing in sample.results.iter_mut().filter_map(|record| record.timing.as_mut()) {
            // A confidence interval requires this number of samples.
            timing.samples_us.extend_from_within(..);
        }
        sample
    }

    #[test]
    fn tables_fit_and_keep_what_matters() {
        for width in [60, 80, 120] {
            for all in [false, true] {
                let text = text(&sample(), all, Some(width));
                let table = text.split("\n\n").nth(1).unwrap_or_default();
                assert!(table.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
                for word in ["kernel", "size", "us", "check", "block=256"] {
                    assert!(table.contains(word), "{word} at {width}:\n{text}");
                }
            }
        }
        let wide = text(&sample(), true, None);
        for word in ["mode", "cold", "95 % interval", "p99", "peak", "probe", "samples", "MHz", "max error"] {
            assert!(wide.contains(word), "{word}:\n{wide}");
        }
        assert!(!wide.contains("not shown"), "{wide}");
    }

    #[test]
    fn throttled_rows_are_noted_at_every_width() {
        let mut sample = sample();
        assert!(!text(&sample, false, None).contains("throttled"));
        for index in [1, 3] {
            let timing = sample.results[index].timing.as_mut().unwrap();
            (timing.throttled, timing.clocks_mhz) = (true, Vec::new());
        }
        for width in [Some(60), None] {
            let best = text(&sample, false, width);
            assert!(best.contains("note: 1 row was measured on a throttled device"), "{best}");
            let all = text(&sample, true, width);
            assert!(all.contains("note: 2 rows were measured on a throttled device"), "{all}");
        }
        let wide = text(&sample, true, None);
        assert_eq!(
            wide.lines().filter(|line| line.contains(" throttled ")).count(),
            3,
            "two rows, a note: {wide}"
        );
    }

    #[test]
    fn wrong_configurations_are_never_best() {
        let text = text(&sample(), false, None);
        let line = |kernel: &str| text.lines().find(|line| line.starts_with(kernel)).unwrap_or_default();
        let argmax = line("reduce_argmax");
        for word in ["10.00", "256", "20.00", "2.00x", "1 INCORRECT of 3"] {
            assert!(argmax.contains(word), "{word}: {argmax}");
        }
        assert!(line("copy").contains("1 CRASHED of 1"), "{text}");
    }
}
