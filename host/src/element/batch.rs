//! Records in columns.
//!
//! Invariant: every column has `rows` rows, and headers either none or as many.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::headers::{self, BadHeaders, Header, Headers};
use super::{Column, Origin, Provenance};

/// What is wrong with a batch from outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a column of {rows} rows has {offsets_bytes} bytes of offsets instead of {}", (.rows + 1) * 4)]
    Length { rows: usize, offsets_bytes: usize },
    #[error("the offsets of a column don't grow from 0 to the length of its data")]
    Offsets,
    #[error("{rows} rows have {bytes} bytes of timestamps instead of {}", .rows * 8)]
    Timestamps { rows: usize, bytes: usize },
    #[error("{rows} rows have {bytes} bytes of null bitmaps")]
    Nulls { rows: usize, bytes: usize },
    #[error("{rows} rows have {bytes} bytes of headers, which are less than their offsets")]
    Headers { rows: usize, bytes: usize },
    #[error("the headers of row {row} can't be read: {problem}")]
    HeadersOfRow { row: usize, problem: BadHeaders },
}

/// Records in columns. The layout is that of `batch` in `wit/operator.wit`, where headers are `ext`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub rows: u32,
    pub keys: Column,
    pub values: Column,
    /// `rows` little-endian i64, milliseconds since the Unix epoch, or [`NO_TIMESTAMP`](super::NO_TIMESTAMP).
    pub timestamps: Vec<u8>,
    /// Empty, or two bitmaps of `ceil(rows / 8)` bytes: missing keys, missing values.
    pub nulls: Vec<u8>,
    /// The headers of each row, one after the other (see [`Headers`]). No offsets at all: no row has any.
    pub headers: Column,
    /// Where its records were read, for those who have to tell; operators never see it. A batch that an operator has made has
    /// none.
    #[serde(skip)]
    pub provenance: Option<Arc<Provenance>>,
}

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub timestamp: i64,
}

impl Batch {
    pub fn with_capacity(rows: usize, bytes: usize) -> Batch {
        Batch {
            rows: 0,
            keys: Column::with_capacity(rows, bytes / 8),
            values: Column::with_capacity(rows, bytes),
            timestamps: Vec::with_capacity(rows * 8),
            nulls: Vec::new(),
            headers: Column::default(),
            provenance: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes held, which is what channels count.
    pub fn bytes(&self) -> usize {
        let columns = self.keys.data.len() + self.values.data.len();
        let headers = self.headers.data.len() + self.headers.offsets.len();
        columns + self.timestamps.len() * 2 + self.nulls.len() + headers
    }

    #[inline]
    fn null(&self, bitmap: usize, index: usize) -> bool {
        if self.nulls.is_empty() {
            return false;
        }
        let start = bitmap * (self.rows as usize).div_ceil(8);
        self.nulls[start + index / 8] >> (index % 8) & 1 == 1
    }

    #[inline]
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        (!self.null(0, index)).then(|| self.keys.get(index))
    }

    #[inline]
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        (!self.null(1, index)).then(|| self.values.get(index))
    }

    #[inline]
    pub fn timestamp(&self, index: usize) -> i64 {
        let at = index * 8;
        i64::from_le_bytes(self.timestamps[at..at + 8].try_into().expect("eight bytes"))
    }

