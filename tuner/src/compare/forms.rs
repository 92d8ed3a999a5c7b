//! A comparison as a table, as Markdown, as JSON and as JUnit's XML.
//!
//! Guarantees: text of the documents cannot break the form: pipes and line feeds in Markdown, markup and characters that
//! XML does not have.

use std::fmt::Write;

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

    /// As a Markdown document, for a comment on a change.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("**{}**\n\n", self.summary());
        let Table { header, rows } = self.table();
        let line = |cells: &mut dyn Iterator<Item = String>| {
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        text += &line(&mut header.iter().map(|name| (*name).to_owned()));
        text += &line(&mut header.iter().map(|name| match *name {
            "old us" | "new us" | "change" | "size" => "---:".to_owned(),
            _ => "---".to_owned(),
        }));
        for row in rows {
            text += &line(&mut row.iter().map(|cell| markdown(cell)));
        }
        if !self.means.is_empty() {
            text += "\n| kernel | geometric mean | rows |\n| --- | ---: | ---: |\n";
            for mean in &self.means {
                let cells = [markdown(&mean.kernel), per_cent(mean.ratio), mean.rows.to_string()];
                text += &line(&mut cells.into_iter());
            }
        }
        if self.missing.len() + self.notes.len() > 0 {
            text.push('\n');
            self.missing.iter().for_each(|line| text += &format!("- **missing**: {}\n", markdown(line)));
            self.notes.iter().for_each(|note| text += &format!("- {}\n", markdown(note)));
        }
        text
    }

    /// As JSON text, ending in a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data always becomes JSON");
        text.push('\n');
        text
    }

    /// As JUnit's XML, which build servers show: a test case for each row, and for what is missing; slower and broken rows
    /// failed, ambiguous ones were skipped, what is missing is an error.
    pub fn to_junit(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let failures = self.rows.iter().filter(|row| row.change.is_regression()).count();
        let (errors, skipped) = (self.missing.len(), self.count(Change::Ambiguous));
        let tests = self.rows.len() + errors;
        let _ = writeln!(
            text,
            "<testsuites><testsuite name=\"warpsmith compare\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" \
             skipped=\"{skipped}\" time=\"0\">"
        );
        for row in &self.rows {
            let name =
                format!("{} {} {} {}", row.dtype, format_size(row.n), mode_name(row), configurations(row));
            let what = describe(row);
            let _ = write!(
                text,
                "<testcase classname=\"{}\" name=\"{}\" time=\"0\">",
                xml(&row.kernel),
                xml(&name)
            );
            let _ = match row.change {
                Change::Slower | Change::Broken => write!(
                    text,
                    "<failure type=\"{}\" message=\"{}\"/>",
                    row.change.name().to_lowercase(),
                    xml(&what)
                ),
                Change::Ambiguous => write!(text, "<skipped message=\"{}\"/>", xml(&what)),
                _ => write!(text, "<system-out>{}</system-out>", xml(&what)),
            };
            text += "</testcase>\n";
        }
        for line in &self.missing {
            let line = xml(line);
            let _ = writeln!(
                text,
                "<testcase classname=\"missing\" name=\"{line}\" time=\"0\"><error type=\"missing\" \
                 message=\"{line}\"/></testcase>"
            );
        }
        let notes = self.notes.join("\n");
        if !notes.is_empty() {
            let _ = writeln!(text, "<system-out>{}</system-out>", xml(&notes));
        }
        text += "</testsuite></testsuites>\n";
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

/// What happened to a row, in a sentence.
fn describe(row: &Row) -> String {
    let change = row.change.name().to_lowercase();
    match (row.ratio, row.old.median_us, row.new.median_us) {
        (Some(ratio), Some(old), Some(new)) => format!(
            "{change}: {} us before, {} us now, {} (95 % interval {} to {})",
            format_us(old),
            format_us(new),
            per_cent(ratio.value),
            per_cent(ratio.low),
            per_cent(ratio.high)
        ),
        _ => {
            let problem = if row.new.problem.is_empty() { &row.old.problem } else { &row.new.problem };
            if problem.is_empty() {
                format!("{change}: too few samples")
            } else {
                format!("{change}: {problem}")
            }
        }
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

/// Text in a cell of Markdown.
fn markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\r' => safe.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => safe.extend(['\\', char]),
            '<' => safe += "&lt;",
            '&' => safe += "&amp;",
            char => safe.push(char),
        }
    }
    safe
}

/// Text in an attribute or an element of XML 1.0.
fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            '"' => safe += "&quot;",
            '\n' => safe += "&#10;",
            '\t' => safe += "&#9;",
            // XML 1.0 cannot hold these, not even escaped.
            '\0'..'\u{20}' | '\u{FFFE}' | '\u{FFFF}' => safe.push('\u{FFFD}'),
            char => safe.push(char),
        }
    }
    safe
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
    fn markdown_keeps_its_columns_whatever_the_names() {
        let text = comparison("a|b\n<i>").to_markdown();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("a\\|b &lt;i>")).collect();
        assert_eq!(rows.len(), 4, "three rows and a mean: {text}");
        assert_eq!(rows[0].replace("\\|", "").matches('|').count(), 11);
        assert!(text.contains("- a note") && text.contains("+5.00 %"));
    }

    #[test]
    fn junit_counts_and_escapes() {
        let text = comparison("a\"<b>").to_junit();
        assert!(text.contains(r#"tests="3" failures="2" errors="0" skipped="1""#), "{text}");
        assert_eq!(text.matches("<testcase ").count(), text.matches("</testcase>").count());
        assert_eq!(text.matches(r#"classname="a&quot;&lt;b&gt;""#).count(), 3);
        assert!(text.contains("&quot;wrong&quot; &lt;&amp;&gt;\u{FFFD}&#10;next"), "{text}");
        assert!(!text.contains('\u{1}'));
        let missing = Comparison { missing: vec!["copy <f64>".into()], ..comparison("a") };
        let text = missing.to_junit();
        assert!(text.contains(r#"tests="4" failures="2" errors="1" skipped="1""#), "{text}");
        assert!(text.contains(r#"<error type="missing" message="copy &lt;f64&gt;"/>"#), "{text}");
        assert!(missing.to_markdown().contains("**missing**: copy &lt;f64>"));
        assert_eq!(text.matches("<failure ").count(), 2);
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
