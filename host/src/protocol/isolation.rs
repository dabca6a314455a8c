//! Which subtask replays row by row after a trap, and which record is left out as poison.
//!
//! A trap tells of a whole batch that one of its rows can't be processed, and it takes the operator's instance with it. So the
//! attempt ends, and the next one gives the operator's subtask single rows until it has passed the place of the trap. Traps it
//! again, then the row at hand is *poison*: the attempt after that leaves it out, rejecting it with its reason. Rows are known
//! again by a [`Fingerprint`]; of several equal ones as many are left out as have trapped.
//!
//! A subtask goes back to batches when a checkpoint has been committed that lies behind the place of the trap. Until then all
//! that is known of poison is kept, since the next attempt meets it again.
//!
//! **Why this ends.** Row by row every trap finds a poison record that wasn't known, so that between two checkpoints there are at
//! most as many rollbacks as poison records, and one before them in batches. Of these [`POISON_MAX`] are borne.
//!
//! Invariant: a row is left out at most once for each time that one like it has trapped.

use std::collections::{BTreeMap, VecDeque};

use xxhash_rust::xxh3::Xxh3;

use crate::element::Batch;
use crate::id::{Epoch, SubtaskId};

/// The most poison records of a job between two of its checkpoints.
pub const POISON_MAX: u32 = 100;

/// By what a record is known again: input, key, value, event time and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(u128);

impl Fingerprint {
    pub fn of(input: u32, batch: &Batch, index: usize) -> Fingerprint {
        let row = batch.row(index);
        let mut hash = Xxh3::new();
        hash.update(&input.to_le_bytes());
        hash.update(&row.timestamp.to_le_bytes());
        for part in [row.key, row.value, Some(batch.headers(index).bytes())] {
            // A missing part is told from an empty one, and the end of one from the start of the next.
            hash.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
            hash.update(part.unwrap_or_default());
        }
        Fingerprint(hash.digest128())
    }

    pub fn bits(self) -> u128 {
        self.0
    }
}

/// A record at which an operator traps, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    pub fingerprint: Fingerprint,
    /// What kind of failure it was, in a word.
    pub kind: &'static str,
    pub reason: String,
}

/// A known poison record in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    poison: Poison,
    /// The epoch in which it was left out; `None` while it hasn't come.
    left_out: Option<Epoch>,
}

/// How a subtask replays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Care {
    /// The place of the trap: it is among so many rows from the restored checkpoint on. 0: there is no need for care.
    rows: u64,
    known: Vec<Known>,
}

/// A barrier that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    epoch: Epoch,
    /// Rows taken before it in this attempt.
    rows: u64,
}

/// One subtask in one attempt: what it has taken, and what it is to do with what comes.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Those of checkpoints that aren't known to be committed, and the newest that is. The first one is the restored
    /// checkpoint's, or the beginning.
    cuts: VecDeque<Cut>,
    rows: u64,
    care: Care,
    /// The poison record, if it was a single row that trapped.
    trap: Option<Option<Poison>>,
}

/// The epoch before the first.
const BEGINNING: Epoch = Epoch(0);

impl Watch {
    fn new(restored: Option<Epoch>, care: Care) -> Watch {
        let restored = Cut { epoch: restored.unwrap_or(BEGINNING), rows: 0 };
        Watch { cuts: VecDeque::from([restored]), rows: 0, care, trap: None }
    }

    /// Whether rows are to be given to the operator one by one.
    pub fn is_careful(&self) -> bool {
        self.care.rows > 0
    }

    /// Rows are about to be given to the operator, or left out.
    pub fn takes(&mut self, rows: u32) {
        self.rows += u64::from(rows);
    }

    /// The poison that a row is. It is then left out, and one like it only if there is another entry.
    pub fn poison(&mut self, fingerprint: Fingerprint) -> Option<&Poison> {
        let epoch = self.epoch();
        let waits = |known: &&mut Known| known.left_out.is_none() && known.poison.fingerprint == fingerprint;
        let known = self.care.known.iter_mut().find(waits)?;
        known.left_out = Some(epoch);
        Some(&known.poison)
    }

