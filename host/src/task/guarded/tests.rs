//! A guarded operator over attempts: what comes out, what is rejected, what is counted.

use super::*;
use crate::element::{Header, NO_TIMESTAMP, Provenance};
use crate::guest::Call;
use crate::id::{Attempt, Name, SplitId};
use crate::protocol::isolation::Isolation;
use crate::telemetry::SubtaskCounters;

/// Copies records. Rejects those that begin with `r`, fails at those that begin with `t` (trap), `b` (a bad record that it
/// names), or `p` (a passing failure).
#[derive(Default)]
struct Picky {
    timers: Vec<(Rejection, RejectedTimer)>,
}

fn subtask() -> SubtaskId {
    SubtaskId { operator: Name::new("picky").expect("a name"), index: 0 }
}

impl OperatorInstance for Picky {
    fn restore(&mut self, _: &[Vec<u8>]) -> Result<(), OperatorError> {
        Ok(())
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        let (mut copied, mut rejections) = (Batch::default(), Vec::new());
        for number in 0..batch.rows {
            let failure = match batch.value(number as usize).and_then(|value| value.first()) {
                Some(b'r') => {
                    rejections.push(Rejection { row: number, message: "rejected".to_owned() });
                    continue;
                }
                Some(b't') => Failure::Trap { trap: "unreachable".to_owned() },
                Some(b'b') => refused(ErrorKind::BadRecord, Some(number)),
                Some(b'p') => refused(ErrorKind::Transient, None),
                Some(_) | None => {
                    copied.push_from(batch, number as usize);
                    continue;
                }
            };
            return Err(OperatorError::new(subtask(), Call::Process { port, rows: batch.rows }, failure));
        }
        emitted.push((0, copied));
        Ok(rejections)
    }

    fn fire_timers(&mut self, _: Clock, _: i64, _: &mut Emitted) -> Result<Fired, OperatorError> {
        let rejections = std::mem::take(&mut self.timers);
        Ok(Fired { rows: rejections.len() as u32, rejections })
    }

    fn next_timer(&self, _: Clock) -> Option<i64> {
        None
    }

    fn set_now(&mut self, _: i64) {}

    fn watermark(&mut self, _: i64, _: &mut Emitted) -> Result<(), OperatorError> {
        Ok(())
    }

    fn snapshot(&mut self, _: Epoch) -> Result<Vec<u8>, OperatorError> {
        Ok(Vec::new())
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        Ok(())
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        None
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        None
    }
}

fn refused(kind: ErrorKind, row: Option<u32>) -> Failure {
    Failure::Refused { kind, row, message: "bad".to_owned() }
}

/// A guarded operator and what is known of it outside.
struct Bench {
    guarded: Guarded,
    watch: SharedWatch,
    committed: CommittedEpoch,
    counters: Counters,
}

impl Bench {
    fn new(isolation: &Isolation, letters: bool, inner: Picky) -> Bench {
        let watch = Arc::new(Mutex::new(isolation.watch(&subtask())));
        let (committed, counters) = (CommittedEpoch::default(), Arc::new(SubtaskCounters::default()));
        let letters = letters.then(|| DeadLetters::new(1, Attempt(1), vec![Name::new("in").expect("a name")]));
        let guarded = Guarded::new(
            Box::new(inner),
            subtask(),
            letters,
            Arc::clone(&watch),
            committed.clone(),
            Arc::clone(&counters),
        );
        Bench { guarded, watch, committed, counters }
    }

    fn fresh(letters: bool) -> Bench {
        Bench::new(&Isolation::default(), letters, Picky::default())
    }

    /// What comes out of each port, as text.
    fn process(&mut self, batch: &Batch) -> Result<Vec<(u32, Vec<String>)>, OperatorError> {
        let mut emitted = Emitted::new();
        let rejections = self.guarded.process(0, batch, &mut emitted)?;
        assert!(rejections.is_empty(), "they are dealt with");
        Ok(texts(emitted))
    }

    /// Ends the attempt; gives the next one, which starts from `epoch`.
    fn next_attempt(self, isolation: &mut Isolation, epoch: Option<Epoch>) -> Bench {
        let watch = self.watch.lock().expect("no panic").clone();
        isolation.ended(vec![(subtask(), watch)]);
        isolation.restored(epoch).expect("little poison");
        Bench::new(isolation, true, Picky::default())
    }
}

fn texts(emitted: Emitted) -> Vec<(u32, Vec<String>)> {
    let text = |row: Row<'_>| String::from_utf8_lossy(row.value.unwrap_or_default()).into_owned();
    emitted.iter().map(|(port, batch)| (*port, batch.iter().map(text).collect())).collect()
}

fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::default();
    for value in values {
        batch.push(Row { key: None, value: Some(value.as_bytes()), timestamp: NO_TIMESTAMP });
    }
    batch
}

fn port(number: u32, values: &[&str]) -> (u32, Vec<String>) {
    (number, values.iter().map(|value| (*value).to_owned()).collect())
}

