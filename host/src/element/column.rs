//! Byte strings in a row.
//!
//! Invariant: offsets grow from 0 to the length of the data; what comes from outside passes [`Column::check`] first.

use serde::{Deserialize, Serialize};

use super::Malformed;

/// Byte strings: row `i` is `data[offsets[i] .. offsets[i + 1]]`; offsets are little-endian u32, the first 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Makes what was added to the data part of the last row.
    pub(super) fn end_last(&mut self) {
        let end = u32::try_from(self.data.len()).expect("a column under 4 GiB");
        *self.offsets.last_chunk_mut().expect("a row") = end.to_le_bytes();
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
