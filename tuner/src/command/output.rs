//! Output: tables and colors on standard output, where a closed pipe is not an error, and messages and progress on
//! standard error.
//!
//! No text from a file, a kernel or the environment can control the terminal. Control characters and bidirectional
//! overrides are printed as escapes such as `\u{1b}`. Table columns are as wide as the text that is printed in them.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

/// Escapes characters that could control a terminal, including line feeds and tabs, in the form `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    shown(text, |_| None)
}

/// Like [`escape`], but preserves some bytes. `keep` returns how many bytes at the start of the remaining text are
/// preserved.
fn shown(text: &str, keep: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if !text.chars().any(controls) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let len = if controls(char) { keep(rest) } else { Some(char.len_utf8()) };
        match len {
            Some(len) => safe.push_str(&rest[..len]),
            None => safe.extend(char.escape_unicode()),
        }
        rest = &rest[len.unwrap_or(char.len_utf8())..];
    }
    Cow::Owned(safe)
}

/// Returns true if a terminal would interpret a character instead of displaying it. This is true of Unicode control
/// characters and of characters that change the text direction.
fn controls(char: char) -> bool {
    let is_direction = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    char.is_control() || is_direction
}

/// Returns the length, in bytes, of the color sequence at the start of `text`, for example of `ESC [ 3 1 m`.
fn color(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("\u{1b}[")?;
    let end = digits.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    digits[end..].starts_with('m').then_some(2 + end + 1)
}

/// Writes human-readable text to standard output. Control characters are removed, except for line feeds and, if colors
/// are enabled, the color sequences of [`table`].
///
/// # Errors
/// Returns write errors, such as a full disk. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> io::Result<()> {
    let is_colored = colors();
    let keep = |rest: &str| match rest.starts_with('\n') {
        true => Some(1),
        false => color(rest).filter(|_| is_colored),
    };
    write(&shown(text, keep))
}

/// Writes a JSON document to standard output. In strings, characters that could control a terminal are written as
/// equivalent JSON escapes.
///
/// # Errors
/// Returns the same errors as [`print()`].
pub fn print_json(text: &str) -> io::Result<()> {
    write(&json(text))
}

/// Calls [`print_json`] if `is_json` is true, and [`print()`] otherwise.
///
/// # Errors
/// Returns the same errors as [`print()`].
pub fn print_form(text: &str, is_json: bool) -> io::Result<()> {
    if is_json { print_json(text) } else { print(text) }
}

fn json(text: &str) -> Cow<'_, str> {
    let is_safe = |char: char| char == '\n' || !controls(char);
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    // All of these characters have codes below 2^16.
    let shown = |char| if is_safe(char) { char.to_string() } else { format!("\\u{:04x}", u32::from(char)) };
    Cow::Owned(text.chars().map(shown).collect())
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes `text` to standard error as one line. If writing fails, the failure is ignored.
pub fn complain(text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr().lock(), "{}", escape(&line));
}

/// Returns true if standard output supports colors. This requires that standard output is a terminal and that
/// `NO_COLOR` is unset or empty.
pub fn colors() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Formats a plain table with a header row. Columns are separated by two spaces, and the columns listed in `right` are
/// right-aligned.
pub fn table(header: &[&str], right: &[usize], rows: Vec<Vec<Cell>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !colors() {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    table.set_header(header.iter().map(|title| Cell::new(escape(title))));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(column) = table.column_iter_mut().last() {
        column.set_padding((0, 0));
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_string() + "\n").collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// Creates a cell that is styled as a good value.
pub fn good(text: impl ToString) -> Cell {
    Cell::new(escape(&text.to_string())).fg(Color::Green)
}

/// Creates a cell that is styled as an incorrect value.
pub fn bad(text: impl ToString) -> Cell {
    Cell::new(escape(&text.to_string())).fg(Color::Red)
}

/// Creates a cell that is styled as a notable value.
pub fn note(text: impl ToString) -> Cell {
    Cell::new(escape(&text.to_string())).fg(Color::Yellow)
}

/// Creates a plain cell.
pub fn plain(text: impl ToString) -> Cell {
    Cell::new(escape(&text.to_string()))
}

/// Returns the width of the terminal in columns, or 100 if standard output is not a terminal.
pub fn width() -> usize {
    Table::new().width().map_or(100, usize::from)
}

/// Returns the width of the terminal in columns. If standard output is not a terminal, returns `None`, so that files
/// and logs contain everything.
pub fn terminal_width() -> Option<usize> {
    if io::stdout().is_terminal() { Table::new().width().map(usize::from) } else { None }
}

/// Creates a progress bar on standard error, which is visible only on a terminal.
pub fn progress_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}b\r\nµ€";

    #[test]
    fn text_that_controls_a_terminal_is_shown() {
        assert_eq!(escape(EVIL), r"a\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}b\u{d}\u{a}µ€");
        assert!(matches!(escape("plain µ€"), Cow::Borrowed(_)));
        assert_eq!(escape(&escape(EVIL)), escape(EVIL), "what is shown is not shown again");
    }

    #[test]
    fn only_colors_pass_where_there_are_colors() {
        for (text, len) in [
            ("\u{1b}[1;31mx", Some(7)),
            ("\u{1b}[0m", Some(4)),
            ("\u{1b}[2J", None),
            ("\u{1b}]0;m", None),
            ("\u{1b}[31", None),
        ] {
            assert_eq!(color(text), len, "{text:?}");
        }
        assert_eq!(shown("\u{1b}[31mred\u{1b}[2J", color), "\u{1b}[31mred\\u{1b}[2J");
    }

    #[test]
    fn cells_are_as_wide_as_what_is_shown() {
        let text = table(
            &["k", "n\u{1b}[2J"],
            &[],
            vec![vec![plain(EVIL), plain("x")], vec![plain("b"), plain("y")]],
        );
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        let ends: Vec<usize> = [lines[1].find('x'), lines[2].find('y')].map(|at| at.unwrap()).to_vec();
        let chars = [&lines[1][..ends[0]], &lines[2][..ends[1]]].map(|before| before.chars().count());
        assert_eq!(chars[0], chars[1], "{text}");
    }

    #[test]
    fn json_means_the_same_and_controls_nothing() {
        let value = serde_json::json!({ "name": format!("{EVIL}\u{7f}") });
        let text = json(&format!("{value:#}\n")).into_owned();
        assert!(!text.contains(|c: char| c != '\n' && controls(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
