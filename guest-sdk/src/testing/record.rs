//! Records as tests write and compare them.

use std::fmt;

use crate::field::AsField;
use crate::headers::{Header, HeaderBuffer, append};
use crate::host::{BatchRef, Column};
use crate::record::{NO_TIMESTAMP, Record};

/// A record that owns its bytes. Made from a pair of key and value (each an [`AsField`]) or a triple with the event time,
/// and compared with them; a pair leaves the event time open, and both leave the headers open.
#[derive(Clone, PartialEq, Eq)]
pub struct TestRecord {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the Unix epoch.
    pub timestamp: Option<i64>,
    /// Names and values.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl TestRecord {
    /// The record with a header more.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsField) -> TestRecord {
        self.headers.push((name.to_owned(), value.as_field().map(<[u8]>::to_vec)));
        self
    }

    /// The key as text, with what isn't UTF-8 replaced; empty if it is missing.
    pub fn key_str(&self) -> String {
        String::from_utf8_lossy(self.key.as_deref().unwrap_or_default()).into_owned()
    }

    /// The value as text, with what isn't UTF-8 replaced; empty if it is missing.
    pub fn value_str(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }
}

impl<K: AsField, V: AsField> From<(K, V)> for TestRecord {
    fn from((key, value): (K, V)) -> TestRecord {
        let [key, value] = [key.as_field(), value.as_field()].map(|field| field.map(<[u8]>::to_vec));
        TestRecord { key, value, timestamp: None, headers: Vec::new() }
    }
}

impl<K: AsField, V: AsField> From<(K, V, i64)> for TestRecord {
    fn from((key, value, timestamp): (K, V, i64)) -> TestRecord {
        TestRecord { timestamp: Some(timestamp), ..TestRecord::from((key, value)) }
    }
}

impl From<Record<'_>> for TestRecord {
    fn from(record: Record<'_>) -> TestRecord {
        let headers = record.headers().map(|Header { name, value }| (name.to_owned(), value.map(<[u8]>::to_vec)));
        let (timestamp, headers) = (record.timestamp(), headers.collect());
        TestRecord { timestamp, headers, ..TestRecord::from((record.key(), record.value())) }
    }
}

impl<K: AsField, V: AsField> PartialEq<(K, V)> for TestRecord {
    fn eq(&self, (key, value): &(K, V)) -> bool {
        self.key.as_deref() == key.as_field() && self.value.as_deref() == value.as_field()
    }
}

impl<K: AsField, V: AsField> PartialEq<(K, V, i64)> for TestRecord {
    fn eq(&self, (key, value, timestamp): &(K, V, i64)) -> bool {
        *self == (key, value) && self.timestamp == Some(*timestamp)
    }
}

impl fmt::Debug for TestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |field: &Option<Vec<u8>>| field.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut tuple = f.debug_tuple("");
        tuple.field(&text(&self.key)).field(&text(&self.value)).field(&self.timestamp);
        for (name, value) in &self.headers {
            tuple.field(&(name, text(value)));
        }
        tuple.finish()
    }
}

/// Records in columns.
pub(super) struct Columns {
    rows: usize,
    keys: Column,
    values: Column,
    timestamps: Vec<u8>,
    nulls: Vec<u8>,
    ext: Vec<u8>,
}

impl Columns {
    pub(super) fn of(records: &[TestRecord]) -> Columns {
        let [mut keys, mut values] = [Column::new(), Column::new()];
        let mut timestamps = Vec::new();
        let bitmap_bytes = records.len().div_ceil(8);
        let mut nulls = vec![0; bitmap_bytes * 2];
        let mut headers = HeaderBuffer::default();
        for (row, record) in records.iter().enumerate() {
            keys.push(record.key.as_deref().unwrap_or_default());
            values.push(record.value.as_deref().unwrap_or_default());
            let mut of_record = Vec::new();
            for (name, value) in &record.headers {
                append(&mut of_record, Header { name, value: value.as_deref() });
            }
            headers.put(row, &of_record);
            timestamps.extend_from_slice(&record.timestamp.unwrap_or(NO_TIMESTAMP).to_le_bytes());
            nulls[row / 8] |= u8::from(record.key.is_none()) << (row % 8);
            nulls[bitmap_bytes + row / 8] |= u8::from(record.value.is_none()) << (row % 8);
        }
        if nulls.iter().all(|&byte| byte == 0) {
            nulls.clear();
        }
        let ext = headers.ext(records.len()).to_vec();
        Columns { rows: records.len(), keys, values, timestamps, nulls, ext }
    }

    pub(super) fn as_batch(&self) -> BatchRef<'_> {
        BatchRef {
            rows: self.rows as u32,
            keys: self.keys.as_ref(),
            values: self.values.as_ref(),
            timestamps: &self.timestamps,
            nulls: &self.nulls,
            ext: &self.ext,
        }
    }
}
