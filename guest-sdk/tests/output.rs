//! What operators send arrives as it was sent, in batches of a bounded size.

use lockgate::prelude::*;
use lockgate::testing::{Harness, TestRecord};
use lockgate::{Declaration, ErrorKind};

/// Sends each record on, `copies` times if its value is a number, and to a side output if it has none.
struct Fan {
    late: Output,
}

impl Operator for Fan {
    fn new(declare: &mut Declaration) -> Fan {
        Fan { late: declare.output("late") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        ctx.counter("records", 1);
        if record.value().is_none() {
            ctx.emit_to(self.late, record.key(), ());
            return Ok(());
        }
        let copies = record.value_str()?.parse::<u32>()?;
        for copy in 0..copies {
            ctx.emit_with(record.key(), |value| {
                value.integer(copy);
                value.bytes(b" of ");
                value.integer(copies);
            });
        }
        Ok(())
    }

    fn watermark(&mut self, timestamp: i64, ctx: &mut Context<'_>) -> Result<(), Error> {
        ctx.emit_with_timestamp((), "watermark", timestamp);
        Ok(())
    }
}

fn open() -> Harness<Fan> {
    Harness::open().expect("no configuration")
}

#[test]
fn records_keep_their_event_time_and_what_is_missing() -> Result<(), Error> {
    let mut harness = open();
    harness.process([(Some("a"), Some("1"), 5), (None, Some("2"), 6), (None, None, 7), (Some(""), None, 8)])?;
    assert_eq!(harness.take_output(), [(Some("a"), "0 of 1", 5), (None, "0 of 2", 6), (None, "1 of 2", 6)]);
    assert_eq!(harness.take_output_of("late"), [(None, (), 7), (Some(""), (), 8)]);
    harness.advance_watermark(9)?;
    assert_eq!(harness.take_output(), [((), "watermark", 9)]);
    assert_eq!(harness.counter("records"), 4);
    Ok(())
}

#[test]
fn batches_are_cut_by_rows_and_by_bytes() -> Result<(), Error> {
    let mut harness = open();
    harness.process([("", "10000")])?;
    assert_eq!(harness.calls().emit, 3);
    assert_eq!(harness.take_output().len(), 10_000);
    // Each key is 100 KiB, so that every third record fills a batch.
    harness.process([("k".repeat(100 << 10), "30")])?;
    assert_eq!(harness.calls().emit, 3 + 10);
    let output = harness.take_output();
    assert_eq!(output.len(), 30);
    assert!(output.iter().all(|record| record.key_str().len() == 100 << 10));
    assert_eq!(output[29].value_str(), "29 of 30");
    Ok(())
}

fn with_headers(key: &str, headers: &[(&str, &str)]) -> TestRecord {
    let record = TestRecord::from((key, "1"));
    headers.iter().fold(record, |record, (name, value)| record.with_header(name, value))
}

fn headers(record: &TestRecord) -> Vec<(&str, Option<&[u8]>)> {
    record.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
}

#[test]
fn what_is_emitted_has_the_headers_of_its_record_and_of_no_other() -> Result<(), Error> {
    let mut harness = open();
    let both = with_headers("b", &[("x", "1"), ("x", "2")]);
    let missing = with_headers("d", &[]).with_header("", ());
    harness.process([with_headers("a", &[]), both, with_headers("c", &[]), missing, with_headers("e", &[])])?;
    let output = harness.take_output();
    let expected = [vec![], vec![("x", Some(&b"1"[..])), ("x", Some(b"2"))], vec![], vec![("", None)], vec![]];
    assert_eq!(output.iter().map(headers).collect::<Vec<_>>(), expected);
    harness.advance_watermark(9)?;
    assert!(harness.take_output()[0].headers.is_empty());
    Ok(())
}

#[test]
fn headers_stay_with_their_records_when_batches_are_cut() -> Result<(), Error> {
    let mut harness = open();
    let large = "x".repeat(100 << 10);
    let records = (0..30).map(|n| match n % 3 {
        0 => with_headers(&n.to_string(), &[("large", &large), ("n", &n.to_string())]),
        1 => with_headers(&n.to_string(), &[("n", &n.to_string())]),
        _ => with_headers(&n.to_string(), &[]),
    });
    harness.process(records)?;
    // Every third header that is large fills a batch.
    assert_eq!(harness.calls().emit, 4);
    for (n, record) in harness.take_output().iter().enumerate() {
        let own = n.to_string();
        let expected = (n % 3 < 2).then_some(("n", Some(own.as_bytes())));
        assert_eq!((record.key_str(), headers(record).pop()), (own.clone(), expected));
    }
    Ok(())
}

/// Sends each record with its headers as they come, changed in each way, and as they come again.
struct Change;

impl Operator for Change {
    fn new(_: &mut Declaration) -> Change {
        Change
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        ctx.emit("as it is", record.header("a").map(|header| header.value));
        ctx.add_header("c", ());
        ctx.emit_with("one more", |_| {});
        ctx.remove_header("a");
        ctx.emit("without a", ());
        ctx.clear_headers();
        ctx.emit("none", ());
        ctx.add_header("a", "new");
        ctx.emit("a new one", ());
        Ok(())
    }
}

#[test]
fn headers_can_be_changed_until_the_next_record() -> Result<(), Error> {
    let mut harness = Harness::<Change>::open()?;
    let record = || with_headers("k", &[("a", "1"), ("b", "2"), ("a", "3")]);
    harness.process([record(), record()])?;
    let output = harness.take_output();
    let (a, b) = (("a", Some(&b"1"[..])), ("b", Some(&b"2"[..])));
    let (last, c) = (("a", Some(&b"3"[..])), ("c", None));
    let expected = [vec![a, b, last], vec![a, b, last, c], vec![b, c], Vec::new(), vec![("a", Some(&b"new"[..]))]];
    assert_eq!(output[..5].iter().map(headers).collect::<Vec<_>>(), expected);
    assert_eq!(output[5..], output[..5]);
    assert_eq!(output[0], ("as it is", "3"));
    Ok(())
}

#[test]
fn a_call_that_fails_sends_nothing_and_names_the_record() {
    let mut harness = open();
    let error = harness.process([("a", "9000"), ("b", "many"), ("c", "1")]).expect_err("not a number");
    assert_eq!((error.kind(), error.row()), (ErrorKind::BadRecord, Some(1)));
    assert_eq!(error.to_string(), "invalid digit found in string");
    assert!(harness.take_output().is_empty());
    // What is counted is not rolled back.
    assert_eq!(harness.counter("records"), 2);
    harness.recover().expect("nothing to restore");
    harness.process([("c", "1")]).expect("a number");
    assert_eq!(harness.take_output(), [("c", "0 of 1")]);
}

#[test]
#[should_panic(expected = "`recover` goes on after an error")]
fn an_operator_that_has_failed_is_not_called_again() {
    let mut harness = open();
    harness.process([("b", "many")]).expect_err("not a number");
    let _ = harness.process([("c", "1")]);
}

/// Uses state where there is no record, and keeps a count of its own.
struct Total {
    seen: Value<u64>,
    total: u64,
}

impl Operator for Total {
    fn new(declare: &mut Declaration) -> Total {
        Total { seen: declare.value("seen"), total: 0 }
    }

    fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> {
        self.total += 1;
        Ok(())
    }

    fn watermark(&mut self, _: i64, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.seen.set(ctx, self.total)
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        lockgate::encoding::encode(&self.total)
    }

    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        for state in states {
            self.total += lockgate::encoding::decode::<u64>(state)?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        if self.total == 5 { Ok(()) } else { Err(Error::transient(self.total)) }
    }
}

#[test]
fn state_without_a_record_is_a_fatal_error() {
    let mut harness = Harness::<Total>::open().expect("no configuration");
    let error = harness.advance_watermark(1).expect_err("no record");
    assert_eq!((error.kind(), error.row()), (ErrorKind::Fatal, None));
}

#[test]
fn state_that_is_not_keyed_is_taken_up_from_all_subtasks() -> Result<(), Error> {
    let mut first = Harness::<Total>::open()?;
    first.process([("a", ""), ("b", "")])?;
    let mut second = Harness::<Total>::open()?;
    second.process([("c", ""), ("d", ""), ("e", "")])?;
    assert!(second.close().is_err());
    let mut second = Harness::<Total>::open()?;
    second.process([("c", ""), ("d", ""), ("e", "")])?;
    Harness::<Total>::restore(&[&first.snapshot()?, &second.snapshot()?])?.close()
}
