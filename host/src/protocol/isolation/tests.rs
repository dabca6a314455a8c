//! Isolation in all small worlds: every poison record is rejected once, every other is processed once, and it ends soon.

use super::*;
use crate::element::{Header, NO_TIMESTAMP, Row};
use crate::id::Name;

fn subtask(index: u32) -> SubtaskId {
    SubtaskId { operator: Name::new("op").expect("a name"), index }
}

fn fingerprint(row: u8) -> Fingerprint {
    fingerprint_of(0, Row { key: None, value: Some(&[row]), timestamp: NO_TIMESTAMP }, &[])
}

fn fingerprint_of(input: u32, row: Row<'_>, headers: &[Header<'_>]) -> Fingerprint {
    let mut batch = Batch::default();
    batch.push(Row { key: None, value: None, timestamp: 7 });
    batch.push(row);
    headers.iter().for_each(|header| batch.push_header(*header));
    Fingerprint::of(input, &batch, 1)
}

/// A job of one subtask that reads `rows` in batches and is cut behind some of them.
struct World<'a> {
    rows: &'a [u8],
    is_poison: &'a dyn Fn(u8) -> bool,
    batch: usize,
    /// Cut behind each so many rows.
    cut_every: usize,
    /// The commit of a cut becomes known so many rows later.
    lag: usize,
}

/// What committed output holds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Output {
    processed: Vec<u8>,
    rejected: Vec<u8>,
}

/// A cut that is to be committed: its epoch, the place up to which rows are read, and what was put out.
struct Pending {
    epoch: Epoch,
    place: usize,
    output: Output,
}

/// One that has been committed, where the next attempt starts.
#[derive(Default)]
struct Committed {
    epoch: Option<Epoch>,
    place: usize,
    output: Output,
}

enum End {
    Done,
    Trapped,
}

impl World<'_> {
    /// Runs to the end; gives the output and the number of attempts.
    fn run(&self) -> (Output, usize) {
        let (mut isolation, mut committed) = (Isolation::default(), Committed::default());
        for attempt in 1.. {
            isolation.restored(committed.epoch).expect("little poison");
            let mut watch = isolation.watch(&subtask(0));
            if let End::Done = self.attempt(&mut watch, &mut committed) {
                return (committed.output, attempt);
            }
            isolation.ended(vec![(subtask(0), watch)]);
        }
        unreachable!("the loop ends by returning")
    }

    fn attempt(&self, watch: &mut Watch, committed: &mut Committed) -> End {
        let mut place = committed.place;
        let mut output = committed.output.clone();
        let mut epoch = committed.epoch.unwrap_or(BEGINNING);
        let mut pending: Vec<Pending> = Vec::new();
        while place < self.rows.len() {
            let until_cut = self.cut_every - place % self.cut_every;
            let batch = &self.rows[place..(place + self.batch.min(until_cut)).min(self.rows.len())];
            while pending.first().is_some_and(|cut| cut.place + self.lag <= place) {
                let cut = pending.remove(0);
                *committed = Committed { epoch: Some(cut.epoch), place: cut.place, output: cut.output };
                watch.committed(cut.epoch);
            }
            if let End::Trapped = self.process(batch, watch, &mut output) {
                return End::Trapped;
            }
            place += batch.len();
            if place.is_multiple_of(self.cut_every) {
                epoch = epoch.next();
                assert_eq!(watch.epoch(), epoch, "the watch knows what it is building");
                watch.cut(epoch);
                pending.push(Pending { epoch, place, output: output.clone() });
            }
        }
        committed.output = output;
        End::Done
    }

    /// What the shell does with a batch.
    fn process(&self, batch: &[u8], watch: &mut Watch, output: &mut Output) -> End {
        if !watch.is_careful() {
            watch.takes(batch.len() as u32);
            if batch.iter().any(|&row| (self.is_poison)(row)) {
                let certain = (batch.len() == 1).then(|| poison(batch[0]));
                watch.trapped(certain);
                return End::Trapped;
            }
            output.processed.extend(batch);
            return End::Done;
        }
        for &row in batch {
            watch.takes(1);
            if watch.poison(fingerprint(row)).is_some() {
                output.rejected.push(row);
            } else if (self.is_poison)(row) {
                watch.trapped(Some(poison(row)));
                return End::Trapped;
            } else {
                output.processed.push(row);
            }
        }
        End::Done
    }
}

fn poison(row: u8) -> Poison {
    Poison { fingerprint: fingerprint(row), kind: "trap", reason: format!("row {row}") }
}

