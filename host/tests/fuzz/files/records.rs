//! Records as they come out of files and topics: their headers, and event times that are to be found in their values.

use std::sync::OnceLock;

use lockgate_host::connector::{EventTimeOptions, OnMissing, Polled, SourceOptions, TimeFrom, TimeUnit, open_source};
use lockgate_host::element::{Batch, Column, NO_TIMESTAMP, WATERMARK_END};
use serde_json::json;
use tempfile::TempDir;

use crate::chance::Chance;
use crate::damage::{damaged, damaged_text};
use crate::files::context;
use crate::harness::Target;
use crate::text;

const HEADERS: Target = Target {
    name: "headers",
    seeds: 3_000,
    bytes_max: 256,
    memory_bytes_max: 1 << 20,
    outcomes: &["read", "refused"],
    case: headers,
};
const EVENT_TIME: Target = Target {
    name: "event_time",
    seeds: 1_500,
    bytes_max: 256,
    memory_bytes_max: 4 << 20,
    outcomes: &["timed", "refused"],
    case: event_time,
};

#[test]
fn any_bytes_are_headers_that_are_written_as_they_were_read_or_refused() {
    HEADERS.run();
}

#[test]
fn any_value_has_an_event_time_within_bounds_or_none() {
    EVENT_TIME.run();
}

fn headers(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    // Two rows: no headers, and two of which one has no value.
    let mut good = [0u32, 0, 29].iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<_>>();
    good.extend_from_slice(b"\x05\0\0\0trace\x04\0\0\0\x00\xff\x01\x02\x04\0\0\0none\xff\xff\xff\xff");
    let bytes = if chance.one_in(6) { chance.bytes(64) } else { damaged(chance, &good, &[]) };
    let rows = if chance.one_in(4) { chance.word() } else { 2 };
    chance.tell(|| format!("{rows} rows: {bytes:02x?}"));
    let headers = match Batch::headers_of(rows, &bytes) {
        Ok(headers) => headers,
        Err(malformed) => return text::check_error(&malformed).map(|()| "refused"),
    };
    if rows as usize > bytes.len() && !bytes.is_empty() {
        return Err(format!("{} bytes are the headers of {rows} rows", bytes.len()));
    }
    // Of so many rows without anything else.
    let rows = rows.min(64);
    let empty = |rows: u32| Column { data: Vec::new(), offsets: vec![0; (rows as usize + 1) * 4] };
    let timestamps = vec![0; rows as usize * 8];
    let batch = Batch { rows, keys: empty(rows), values: empty(rows), timestamps, headers, ..Batch::default() };
    if let Err(malformed) = batch.check() {
        return text::check_error(&malformed).map(|()| "refused");
    }
    let mut copy = Batch::default();
    (0..rows as usize).for_each(|row| copy.push_from(&batch, row));
    for row in 0..rows as usize {
        if !copy.headers(row).eq(batch.headers(row)) {
            return Err(format!("row {row} has other headers in a copy"));
        }
    }
    if *batch.ext() == *bytes { Ok("read") } else { Err("written again they are others".to_owned()) }
}

/// Where a value is put that is to be read.
fn folder() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder"))
}

fn event_time(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    const JSON: &str =
        r#"{"type":"bid","a":{"x":[1,{"t":-7},2.5],"t":1436918400123},"t":"2015-07-15T00:00:00.123Z","n":null}"#;
    const CSV: &str = "1436918400123,\"a, \"\"b\"\"\",-0.001,2015-07-15T00:00:00Z";
    const WORDS: [&str; 12] = [
        "{",
        "[",
        "\"",
        ",",
        "null",
        "1e400",
        "-",
        "99999999999999999999999999999999999999999",
        "\\u0000",
        "9e18",
        "\t",
        "T",
    ];
    let pointers = ["/a/t", "/t", "/a/x/1/t", "/a/x/0", "", "/n", "/a~1"];
    let (good, from) = if chance.one_in(2) {
        (JSON, TimeFrom::Json(chance.pick(&pointers).parse().expect("a pointer")))
    } else {
        (CSV, TimeFrom::Csv { column: chance.below(6), separator: *chance.pick(b",;\"\t") })
    };
    let options = EventTimeOptions {
        from,
        unit: *chance.pick(&[TimeUnit::Ms, TimeUnit::S, TimeUnit::Us, TimeUnit::Rfc3339]),
        on_missing: if chance.one_in(2) { OnMissing::None } else { OnMissing::Fail },
    };
    let value = match chance.below(6) {
        0 => good.as_bytes().to_vec(),
        1 => damaged(chance, good.as_bytes(), &[]),
        _ => damaged_text(chance, good, &WORDS).into_bytes(),
    };
    chance.tell(|| format!("{options:?} of {}", String::from_utf8_lossy(&value)));
    let path = folder().path().join("value");
    std::fs::write(&path, value).expect("written");
    let source: SourceOptions = serde_json::from_value(json!({ "type": "file", "path": path })).expect("options");
    let mut reader = open_source(&source, &options, &context("in", 1), 0).map_err(|error| error.to_string())?;
    loop {
        match reader.poll() {
            Ok(Polled::Batch { batch, .. }) => {
                batch.check().map_err(|malformed| malformed.to_string())?;
                let is_kept =
                    |time: i64| time == NO_TIMESTAMP || time.unsigned_abs() < WATERMARK_END.unsigned_abs() / 2;
                if let Some(row) = batch.iter().find(|row| !is_kept(row.timestamp)) {
                    return Err(format!("an event time of {}", row.timestamp));
                }
            }
            Ok(Polled::Idle(_)) => {}
            Ok(Polled::Ended) => return Ok("timed"),
            Err(error) => {
                text::check(&error.to_string())?;
                text::check(&error.help())?;
                return Ok("refused");
            }
        }
    }
}
