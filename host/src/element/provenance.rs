//! Where records were read, for those who have to tell.
//!
//! Invariant: the provenance of a batch says of each of its rows where it was read.

use crate::id::SplitId;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
