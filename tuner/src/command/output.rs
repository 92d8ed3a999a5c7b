//! Text for people: tables and colours on standard output, written so that a closed pipe is no error; progress on
//! standard error.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

/// Writes to standard output. A reader that has gone away (`| head`) ends the output, not the program.
///
/// # Errors
/// Any other failure, such as a full disk behind a redirection.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error; nothing is to be done when even that fails.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether standard output takes colours: a terminal, and `NO_COLOR` unset or empty.
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// A plain table: a header, columns two spaces apart, those in `right` aligned right.
pub fn table(header: &[&str], right: &[usize], rows: Vec<Vec<Cell>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !colours() {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    table.set_header(header.iter().map(Cell::new));
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

/// A cell for something good.
pub fn good(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).fg(Color::Green)
}

/// A cell for something wrong.
pub fn bad(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).fg(Color::Red)
}

/// A cell for something to know.
pub fn note(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).fg(Color::Yellow)
}

/// A plain cell.
pub fn plain(text: impl ToString) -> Cell {
    Cell::new(text.to_string())
}

/// Columns of the terminal; 100 where standard output is none.
pub fn width() -> usize {
    Table::new().width().map_or(100, usize::from)
}

/// Columns of the terminal; `None` where standard output is none, so that nothing is left out of a file or a log.
pub fn terminal_width() -> Option<usize> {
    if io::stdout().is_terminal() { Table::new().width().map(usize::from) } else { None }
}

/// A bar on standard error; it shows only on a terminal.
pub fn progress_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}
