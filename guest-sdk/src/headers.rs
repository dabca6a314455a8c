//! The headers of records, as an operator reads and sends them.
//!
//! The headers of one record are bytes: one after the other, as `ext` of `batch` in the contract says.
//!
//! Invariant: reading copies nothing; what records without headers cost is to see that there are none.

use crate::host::{BatchRef, ColumnRef};

/// The length of a value that is missing.
const MISSING: u32 = u32::MAX;
/// What a buffer keeps at most when it is emptied.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A name and a value beside a record's key and value. A missing value is not an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// The headers of one record, in their order. A name may come more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Headers<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Headers<'a> {
        Headers { rest: bytes }
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    /// # Panics
    /// If they are malformed, which those of a host are not.
    fn next(&mut self) -> Option<Header<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let length = self.number();
        let name = std::str::from_utf8(self.string(length)).expect("a name in UTF-8");
        let length = self.number();
        let value = (length != MISSING).then(|| self.string(length));
        Some(Header { name, value })
    }
}

impl<'a> Headers<'a> {
    fn number(&mut self) -> u32 {
        let (number, rest) = self.rest.split_first_chunk().expect("a length");
        self.rest = rest;
        u32::from_le_bytes(*number)
    }

    fn string(&mut self, length: u32) -> &'a [u8] {
        let (string, rest) = self.rest.split_at(length as usize);
        self.rest = rest;
        string
    }
}

/// Adds a header to the bytes of a record's.
pub(crate) fn append(to: &mut Vec<u8>, header: Header<'_>) {
    // A 32-bit memory holds nothing of 4 GiB.
    to.extend_from_slice(&(header.name.len() as u32).to_le_bytes());
    to.extend_from_slice(header.name.as_bytes());
    to.extend_from_slice(&header.value.map_or(MISSING, |value| value.len() as u32).to_le_bytes());
    to.extend_from_slice(header.value.unwrap_or_default());
}

/// The headers of a batch as a column; without offsets if there are none.
pub(crate) fn column(batch: BatchRef<'_>) -> ColumnRef<'_> {
    if batch.ext.is_empty() {
        return ColumnRef::default();
    }
    let (offsets, data) = batch.ext.split_at((batch.rows as usize + 1) * 4);
    ColumnRef { data, offsets }
}

/// The headers that what is emitted gets: those of the current record, until they are changed.
#[derive(Default)]
pub(crate) struct Outgoing<'a> {
    /// Whether there are any.
    pub(crate) any: bool,
    of_record: &'a [u8],
    /// Counts if `is_changed`.
    changed: Vec<u8>,
    is_changed: bool,
}

impl<'a> Outgoing<'a> {
    /// Another record begins.
    #[inline]
    pub(crate) fn begin(&mut self, of_record: &'a [u8]) {
        self.any = !of_record.is_empty();
        self.of_record = of_record;
        self.is_changed = false;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.is_changed { &self.changed } else { self.of_record }
    }

    pub(crate) fn add(&mut self, header: Header<'_>) {
        append(self.change(), header);
        self.any = true;
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let mut kept = Vec::new();
        let others = Headers::of(self.bytes()).filter(|header| header.name != name);
        others.for_each(|header| append(&mut kept, header));
        self.any = !kept.is_empty();
        (self.changed, self.is_changed) = (kept, true);
    }

    pub(crate) fn clear(&mut self) {
        self.begin(&[]);
    }

    fn change(&mut self) -> &mut Vec<u8> {
        if !self.is_changed {
            self.changed.clear();
            self.changed.extend_from_slice(self.of_record);
            self.is_changed = true;
        }
        &mut self.changed
    }
}

/// The headers of the records of a batch that is being filled. A row that isn't put has none.
#[derive(Default)]
pub(crate) struct HeaderBuffer {
    data: Vec<u8>,
    /// Of rows up to the last one that has headers.
    ends: Vec<[u8; 4]>,
    /// What is sent, for its memory.
    ext: Vec<u8>,
}

impl HeaderBuffer {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Gives row `row` headers; behind all that have some already.
    pub(crate) fn put(&mut self, row: usize, headers: &[u8]) {
        self.ends.resize(row, self.end());
        self.data.extend_from_slice(headers);
        self.ends.push(self.end());
    }

    fn end(&self) -> [u8; 4] {
        (self.data.len() as u32).to_le_bytes()
    }

    /// Forgets the rows behind the first `rows`.
    pub(crate) fn cut(&mut self, rows: usize) {
        if rows < self.ends.len() {
            self.ends.truncate(rows);
            let end = self.ends.last().map_or(0, |end| u32::from_le_bytes(*end));
            self.data.truncate(end as usize);
        }
    }

    /// `ext` of a batch of so many rows.
    pub(crate) fn ext(&mut self, rows: usize) -> &[u8] {
        self.ext.clear();
        if !self.data.is_empty() {
            self.ends.resize(rows, self.end());
            self.ext.extend_from_slice(&[0; 4]);
            self.ext.extend_from_slice(self.ends.as_flattened());
            self.ext.extend_from_slice(&self.data);
        }
        &self.ext
    }

    pub(crate) fn clear(&mut self) {
        if self.data.capacity() > KEPT_BYTES_MAX {
            *self = HeaderBuffer::default();
        }
        self.data.clear();
        self.ends.clear();
    }
}
