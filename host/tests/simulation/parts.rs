//! What a task is made of: the source that reads splits, the counter that keeps state, the sinks that prepare.
//!
//! Invariant: what a snapshot refers to is either in its [`Upload`] or was in the snapshot before.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::element::WATERMARK_END;
use lockgate_host::id::{Attempt, TaskId};
use lockgate_host::protocol::in_flight::Dealing;
use lockgate_host::protocol::{Alignment, KeyGroupRange};

use crate::channel::Item;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::task::{Surroundings, Upload};
use crate::upgrade::Component;
use crate::world::{Content, Part, Record, Row, State, StateFile, World};

pub struct Source {
    /// By split: how many records were read.
    pub positions: BTreeMap<u32, u64>,
    positions_before: BTreeMap<u32, u64>,
    is_idle: bool,
    /// It sends `End` as soon as it has ended, and from then on answers barriers alone.
    pub closes_early: bool,
    pub has_ended: bool,
    /// Its channels are: it has sent `End`.
    pub is_closed: bool,
}

impl Source {
    pub fn new(positions: BTreeMap<u32, u64>, closes_early: bool) -> Source {
        let positions_before = positions.clone();
        Source { positions, positions_before, is_idle: false, closes_early, has_ended: false, is_closed: false }
    }

    /// What it sends next. A record's time is how many there were before it, plus one.
    pub fn poll(&mut self, scenario: &Scenario, rng: &mut Rng, input: &[Vec<Record>]) -> Vec<Item> {
        if scenario.idles && !self.is_idle && rng.one_in(6) {
            self.is_idle = true;
            return vec![Item::Idle];
        }
        let mut items = Vec::new();
        let unread = |(split, read): &(&u32, &mut u64)| **read < input[**split as usize].len() as u64;
        let mut ready = self.positions.iter_mut().filter(unread).collect::<Vec<_>>();
        if ready.is_empty() {
            self.has_ended = true;
            items.push(Item::Watermark(WATERMARK_END));
            if self.closes_early {
                items.push(Item::End);
            }
            return items;
        }
        let choice = rng.below(ready.len() as u64) as usize;
        let (split, read) = &mut ready[choice];
        let record = input[**split as usize][**read as usize];
        **read += 1;
        let time = self.positions.values().sum::<u64>() as i64;
        if std::mem::take(&mut self.is_idle) {
            items.push(Item::Active);
        }
        items.push(Item::Record { record, time });
        if rng.one_in(3) {
            items.push(Item::Watermark(time));
        }
        items
    }

    pub fn snapshot(&mut self, upload: &mut Upload, scenario: &Scenario, input: &[Vec<Record>]) {
        upload.changed |= self.positions != self.positions_before;
        self.positions_before = self.positions.clone();
        upload.snapshot.positions = self.positions.clone();
        if scenario.mutation == Some(Mutation::SnapshotsLate) {
            let unread = |(split, read): &(&u32, &mut u64)| **read < input[**split as usize].len() as u64;
            if let Some((_, read)) = upload.snapshot.positions.iter_mut().find(unread) {
                *read += 1;
            }
        }
    }
}

pub struct Counter {
    index: u32,
    component: Component,
    groups: KeyGroupRange,
    state: State,
    dirty: BTreeSet<u64>,
    /// How many records of a stream that goes to all it has seen, and whether that has still to be told.
    seen: (u64, bool),
    seen_before: (u64, bool),
    /// The files of the snapshot before.
    files: Vec<StateFile>,
    files_written: u64,
}

impl Counter {
    pub fn new(
        (index, component): (u32, Component),
        groups: KeyGroupRange,
        state: State,
        seen: (u64, bool),
        files: Vec<StateFile>,
    ) -> Counter {
        let (dirty, seen_before) = (BTreeSet::new(), seen);
        Counter { index, component, groups, state, dirty, seen, seen_before, files, files_written: 0 }
    }

    pub fn is_first(&self) -> bool {
        self.index == 0
    }

    /// Gets another component, which takes over its state or, if that is the bug, doesn't.
    pub fn swap(&mut self, new: Component, loses_state: bool) {
        self.component = new;
        if loses_state {
            self.state.clear();
        }
    }

