//! The records of a batch, as an operator reads them.
//!
//! Invariant: reading copies and allocates nothing; a [`Record`] lives as long as its batch.

use crate::error::Error;
use crate::headers::{self, Header, Headers};
use crate::host::{BatchRef, ColumnRef, bit};

/// In columns, the event time of a record that has none.
pub const NO_TIMESTAMP: i64 = i64::MIN;

/// One record: bytes by key, with an event time and headers. A missing key or value is not an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp: i64,
    /// As in a batch.
    pub(crate) headers: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.key
    }

    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.value
    }

    /// The key as text.
    ///
    /// # Errors
    /// The record is bad if it has no key or one that isn't UTF-8.
    pub fn key_str(&self) -> Result<&'a str, Error> {
        text(self.key, "key")
    }

    /// The value as text.
    ///
    /// # Errors
    /// The record is bad if it has no value or one that isn't UTF-8.
    pub fn value_str(&self) -> Result<&'a str, Error> {
        text(self.value, "value")
    }

    /// Event time in milliseconds since the Unix epoch, if the record has one.
    #[inline]
    pub fn timestamp(&self) -> Option<i64> {
        (self.timestamp != NO_TIMESTAMP).then_some(self.timestamp)
    }

    /// The headers, in their order. What is emitted for this record has them too, unless the
    /// [context](crate::Context::add_header) is told otherwise.
    ///
    /// ```
    /// use lockgate::prelude::*;
    /// use lockgate::testing::TestRecord;
    ///
    /// struct Route {
    ///     tests: Output,
    /// }
    ///
    /// impl Operator for Route {
    ///     fn new(declare: &mut Declaration) -> Route {
    ///         Route { tests: declare.output("tests") }
    ///     }
    ///
    ///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
    ///         let is_test = record.header("origin").is_some_and(|origin| origin.value == Some(b"test"));
    ///         ctx.emit_to(if is_test { self.tests } else { Output::MAIN }, record.key(), record.value());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut harness = lockgate::testing::Harness::<Route>::open()?;
    /// let record = TestRecord::from(("k", "v"));
    /// harness.process([record.clone(), record.with_header("origin", "test")])?;
    /// assert_eq!(harness.take_output(), [("k", "v")]);
    /// assert_eq!(harness.take_output_of("tests"), [TestRecord::from(("k", "v")).with_header("origin", "test")]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn headers(&self) -> Headers<'a> {
        Headers::of(self.headers)
    }

    /// The header of a name, the last one if there are several.
    pub fn header(&self, name: &str) -> Option<Header<'a>> {
        self.headers().filter(|header| header.name == name).last()
    }
}

fn text<'a>(bytes: Option<&'a [u8]>, what: &str) -> Result<&'a str, Error> {
    let bytes = bytes.ok_or_else(|| Error::bad_record(format_args!("the record has no {what}")))?;
    std::str::from_utf8(bytes).map_err(|error| Error::bad_record(format_args!("the {what} is not UTF-8: {error}")))
}

/// All records of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows<'a> {
    len: usize,
    keys: Strings<'a>,
    values: Strings<'a>,
    timestamps: &'a [[u8; 8]],
    nulls: &'a [u8],
    /// No ends at all if no row has any.
    headers: Strings<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Strings<'a> {
    data: &'a [u8],
    ends: &'a [[u8; 4]],
}

impl<'a> Strings<'a> {
    fn new(column: ColumnRef<'a>) -> Strings<'a> {
        Strings { data: column.data, ends: column.offsets.as_chunks().0 }
    }

    #[inline]
    fn get(&self, index: usize) -> &'a [u8] {
        let start = u32::from_le_bytes(self.ends[index]) as usize;
        let end = u32::from_le_bytes(self.ends[index + 1]) as usize;
        &self.data[start..end]
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn new(batch: BatchRef<'a>) -> Rows<'a> {
        Rows {
            len: batch.rows as usize,
            keys: Strings::new(batch.keys),
            values: Strings::new(batch.values),
            timestamps: batch.timestamps.as_chunks().0,
            nulls: batch.nulls,
            headers: Strings::new(headers::column(batch)),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key of row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn key(&self, index: usize) -> Option<&'a [u8]> {
        if !self.nulls.is_empty() && bit(self.nulls, index) {
            return None;
        }
        Some(self.keys.get(index))
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Record<'a> {
        let key = self.key(index);
        let null = !self.nulls.is_empty() && bit(&self.nulls[self.len.div_ceil(8)..], index);
        let value = if null { None } else { Some(self.values.get(index)) };
        let headers: &'a [u8] = if self.headers.ends.is_empty() { &[] } else { self.headers.get(index) };
        Record { key, value, timestamp: i64::from_le_bytes(self.timestamps[index]), headers }
    }

    pub fn iter(&self) -> impl Iterator<Item = Record<'a>> {
        let rows = *self;
        (0..rows.len).map(move |index| rows.get(index))
    }
}
