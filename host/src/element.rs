//! What travels a channel: columnar batches, watermarks, barriers, ends.
//!
//! Invariant: a [`Batch`] is well formed: offsets are monotone and within their bytes, every column has `rows` rows. Whatever
//! comes from outside passes [`Batch::check`] first.

use std::sync::Arc;

use crate::id::{Epoch, SplitId};

/// The event time of a record that has none.
pub const NO_TIMESTAMP: i64 = i64::MIN;
/// The watermark after which no record comes.
pub const WATERMARK_END: i64 = i64::MAX;

/// What a channel carries.
#[derive(Clone, Debug)]
pub enum Element {
    Batch(Arc<Batch>),
    /// No record with an event time at or before this one (ms since the Unix epoch) is to come from this input.
    Watermark(i64),
    Barrier(Barrier),
    /// This input says nothing for a while and doesn't hold back the watermark.
    Idle,
    /// This input is back.
    Active,
    /// Nothing comes after this.
    End,
}

/// A cut through the stream: what is before it belongs to checkpoint `epoch`, what is after doesn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    pub epoch: Epoch,
    pub purpose: Purpose,
}

/// What follows a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The stream goes on.
    Continue,
    /// The job stops (or its input has ended): after the barrier only `End` follows.
    Last,
}

/// Byte strings: row `i` is `data[offsets[i] .. offsets[i + 1]]`; offsets are little-endian u32, the first 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    pub data: Vec<u8>,
    pub offsets: Vec<u8>,
}

impl Column {
    /// A column with no rows and room for some.
    pub fn with_capacity(rows: usize, bytes: usize) -> Column {
        let mut offsets = Vec::with_capacity((rows + 1) * 4);
        offsets.extend_from_slice(&0u32.to_le_bytes());
        Column { data: Vec::with_capacity(bytes), offsets }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        (self.offsets.len() / 4).saturating_sub(1)
    }

    #[inline]
    fn offset(&self, index: usize) -> usize {
        let at = index * 4;
        let bytes: [u8; 4] = self.offsets[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offset(index)..self.offset(index + 1)]
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the column would pass 4 GiB; batches are cut long before that.
    #[inline]
    pub fn push(&mut self, row: &[u8]) {
        if self.offsets.is_empty() {
            self.offsets.extend_from_slice(&0u32.to_le_bytes());
        }
        self.data.extend_from_slice(row);
        let end = u32::try_from(self.data.len()).expect("a column under 4 GiB");
        self.offsets.extend_from_slice(&end.to_le_bytes());
    }

    /// Checks a column of `rows` rows that comes from outside.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self, rows: usize) -> Result<(), Malformed> {
        if self.offsets.len() != (rows + 1) * 4 {
            return Err(Malformed::Length { rows, offsets_bytes: self.offsets.len() });
        }
        let mut last = 0u32;
        let mut sorted = true;
        for (i, bytes) in self.offsets.chunks_exact(4).enumerate() {
            let offset = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            sorted &= offset >= last && (i > 0 || offset == 0);
            last = offset;
        }
        if !sorted || last as usize != self.data.len() {
            return Err(Malformed::Offsets);
        }
        Ok(())
    }
}

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
}

/// Records in columns. The layout is that of `batch` in `wit/operator.wit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub rows: u32,
    pub keys: Column,
    pub values: Column,
    /// `rows` little-endian i64, milliseconds since the Unix epoch, or [`NO_TIMESTAMP`].
    pub timestamps: Vec<u8>,
    /// Empty, or two bitmaps of `ceil(rows / 8)` bytes: missing keys, missing values.
    pub nulls: Vec<u8>,
    /// Reserved.
    pub ext: Vec<u8>,
    /// Where its records were read, for those who have to tell; operators never see it. A batch that an operator has made has
    /// none.
    pub provenance: Option<Arc<Provenance>>,
}

/// Where the records of a batch were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Batches that a source has given: their split, and the offset of their first record.
    origins: Vec<(SplitId, u64)>,
    /// For each row the origin and its place from there. Empty: all rows are those of the one origin, in order.
    rows: Vec<(u32, u32)>,
}

/// Where a record was read: the `record`th of `split` behind the one at `offset`, from 0. What an offset counts is the source's
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    pub split: &'a SplitId,
    pub offset: u64,
    pub record: u32,
}

impl Provenance {
    /// That of a batch as a source gives it.
    pub fn of_source(split: SplitId, first_offset: u64) -> Provenance {
        Provenance { origins: vec![(split, first_offset)], rows: Vec::new() }
    }

    /// Where a row was read.
    pub fn of(&self, row: u32) -> Origin<'_> {
        let (origin, record) = self.rows.get(row as usize).copied().unwrap_or((0, row));
        let (split, offset) = &self.origins[origin as usize];
        Origin { split, offset: *offset, record }
    }

    /// Adds a row that was read there.
    pub fn push(&mut self, row: Origin<'_>) {
        let origin = (row.split, row.offset);
        if self.origins.last().is_none_or(|(split, offset)| (split, *offset) != origin) {
            self.origins.push((row.split.clone(), row.offset));
        }
        self.rows.push((self.origins.len() as u32 - 1, row.record));
    }
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
            ext: Vec::new(),
            provenance: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes held, which is what channels count.
    pub fn bytes(&self) -> usize {
        let columns = self.keys.data.len() + self.values.data.len();
        columns + self.timestamps.len() * 2 + self.nulls.len() + self.ext.len()
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
    pub fn row(&self, index: usize) -> Row<'_> {
        Row { key: self.key(index), value: self.value(index), timestamp: self.timestamp(index) }
    }

    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows as usize).map(|index| self.row(index))
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, row: Row<'_>) {
        if row.key.is_none() || row.value.is_none() || !self.nulls.is_empty() {
            self.push_nulls(row.key.is_none(), row.value.is_none());
        }
        self.keys.push(row.key.unwrap_or_default());
        self.values.push(row.value.unwrap_or_default());
        self.timestamps.extend_from_slice(&row.timestamp.to_le_bytes());
        self.rows += 1;
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
        Ok(())
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
    fn rows_that_are_dealt_anew_keep_where_they_were_read() {
        let (a, b) = (SplitId::new("a"), SplitId::new("b"));
        let (from_a, from_b) = (Provenance::of_source(a.clone(), 10), Provenance::of_source(b.clone(), 0));
        let origin = |split, offset, record| Origin { split, offset, record };
        assert_eq!(from_a.of(3), origin(&a, 10, 3));
        let mut dealt = Provenance::default();
        for row in [from_a.of(0), from_a.of(2), from_b.of(1), from_a.of(3)] {
            dealt.push(row);
        }
        let rows = (0..4).map(|row| dealt.of(row)).collect::<Vec<_>>();
        assert_eq!(rows, [origin(&a, 10, 0), origin(&a, 10, 2), origin(&b, 0, 1), origin(&a, 10, 3)]);
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
}
