//! Checks the measurements in the guide. Tables of measurements must be in `docs/benchmarks/`, and each page in that
//! folder must state how, when and where its tables were measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::markdown::Page;

/// Folder that contains the pages with measurements.
const FOLDER: &str = "docs/benchmarks";
/// Units that identify a measured value.
const UNITS: [&str; 8] = ["GB/s", "TB/s", "TFLOP/s", "µs", "us", "ms", "ns", "tokens/s"];
/// Heading and columns of the section that ends a page of [`FOLDER`].
const PROVENANCE: &str = "## Provenance";
const COLUMNS: &str = "| tables | GPU | driver | peers | date | commit | command |";
/// Permitted measurement tables outside [`FOLDER`]: the page, the first line of the table, and the reason for the
/// exception.
const ALLOWED: [(&str, &str, &str); 1] =
    [("README.md", "| | Warpsmith | peer |", "six figures that link to their pages")];

/// Returns the problems found in the pages.
pub fn problems(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in pages {
        let tables = Page::new(text).tables();
        if path.starts_with(FOLDER) {
            if !has_provenance(text) {
                problems.push(format!(
                    "{}: the page does not end with `{PROVENANCE}` and a table `{COLUMNS}` without empty cells",
                    path.display()
                ));
            }
        } else if path.starts_with("docs") || path == Path::new("README.md") {
            let is_allowed = |first: &str| {
                ALLOWED.iter().any(|(page, table, _)| path == Path::new(page) && *table == first)
            };
            problems.extend(tables.iter().filter_map(|(line, rows)| {
                let is_problem = is_measured(rows) && !is_allowed(rows[0]);
                is_problem.then(|| {
                    format!(
                        "{}:{line}: this page cannot contain a table of measurements; move it to {FOLDER}/",
                        path.display()
                    )
                })
            }));
        }
    }
    problems
}

/// Returns true if a column heading ends with a unit, or if a cell contains a number with a unit.
fn is_measured(rows: &[&str]) -> bool {
    let ends_with_unit =
        |cell: &str| UNITS.iter().any(|unit| cell.split([' ', '(']).next_back() == Some(unit));
    let is_value = |cell: &str| {
        let words: Vec<&str> = cell.trim_start_matches('[').split([' ', ']']).collect();
        let is_number = words[0].starts_with(|c: char| c.is_ascii_digit());
        is_number && words.iter().any(|word| UNITS.contains(&word.trim_end_matches([',', ';'])))
    };
    cells(rows[0]).any(ends_with_unit) || rows.iter().skip(2).flat_map(|row| cells(row)).any(is_value)
}

/// Returns true if the page ends with a provenance section.
fn has_provenance(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let Some(heading) = lines.iter().rposition(|line| line.starts_with('#')) else { return false };
    let [PROVENANCE, COLUMNS, rule, rows @ ..] = &lines[heading..] else { return false };
    let is_full =
        |row: &&str| cells(row).count() == cells(COLUMNS).count() && cells(row).all(|cell| !cell.is_empty());
    is_full(rule) && !rows.is_empty() && rows.iter().all(is_full)
}

/// Returns the cells in a table row.
fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> usize {
        problems(&BTreeMap::from([(path.into(), text.to_owned())])).len()
    }

    #[test]
    fn measurements_belong_to_their_folder() {
        let rule = "| --- | --- |";
        for table in ["| size | µs |\n{} \n| 1 | 2 |", "| a | b |\n{}\n| copy | [4 GB/s](x.md) |"] {
            let table = table.replace("{}", rule);
            assert_eq!(of("docs/a.md", &table), 1, "{table}");
            assert_eq!(of("CONTRIBUTING.md", &table), 0);
            assert_eq!(of("docs/a.md", &format!("```text\n{table}\n```\n")), 0);
        }
        let text = "| a | b |\n| --- | --- |\n| kernels shorter than 10 µs | `elapsed_us`, in µs |\n";
        assert_eq!(of("docs/a.md", text), 0);
    }

    #[test]
    fn pages_of_measurements_say_where_they_are_from() {
        let page = |row: &str| {
            let rule = "| --- | --- | --- | --- | --- | --- | --- |";
            of("docs/benchmarks/a.md", &format!("# A\n\n{PROVENANCE}\n\n{COLUMNS}\n{rule}\n{row}\n"))
        };
        assert_eq!(page("| all | H200 | 580 | CUB 3 | 2026-11-25 | 25e600f2 | `run` |"), 0);
        assert_eq!(page("| all | H200 |  | CUB 3 | 2026-11-25 | 25e600f2 | `run` |"), 1);
        assert_eq!(page("| all | H200 |"), 1);
        assert_eq!(page(""), 1);
        assert_eq!(of("docs/benchmarks/a.md", "# A\n"), 1);
    }
}
