//! Results as Markdown, with one table per family.

use std::fmt::Write as _;
use std::path::Path;

use crate::cases::{ELEMENTWISE, OF_ROWS};
use crate::results::{Results, Row};

type Failure = Box<dyn std::error::Error>;

/// Markers around the tables of a page.
const MARKS: [&str; 2] = ["<!-- measured -->", "<!-- end of measured -->"];

/// Formats the tables.
pub fn markdown(results: &Results) -> String {
    let mut text = format!("Measured on {}.\n", results.device);
    let rest = ["scan", "sort", "select_if", "histogram"];
    let families: [(&str, &[&str]); 6] = [
        ("Copies and transposes", &["copy", "copy_unaligned", "fill", "transpose"]),
        ("Elementwise", &ELEMENTWISE),
        ("Full reductions", &["sum", "max", "argmax"]),
        ("Sums of rows and columns", &["row_sum", "column_sum"]),
        ("Rows", &OF_ROWS),
        ("Scan, sort, selection, histogram", &rest),
    ];
    for (family, operations) in families {
        let of_family = |row: &&Row| operations.contains(&row.case.operation);
        let rows: Vec<&Row> = results.rows.iter().filter(of_family).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {family}\n\n");
        text +=
            "| operation | type | size | ours µs | CUB µs | PyTorch µs | ours GB/s | × CUB | × PyTorch |\n";
        text += "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
        for row in rows {
            text += &line(row);
        }
    }
    text
}

/// Returns the GB/s of the longest copy with the CUDA runtime, or with our kernel if the former was not measured.
pub fn copy_rate(results: &Results) -> Option<f64> {
    let copies = results.rows.iter().filter(|row| row.case.operation == "copy");
    let longest = copies.max_by_key(|row| row.case.elements())?;
    longest.times.cub.or(longest.times.ours).map(|us| longest.gigabytes(us))
}

fn line(row: &Row) -> String {
    let Row { case, times, torch } = row;
    let us = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
    let over = |peer: Option<f64>, ours: Option<f64>| match (peer, ours) {
        (Some(peer), Some(ours)) => format!("{:.2}", peer / ours),
        _ => "-".to_owned(),
    };
    // The time of an incorrect result is marked.
    let mark = if times.cub_fault.is_some() && times.cub.is_some() { "\\*" } else { "" };
    let rate = times.ours.map(|ours| row.gigabytes(ours));
    let columns = [
        case.operation.to_owned(),
        case.dtype.name().to_owned(),
        case.size(),
        us(times.ours),
        us(times.cub) + mark,
        us(*torch),
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
        over(times.cub, times.ours),
        over(*torch, times.ours),
    ];
    format!("| {} |\n", columns.join(" | "))
}

/// Inserts the tables between the markers of a page.
pub fn into_page(page: &Path, text: &str) -> Result<(), Failure> {
    let name = page.display();
    let old = std::fs::read_to_string(page).map_err(|error| format!("{name}: {error}"))?;
    let [start, end] = MARKS.map(|mark| old.find(mark));
    let (Some(start), Some(end)) = (start, end) else {
        return Err(format!("{name} does not have the lines {} and {}", MARKS[0], MARKS[1]).into());
    };
    let new = format!("{}{}\n\n{text}\n{}", &old[..start], MARKS[0], &old[end..]);
    std::fs::write(page, new).map_err(|error| format!("{name}: {error}").into())
}