    /// The operator has trapped; `poison` if it is certain which row it was.
    pub fn trapped(&mut self, poison: Option<Poison>) {
        self.trap = Some(poison);
    }

    pub fn has_trapped(&self) -> bool {
        self.trap.is_some()
    }

    /// It was another component that has trapped than the one that goes on.
    pub fn forget_trap(&mut self) {
        self.trap = None;
    }

    /// The epoch that what comes now belongs to.
    pub fn epoch(&self) -> Epoch {
        self.cuts.back().expect("there is always a cut").epoch.next()
    }

    /// A barrier passes.
    pub fn cut(&mut self, epoch: Epoch) {
        self.cuts.push_back(Cut { epoch, rows: self.rows });
    }

    /// Takes note that the checkpoint of this epoch is committed.
    pub fn committed(&mut self, epoch: Epoch) {
        while self.cuts.get(1).is_some_and(|cut| cut.epoch <= epoch) {
            self.cuts.pop_front();
        }
        if self.is_careful() && self.cuts[0].rows >= self.care.rows {
            // Poison that hasn't come by now doesn't come: the replay has taken another course.
            self.care = Care::default();
        }
    }

    /// How the next attempt is to replay, which starts from `restored`.
    fn next(mut self, restored: Option<Epoch>) -> Care {
        let restored = restored.unwrap_or(BEGINNING);
        if let Some(trap) = self.trap.take() {
            self.care.rows = self.care.rows.max(self.rows);
            self.care.known.extend(trap.map(|poison| Known { poison, left_out: None }));
        }
        self.committed(restored);
        let mut care = self.care;
        care.rows = care.rows.saturating_sub(self.cuts[0].rows);
        care.known.retain(|known| known.left_out.is_none_or(|epoch| epoch > restored));
        care.known.iter_mut().for_each(|known| known.left_out = None);
        care
    }
}

/// What is known of all subtasks of a job, over its attempts.
#[derive(Clone, Debug, Default)]
pub struct Isolation {
    restored: Option<Epoch>,
    cares: BTreeMap<SubtaskId, Care>,
    /// Those of the attempt that has ended.
    ended: Vec<(SubtaskId, Watch)>,
    /// Poison records since the restored checkpoint.
    found: u32,
}

/// There is too much poison.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "operators have trapped at more than {POISON_MAX} records since the last checkpoint, the last time in '{subtask}': {reason}"
)]
pub struct TooMuchPoison {
    pub subtask: SubtaskId,
    pub reason: String,
}

impl Isolation {
    /// An attempt has ended; `watches` are those of its subtasks.
    pub fn ended(&mut self, watches: Vec<(SubtaskId, Watch)>) {
        self.ended = watches;
    }

    /// The next attempt starts from this checkpoint.
    ///
    /// # Errors
    /// If there is no end of poison.
    pub fn restored(&mut self, epoch: Option<Epoch>) -> Result<(), TooMuchPoison> {
        if epoch > self.restored {
            self.found = 0;
        }
        self.restored = epoch;
        for (subtask, watch) in std::mem::take(&mut self.ended) {
            if let Some(Some(poison)) = &watch.trap {
                self.found += 1;
                if self.found > POISON_MAX {
                    return Err(TooMuchPoison { subtask, reason: poison.reason.clone() });
                }
            }
            let care = watch.next(epoch);
            if care.rows > 0 {
                self.cares.insert(subtask, care);
            } else {
                self.cares.remove(&subtask);
            }
        }
        Ok(())
    }

    /// What a subtask is to begin the attempt with.
    pub fn watch(&self, subtask: &SubtaskId) -> Watch {
        Watch::new(self.restored, self.cares.get(subtask).cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
