//! A comparison as a table and as JSON.

use super::{Change, Comparison, Row};
use crate::size::format_size;

/// The cells of a table, to be laid out by who prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub header: Vec<&'static str>,
    /// As many cells as there are columns in each.
    pub rows: Vec<Vec<String>>,
}

impl Comparison {
    /// The rows as text. A row's `new` configuration is named only where it is another than the old one.
    pub fn table(&self) -> Table {
        let header = vec![
            "kernel",
            "type",
            "size",
            "mode",
            "configuration",
            "old us",
            "new us",
            "change",
            "95 % interval",
            "verdict",
        ];
        let rows = self.rows.iter().map(|row| {
            let us = |median: Option<f64>| median.map_or_else(|| "-".to_owned(), format_us);
            let (change, interval) = match row.ratio {
                Some(ratio) => {
                    (per_cent(ratio.value), format!("{} … {}", per_cent(ratio.low), per_cent(ratio.high)))
                }
                None => ("-".to_owned(), "-".to_owned()),
            };
            let (old, new) = (us(row.old.median_us), us(row.new.median_us));
            let verdict = row.change.name().to_owned();
            let [kernel, dtype] = [row.kernel.clone(), row.dtype.clone()];
            let (size, mode) = (format_size(row.n), mode_name(row));
            vec![kernel, dtype, size, mode, configurations(row), old, new, change, interval, verdict]
        });
        Table { header, rows: rows.collect() }
    }

    /// One line that says how many of which verdict there are.
    pub fn summary(&self) -> String {
        let all =
            [Change::Slower, Change::Broken, Change::Faster, Change::Same, Change::Ambiguous, Change::Mended];
        let counts = all.map(|change| (change, self.count(change)));
        let counts = counts.iter().filter(|(change, count)| *count > 0 || *change == Change::Slower);
        let counts: Vec<String> =
            counts.map(|(change, count)| format!("{count} {}", change.name().to_lowercase())).collect();
        format!(
            "{} compared at a threshold of {} %: {}",
            self.rows.len(),
            rounded(self.threshold * 100.0),
            counts.join(", ")
        )
    }

    /// As JSON text, ending in a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data always becomes JSON");
        text.push('\n');
        text
    }
}

fn mode_name(row: &Row) -> String {
    format!("{:?}", row.mode).to_lowercase()
}

fn configurations(row: &Row) -> String {
    if row.old.configuration == row.new.configuration {
        row.old.configuration.to_string()
    } else {
        format!("{} -> {}", row.old.configuration, row.new.configuration)
    }
}

/// Microseconds with four significant digits.
fn format_us(us: f64) -> String {
    let digits = if us >= 1000.0 {
        0
    } else if us >= 100.0 {
        1
    } else if us >= 10.0 {
        2
    } else {
        3
    };
    format!("{us:.digits$}")
}

/// A number with six significant digits, without what a multiplication leaves behind them.
pub(super) fn rounded(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}

/// A ratio as the change from 1: `+2.3 %`.
fn per_cent(ratio: f64) -> String {
    format!("{:+.2} %", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use crate::compare::{Measured, Ratio, *};

    fn comparison(kernel: &str) -> Comparison {
        let measured = |block: u32, us: f64| Measured {
            configuration: Configuration::default().with("block", block),
            median_us: Some(us),
            samples: 30,
            throttled: false,
            problem: String::new(),
        };
        let row = |change, old, new| Row {
            kernel: kernel.into(),
            dtype: "f32".into(),
            n: 1 << 20,
            mode: Mode::Cold,
            old,
            new,
            ratio: Some(Ratio { value: 1.05, low: 1.04, high: 1.06 }),
            change,
        };
        let mut rows = vec![
            row(Change::Slower, measured(128, 100.0), measured(128, 105.0)),
            row(Change::Ambiguous, measured(256, 5.0), measured(512, 5.25)),
            row(Change::Broken, measured(64, 1.0), measured(64, 1.0)),
        ];
        (rows[2].ratio, rows[2].new.median_us) = (None, None);
        rows[2].new.problem = "3 of 9 \"wrong\" <&>\u{1}\nnext".into();
        Comparison::new(0.01, vec!["a note".into()], rows)
    }

    #[test]
    fn the_table_says_what_was_found() {
        let table = comparison("copy").table();
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
        assert_eq!(
            table.rows[0][..9],
            ["copy", "f32", "2^20", "cold", "block=128", "100.0", "105.0", "+5.00 %", "+4.00 % … +6.00 %"]
        );
        assert_eq!(table.rows[1][4], "block=256 -> block=512");
        assert_eq!(table.rows[2][6..], ["-", "-", "-", "BROKEN"]);
        let summary = comparison("copy").summary();
        assert_eq!(summary, "3 compared at a threshold of 1 %: 1 slower, 1 broken, 1 ambiguous");
        let small = Comparison { threshold: 0.0001 / 100.0, ..comparison("copy") }.summary();
        assert!(small.contains("at a threshold of 0.0001 %: "), "{small}");
    }

    #[test]
    fn json_has_every_row() {
        let value: serde_json::Value = serde_json::from_str(&comparison("copy").to_json()).unwrap();
        assert_eq!(value["rows"][0]["change"], "slower");
        assert_eq!(value["rows"][0]["ratio"]["low"], 1.04);
        assert!(value["rows"][2]["ratio"].is_null());
        assert_eq!(value["threshold"], 0.01);
    }
}
