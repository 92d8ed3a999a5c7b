//! The tables of `warpsmith bench`.

use std::path::Path;

use comfy_table::Cell;
use warpsmith_tuner::report::{Document, Record};
use warpsmith_tuner::run::PlannedCase;
use warpsmith_tuner::size::format_size;

use crate::output::{bad, good, note, plain, table};

/// Everything that goes to standard output: the device, one line a case (or a configuration), the file.
pub fn text(document: &Document, cases: &[PlannedCase], all: bool, file: Option<&Path>) -> String {
    let device = &document.device;
    let mut text = format!("{}  {}", device.id, device.name);
    match device.memory_gbps {
        Some(peak) => text.push_str(&format!(", {peak:.0} GB/s by its data sheet (roofline 100 %)\n\n")),
        None if device.emulated => text.push_str(": times are of this CPU and say nothing about a GPU\n\n"),
        None => text.push_str(", memory bandwidth unknown\n\n"),
    }
    let measured: Vec<Measured<'_>> = cases.iter().filter_map(|case| Measured::of(document, case)).collect();
    text.push_str(&if all { configurations(&measured) } else { best(&measured) });
    if let Some(file) = file {
        text.push_str(&format!("\nresults: {}\n", file.display()));
    }
    text
}

/// The records of one case.
struct Measured<'a> {
    case: &'a PlannedCase,
    records: Vec<&'a Record>,
    best: Option<&'a Record>,
}

impl<'a> Measured<'a> {
    /// `None` when the run ended before it came to the case.
    fn of(document: &'a Document, case: &'a PlannedCase) -> Option<Self> {
        let here = |r: &&Record| r.kernel == case.kernel.name && r.dtype == case.dtype && r.n == case.n;
        let records: Vec<&Record> = document.results.iter().filter(here).collect();
        let correct = records.iter().copied().filter(|r| r.correct);
        let best = correct.min_by(|a, b| a.median_us.total_cmp(&b.median_us));
        (!records.is_empty()).then_some(Self { case, records, best })
    }

    fn name(&self) -> [Cell; 3] {
        [plain(self.case.kernel.name), plain(self.case.dtype), plain(format_size(self.case.n))]
    }
}

fn best(measured: &[Measured<'_>]) -> String {
    let rows = measured.iter().map(|m| {
        let wrong = m.records.iter().filter(|r| !r.correct).count();
        let check = match wrong {
            0 => good(format!("{} correct", m.records.len())),
            _ => bad(format!("{wrong} of {} WRONG", m.records.len())),
        };
        let default = m.records.iter().find(|r| r.config == m.case.default).filter(|r| r.correct);
        let mut row: Vec<Cell> = m.name().into();
        match m.best {
            Some(best) => {
                row.extend([best.median_us].map(|us| plain(time(us))));
                row.extend([plain(format!("{:.*}", digits(best.gbps), best.gbps)), roofline(best)]);
                row.extend(config(best));
                row.push(plain(default.map_or("-".to_string(), |d| time(d.median_us))));
                row.push(plain(
                    default.map_or("-".to_string(), |d| format!("{:.2}x", d.median_us / best.median_us)),
                ));
            }
            None => row.extend((0..9).map(|_| plain("-"))),
        }
        row.push(check);
        row
    });
    let header = [
        "kernel",
        "type",
        "size",
        "best us",
        "GB/s",
        "roofline",
        "block",
        "grid",
        "items",
        "vector",
        "default us",
        "gain",
        "check",
    ];
    table(&header, &[2, 3, 4, 5, 6, 8, 9, 10, 11], rows.collect())
}

fn configurations(measured: &[Measured<'_>]) -> String {
    let mut rows = Vec::new();
    for m in measured {
        let mut records = m.records.clone();
        records.sort_by(|a, b| a.median_us.total_cmp(&b.median_us));
        for record in records {
            let is_best = m.best.is_some_and(|best| best.config == record.config);
            let mark = match (is_best, record.config == m.case.default) {
                (true, true) => "best, default",
                (true, false) => "best",
                (false, true) => "default",
                (false, false) => "",
            };
            let mut row: Vec<Cell> = m.name().into();
            row.extend(config(record));
            row.extend([record.median_us, record.p10_us, record.p90_us].map(|us| plain(time(us))));
            row.extend([plain(format!("{:.*}", digits(record.gbps), record.gbps)), roofline(record)]);
            row.push(plain(record.max_error.map_or("not a number".to_string(), |e| format!("{e:.1e}"))));
            row.push(if record.correct { good("ok") } else { bad("WRONG") });
            row.push(if is_best { good(mark) } else { note(mark) });
            rows.push(row);
        }
    }
    let header = [
        "kernel",
        "type",
        "size",
        "block",
        "grid",
        "items",
        "vector",
        "us",
        "p10",
        "p90",
        "GB/s",
        "roofline",
        "max error",
        "check",
        "",
    ];
    table(&header, &[2, 3, 5, 6, 7, 8, 9, 10, 11, 12], rows)
}

fn config(record: &Record) -> [Cell; 4] {
    let c = record.config;
    [plain(c.block), plain(c.grid), plain(c.items), plain(c.vector)]
}

fn roofline(record: &Record) -> Cell {
    plain(record.roofline.map_or("-".to_string(), |share| format!("{:.1} %", share * 100.0)))
}

/// Microseconds with four significant digits or so.
fn time(us: f64) -> String {
    format!("{us:.*}", digits(us))
}

fn digits(value: f64) -> usize {
    match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        _ => 2,
    }
}
