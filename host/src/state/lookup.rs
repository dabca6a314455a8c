//! Reading many entries: first in the segments, then what is left in RocksDB, in batches.
//!
//! Invariant: the answer is in the order of the question, and no larger than [`READ_BYTES_MAX`].

use super::entry::Entry;
use super::error::StateError;
use super::key_space::{KeySpace, Rows};
use super::rocks::{READ_BATCH_KEYS, Rocks};
use super::scan::GoOn;
use super::segment::Segment;
use crate::element::Column;

/// Bytes of values in one answer.
const READ_BYTES_MAX: usize = 256 << 20;

/// Values, and a bitmap with 1 for the entries that exist. `segments` come newest first.
///
/// # Errors
/// If a key belongs to another subtask, the answer is too large, RocksDB can't read, or `go_on` says that it is enough.
pub fn get_many(
    space: &KeySpace,
    table: u16,
    rows: Rows<'_>,
    segments: &[&Segment],
    rocks: Option<&Rocks>,
    go_on: &GoOn<'_>,
) -> Result<(Column, Vec<u8>), StateError> {
    let mut answer =
        Answer { space, values: Column::with_capacity(rows.count, 0), found: vec![0; rows.count.div_ceil(8)] };
    let mut missed = Missed::default();
    let mut batch: Vec<Option<Entry<'_>>> = Vec::with_capacity(READ_BATCH_KEYS);
    for start in (0..rows.count).step_by(READ_BATCH_KEYS) {
        go_on()?;
        batch.clear();
        missed.clear();
        for row in start..rows.count.min(start + READ_BATCH_KEYS) {
            let (key, user_key) = rows.get(row);
            let key = space.locate(table, key, user_key)?;
            let entry = segments.iter().find_map(|segment| segment.find(&key));
            if entry.is_none() && rocks.is_some() {
                key.write(&mut missed.stored);
                missed.ends.push(missed.stored.len());
            }
            batch.push(entry);
        }
        let mut row = start;
        if let Some(rocks) = rocks {
            rocks.get_many(missed.keys(), |_, value| {
                row = answer.push_hits(row, &batch[row - start..])?;
                answer.push(row, value)?;
                row += 1;
                Ok(())
            })?;
            answer.push_hits(row, &batch[row - start..])?;
        } else {
            for entry in &batch {
                answer.push(row, entry.and_then(|entry| entry.value))?;
                row += 1;
            }
        }
    }
    Ok((answer.values, answer.found))
}

struct Answer<'a> {
    space: &'a KeySpace,
    values: Column,
    found: Vec<u8>,
}

impl Answer<'_> {
    /// Answers from `row` on with what was found in memory, up to the first that wasn't; gives that row.
    fn push_hits(&mut self, mut row: usize, batch: &[Option<Entry<'_>>]) -> Result<usize, StateError> {
        for entry in batch.iter().map_while(Option::as_ref) {
            self.push(row, entry.value)?;
            row += 1;
        }
        Ok(row)
    }

    fn push(&mut self, row: usize, value: Option<&[u8]>) -> Result<(), StateError> {
        if let Some(value) = value {
            if self.values.data.len() + value.len() > READ_BYTES_MAX {
                let subtask = self.space.subtask.clone();
                return Err(StateError::ReadTooMuch { subtask, bytes_max: READ_BYTES_MAX });
            }
            self.found[row / 8] |= 1 << (row % 8);
        }
        self.values.push(value.unwrap_or_default());
        Ok(())
    }
}

/// Stored keys, one after the other.
#[derive(Default)]
struct Missed {
    stored: Vec<u8>,
    ends: Vec<usize>,
}

impl Missed {
    fn clear(&mut self) {
        self.stored.clear();
        self.ends.clear();
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.stored[start..end])
    }
}
