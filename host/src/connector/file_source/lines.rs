//! Bytes into lines. Pure.
//!
//! Invariant: which lines come out depends on the bytes alone, not on the chunks they come in.

use memchr::memchr2;

use crate::connector::missing_keys;
use crate::element::{Batch, Column, NO_TIMESTAMP};

/// Rows of a batch at most.
pub const BATCH_ROWS: usize = 4096;
/// Bytes of a batch at most, unless a single line has more.
pub const BATCH_BYTES: usize = 256 << 10;

/// Why splitting stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The batch takes no more.
    BatchFull,
    /// All complete lines are out.
    NeedsMore,
    /// The line at the position has more bytes than allowed.
    TooLong,
}

/// Bytes that were read and not yet given as lines.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// `bytes[start .. end]` are unread; `start` is the beginning of a line.
    start: usize,
    end: usize,
    /// No line end is before this.
    scanned: usize,
    joint: Joint,
}

/// What the line before `start` still may be followed by: it was given at the end of the data, before its end was seen whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joint {
    Clean,
    /// It ended with `\r`; a `\n` belongs to it.
    AfterReturn,
    /// It had no end; one belongs to it.
    Open,
}

impl Joint {
    fn after(last: Option<u8>) -> Joint {
        match last {
            None | Some(b'\n') => Joint::Clean,
            Some(b'\r') => Joint::AfterReturn,
            Some(_) => Joint::Open,
        }
    }
}

impl LineBuffer {
    pub fn new() -> LineBuffer {
        LineBuffer { bytes: Vec::new(), start: 0, end: 0, scanned: 0, joint: Joint::Clean }
    }

    /// Forgets everything and begins at a position with this byte before it.
    pub fn reset(&mut self, last: Option<u8>) {
        (self.start, self.end, self.scanned) = (0, 0, 0);
        self.joint = Joint::after(last);
    }

    /// How many bytes are unread.
    pub fn unread(&self) -> usize {
        self.end - self.start
    }

    /// Room for the next chunk; [`filled`](Self::filled) says how much of it was used.
    pub fn room(&mut self, chunk: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.scanned, self.end, self.start) = (self.scanned - self.start, self.end - self.start, 0);
        if self.bytes.len() < self.end + chunk {
            self.bytes.resize(self.end + chunk, 0);
        }
        &mut self.bytes[self.end..self.end + chunk]
    }

    pub fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.bytes.len(), "no more than there was room for");
    }

    /// Moves lines into the batch. `at_end`: nothing follows, so that what is left is a line.
    pub fn split_into(&mut self, batch: &mut LineBatch, max_line: usize, at_end: bool) -> Stop {
        self.close_joint();
        loop {
            let unscanned = &self.bytes[self.scanned..self.end];
            let Some(found) = memchr2(b'\n', b'\r', unscanned).map(|at| self.scanned + at) else {
                self.scanned = self.end;
                return self.split_rest(batch, max_line, at_end);
            };
            let line = &self.bytes[self.start..found];
            let mut next = found + 1;
            if line.len() > max_line {
                return Stop::TooLong;
            }
            if self.bytes[found] == b'\r' {
                if next == self.end && !at_end {
                    // Whether a line feed follows is not known yet.
                    self.scanned = found;
                    return Stop::NeedsMore;
                }
                next += usize::from(next < self.end && self.bytes[next] == b'\n');
            }
            if !batch.push(line) {
                self.scanned = found;
                return Stop::BatchFull;
            }
            if next == self.end && at_end {
                self.joint = Joint::after(Some(self.bytes[next - 1]));
            }
            (self.start, self.scanned) = (next, next);
        }
    }

    fn split_rest(&mut self, batch: &mut LineBatch, max_line: usize, at_end: bool) -> Stop {
        let rest = &self.bytes[self.start..self.end];
        if rest.len() > max_line {
            return Stop::TooLong;
        }
        if at_end && !rest.is_empty() {
            if !batch.push(rest) {
                return Stop::BatchFull;
            }
            self.joint = Joint::Open;
            self.start = self.end;
        }
        Stop::NeedsMore
    }

    /// Passes over the end of a line that was given before its end was seen.
    fn close_joint(&mut self) {
        while self.joint != Joint::Clean && self.start < self.end {
            let byte = self.bytes[self.start];
            let (passed, joint) = match (self.joint, byte) {
                (Joint::Open, b'\r') => (1, Joint::AfterReturn),
                (Joint::Open | Joint::AfterReturn, b'\n') => (1, Joint::Clean),
                (Joint::Open | Joint::AfterReturn | Joint::Clean, _) => (0, Joint::Clean),
            };
            self.joint = joint;
            self.start += passed;
            self.scanned = self.scanned.max(self.start);
        }
    }
}

/// Lines that become a batch: values without keys and event times.
#[derive(Debug)]
pub struct LineBatch {
    values: Column,
    rows: usize,
}

impl LineBatch {
    pub fn new() -> LineBatch {
        LineBatch { values: Column::with_capacity(0, 0), rows: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a line; `false` if there is no room for it.
    #[inline]
    fn push(&mut self, line: &[u8]) -> bool {
        if self.rows == 0 {
            self.values = Column::with_capacity(BATCH_ROWS, BATCH_BYTES);
        } else if self.rows == BATCH_ROWS || self.values.data.len() + line.len() > BATCH_BYTES {
            return false;
        }
        self.values.push(line);
        self.rows += 1;
        true
    }

    pub fn finish(self) -> Batch {
        let rows = self.rows;
        let nulls = missing_keys(rows);
        let keys = Column { data: Vec::new(), offsets: vec![0; (rows + 1) * 4] };
        let timestamps = NO_TIMESTAMP.to_le_bytes().repeat(rows);
        Batch {
            rows: rows as u32,
            keys,
            values: self.values,
            timestamps,
            nulls,
            headers: Column::default(),
            provenance: None,
        }
    }
}
