//! What an instance on trial asks of its host and does to it, so that the same trial can be made elsewhere.
//!
//! Invariant: what an instance on trial writes is never accepted, what it says isn't logged, and what a recording holds is bounded.
//! An instance that isn't on trial has no recording, which costs it one look at each import.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::imports::Line;
use crate::element::{Batch, Column};
use crate::state::{Clock, Page};

/// More bytes of questions and answers aren't kept.
pub const READ_BYTES_MAX: usize = 64 << 20;

/// One look at keyed state: what was asked, and what the host said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Read {
    Get {
        table: u32,
        keys: Column,
        /// No offsets at all: all are empty.
        user_keys: Column,
        values: Column,
        /// A bitmap with 1 for the entries that exist.
        found: Vec<u8>,
    },
    Scan {
        table: u32,
        key: Vec<u8>,
        after: Option<Vec<u8>>,
        bytes_max: u32,
        user_keys: Column,
        values: Column,
        more: bool,
    },
}

/// An entry of keyed state as it was before the trial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    pub table: u32,
    pub key: Vec<u8>,
    pub user_key: Vec<u8>,
    pub value: Vec<u8>,
}

/// What a trial has put out and written, by number and by hash (XXH3-64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    pub batches: u64,
    pub rows: u64,
    pub emitted_xxh3: u64,
    /// Entries of tables, and timers, that were written or deleted.
    pub writes: u64,
    pub written_xxh3: u64,
}

/// What is known of a trial when it is over.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub reads: Vec<Read>,
    /// What was found in keyed state, each entry once, ordered.
    pub entries: Vec<Entry>,
    pub effects: Effects,
    /// What it has logged.
    pub lines: Vec<Line>,
    /// It read more than is kept.
    pub too_much: bool,
    /// It read something else than the trial that it repeats.
    pub diverged: bool,
}

/// What is done with what an instance on trial reads.
enum Keeping {
    /// Nothing.
    Nothing,
    /// It is kept.
    Reads,
    /// It is kept, and as long as the questions are these, so are the answers.
    Answers(VecDeque<Read>),
}

/// What an instance on trial has done so far.
pub struct Recording {
    keeping: Keeping,
    bytes_left: usize,
    recorded: Recorded,
    entries: BTreeMap<(u32, Vec<u8>, Vec<u8>), Vec<u8>>,
    written: BTreeSet<(u32, Vec<u8>, Vec<u8>)>,
    emits: Xxh3,
    writes: Xxh3,
}

impl Recording {
    fn of(keeping: Keeping) -> Recording {
        Recording {
            keeping,
            bytes_left: READ_BYTES_MAX,
            recorded: Recorded::default(),
            entries: BTreeMap::new(),
            written: BTreeSet::new(),
            emits: Xxh3::new(),
            writes: Xxh3::new(),
        }
    }

    /// Of a trial of which only the end counts.
    pub fn of_nothing() -> Recording {
        Recording::of(Keeping::Nothing)
    }

    pub fn of_reads() -> Recording {
        Recording::of(Keeping::Reads)
    }

    /// Of a trial that is given the answers of another one as long as it asks the same.
    pub fn repeating(reads: Vec<Read>) -> Recording {
        Recording::of(Keeping::Answers(reads.into()))
    }

    /// What has been recorded.
    pub fn end(self) -> Recorded {
        let Recording { mut recorded, entries, emits, writes, keeping, .. } = self;
        let entry = |((table, key, user_key), value)| Entry { table, key, user_key, value };
        recorded.entries = entries.into_iter().map(entry).collect();
        recorded.effects.emitted_xxh3 = emits.digest();
        recorded.effects.written_xxh3 = writes.digest();
        recorded.diverged |= matches!(keeping, Keeping::Answers(left) if !left.is_empty());
        recorded
    }

    /// The answer that was given to the next question, if it was `asks`.
    fn given(&mut self, asks: impl FnOnce(&Read) -> bool) -> Option<Read> {
        let Keeping::Answers(answers) = &mut self.keeping else { return None };
        if answers.front().is_some_and(asks) {
            return answers.pop_front();
        }
        self.recorded.diverged = true;
        // What it asks from here on may have other reasons as well.
        answers.clear();
        None
    }