    #[inline]
    pub fn headers(&self, index: usize) -> Headers<'_> {
        if self.headers.offsets.is_empty() { Headers::default() } else { Headers::of(self.headers.get(index)) }
    }

    /// Row `index` without its headers: [`push_from`](Self::push_from) copies a whole one.
    #[inline]
    pub fn row(&self, index: usize) -> Row<'_> {
        Row { key: self.key(index), value: self.value(index), timestamp: self.timestamp(index) }
    }

    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows as usize).map(|index| self.row(index))
    }

    /// Adds a record without headers.
    #[inline]
    pub fn push(&mut self, row: Row<'_>) {
        self.push_row(row);
        if !self.headers.offsets.is_empty() {
            self.headers.push(&[]);
        }
    }

    /// Adds a record of another batch, with its headers.
    #[inline]
    pub fn push_from(&mut self, other: &Batch, index: usize) {
        self.push_row(other.row(index));
        if self.headers.offsets.len() | other.headers.offsets.len() != 0 {
            self.begin_headers();
            self.headers.push(other.headers(index).bytes());
        }
    }

    /// Some of its records, which keep where they were read.
    #[must_use]
    pub fn part(&self, rows: Range<u32>) -> Batch {
        let mut part = Batch::with_capacity(rows.len(), 0);
        for row in rows {
            part.push_from(self, row as usize);
            if let Some(provenance) = &self.provenance {
                part.push_origin(provenance.of(row));
            }
        }
        part
    }

    #[inline]
    fn push_row(&mut self, row: Row<'_>) {
        if row.key.is_none() || row.value.is_none() || !self.nulls.is_empty() {
            self.push_nulls(row.key.is_none(), row.value.is_none());
        }
        self.keys.push(row.key.unwrap_or_default());
        self.values.push(row.value.unwrap_or_default());
        self.timestamps.extend_from_slice(&row.timestamp.to_le_bytes());
        self.rows += 1;
    }

    /// Adds a header to those of the row that was pushed last.
    ///
    /// # Panics
    /// If there is no row, or the headers of all would pass 4 GiB; batches are cut long before that.
    pub fn push_header(&mut self, header: Header<'_>) {
        assert!(self.rows > 0, "headers are those of a row");
        if self.headers.offsets.is_empty() {
            self.begin_headers();
            self.headers.push(&[]);
        }
        headers::append(&mut self.headers.data, header);
        self.headers.end_last();
    }

    /// Gives all rows but the last one headers: none, if they have none yet.
    fn begin_headers(&mut self) {
        if self.headers.offsets.is_empty() {
            self.headers.offsets.resize(self.rows as usize * 4, 0);
        }
    }

    /// Tells where the row that was pushed last was read. For all rows of a batch or for none.
    pub fn push_origin(&mut self, origin: Origin<'_>) {
        let provenance = self.provenance.get_or_insert_default();
        Arc::make_mut(provenance).push(origin);
    }

    /// Grows both bitmaps by a row; the second starts a byte later when the row count passes a multiple of 8.
    fn push_nulls(&mut self, key: bool, value: bool) {
        let rows = self.rows as usize;
        let (old, new) = (rows.div_ceil(8), (rows + 1).div_ceil(8));
        if self.nulls.is_empty() {
            self.nulls = vec![0; new * 2];
        } else if new > old {
            self.nulls.insert(old, 0);
            self.nulls.push(0);
        }
        self.nulls[rows / 8] |= u8::from(key) << (rows % 8);
        self.nulls[new + rows / 8] |= u8::from(value) << (rows % 8);
    }

    /// Checks a batch that comes from outside.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), Malformed> {
        let rows = self.rows as usize;
        self.keys.check(rows)?;
        self.values.check(rows)?;
        if self.timestamps.len() != rows * 8 {
            return Err(Malformed::Timestamps { rows, bytes: self.timestamps.len() });
        }
        if !self.nulls.is_empty() && self.nulls.len() != rows.div_ceil(8) * 2 {
            return Err(Malformed::Nulls { rows, bytes: self.nulls.len() });
        }
        if self.headers == Column::default() { Ok(()) } else { self.check_headers() }
    }

    fn check_headers(&self) -> Result<(), Malformed> {
        let rows = self.rows as usize;
        self.headers.check(rows)?;
        (0..rows).try_for_each(|row| {
            headers::check(self.headers.get(row)).map_err(|problem| Malformed::HeadersOfRow { row, problem })
        })
    }

    /// The headers as `ext` of a batch in `wit/operator.wit`: the offsets, then the data.
    pub fn ext(&self) -> Cow<'_, [u8]> {
        let Column { data, offsets } = &self.headers;
        if offsets.is_empty() { Cow::Borrowed(&[]) } else { Cow::Owned([&offsets[..], data].concat()) }
    }

    /// The headers of so many rows out of `ext`. [`check`](Self::check) is still to be done.
    ///
    /// # Errors
    /// If there is no room for the offsets.
    pub fn headers_of(rows: u32, ext: &[u8]) -> Result<Column, Malformed> {
        if ext.is_empty() {
            return Ok(Column::default());
        }
        let rows = rows as usize;
        let split = ext.split_at_checked((rows + 1) * 4).ok_or(Malformed::Headers { rows, bytes: ext.len() })?;
        Ok(Column { offsets: split.0.to_vec(), data: split.1.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_and_values_survive_and_differ_from_empty_ones() {
        for first_null in 0..20usize {
            let mut batch = Batch::with_capacity(0, 0);
            for i in 0..20usize {
                let key = (i < first_null || i % 3 != 0).then_some(&b"k"[..]);
                let value = (i < first_null || i % 2 != 0).then_some(&b""[..]);
                batch.push(Row { key, value, timestamp: i as i64 });
            }
            batch.check().expect("well formed");
            for (i, row) in batch.iter().enumerate() {
                assert_eq!(row.key.is_some(), i < first_null || i % 3 != 0, "key {i}");
                assert_eq!(row.value.is_some(), i < first_null || i % 2 != 0, "value {i}");
                assert_eq!(row.timestamp, i as i64);
            }
        }
    }

    #[test]
    fn a_batch_that_lies_is_refused() {
        let mut good = Batch::with_capacity(0, 0);
        good.push(Row { key: Some(b"a"), value: Some(b"bc"), timestamp: 1 });
        good.push(Row { key: Some(b"d"), value: Some(b"ef"), timestamp: 2 });
        assert_eq!(good.check(), Ok(()));
        let broken = |change: fn(&mut Batch)| {
            let mut batch = good.clone();
            change(&mut batch);
            batch.check()
        };
        assert_eq!(broken(|b| b.values.offsets[4] = 9), Err(Malformed::Offsets));
        assert_eq!(broken(|b| b.values.offsets[0] = 1), Err(Malformed::Offsets));
        assert_eq!(broken(|b| b.keys.data.push(0)), Err(Malformed::Offsets));
        assert!(matches!(broken(|b| b.rows = 3), Err(Malformed::Length { .. })));
        assert!(matches!(broken(|b| b.rows = u32::MAX), Err(Malformed::Length { .. })));
        assert!(matches!(broken(|b| b.nulls.push(0)), Err(Malformed::Nulls { .. })));
        assert!(matches!(broken(|b| b.timestamps.truncate(8)), Err(Malformed::Timestamps { .. })));
    }

    fn header<'a>(name: &'a str, value: &'a str) -> Header<'a> {
        Header { name, value: Some(value.as_bytes()) }
    }

    /// Row `i` has `i % 3` headers from row `first` on, and none before.
    fn with_headers(first: usize, rows: usize) -> Batch {
        let mut batch = Batch::with_capacity(0, 0);
        for i in 0..rows {
            batch.push(Row { key: None, value: Some(b"v"), timestamp: i as i64 });
            for number in (0..i % 3).filter(|_| i >= first) {
                batch.push_header(header(&format!("h{number}"), &i.to_string()));
            }
        }
        batch
    }

    fn names(batch: &Batch, index: usize) -> Vec<String> {
        batch.headers(index).map(|header| format!("{}={:?}", header.name, header.value)).collect()
    }

    #[test]
    fn rows_with_and_without_headers_mix() {
        for first in 0..8 {
            let batch = with_headers(first, 8);
            assert_eq!(batch.check(), Ok(()), "from {first}");
            for i in 0..8 {
                assert_eq!(batch.headers(i).count(), if i >= first { i % 3 } else { 0 }, "row {i} from {first}");
            }
        }
        assert_eq!(names(&with_headers(0, 3), 2), ["h0=Some([50])", "h1=Some([50])"]);
    }

    #[test]
    fn a_copied_row_has_its_headers_whatever_came_before() {
        let (with, without) = (with_headers(0, 6), with_headers(6, 6));
        let mut copy = Batch::with_capacity(0, 0);
        let rows = [(&without, 0), (&with, 2), (&without, 3), (&with, 0), (&with, 5)];
        rows.iter().for_each(|(batch, index)| copy.push_from(batch, *index));
        assert_eq!(copy.check(), Ok(()));
        for (i, (batch, index)) in rows.into_iter().enumerate() {
            assert_eq!((copy.row(i), names(&copy, i)), (batch.row(index), names(batch, index)), "row {i}");
        }
    }

    #[test]
    fn records_without_headers_cost_nothing() {
        let mut batch = with_headers(6, 6);
        batch.push_from(&with_headers(6, 6), 0);
        assert_eq!(batch.headers, Column::default());
        // A value, a timestamp and offsets each; two bitmaps for missing keys and values.
        assert_eq!((batch.ext().len(), batch.bytes()), (0, 7 * (1 + 16) + 2));
        let headers = with_headers(0, 6);
        assert_eq!(headers.bytes(), 6 * (1 + 16) + 2 + headers.ext().len());
    }

    #[test]
    fn headers_come_back_from_ext_and_what_lies_is_refused() {
        let batch = with_headers(1, 6);
        let back = |ext: &[u8]| {
            let headers = Batch::headers_of(batch.rows, ext)?;
            let batch = Batch { headers, ..batch.clone() };
            batch.check().map(|()| batch)
        };
        let ext = batch.ext().into_owned();
        assert_eq!(back(&ext), Ok(batch.clone()));
        assert_eq!(back(&[]).map(|batch| batch.headers), Ok(Column::default()));
        assert_eq!(back(&[0; 7 * 4]).map(|batch| names(&batch, 5)), Ok(Vec::new()));
        for length in 1..ext.len() {
            assert!(back(&ext[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(back(&ext[..20]), Err(Malformed::Headers { rows: 6, bytes: 20 }));
        let broken = |at: usize, byte: u8| {
            let mut ext = ext.clone();
            ext[at] = byte;
            back(&ext).expect_err("broken")
        };
        assert_eq!(broken(0, 1), Malformed::Offsets);
        // The first name, of row 1: its length, then its first letter.
        assert_eq!(broken(28, 200), Malformed::HeadersOfRow { row: 1, problem: BadHeaders::Length });
        assert_eq!(broken(32, 0xff), Malformed::HeadersOfRow { row: 1, problem: BadHeaders::Name });
        assert!(matches!(Batch::headers_of(u32::MAX, &ext), Err(Malformed::Headers { .. })));
    }
}
