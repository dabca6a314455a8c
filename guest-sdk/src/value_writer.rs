//! A column that is being written, and the writer of one value in it.
//!
//! Invariant: once it has grown, writing rows of the usual size allocates nothing.

use std::fmt;

use crate::bytes::copy;
use crate::host::ColumnRef;
use crate::text::{Integer, PRINTED_BYTES_MAX, print};

/// What a column has room for at first ...
const FIRST_BYTES: usize = 4096;
/// ... and keeps at most when it is emptied.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Byte strings one after the other.
pub(crate) struct ColumnBuffer {
    /// Filled up to `used`; what follows is room.
    data: Vec<u8>,
    used: usize,
    ends: Vec<[u8; 4]>,
}

impl ColumnBuffer {
    pub(crate) fn with_rows(rows_max: usize) -> ColumnBuffer {
        ColumnBuffer { data: vec![0; FIRST_BYTES], used: 0, ends: vec![[0; 4]; rows_max + 1] }
    }

    /// Bytes of all rows.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.used
    }

    /// Drops what is behind the first `bytes`.
    pub(crate) fn cut(&mut self, bytes: usize) {
        self.used = bytes;
    }

    /// Starts anew, with the memory it has unless a huge row has made it grow.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        if self.data.len() > KEPT_BYTES_MAX {
            self.data = vec![0; FIRST_BYTES];
        }
    }

    #[inline]
    pub(crate) fn writer(&mut self) -> ValueWriter<'_> {
        ValueWriter { column: self }
    }

    #[inline(always)]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let used = self.used + bytes.len();
        if used > self.data.len() {
            self.grow(used);
        }
        copy(&mut self.data[self.used..], bytes);
        self.used = used;
    }

    #[inline]
    fn append_byte(&mut self, byte: u8) {
        if self.used == self.data.len() {
            self.grow(self.used + 1);
        }
        self.data[self.used] = byte;
        self.used += 1;
    }

    #[inline]
    fn append_decimal(&mut self, number: u64) {
        let room = self.used + PRINTED_BYTES_MAX;
        if room > self.data.len() {
            self.grow(room);
        }
        self.used += print(number, self.data[self.used..].first_chunk_mut().expect("room"));
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.data.resize(bytes + bytes / 2, 0);
    }

    /// Ends the row that is to be number `rows`, from 1.
    #[inline]
    pub(crate) fn end_row(&mut self, rows: usize) {
        // A row ends a batch long before 4 GiB, unless it is as long itself, which no 32-bit memory holds.
        self.ends[rows] = (self.used as u32).to_le_bytes();
    }

    pub(crate) fn filled(&self, rows: usize) -> ColumnRef<'_> {
        ColumnRef { data: &self.data[..self.used], offsets: self.ends[..=rows].as_flattened() }
    }
}

/// Writes the value of one record straight into its batch. Also takes `write!`.
///
/// ```
/// use lockgate::prelude::*;
/// use std::fmt::Write;
///
/// # struct Pair;
/// # impl Operator for Pair {
/// # fn new(_: &mut Declaration) -> Pair { Pair }
/// fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///     ctx.emit_with(record.key(), |value| {
///         value.bytes(b"length=");
///         value.integer(record.value().unwrap_or_default().len());
///         let _ = write!(value, " half={:.1}", 0.5);
///     });
///     Ok(())
/// }
/// # }
/// # let mut harness = lockgate::testing::Harness::<Pair>::open().unwrap();
/// # harness.process([("k", "four")]).unwrap();
/// # assert_eq!(harness.take_output()[0].value_str(), "length=4 half=0.5");
/// ```
pub struct ValueWriter<'a> {
    column: &'a mut ColumnBuffer,
}

impl ValueWriter<'_> {
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.column.append(bytes);
    }

    #[inline]
    pub fn byte(&mut self, byte: u8) {
        self.column.append_byte(byte);
    }

    /// An integer in decimal, without the machinery of `write!`.
    #[inline]
    pub fn integer(&mut self, number: impl Integer) {
        let (negative, magnitude) = number.sign_and_magnitude();
        if negative {
            self.byte(b'-');
        }
        self.column.append_decimal(magnitude);
    }
}

impl fmt::Write for ValueWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_they_are_printed() {
        let mut written = ColumnBuffer::with_rows(1);
        let mut printed = String::new();
        let mut writer = ValueWriter { column: &mut written };
        let powers = (0..20).map(|power| 10u64.pow(power));
        for number in powers.flat_map(|power| [power - 1, power, power + 1]).chain([0, u64::MAX, 1 << 63]) {
            writer.integer(number);
            writer.byte(b' ');
            writer.integer(number as i64);
            writer.byte(b' ');
            printed += &format!("{number} {} ", number as i64);
        }
        writer.integer(-128i8);
        printed += "-128";
        assert_eq!(String::from_utf8_lossy(&written.data[..written.used]), printed);
    }
}