    /// Takes note of entries that were read. Gives what the instance is to be told.
    pub fn got(
        &mut self,
        table: u32,
        keys: Column,
        user_keys: Column,
        values: Column,
        found: Vec<u8>,
    ) -> (Column, Vec<u8>) {
        if matches!(self.keeping, Keeping::Nothing) {
            return (values, found);
        }
        let given = self.given(|read| {
            matches!(read, Read::Get { table: other, keys: k, user_keys: u, .. } if *other == table && *k == keys && *u == user_keys)
        });
        let (values, found) = match given {
            Some(Read::Get { values, found, .. }) => (values, found),
            Some(Read::Scan { .. }) | None => (values, found),
        };
        for row in (0..keys.rows()).filter(|row| found[row / 8] >> (row % 8) & 1 == 1) {
            let user_key = if user_keys.offsets.is_empty() { &[] } else { user_keys.get(row) };
            self.found(table, keys.get(row), user_key, values.get(row));
        }
        let answer = (values.clone(), found.clone());
        self.keep(Read::Get { table, keys, user_keys, values, found });
        answer
    }

    /// [`got`](Self::got) for a page of entries.
    pub fn scanned(&mut self, table: u32, key: Vec<u8>, after: Option<Vec<u8>>, bytes_max: u32, page: Page) -> Page {
        if matches!(self.keeping, Keeping::Nothing) {
            return page;
        }
        let given = self.given(|read| {
            matches!(read, Read::Scan { table: t, key: k, after: a, bytes_max: b, .. }
                if *t == table && *k == key && *a == after && *b == bytes_max)
        });
        let page = match given {
            Some(Read::Scan { user_keys, values, more, .. }) => Page { user_keys, values, more },
            Some(Read::Get { .. }) | None => page,
        };
        for row in 0..page.user_keys.rows() {
            self.found(table, &key, page.user_keys.get(row), page.values.get(row));
        }
        let Page { user_keys, values, more } = page.clone();
        self.keep(Read::Scan { table, key, after, bytes_max, user_keys, values, more });
        page
    }

    /// An entry was found. What it was before the trial is what was read first, unless the trial wrote it before.
    fn found(&mut self, table: u32, key: &[u8], user_key: &[u8], value: &[u8]) {
        let place = (table, key.to_vec(), user_key.to_vec());
        if !self.written.contains(&place) {
            self.entries.entry(place).or_insert_with(|| value.to_vec());
        }
    }

    fn keep(&mut self, read: Read) {
        let bytes = match &read {
            Read::Get { keys, user_keys, values, .. } => {
                [keys, user_keys, values].iter().map(|column| column.data.len() + column.offsets.len()).sum::<usize>()
            }
            Read::Scan { key, user_keys, values, .. } => {
                key.len() + user_keys.data.len() + values.data.len() + values.offsets.len() * 2
            }
        };
        match self.bytes_left.checked_sub(bytes) {
            Some(left) if !self.recorded.too_much => {
                self.bytes_left = left;
                self.recorded.reads.push(read);
            }
            Some(_) | None => self.recorded.too_much = true,
        }
    }

    /// Takes note of what was written to a table.
    pub fn wrote(&mut self, table: u32, [keys, user_keys, values]: [&Column; 3], deletes: &[u8]) {
        self.recorded.effects.writes += keys.rows() as u64;
        hash(&mut self.writes, [&[0], &table.to_le_bytes()]);
        hash(&mut self.writes, [keys, user_keys, values].map(|column| &column.data[..]));
        hash(&mut self.writes, [keys, user_keys, values].map(|column| &column.offsets[..]));
        hash(&mut self.writes, [deletes]);
        if matches!(self.keeping, Keeping::Nothing) {
            return;
        }
        for row in 0..keys.rows() {
            let user_key = if user_keys.offsets.is_empty() { &[] } else { user_keys.get(row) };
            self.written.insert((table, keys.get(row).to_vec(), user_key.to_vec()));
        }
    }

    /// Takes note of timers that were set or deleted.
    pub fn wrote_timers(&mut self, clock: Clock, [keys, tags]: [&Column; 2], times: &[u8], deletes: &[u8]) {
        self.recorded.effects.writes += keys.rows() as u64;
        let clock = match clock {
            Clock::EventTime => 1,
            Clock::ProcessingTime => 2,
        };
        hash(&mut self.writes, [&[clock][..], &keys.data, &keys.offsets, &tags.data, &tags.offsets, times, deletes]);
    }