    /// # Errors
    /// If a record comes after a later one of its key and split, unless records may come twice.
    pub fn count(&mut self, record: Record, task: TaskId, at: &mut Surroundings<'_>) -> Result<Option<Row>, Violation> {
        if at.scenario.dealing[record.side] == Dealing::ToAll {
            self.seen = (self.seen.0 + 1, true);
            return Ok(None);
        }
        let of_key = self.state.entry(record.key).or_default();
        let newest = of_key.newest.insert(record.split, record.id);
        if newest >= Some(record.id) && at.scenario.alignment != Alignment::AtLeastOnce {
            return Err(Violation(format!("record {} comes after {newest:?} of its key and split", record.id)));
        }
        of_key.counts[record.side] += 1;
        of_key.total_due = true;
        let count = of_key.counts[record.side];
        self.dirty.insert(record.key);
        at.world.live_state.entry(task).or_default().insert(record.key, of_key.clone());
        Ok(Some(Row::Counted { record, count, component: self.component }))
    }

    /// The totals of the keys that had records since their last total.
    pub fn totals(&mut self, task: TaskId, world: &mut World) -> Vec<Row> {
        let mut rows = Vec::new();
        for (&key, of_key) in self.state.iter_mut().filter(|(_, of_key)| of_key.total_due) {
            of_key.total_due = false;
            self.dirty.insert(key);
            world.live_state.entry(task).or_default().insert(key, of_key.clone());
            rows.push(Row::Total { key, counts: of_key.counts });
        }
        if std::mem::take(&mut self.seen.1) {
            rows.push(Row::Seen { counter: self.index, count: self.seen.0 });
        }
        rows
    }

    pub fn snapshot(&mut self, upload: &mut Upload, scenario: &Scenario, attempt: Attempt) {
        let dirty = std::mem::take(&mut self.dirty);
        if !dirty.is_empty() {
            upload.changed = true;
            self.files_written += 1;
            let name = format!("{attempt}-{}-{}", upload.task.0, self.files_written);
            let content = if self.files_written.is_multiple_of(scenario.base_every) {
                self.files.clear();
                self.state.clone()
            } else {
                dirty.into_iter().map(|key| (key, self.state[&key].clone())).collect()
            };
            self.files.push(StateFile { name: name.clone(), groups: self.groups });
            upload.files.push((name, Content::State(content)));
        }
        upload.changed |= self.seen != self.seen_before;
        self.seen_before = self.seen;
        upload.snapshot.files = self.files.clone();
        upload.snapshot.seen = self.seen;
    }
}

/// One subtask of each of the job's sinks.
pub struct Sink {
    has_parts: bool,
    /// Its number, if there is a deciding sink.
    pub log: Option<usize>,
    open: Option<String>,
    parts_opened: u64,
}

impl Sink {
    pub fn new(has_parts: bool, log: Option<usize>) -> Sink {
        Sink { has_parts, log, open: None, parts_opened: 0 }
    }

    pub fn write(&mut self, row: Row, task: TaskId, at: &mut Surroundings<'_>) {
        if let (Some(writer), Some(log)) = (self.log, &mut at.log) {
            log.write(writer, row, at.now);
        }
        if self.has_parts {
            self.write_part(row, task, at.attempt, at.world);
        }
    }

    /// Rows reach the disk as they are written, so a crash leaves a part that nobody will complete.
    fn write_part(&mut self, row: Row, task: TaskId, attempt: Attempt, world: &mut World) {
        if self.open.is_none() {
            self.parts_opened += 1;
            self.open = Some(format!("{attempt}-{}-{}", task.0, self.parts_opened));
        }
        let name = self.open.clone().expect("it was opened");
        let part = world.parts.entry(name).or_insert(Part { attempt, rows: Vec::new(), complete: false });
        part.rows.push(row);
    }

    pub fn prepare(&mut self, upload: &mut Upload, at: &mut Surroundings<'_>) {
        if let (Some(writer), Some(log)) = (self.log, &mut at.log) {
            let (turn, wrote) = log.cut(writer, upload.epoch);
            upload.changed |= wrote;
            upload.turn = Some((writer, turn));
        }
        if let Some(name) = self.open.take() {
            upload.changed = true;
            upload.snapshot.parts.push(name.clone());
            upload.part = Some(name);
        }
    }
}
