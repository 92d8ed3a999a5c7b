//! Tables that fit the terminal. Less important columns are omitted first.
//!
//! No line is wider than requested, unless the most important column alone is wider. A final line names the columns
//! that were omitted.

use comfy_table::Cell;

use super::output::{escape, table};

/// Column with its cells.
pub struct Column {
    /// Column heading.
    pub title: String,
    /// Importance. Columns with smaller numbers are omitted first.
    pub importance: u8,
    /// True if the cells are right-aligned.
    pub right: bool,
    /// Cells, one per row.
    pub cells: Vec<Cell>,
}

impl Column {
    /// Creates a column of text.
    pub fn text(title: &str, importance: u8, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { title: title.to_owned(), importance, right: false, cells: cells.into_iter().collect() }
    }

    /// Creates a column of numbers.
    pub fn number(title: &str, importance: u8, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { right: true, ..Self::text(title, importance, cells) }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.content().chars().count());
        cells.chain([escape(&self.title).chars().count()]).max().unwrap_or(0)
    }
}

/// Returns the total width. Two spaces separate adjacent columns and also follow the last one.
fn total(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + 2).sum()
}

/// Formats the columns that fit in `width` characters (all columns if `None`), and a line that names the omitted ones.
/// A column whose cells are all empty or `-` is omitted without being named.
pub fn fit(columns: Vec<Column>, width: Option<usize>) -> String {
    let says_something =
        |column: &Column| column.cells.iter().any(|cell| !matches!(&*cell.content(), "" | "-"));
    let mut columns: Vec<Column> = columns.into_iter().filter(says_something).collect();
    let mut left_out = Vec::new();
    if let Some(width) = width {
        while columns.len() > 1 && total(&columns) > width + 2 {
            let minimum = columns.iter().enumerate().min_by_key(|(_, column)| column.importance);
            let index = minimum.map_or(0, |(index, _)| index);
            left_out.push(columns.remove(index).title);
        }
    }
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let header: Vec<&str> = columns.iter().map(|column| column.title.as_str()).collect();
    let right: Vec<usize> = (0..columns.len()).filter(|&index| columns[index].right).collect();
    let row = |index: usize| columns.iter().filter_map(|column| column.cells.get(index).cloned()).collect();
    let mut text = table(&header, &right, (0..rows).map(row).collect());
    if !left_out.is_empty() {
        text.push_str(&wrapped("not shown (too narrow): ", &left_out, width.unwrap_or(usize::MAX)));
    }
    text
}

/// Formats a comma-separated list in lines of at most `width` characters.
fn wrapped(before: &str, items: &[String], width: usize) -> String {
    let mut lines = vec![before.trim_end().to_owned()];
    for (index, item) in items.iter().enumerate() {
        let comma = if index + 1 < items.len() { "," } else { "" };
        let line = lines.last_mut().expect("there is always a line");
        if line.chars().count() + 1 + item.chars().count() + comma.len() <= width {
            line.push_str(&format!(" {item}{comma}"));
        } else {
            lines.push(format!("  {item}{comma}"));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::output::plain;

    fn columns() -> Vec<Column> {
        let cells = |text: &str| vec![plain(text), plain(text)];
        vec![
            Column::text("kernel", 100, cells("reduce_argmax")),
            Column::number("us", 90, cells("12.34")),
            Column::number("GB/s", 80, cells("4321")),
            Column::text("a heading that is long", 10, cells("x")),
            Column::text("nothing", 99, cells("-")),
        ]
    }

    #[test]
    fn columns_are_left_out_in_order_of_importance() {
        let all = fit(columns(), None);
        assert!(all.contains("a heading that is long") && !all.contains("nothing"), "{all}");
        assert!(!all.contains("not shown"), "{all}");
        for width in 30..60 {
            let text = fit(columns(), Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let head = text.lines().next().unwrap_or_default();
            assert!(!head.contains("GB/s") || head.contains("us"), "{width}:\n{text}");
            assert_eq!(text.contains("not shown"), !head.contains("long"), "{width}:\n{text}");
        }
    }

    #[test]
    fn nothing_follows_the_last_column() {
        let cell = |text: &str| vec![plain(text).fg(comfy_table::Color::Green)];
        let text = table(&["a", "note"], &[], vec![cell("x").into_iter().chain(cell("best")).collect()]);
        assert_eq!(text, "a  note\nx  best\n");
    }

    #[test]
    fn the_most_important_column_is_always_there() {
        assert!(fit(columns(), Some(1)).starts_with("kernel\n"));
        assert_eq!(fit(Vec::new(), Some(80)).trim(), "");
    }
}
