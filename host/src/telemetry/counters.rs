//! Counters per subtask, kept per batch and read by whoever shows progress.
//!
//! Invariant: counters only grow; they are not part of a checkpoint and start at 0 with each attempt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::element::Batch;
use crate::id::{Epoch, SubtaskId};

/// What one subtask has taken in and given out.
#[derive(Debug, Default)]
pub struct SubtaskCounters {
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    records_out: AtomicU64,
    bytes_out: AtomicU64,
}

impl SubtaskCounters {
    pub fn took(&self, batch: &Batch) {
        self.records_in.fetch_add(u64::from(batch.rows), Ordering::Relaxed);
        self.bytes_in.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
    }

    pub fn gave(&self, batch: &Batch) {
        self.records_out.fetch_add(u64::from(batch.rows), Ordering::Relaxed);
        self.bytes_out.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            records_in: self.records_in.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            records_out: self.records_out.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}

/// A reading of counters. `bytes` are those of keys, values and timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    pub records_in: u64,
    pub bytes_in: u64,
    pub records_out: u64,
    pub bytes_out: u64,
}

/// The counters of one attempt.
#[derive(Debug, Default)]
pub struct JobCounters {
    subtasks: Mutex<BTreeMap<SubtaskId, Arc<SubtaskCounters>>>,
    /// Newest epoch committed in this attempt, 0 if none.
    committed_epoch: AtomicU64,
    checkpoints: AtomicU64,
    uploaded_bytes: AtomicU64,
}

impl JobCounters {
    /// The counters of a subtask, made when first asked for.
    pub fn subtask(&self, subtask: &SubtaskId) -> Arc<SubtaskCounters> {
        let mut subtasks = self.subtasks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(subtasks.entry(subtask.clone()).or_default())
    }

    /// The sum over the subtasks of one source, operator or sink.
    pub fn totals_of(&self, name: &crate::id::Name) -> Totals {
        let subtasks = self.subtasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Totals::default();
        for (_, counters) in subtasks.iter().filter(|(subtask, _)| subtask.operator == *name) {
            let totals = counters.totals();
            sum.records_in += totals.records_in;
            sum.bytes_in += totals.bytes_in;
            sum.records_out += totals.records_out;
            sum.bytes_out += totals.bytes_out;
        }
        sum
    }

    pub fn committed(&self, epoch: Epoch) {
        self.committed_epoch.store(epoch.0, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest epoch that this attempt has committed.
    pub fn committed_epoch(&self) -> Option<Epoch> {
        let epoch = self.committed_epoch.load(Ordering::Relaxed);
        (epoch > 0).then_some(Epoch(epoch))
    }

    /// How many checkpoints this attempt has committed.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    pub fn uploaded(&self, bytes: u64) {
        self.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes of state this attempt has brought to the checkpoint store.
    pub fn uploaded_bytes(&self) -> u64 {
        self.uploaded_bytes.load(Ordering::Relaxed)
    }
}