/// Of each dead letter kind and value.
fn letters(out: &[(u32, Vec<String>)]) -> Vec<(String, String)> {
    let json = |text: &String| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let of = |text_of: &String| {
        let letter = json(text_of);
        (text(&letter["kind"]), text(&letter["value"]))
    };
    out.iter().filter(|(port, _)| *port == 1).flat_map(|(_, texts)| texts.iter().map(of)).collect()
}

#[test]
fn skipped_records_leave_no_trace_but_a_count() {
    let mut bench = Bench::fresh(false);
    assert_eq!(bench.process(&batch(&["a", "r1", "c", "r3"])).expect("ok"), [port(0, &["a", "c"])]);
    assert_eq!(bench.counters.totals().records_rejected, 2);
}

#[test]
fn a_dead_letter_names_the_record_and_where_it_was_read() {
    let mut bench = Bench::fresh(true);
    let mut batch = batch(&["a", "r1"]);
    batch.provenance = Some(Arc::new(Provenance::of_source(SplitId::new("file"), 40)));
    bench.guarded.snapshot(Epoch(4)).expect("ok");
    let out = bench.process(&batch).expect("ok");
    assert_eq!(out[0], port(0, &["a"]));
    let letter: serde_json::Value = serde_json::from_str(&out[1].1[0]).expect("JSON");
    let of = |key: &str| letter[key].to_string();
    assert_eq!(["value", "split", "offset", "record", "epoch"].map(of), ["\"r1\"", "\"file\"", "40", "1", "5"]);
}

#[test]
fn a_rejected_timer_becomes_a_dead_letter_too() {
    let timer = RejectedTimer { key: b"k".to_vec(), tag: b"tag".to_vec(), time_ms: 7 };
    let inner = Picky { timers: vec![(Rejection { row: 0, message: "no".to_owned() }, timer)] };
    let mut bench = Bench::new(&Isolation::default(), true, inner);
    let mut emitted = Emitted::new();
    let fired = bench.guarded.fire_timers(Clock::EventTime, 10, &mut emitted).expect("ok");
    assert_eq!((fired.rows, fired.rejections.len()), (1, 0));
    assert_eq!(letters(&texts(emitted)), [("timer".to_owned(), "tag".to_owned())]);
}

#[test]
fn a_trap_is_found_row_by_row_and_left_out_in_the_attempt_after_that() {
    let mut isolation = Isolation::default();
    isolation.restored(None).expect("nothing yet");
    let rows = batch(&["a", "r1", "t2", "c"]);
    let mut bench = Bench::new(&isolation, true, Picky::default());
    assert!(bench.process(&rows).is_err(), "in a batch");
    let mut bench = bench.next_attempt(&mut isolation, None);
    assert!(bench.process(&rows).is_err(), "row by row");
    let mut bench = bench.next_attempt(&mut isolation, None);
    let out = bench.process(&rows).expect("the poison is left out");
    let copied = out.iter().filter(|(port, _)| *port == 0).flat_map(|(_, texts)| texts.clone()).collect::<Vec<_>>();
    assert_eq!(copied, ["a", "c"]);
    let expected = [("bad-record", "r1"), ("trap", "t2")].map(|(kind, value)| (kind.to_owned(), value.to_owned()));
    assert_eq!(letters(&out), expected);
    bench.guarded.snapshot(Epoch(1)).expect("ok");
    assert!(bench.guarded.is_careful());
    bench.committed.set(Epoch(1));
    assert!(!bench.guarded.is_careful(), "back to batches");
}

#[test]
fn records_keep_their_headers_also_row_by_row() {
    let mut rows = batch(&["a", "t1", "c"]);
    let header = Header { name: "trace", value: Some(b"7") };
    rows.push_header(header);
    let mut isolation = Isolation::default();
    isolation.restored(None).expect("nothing yet");
    let mut bench = Bench::new(&isolation, true, Picky::default());
    for _ in 0..2 {
        assert!(bench.process(&rows).is_err());
        bench = bench.next_attempt(&mut isolation, None);
    }
    let mut emitted = Emitted::new();
    bench.guarded.process(0, &rows, &mut emitted).expect("the poison is left out");
    let copied = emitted.iter().filter(|(port, _)| *port == 0).map(|(_, batch)| batch);
    let headers = copied.flat_map(|batch| (0..batch.rows as usize).map(|row| batch.headers(row).collect::<Vec<_>>()));
    assert_eq!(headers.collect::<Vec<_>>(), [vec![], vec![header]]);
}

#[test]
fn a_record_that_the_operator_names_is_left_out_in_the_next_attempt() {
    let mut isolation = Isolation::default();
    isolation.restored(None).expect("nothing yet");
    let rows = batch(&["a", "b1", "c"]);
    let mut bench = Bench::new(&isolation, true, Picky::default());
    assert!(bench.process(&rows).is_err());
    let mut bench = bench.next_attempt(&mut isolation, None);
    let out = bench.process(&rows).expect("it is known already");
    assert_eq!(letters(&out), [("bad-record".to_owned(), "b1".to_owned())]);
}

#[test]
fn a_passing_failure_is_nobodys_poison() {
    let mut bench = Bench::fresh(true);
    assert!(bench.process(&batch(&["p"])).is_err());
    assert!(!bench.watch.lock().expect("no panic").has_trapped());
}