/// Rows that are all different, and rows of which each comes several times.
fn streams() -> [Vec<u8>; 2] {
    [(0..6).collect(), (0..6).map(|place| place % 3).collect()]
}

#[test]
fn every_poison_record_is_rejected_once_and_every_other_processed_once() {
    for rows in streams() {
        for set in 0u32..1 << 6 {
            for batch in 1..=6 {
                for cut_every in 1..=7 {
                    for lag in 0..=6 {
                        let is_poison = |row: u8| set >> row & 1 == 1;
                        let world = World { rows: &rows, is_poison: &is_poison, batch, cut_every, lag };
                        let (output, attempts) = world.run();
                        let (rejected, processed) = rows.iter().partition::<Vec<u8>, _>(|&&row| is_poison(row));
                        let poison_records = rejected.len();
                        assert_eq!(
                            output,
                            Output { processed, rejected },
                            "{rows:?} {set:b} {batch} {cut_every} {lag}"
                        );
                        // Each may be met in a batch, alone, and to be left out.
                        assert!(attempts <= 1 + 2 * poison_records, "{attempts} for {poison_records}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_subtask_goes_back_to_batches_when_a_checkpoint_behind_the_trap_is_committed() {
    let mut isolation = Isolation::default();
    isolation.restored(None).expect("no poison");
    let mut watch = isolation.watch(&subtask(0));
    watch.takes(10);
    watch.trapped(None);
    isolation.ended(vec![(subtask(0), watch), (subtask(1), isolation.watch(&subtask(1)))]);
    isolation.restored(None).expect("no poison");
    assert!(!isolation.watch(&subtask(1)).is_careful(), "another subtask has nothing to do with it");
    let mut watch = isolation.watch(&subtask(0));
    watch.takes(9);
    watch.cut(Epoch(1));
    watch.takes(1);
    watch.cut(Epoch(2));
    watch.committed(Epoch(1));
    assert!(watch.is_careful(), "the tenth row isn't in it");
    watch.committed(Epoch(2));
    assert!(!watch.is_careful());
}

#[test]
fn another_failure_on_the_way_loses_nothing_that_is_known() {
    let mut isolation = Isolation::default();
    isolation.restored(None).expect("no poison");
    let mut watch = isolation.watch(&subtask(0));
    watch.takes(1);
    watch.trapped(Some(poison(7)));
    isolation.ended(vec![(subtask(0), watch)]);
    for _ in 0..3 {
        isolation.restored(None).expect("little poison");
        let mut watch = isolation.watch(&subtask(0));
        assert!(watch.poison(fingerprint(8)).is_none());
        assert!(watch.poison(fingerprint(7)).is_some(), "it comes again with each attempt");
        assert!(watch.poison(fingerprint(7)).is_none(), "and one like it has done nothing");
        isolation.ended(vec![(subtask(0), watch)]);
    }
}

#[test]
fn an_operator_that_traps_at_everything_is_given_up() {
    let mut isolation = Isolation::default();
    for row in 0..=POISON_MAX {
        isolation.restored(None).expect("not too much yet");
        let mut watch = isolation.watch(&subtask(0));
        watch.takes(1);
        watch.trapped(Some(poison(row as u8)));
        isolation.ended(vec![(subtask(0), watch)]);
    }
    let error = isolation.restored(None).expect_err("one too many");
    assert_eq!(error.subtask, subtask(0));
    let mut later = isolation.clone();
    let mut watch = later.watch(&subtask(0));
    watch.trapped(Some(poison(1)));
    later.ended(vec![(subtask(0), watch)]);
    later.restored(Some(Epoch(1))).expect("a checkpoint gives room for more");
}

#[test]
fn a_fingerprint_tells_missing_from_empty_and_part_from_part() {
    let of = |input, key: Option<&[u8]>, value: Option<&[u8]>, timestamp| {
        fingerprint_of(input, Row { key, value, timestamp }, &[])
    };
    let with = |name, value| {
        let header = Header { name, value };
        fingerprint_of(0, Row { key: None, value: None, timestamp: 0 }, &[header])
    };
    let all = [
        of(0, None, None, 0),
        of(0, Some(b""), None, 0),
        of(0, None, Some(b""), 0),
        of(0, Some(b"a"), Some(b"b"), 0),
        of(0, Some(b"ab"), Some(b""), 0),
        of(0, Some(b""), Some(b"ab"), 0),
        of(1, None, None, 0),
        of(0, None, None, 1),
        with("a", None),
        with("a", Some(b"")),
        with("", Some(b"a")),
    ];
    for (place, one) in all.iter().enumerate() {
        assert!(all[place + 1..].iter().all(|other| other != one), "{place}");
    }
}
