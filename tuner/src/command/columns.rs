//! Tables that are built from columns. Columns without content are omitted.

use comfy_table::Cell;

use super::output::table;

/// Column with its cells.
pub struct Column {
    title: &'static str,
    /// True if the cells are right-aligned.
    right: bool,
    /// Cells, one per row.
    cells: Vec<Cell>,
}

impl Column {
    /// Creates a column of text.
    pub fn text(title: &'static str, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { title, right: false, cells: cells.into_iter().collect() }
    }

    /// Creates a column of numbers.
    pub fn number(title: &'static str, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { right: true, ..Self::text(title, cells) }
    }

    fn has_content(&self) -> bool {
        self.cells.iter().any(|cell| !matches!(&*cell.content(), "" | "-"))
    }
}

/// Formats the columns. A column whose cells are all empty or `-` is omitted.
pub fn aligned(mut columns: Vec<Column>) -> String {
    columns.retain(Column::has_content);
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let header: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let right: Vec<usize> = (0..columns.len()).filter(|&index| columns[index].right).collect();
    let row = |index: usize| columns.iter().map(|column| column.cells[index].clone()).collect();
    table(&header, &right, (0..rows).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::output::plain;

    #[test]
    fn columns_without_content_are_left_out() {
        let cells = |texts: [&str; 2]| texts.map(plain);
        let columns = vec![
            Column::text("kernel", cells(["copy", "reduce_argmax"])),
            Column::number("us", cells(["12.34", "-"])),
            Column::number("peak", cells(["-", "-"])),
            Column::text("note", cells(["", ""])),
        ];
        assert_eq!(aligned(columns), "kernel            us\ncopy           12.34\nreduce_argmax      -\n");
    }

    #[test]
    fn nothing_follows_the_last_column() {
        let cell = |text: &str| vec![plain(text).fg(comfy_table::Color::Green)];
        let text = table(&["a", "note"], &[], vec![cell("x").into_iter().chain(cell("best")).collect()]);
        assert_eq!(text, "a  note\nx  best\n");
    }
}