    /// Takes note of a batch that was put out.
    pub fn emitted(&mut self, port: u32, batch: &Batch) {
        self.recorded.effects.batches += 1;
        self.recorded.effects.rows += u64::from(batch.rows);
        hash(&mut self.emits, [&port.to_le_bytes(), &batch.rows.to_le_bytes()]);
        let Batch { keys, values, timestamps, nulls, headers, .. } = batch;
        for column in [keys, values, headers] {
            hash(&mut self.emits, [&column.data, &column.offsets]);
        }
        hash(&mut self.emits, [timestamps, nulls]);
    }
}

/// Adds byte strings so that the end of one is told from the start of the next.
fn hash<const N: usize>(hasher: &mut Xxh3, parts: [&[u8]; N]) {
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(rows: &[&str]) -> Column {
        let mut column = Column::with_capacity(0, 0);
        rows.iter().for_each(|row| column.push(row.as_bytes()));
        column
    }

    fn entry(key: &str, value: &str) -> Entry {
        Entry { table: 0, key: key.as_bytes().to_vec(), user_key: Vec::new(), value: value.as_bytes().to_vec() }
    }

    fn get(recording: &mut Recording, keys: &[&str], values: &[&str], found: u8) -> (Column, Vec<u8>) {
        recording.got(0, column(keys), Column::default(), column(values), vec![found])
    }

    #[test]
    fn an_entry_is_what_it_was_before_the_trial_wrote_it() {
        let mut recording = Recording::of_reads();
        get(&mut recording, &["a", "b"], &["1", ""], 0b01);
        let empty = column(&[""]);
        recording.wrote(0, [&column(&["a"]), &empty, &column(&["2"])], &[]);
        recording.wrote(0, [&column(&["c"]), &empty, &column(&["3"])], &[]);
        get(&mut recording, &["a", "c"], &["2", "3"], 0b11);
        let recorded = recording.end();
        assert_eq!(recorded.entries, [entry("a", "1")], "b isn't there, c is the trial's own");
        assert_eq!((recorded.reads.len(), recorded.effects.writes), (2, 2));
    }

    #[test]
    fn the_same_questions_get_the_same_answers_until_another_one_is_asked() {
        let mut first = Recording::of_reads();
        get(&mut first, &["a"], &["1"], 1);
        get(&mut first, &["b"], &["2"], 1);
        let reads = first.end().reads;
        let mut again = Recording::repeating(reads.clone());
        assert_eq!(get(&mut again, &["a"], &[""], 0), (column(&["1"]), vec![1]));
        assert_eq!(get(&mut again, &["b"], &[""], 0), (column(&["2"]), vec![1]));
        let recorded = again.end();
        assert!(!recorded.diverged && recorded.reads == reads);
        let mut other = Recording::repeating(reads.clone());
        assert_eq!(get(&mut other, &["x"], &[""], 0), (column(&[""]), vec![0]), "the state's own answer");
        assert_eq!(get(&mut other, &["b"], &["9"], 1), (column(&["9"]), vec![1]));
        assert!(other.end().diverged);
        assert!(Recording::repeating(reads).end().diverged, "it asked for less");
    }

    #[test]
    fn what_is_put_out_and_written_is_told_apart_by_its_hash() {
        let effects = |port: u32, key: &str, table: u32| {
            let mut recording = Recording::of_nothing();
            let mut batch = Batch::default();
            batch.push(crate::element::Row { key: Some(key.as_bytes()), value: None, timestamp: 1 });
            recording.emitted(port, &batch);
            recording.wrote(table, [&column(&[key]), &column(&[""]), &column(&["v"])], &[]);
            recording.end().effects
        };
        assert_eq!(effects(0, "a", 0), effects(0, "a", 0));
        assert_ne!(effects(0, "a", 0), effects(1, "a", 0));
        assert_ne!(effects(0, "a", 0), effects(0, "a", 1));
        assert_ne!(effects(0, "a", 0).emitted_xxh3, effects(0, "b", 0).emitted_xxh3);
    }

    #[test]
    fn what_a_recording_keeps_is_bounded() {
        let mut recording = Recording::of_reads();
        let big = "x".repeat(READ_BYTES_MAX / 2 + 1);
        get(&mut recording, &["a"], &[&big], 1);
        get(&mut recording, &["b"], &[&big], 1);
        let recorded = recording.end();
        assert!(recorded.too_much && recorded.reads.len() == 1);
    }
}
