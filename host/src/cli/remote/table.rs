//! Tables of text that fit a terminal.
//!
//! Invariant: no line is wider than [`WIDTH_MAX`], whatever the cells hold; no cell breaks a line.

use crate::telemetry::printable;

const WIDTH_MAX: usize = 120;
const GAP: &str = "  ";
/// No column is narrower than this to make room for another.
const COLUMN_MIN: usize = 6;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A table with a head.
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: &[(&str, Side)]) -> Table {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Table { sides: columns.iter().map(|(_, side)| *side).collect(), rows: vec![head] }
    }

    /// # Panics
    /// If it doesn't have a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.sides.len(), "a cell for each column");
        self.rows.push(cells.iter().map(|cell| printable(cell, WIDTH_MAX)).collect());
    }

    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                let cell = cut(cell, *width);
                let blanks = " ".repeat(width - cell.chars().count());
                line += &match side {
                    Side::Left => format!("{cell}{blanks}{GAP}"),
                    Side::Right => format!("{blanks}{cell}{GAP}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// As wide as the widest cell; where that is too much, the widest of the left columns give way.
    fn widths(&self) -> Vec<usize> {
        let widest = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let mut widths = (0..self.sides.len()).map(widest).collect::<Vec<_>>();
        while widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1) > WIDTH_MAX {
            let left = (0..widths.len()).filter(|column| self.sides[*column] == Side::Left);
            let Some(column) = left.max_by_key(|column| widths[*column]).filter(|column| widths[*column] > COLUMN_MIN)
            else {
                break;
            };
            widths[column] -= 1;
        }
        widths
    }
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A span for people: "3 min".
pub fn span(ms: u64) -> String {
    match ms / 1_000 {
        0 => format!("{ms} ms"),
        s @ 1..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

/// What may be missing.
pub fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_on_their_sides_and_long_cells_give_way() {
        let mut table = Table::new(&[("job", Side::Left), ("read/s", Side::Right)]);
        table.row(vec!["words".to_owned(), "1,000".to_owned()]);
        assert_eq!(table.text(), "job    read/s\nwords   1,000\n");
        table.row(vec!["x".repeat(300), "7".to_owned()]);
        table.row(vec!["a\nb".to_owned(), "é".repeat(20)]);
        let text = table.text();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX) && text.contains('…'), "{text}");
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let texts = [7, 1_000, 59_999, 60_000, 3_600_000, 172_800_000].map(span);
        assert_eq!(texts, ["7 ms", "1 s", "59 s", "1 min", "1 h", "2 days"]);
    }
}
