//! The rows that a migration has given: checked, in order, and with those found that have become one.
//!
//! Invariant: of rows with the same key and user key, the order in which they were given stays.

use std::borrow::Cow;

use super::MigrationError;
use crate::element::Column;

/// Enough to find an entry by.
const KEY_BYTES_SHOWN: usize = 48;

/// One entry of the new version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub key: &'a [u8],
    pub user_key: &'a [u8],
    pub value: Cow<'a, [u8]>,
}

impl Row<'_> {
    fn place(&self) -> (&[u8], &[u8]) {
        (self.key, self.user_key)
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.user_key.len() + self.value.len()
    }
}

/// Entries in columns.
pub struct Columns {
    pub keys: Column,
    pub user_keys: Column,
    pub values: Column,
}

/// The rows of columns that come from a guest.
///
/// # Errors
/// If the columns are malformed.
pub fn rows<'a>(
    table: &str,
    keys: &'a Column,
    user_keys: &'a Column,
    values: &'a Column,
) -> Result<Vec<Row<'a>>, MigrationError> {
    let count = keys.rows();
    let all_empty = user_keys.offsets.is_empty() && user_keys.data.is_empty();
    for (what, column) in [("keys", keys), ("user keys", user_keys), ("values", values)] {
        if all_empty && what == "user keys" {
            continue;
        }
        let malformed = |source| MigrationError::Malformed { table: table.to_owned(), what, source };
        column.check(count).map_err(malformed)?;
    }
    let user_key = |row| if all_empty { &[][..] } else { user_keys.get(row) };
    let row = |row| Row { key: keys.get(row), user_key: user_key(row), value: Cow::Borrowed(values.get(row)) };
    Ok((0..count).map(row).collect())
}

/// Rows by key and user key.
pub fn sorted(mut rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    rows.sort_by(|a, b| a.place().cmp(&b.place()));
    rows
}

/// Pairs of neighbours with the same key and user key, each row in one pair at most: the first of each pair.
pub fn equal_neighbours(rows: &[Row<'_>]) -> Vec<usize> {
    let mut pairs = Vec::new();
    let mut index = 0;
    while index + 1 < rows.len() {
        let equal = rows[index].place() == rows[index + 1].place();
        if equal {
            pairs.push(index);
        }
        index += 1 + usize::from(equal);
    }
    pairs
}

/// Puts one row in the place of each pair. `merged` are their values, in order.
pub fn with_merged<'a>(rows: Vec<Row<'a>>, pairs: &[usize], merged: &Column) -> Vec<Row<'a>> {
    let mut left = Vec::with_capacity(rows.len() - pairs.len());
    let mut next_pair = pairs.iter().enumerate().peekable();
    let mut rows = rows.into_iter().enumerate();
    while let Some((index, mut row)) = rows.next() {
        if let Some((place, _)) = next_pair.next_if(|(_, first)| **first == index) {
            row.value = Cow::Owned(merged.get(place).to_vec());
            rows.next();
        }
        left.push(row);
    }
    left
}

/// Cuts rows into parts of at most about so many bytes, each with one row at least.
pub fn parts<'a, 'b>(rows: &'b [Row<'a>], bytes_max: usize) -> Vec<&'b [Row<'a>]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, row) in rows.iter().enumerate() {
        if index > start && bytes + row.bytes() > bytes_max {
            parts.push(&rows[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += row.bytes();
    }
    if start < rows.len() {
        parts.push(&rows[start..]);
    }
    parts
}

pub fn column<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Column {
    let mut column = Column::with_capacity(0, 0);
    rows.for_each(|row| column.push(row));
    column
}

pub fn key_columns(rows: &[Row<'_>]) -> (Column, Column) {
    (column(rows.iter().map(|row| row.key)), column(rows.iter().map(|row| row.user_key)))
}

pub fn entries<'a>(rows: impl Iterator<Item = &'a Row<'a>>) -> Columns {
    let new = || Column::with_capacity(0, 0);
    let mut columns = Columns { keys: new(), user_keys: new(), values: new() };
    for row in rows {
        columns.keys.push(row.key);
        columns.user_keys.push(row.user_key);
        columns.values.push(&row.value);
    }
    columns
}

/// The beginning of a key, fit for a message.
pub fn shown(key: &[u8]) -> String {
    key[..key.len().min(KEY_BYTES_SHOWN)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(key: &'a str, value: &'a str) -> Row<'a> {
        Row { key: key.as_bytes(), user_key: b"", value: Cow::Borrowed(value.as_bytes()) }
    }

    /// Merges until nothing is there twice, as the host does.
    fn merge_all(rows: Vec<Row<'_>>) -> Vec<(String, String)> {
        let mut rows = sorted(rows);
        loop {
            let pairs = equal_neighbours(&rows);
            if pairs.is_empty() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                return rows.iter().map(|row| (text(row.key), text(&row.value))).collect();
            }
            let merged = pairs.iter().map(|&first| [&*rows[first].value, &*rows[first + 1].value].concat());
            let merged = merged.collect::<Vec<_>>();
            let merged = column(merged.iter().map(Vec::as_slice));
            rows = with_merged(rows, &pairs, &merged);
        }
    }

    #[test]
    fn rows_that_have_become_one_are_merged_in_the_order_in_which_they_came() {
        for count in 1..=9usize {
            let values = (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
            let mut rows = vec![row("b", "x")];
            rows.extend(values.iter().map(|value| row("a", value)));
            rows.push(row("c", "y"));
            let all = values.concat();
            let expected = [("a", &all[..]), ("b", "x"), ("c", "y")].map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(merge_all(rows), expected, "{count} rows");
        }
    }

    #[test]
    fn parts_hold_all_rows_and_few_bytes() {
        let rows = [row("a", "123"), row("b", "123"), row("c", "a long one that fits nowhere"), row("d", "")];
        let parts = parts(&rows, 8);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!(parts.concat(), rows);
    }

    #[test]
    fn columns_of_different_lengths_are_refused_by_name() {
        let (two, one) = (column([&b"a"[..], b"b"].into_iter()), column([&b"a"[..]].into_iter()));
        let refused = |keys: &Column, user_keys: &Column, values: &Column| {
            rows("counts", keys, user_keys, values).expect_err("refused").to_string()
        };
        assert!(refused(&two, &two, &one).contains("malformed values"));
        assert!(refused(&two, &one, &two).contains("malformed user keys"));
        let error = refused(&Column { offsets: vec![1, 0, 0, 0], data: Vec::new() }, &Column::default(), &one);
        assert!(error.contains("malformed keys") && error.contains("'counts'"), "{error}");
        let none = Column::default();
        let all_empty = rows("counts", &two, &none, &two).expect("no user keys");
        assert_eq!(all_empty.iter().map(|row| row.user_key.len()).collect::<Vec<_>>(), [0, 0]);
    }
}
