//! Records on their way out, gathered into batches.
//!
//! Invariant: once its buffers have grown, sending a record allocates nothing. A batch leaves when it is full, and at the
//! end of a call; what a failed call has not sent by then is dropped.

use std::fmt;

use crate::bytes::copy;
use crate::host::{BatchRef, ColumnRef, Host};

/// A batch leaves when it has this many records ...
const BATCH_ROWS_MAX: usize = 4096;
/// ... or this many bytes of keys and values.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Room behind the last row, so that short rows are copied as whole words.
const SLACK_BYTES: usize = 16;

/// The columns of one output.
pub(crate) struct OutputBuffer {
    rows: usize,
    keys: ColumnBuffer,
    values: ColumnBuffer,
    timestamps: Vec<[u8; 8]>,
    nulls: Nulls,
}

struct ColumnBuffer {
    /// Filled up to `used`; what follows is room.
    data: Vec<u8>,
    used: usize,
    ends: Vec<[u8; 4]>,
}

/// One bit for each row of a batch in each of two bitmaps.
struct Nulls {
    any: bool,
    keys: [u8; BATCH_ROWS_MAX / 8],
    values: [u8; BATCH_ROWS_MAX / 8],
}

impl OutputBuffer {
    pub(crate) fn new() -> OutputBuffer {
        OutputBuffer {
            rows: 0,
            keys: ColumnBuffer::new(),
            values: ColumnBuffer::new(),
            timestamps: vec![[0; 8]; BATCH_ROWS_MAX],
            nulls: Nulls { any: false, keys: [0; BATCH_ROWS_MAX / 8], values: [0; BATCH_ROWS_MAX / 8] },
        }
    }

    /// Adds a record; says whether the batch is full.
    #[inline]
    pub(crate) fn push(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, timestamp: i64) -> bool {
        if key.is_none() || value.is_none() {
            self.nulls.set(self.rows, key.is_none(), value.is_none());
        }
        self.keys.append(key.unwrap_or_default());
        self.values.append(value.unwrap_or_default());
        self.end_row(timestamp)
    }

    /// Adds a record whose value is written piece by piece; says whether the batch is full.
    #[inline]
    pub(crate) fn push_with(
        &mut self,
        key: Option<&[u8]>,
        timestamp: i64,
        write: impl FnOnce(&mut ValueWriter<'_>),
    ) -> bool {
        if key.is_none() {
            self.nulls.set(self.rows, true, false);
        }
        self.keys.append(key.unwrap_or_default());
        write(&mut ValueWriter { column: &mut self.values });
        self.end_row(timestamp)
    }

    #[inline]
    fn end_row(&mut self, timestamp: i64) -> bool {
        self.timestamps[self.rows] = timestamp.to_le_bytes();
        self.rows += 1;
        self.keys.end_row(self.rows);
        self.values.end_row(self.rows);
        self.rows == BATCH_ROWS_MAX || self.keys.used + self.values.used >= BATCH_BYTES_MAX
    }

    /// Sends what there is.
    pub(crate) fn send(&mut self, port: u32, host: &mut dyn Host) {
        if self.rows == 0 {
            return;
        }
        let nulls = self.nulls.bitmaps(self.rows);
        let batch = BatchRef {
            rows: self.rows as u32,
            keys: self.keys.filled(self.rows),
            values: self.values.filled(self.rows),
            timestamps: self.timestamps[..self.rows].as_flattened(),
            nulls: &nulls,
            ext: &[],
        };
        host.emit(port, batch);
        self.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.keys.used = 0;
        self.values.used = 0;
        self.nulls.clear();
    }
}

impl ColumnBuffer {
    fn new() -> ColumnBuffer {
        ColumnBuffer { data: vec![0; 4096], used: 0, ends: vec![[0; 4]; BATCH_ROWS_MAX + 1] }
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        let used = self.used + bytes.len();
        if used + SLACK_BYTES > self.data.len() {
            self.grow(used + SLACK_BYTES);
        }
        copy(&mut self.data[self.used..], bytes);
        self.used = used;
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.data.resize(bytes.next_power_of_two().max(bytes), 0);
    }

    #[inline]
    fn end_row(&mut self, rows: usize) {
        // A row ends a batch long before 4 GiB, unless it is as long itself, which no 32-bit memory holds.
        self.ends[rows] = (self.used as u32).to_le_bytes();
    }

    fn filled(&self, rows: usize) -> ColumnRef<'_> {
        ColumnRef { data: &self.data[..self.used], offsets: self.ends[..=rows].as_flattened() }
    }
}

impl Nulls {
    #[cold]
    fn set(&mut self, row: usize, key: bool, value: bool) {
        self.any = true;
        self.keys[row / 8] |= u8::from(key) << (row % 8);
        self.values[row / 8] |= u8::from(value) << (row % 8);
    }

    fn bitmaps(&self, rows: usize) -> Vec<u8> {
        let bytes = if self.any { rows.div_ceil(8) } else { 0 };
        [&self.keys[..bytes], &self.values[..bytes]].concat()
    }

    fn clear(&mut self) {
        if self.any {
            self.any = false;
            self.keys.fill(0);
            self.values.fill(0);
        }
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
        self.column.append(&[byte]);
    }

    /// An integer in decimal, without the machinery of `write!`.
    #[inline]
    pub fn integer(&mut self, number: impl Integer) {
        let (negative, magnitude) = number.sign_and_magnitude();
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = magnitude;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if negative {
            self.byte(b'-');
        }
        self.bytes(&digits[at..]);
    }
}

impl fmt::Write for ValueWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// The integers that [`ValueWriter::integer`] takes: all up to 64 bits.
pub trait Integer {
    /// Whether it is negative, and how far from zero.
    fn sign_and_magnitude(self) -> (bool, u64);
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            #[inline]
            #[allow(unused_comparisons, reason = "unsigned integers are among them")]
            fn sign_and_magnitude(self) -> (bool, u64) {
                (self < 0, (self as i64).wrapping_abs() as u64)
            }
        }
    )*};
}

integers!(u8, u16, u32, i8, i16, i32, i64, isize);

impl Integer for u64 {
    #[inline]
    fn sign_and_magnitude(self) -> (bool, u64) {
        (false, self)
    }
}

impl Integer for usize {
    #[inline]
    fn sign_and_magnitude(self) -> (bool, u64) {
        (false, self as u64)
    }
}
