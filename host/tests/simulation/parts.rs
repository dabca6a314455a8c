//! What a task is made of: the source that reads splits, the counter that keeps state, the sink that prepares parts.
//!
//! Invariant: what a snapshot refers to is either in its [`Upload`] or was in the snapshot before.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::element::WATERMARK_END;
use lockgate_host::id::{Attempt, TaskId};

use crate::mutation::Mutation;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::task::{Item, Upload};
use crate::world::{KeyState, Part, Record, Row, State, World};

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
    state: State,
    dirty: BTreeSet<u64>,
    /// The files of the snapshot before.
    files: Vec<String>,
    files_written: u64,
}

impl Counter {
    pub fn new(state: State, files: Vec<String>) -> Counter {
        Counter { state, dirty: BTreeSet::new(), files, files_written: 0 }
    }

    pub fn count(&mut self, record: Record, task: TaskId, world: &mut World) -> Row {
        let of_key = self.state.entry(record.key).or_default();
        *of_key = KeyState { count: of_key.count + 1, total_due: true };
        self.dirty.insert(record.key);
        world.live_state.entry(task).or_default().insert(record.key, *of_key);
        Row::Counted { record, count: of_key.count }
    }

    /// The totals of the keys that had records since their last total.
    pub fn totals(&mut self, task: TaskId, world: &mut World) -> Vec<Row> {
        let mut rows = Vec::new();
        for (&key, of_key) in self.state.iter_mut().filter(|(_, of_key)| of_key.total_due) {
            of_key.total_due = false;
            self.dirty.insert(key);
            world.live_state.entry(task).or_default().insert(key, *of_key);
            rows.push(Row::Total { key, count: of_key.count });
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
                dirty.into_iter().map(|key| (key, self.state[&key])).collect()
            };
            self.files.push(name.clone());
            upload.file = Some((name, content));
        }
        upload.snapshot.files = self.files.clone();
    }
}

#[derive(Default)]
pub struct Sink {
    open: Option<String>,
    parts_opened: u64,
}

impl Sink {
    /// Rows reach the disk as they are written, so a crash leaves a part that nobody will complete.
    pub fn write(&mut self, row: Row, task: TaskId, attempt: Attempt, world: &mut World) {
        if self.open.is_none() {
            self.parts_opened += 1;
            self.open = Some(format!("{attempt}-{}-{}", task.0, self.parts_opened));
        }
        let name = self.open.clone().expect("it was opened");
        let part = world.parts.entry(name).or_insert(Part { attempt, rows: Vec::new(), complete: false });
        part.rows.push(row);
    }

    pub fn prepare(&mut self, upload: &mut Upload) {
        if let Some(name) = self.open.take() {
            upload.changed = true;
            upload.snapshot.parts.push(name.clone());
            upload.part = Some(name);
        }
    }
}
