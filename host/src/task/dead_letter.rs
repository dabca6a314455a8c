//! Records that an operator could not process, as records that tell of them.
//!
//! A dead letter has the key, event time and headers of its record; its value is one JSON object. Bytes that aren't UTF-8 are given in
//! base64 under another name, so that a reader never has to guess.
//!
//! Invariant: the record can be had back from its dead letter, byte by byte.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::element::{Batch, Header, Headers, NO_TIMESTAMP, Origin, Row};
use crate::guest::Emitted;
use crate::id::{Attempt, Epoch, Name, SubtaskId};

/// What was rejected.
pub struct Subject<'a> {
    input: Option<u32>,
    /// For a timer, its tag is the value and its time the event time.
    row: Row<'a>,
    headers: Headers<'a>,
    /// Its place in the batch.
    number: Option<u32>,
    origin: Option<Origin<'a>>,
}

impl<'a> Subject<'a> {
    /// Row `number` of a batch that came to `input`.
    pub fn row(input: u32, batch: &'a Batch, number: u32) -> Subject<'a> {
        let origin = batch.provenance.as_ref().map(|provenance| provenance.of(number));
        let (row, headers) = (batch.row(number as usize), batch.headers(number as usize));
        Subject { input: Some(input), row, headers, number: Some(number), origin }
    }

    pub fn timer(key: &'a [u8], tag: &'a [u8], time_ms: i64) -> Subject<'a> {
        let row = Row { key: Some(key), value: Some(tag), timestamp: time_ms };
        Subject { input: None, row, headers: Headers::default(), number: None, origin: None }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.number) {
            (Some(Origin { split, offset, record }), _) => {
                write!(f, "record {record} from offset {offset} of split '{split}'")
            }
            (None, Some(number)) => write!(f, "row {number} of a batch"),
            (None, None) => write!(f, "a timer at {} ms", self.row.timestamp),
        }
    }
}

/// One rejection.
pub struct DeadLetter<'a> {
    pub subtask: &'a SubtaskId,
    /// The checkpoint that it will be part of.
    pub epoch: Epoch,
    pub subject: &'a Subject<'a>,
    pub kind: &'static str,
    pub reason: &'a str,
    /// What `lockgate replay` takes to see it again.
    pub capsule: Option<&'a Path>,
}

/// The dead letters of one subtask that wait to be put out.
#[derive(Clone)]
pub struct DeadLetters {
    /// The output that takes them.
    port: u32,
    attempt: Attempt,
    /// The names of the operator's inputs.
    inputs: Vec<Name>,
    batch: Batch,
}

/// The value of a dead letter. Every key is always there, but for one of each pair that says the same in two ways.
#[derive(Serialize)]
struct Value<'a> {
    operator: &'a str,
    subtask: u32,
    input: Option<&'a str>,
    kind: &'a str,
    reason: &'a str,
    #[serde(flatten)]
    key: Bytes<'a, Key>,
    #[serde(flatten)]
    value: Bytes<'a, Payload>,
    headers: Vec<HeaderOfLetter<'a>>,
    timestamp_ms: Option<i64>,
    split: Option<&'a str>,
    offset: Option<u64>,
    record: Option<u32>,
    epoch: u64,
    attempt: u64,
    capsule: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct HeaderOfLetter<'a> {
    name: &'a str,
    #[serde(flatten)]
    value: Bytes<'a, Payload>,
}

struct Key;
struct Payload;

/// The two names under which bytes may be given.
trait Named {
    const TEXT: &'static str;
    const BASE64: &'static str;
}

impl Named for Key {
    const TEXT: &'static str = "key";
    const BASE64: &'static str = "key_base64";
}

impl Named for Payload {
    const TEXT: &'static str = "value";
    const BASE64: &'static str = "value_base64";
}

/// A key or value: text, else base64, else null.
struct Bytes<'a, N>(Option<&'a [u8]>, std::marker::PhantomData<N>);

impl<N: Named> Serialize for Bytes<'_, N> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = to.serialize_map(Some(1))?;
        match self.0.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => map.serialize_entry(N::TEXT, &())?,
            Some((_, Ok(text))) => map.serialize_entry(N::TEXT, text)?,
            Some((bytes, Err(_))) => map.serialize_entry(N::BASE64, &base64(bytes))?,
        }
        map.end()
    }
}

impl DeadLetters {
    pub fn new(port: u32, attempt: Attempt, inputs: Vec<Name>) -> DeadLetters {
        DeadLetters { port, attempt, inputs, batch: Batch::default() }
    }

