//! Records on their way out, gathered into batches.
//!
//! Invariant: once its buffers have grown, sending a record allocates nothing. A batch leaves when it is full, and at the
//! end of a call; what a failed call has not sent by then is dropped.

use crate::headers::HeaderBuffer;
use crate::host::{BatchRef, Host};
use crate::value_writer::{ColumnBuffer, ValueWriter};

/// A batch leaves when it has this many records ...
const BATCH_ROWS_MAX: usize = 4096;
/// ... or this many bytes of keys, values and headers.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The columns of one output.
pub(crate) struct OutputBuffer {
    rows: usize,
    keys: ColumnBuffer,
    values: ColumnBuffer,
    timestamps: Vec<[u8; 8]>,
    nulls: Nulls,
    headers: HeaderBuffer,
    /// What there was when the current record began: rows, and bytes of keys and values.
    mark: [usize; 3],
}

/// One bit for each row of a batch in each of two bitmaps.
struct Nulls {
    any: bool,
    keys: [u8; BATCH_ROWS_MAX / 8],
    values: [u8; BATCH_ROWS_MAX / 8],
}

impl OutputBuffer {
    #[cold]
    pub(crate) fn boxed() -> Box<OutputBuffer> {
        Box::new(OutputBuffer {
            rows: 0,
            keys: ColumnBuffer::with_rows(BATCH_ROWS_MAX),
            values: ColumnBuffer::with_rows(BATCH_ROWS_MAX),
            timestamps: vec![[0; 8]; BATCH_ROWS_MAX],
            nulls: Nulls { any: false, keys: [0; BATCH_ROWS_MAX / 8], values: [0; BATCH_ROWS_MAX / 8] },
            headers: HeaderBuffer::default(),
            mark: [0; 3],
        })
    }

    /// Gives the record that is added next headers.
    #[cold]
    pub(crate) fn put_headers(&mut self, headers: &[u8]) {
        self.headers.put(self.rows, headers);
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
        write(&mut self.values.writer());
        self.end_row(timestamp)
    }

    #[inline]
    fn end_row(&mut self, timestamp: i64) -> bool {
        self.timestamps[self.rows] = timestamp.to_le_bytes();
        self.rows += 1;
        self.keys.end_row(self.rows);
        self.values.end_row(self.rows);
        let bytes = self.keys.bytes() + self.values.bytes() + self.headers.bytes();
        self.rows == BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX
    }

    /// Another record begins.
    pub(crate) fn mark(&mut self) {
        self.mark = [self.rows, self.keys.bytes(), self.values.bytes()];
    }

    /// Drops what was added since the mark.
    pub(crate) fn cut_back(&mut self) {
        let [rows, key_bytes, value_bytes] = self.mark;
        self.nulls.cut(rows);
        self.headers.cut(rows);
        self.rows = rows;
        self.keys.cut(key_bytes);
        self.values.cut(value_bytes);
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
            ext: self.headers.ext(self.rows),
        };
        host.emit(port, batch);
        self.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.mark = [0; 3];
        self.keys.clear();
        self.values.clear();
        self.nulls.clear();
        self.headers.clear();
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

    /// Forgets the rows behind the first `rows`.
    fn cut(&mut self, rows: usize) {
        if self.any {
            for bitmap in [&mut self.keys, &mut self.values] {
                let (kept, rest) = (rows.div_ceil(8), rows % 8);
                bitmap[kept..].fill(0);
                if rest > 0 {
                    bitmap[kept - 1] &= (1 << rest) - 1;
                }
            }
        }
    }

    fn clear(&mut self) {
        if self.any {
            self.any = false;
            self.keys.fill(0);
            self.values.fill(0);
        }
    }
}
