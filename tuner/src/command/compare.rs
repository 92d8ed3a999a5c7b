//! `compare`: compares two documents.

use super::args::CompareArgs;
use super::columns::{Column, fit};
use super::failure::Failure;
use super::output::{bad, escape, good, note, plain, print_form, terminal_width};
use super::table::number;
use crate::compare::{self, Change, Comparison, Options, Row};
use crate::document::Document;
use crate::size::format_size;
use crate::stats::Ratio;

/// Maximum number of missing results that the error message names. The comparison above it lists all of them.
const MISSING_SHOWN: usize = 3;

type Outcome<T> = std::result::Result<T, Failure>;

/// Compares the documents and prints the result. If there is a regression, the command fails, but without a further
/// message.
///
/// # Errors
/// Fails on a usage error, on documents that cannot be compared, or on a regression.
pub fn run(args: &CompareArgs) -> Outcome<()> {
    let options = Options { threshold: args.threshold, force: args.force, best: args.best };
    let found = compare::documents(&Document::read(&args.old)?, &Document::read(&args.new)?, &options)?;
    show(&found, args)?;
    if !found.missing.is_empty() && !args.allow_missing {
        let more = found.missing.len().saturating_sub(MISSING_SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        return Err(Failure::Failed(format!(
            "results are missing: {}{more}; measure again, or accept this with --allow-missing",
            found.missing[..found.missing.len().min(MISSING_SHOWN)].join("; ")
        )));
    }
    verdict(&found)
}

fn show(found: &Comparison, args: &CompareArgs) -> Outcome<()> {
    let text = if args.json { found.to_json() } else { text(found) };
    Ok(print_form(&text, args.json)?)
}

fn verdict(found: &Comparison) -> Outcome<()> {
    if found.has_regression() { Err(Failure::Shown) } else { Ok(()) }
}

/// Formats the table, followed by means, missing cases, notes and the summary.
fn text(found: &Comparison) -> String {
    let cells =
        |show: &dyn Fn(&Row) -> String| found.rows.iter().map(|row| plain(show(row))).collect::<Vec<_>>();
    let us = |median: Option<f64>| median.map_or_else(|| "-".to_owned(), number);
    let of_ratio = |show: &dyn Fn(Ratio) -> String| cells(&|row| row.ratio.map_or("-".to_owned(), show));
    let configurations = |row: &Row| match row.old.configuration == row.new.configuration {
        true => row.old.configuration.to_string(),
        false => format!("{} -> {}", row.old.configuration, row.new.configuration),
    };
    let verdicts = found.rows.iter().map(|row| match row.change {
        change if change.is_regression() => bad(change.name()),
        change @ (Change::Faster | Change::Fixed) => good(change.name()),
        change @ Change::Ambiguous => note(change.name()),
        change => plain(change.name()),
    });
    let interval = |Ratio { interval, .. }| format!("{} … {}", percent(interval.low), percent(interval.high));
    let columns = vec![
        Column::text("kernel", 100, cells(&|row| row.kernel.clone())),
        Column::text("type", 92, cells(&|row| row.dtype.clone())),
        Column::number("size", 96, cells(&|row| format_size(row.n))),
        Column::text("mode", 40, cells(&|row| row.mode.to_string())),
        Column::text("configuration", 60, cells(&configurations)),
        Column::number("old us", 70, cells(&|row| us(row.old.median_us))),
        Column::number("new us", 71, cells(&|row| us(row.new.median_us))),
        Column::number("change", 98, of_ratio(&|ratio| percent(ratio.value))),
        Column::number("95 % interval", 80, of_ratio(&interval)),
        Column::text("verdict", 99, verdicts),
    ];
    let mut text = fit(columns, terminal_width());
    for mean in &found.means {
        let (kernel, change) = (escape(&mean.kernel), percent(mean.ratio));
        text.push_str(&format!("{kernel}: {change} in time over {} rows\n", mean.rows));
    }
    for (what, lines) in [("missing", &found.missing), ("note", &found.notes)] {
        text.extend(lines.iter().map(|line| format!("{what}: {}\n", escape(line))));
    }
    text + &found.summary() + "\n"
}

/// Formats a ratio as its change relative to 1, for example `+2.3 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.2} %", (ratio - 1.0) * 100.0)
}