    pub fn add(&mut self, letter: &DeadLetter<'_>) {
        let Subject { input, row, headers, origin, .. } = letter.subject;
        let header = |Header { name, value }| HeaderOfLetter { name, value: Bytes(value, std::marker::PhantomData) };
        let value = Value {
            operator: letter.subtask.operator.as_str(),
            subtask: letter.subtask.index,
            input: input.and_then(|input| self.inputs.get(input as usize)).map(Name::as_str),
            kind: letter.kind,
            reason: letter.reason,
            key: Bytes(row.key, std::marker::PhantomData),
            value: Bytes(row.value, std::marker::PhantomData),
            headers: headers.clone().map(header).collect(),
            timestamp_ms: Some(row.timestamp).filter(|timestamp| *timestamp != NO_TIMESTAMP),
            split: origin.map(|origin| origin.split.as_str()),
            offset: origin.map(|origin| origin.offset),
            record: origin.map(|origin| origin.record),
            epoch: letter.epoch.0,
            attempt: self.attempt.0,
            capsule: letter.capsule.map(Path::to_string_lossy),
        };
        let value = serde_json::to_vec(&value).expect("text, numbers and nulls are JSON");
        self.batch.push(Row { key: row.key, value: Some(&value), timestamp: row.timestamp });
        headers.clone().for_each(|header| self.batch.push_header(header));
    }

    /// What there is to put out.
    pub fn take(&mut self) -> Emitted {
        if self.batch.is_empty() { Emitted::new() } else { vec![(self.port, std::mem::take(&mut self.batch))] }
    }
}

/// Base64 with padding (RFC 4648, section 4).
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a name")
    }

    fn letter(subject: &Subject<'_>) -> (Option<Vec<u8>>, i64, serde_json::Value) {
        let mut letters = DeadLetters::new(2, Attempt(3), vec![name("in"), name("rules")]);
        let subtask = SubtaskId { operator: name("parse"), index: 1 };
        letters.add(&DeadLetter {
            subtask: &subtask,
            epoch: Epoch(7),
            subject,
            kind: "trap",
            reason: "it \"broke\"\n",
            capsule: Some(Path::new("state/capsules/parse-1-7-1.capsule")),
        });
        let emitted = letters.take();
        let [(2, batch)] = &emitted[..] else { panic!("one batch on port 2: {emitted:?}") };
        batch.check().expect("well formed");
        assert!(letters.take().is_empty(), "a letter is put out once");
        let value = serde_json::from_slice(batch.value(0).expect("a value")).expect("JSON");
        (batch.key(0).map(<[u8]>::to_vec), batch.timestamp(0), value)
    }

    fn batch(row: Row<'_>) -> Batch {
        let mut batch = Batch::default();
        batch.push(Row { key: None, value: None, timestamp: 0 });
        batch.push(row);
        batch
    }

    #[test]
    fn a_dead_letter_tells_who_failed_at_what_and_why() {
        let batch = batch(Row { key: Some(b"k"), value: Some("größe".as_bytes()), timestamp: -5 });
        let (key, timestamp, value) = letter(&Subject::row(1, &batch, 1));
        assert_eq!((key.as_deref(), timestamp), (Some(&b"k"[..]), -5));
        let expected = serde_json::json!({
            "operator": "parse", "subtask": 1, "input": "rules", "kind": "trap", "reason": "it \"broke\"\n", "key": "k",
            "value": "größe", "headers": [], "timestamp_ms": -5, "split": null, "offset": null, "record": null, "epoch": 7, "attempt": 3,
            "capsule": "state/capsules/parse-1-7-1.capsule",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn what_is_missing_is_null_and_what_is_no_text_is_base64() {
        let batch = batch(Row { key: None, value: Some(b"\xff\x00"), timestamp: NO_TIMESTAMP });
        let (key, _, value) = letter(&Subject::row(0, &batch, 1));
        assert_eq!(
            (key, &value["key"], &value["timestamp_ms"]),
            (None, &serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert_eq!((&value["value_base64"], value.get("value")), (&serde_json::json!("/wA="), None));
    }

    #[test]
    fn headers_are_told_and_kept() {
        let mut batch = batch(Row { key: None, value: None, timestamp: 0 });
        let headers = [
            Header { name: "trace", value: Some(b"t1") },
            Header { name: "trace", value: Some(b"\xff") },
            Header { name: "empty", value: None },
        ];
        headers.into_iter().for_each(|header| batch.push_header(header));
        let subject = Subject::row(0, &batch, 1);
        let expected = serde_json::json!([
            {"name": "trace", "value": "t1"}, {"name": "trace", "value_base64": "/w=="}, {"name": "empty", "value": null},
        ]);
        assert_eq!(letter(&subject).2["headers"], expected);
        let mut letters = DeadLetters::new(2, Attempt(3), Vec::new());
        let subtask = SubtaskId { operator: name("parse"), index: 1 };
        let (kind, reason, capsule) = ("trap", "", None);
        letters.add(&DeadLetter { subtask: &subtask, epoch: Epoch(7), subject: &subject, kind, reason, capsule });
        assert_eq!(letters.take()[0].1.headers(0).collect::<Vec<_>>(), headers);
    }

    #[test]
    fn a_timer_is_told_by_its_key_tag_and_time() {
        let (key, timestamp, value) = letter(&Subject::timer(b"k", b"tag", 9));
        assert_eq!((key.as_deref(), timestamp), (Some(&b"k"[..]), 9));
        assert_eq!((&value["value"], &value["input"]), (&serde_json::json!("tag"), &serde_json::Value::Null));
    }

    /// The examples of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_standard() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
