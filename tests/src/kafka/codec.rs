//! Records as bytes between a test and its verifier; `tests/kafka/records.py` is the other side.
//!
//! Invariant: bytes that don't parse to their last one are a panic, never fewer records.

use super::record::{NewRecord, Record};

/// Records to produce; `-1` stands for none.
pub(super) fn encode(records: &[NewRecord]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend(record.partition.unwrap_or(-1).to_le_bytes());
        bytes.extend(0i64.to_le_bytes());
        bytes.extend(record.timestamp.unwrap_or(-1).to_le_bytes());
        put(&mut bytes, record.key.as_deref());
        put(&mut bytes, record.value.as_deref());
        put_length(&mut bytes, record.headers.len());
        for (name, value) in &record.headers {
            put(&mut bytes, Some(name.as_bytes()));
            put(&mut bytes, value.as_deref());
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, data: Option<&[u8]>) {
    match data {
        None => bytes.extend((-1i32).to_le_bytes()),
        Some(data) => {
            put_length(bytes, data.len());
            bytes.extend(data);
        }
    }
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend(i32::try_from(length).expect("a test's records are small").to_le_bytes());
}

/// Records that were read.
pub(super) fn decode(bytes: &[u8]) -> Vec<Record> {
    let mut rest = bytes;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let partition = i32::from_le_bytes(take_array(&mut rest));
        let offset = i64::from_le_bytes(take_array(&mut rest));
        let timestamp = i64::from_le_bytes(take_array(&mut rest));
        let (key, value) = (take_data(&mut rest), take_data(&mut rest));
        let count = i32::from_le_bytes(take_array(&mut rest));
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = take_data(&mut rest).expect("a header has a name");
            headers.push((String::from_utf8(name).expect("a header's name is UTF-8"), take_data(&mut rest)));
        }
        records.push(Record { partition, offset, timestamp, key, value, headers });
    }
    records
}

fn take_data(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(i32::from_le_bytes(take_array(rest))).ok()?;
    let (data, after) = rest.split_at(length);
    *rest = after;
    Some(data.to_vec())
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (data, after) = rest.split_first_chunk().expect("the verifier sends whole records");
    *rest = after;
    *data
}
