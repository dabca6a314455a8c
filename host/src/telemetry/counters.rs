//! Counters per subtask, kept per batch and read by whoever shows progress.
//!
//! Invariant: counters only grow, over all attempts of the process; they are not part of a checkpoint and start at 0 with each
//! process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::backlog::Backlog;
use super::checkpoint_figures::CheckpointFigures;
use super::guest_figures::GuestFigures;
use super::times::SubtaskTimes;
use crate::element::Batch;
use crate::id::{Epoch, SubtaskId};

/// What one subtask has taken in and given out.
#[derive(Debug, Default)]
pub struct SubtaskCounters {
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    records_out: AtomicU64,
    bytes_out: AtomicU64,
    records_rejected: AtomicU64,
    times: SubtaskTimes,
    state: Mutex<Option<StateSize>>,
    guest: Arc<GuestFigures>,
    backlog: Backlog,
}

/// How large the keyed state of a subtask was at its newest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSize {
    /// The files of the snapshot.
    pub snapshot_bytes: u64,
    /// Changes that weren't in RocksDB yet.
    pub memory_bytes: u64,
    /// RocksDB's live files.
    pub disk_bytes: u64,
}

impl SubtaskCounters {
    /// What its time goes into, and how far event time has come.
    pub fn times(&self) -> &SubtaskTimes {
        &self.times
    }

    pub fn took(&self, batch: &Batch) {
        self.records_in.fetch_add(u64::from(batch.rows), Ordering::Relaxed);
        self.bytes_in.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
    }

    pub fn gave(&self, batch: &Batch) {
        self.records_out.fetch_add(u64::from(batch.rows), Ordering::Relaxed);
        self.bytes_out.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
    }

    /// Those of an operator's instance; of other subtasks there are none.
    pub fn guest(&self) -> &Arc<GuestFigures> {
        &self.guest
    }

    /// Of a source or sink.
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    pub fn set_state(&self, size: StateSize) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(size);
    }

    /// `None` without keyed state, or before the first snapshot.
    pub fn state(&self) -> Option<StateSize> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the operator could not process, and that were skipped or became dead letters.
    pub fn rejected(&self, records: u64) {
        self.records_rejected.fetch_add(records, Ordering::Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            records_in: self.records_in.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            records_out: self.records_out.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            records_rejected: self.records_rejected.load(Ordering::Relaxed),
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
    pub records_rejected: u64,
}

/// An attempt that is to come.
#[derive(Clone, Debug)]
pub struct PendingRestart {
    /// Why the one before has failed.
    pub cause: String,
    pub due: Instant,
}

/// The counters of a job in one process. What is read again after a failure is counted again.
#[derive(Debug, Default)]
pub struct JobCounters {
    subtasks: Mutex<BTreeMap<SubtaskId, Arc<SubtaskCounters>>>,
    restarts: AtomicU64,
    /// When the attempt began that runs now, or ran last.
    began: Mutex<Option<Instant>>,
    /// Between two attempts: the one that is to come.
    pending_restart: Mutex<Option<PendingRestart>>,
    /// The epoch that this process started from, 0 if none.
    resumed_from: AtomicU64,
    /// Newest epoch committed by this process, 0 if none.
    committed_epoch: AtomicU64,
    checkpoints: AtomicU64,
    uploaded_bytes: AtomicU64,
    checkpoint_figures: CheckpointFigures,
}

impl JobCounters {
    /// The counters of a subtask, made when first asked for.
    pub fn subtask(&self, subtask: &SubtaskId) -> Arc<SubtaskCounters> {
        let mut subtasks = self.subtasks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(subtasks.entry(subtask.clone()).or_default())
    }

    /// All subtasks that there are counters of, in order.
    pub fn subtasks(&self) -> Vec<(SubtaskId, Arc<SubtaskCounters>)> {
        let subtasks = self.subtasks.lock().unwrap_or_else(PoisonError::into_inner);
        subtasks.iter().map(|(subtask, counters)| (subtask.clone(), Arc::clone(counters))).collect()
    }

    pub fn checkpoint_figures(&self) -> &CheckpointFigures {
        &self.checkpoint_figures
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
            sum.records_rejected += totals.records_rejected;
        }
        sum
    }

    /// The tasks of an attempt have been started.
    pub fn attempt_began(&self, now: Instant) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// When the tasks were started that run now, or ran last; `None` as long as there were none.
    pub fn began(&self) -> Option<Instant> {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt has failed, and another one is to come.
    pub fn restart_pending(&self, restart: PendingRestart) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        *self.pending_restart.lock().unwrap_or_else(PoisonError::into_inner) = Some(restart);
    }

    /// It has begun.
    pub fn restarted(&self) {
        *self.pending_restart.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How often the job was started again in this process.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The attempt that is to come, while none is running.
    pub fn pending_restart(&self) -> Option<PendingRestart> {
        self.pending_restart.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first attempt goes on from this checkpoint.
    pub fn resumed(&self, from: Epoch) {
        self.resumed_from.store(from.0, Ordering::Relaxed);
    }

    /// The checkpoint that this process started from.
    pub fn resumed_from(&self) -> Option<Epoch> {
        let epoch = self.resumed_from.load(Ordering::Relaxed);
        (epoch > 0).then_some(Epoch(epoch))
    }

    pub fn committed(&self, epoch: Epoch) {
        self.committed_epoch.store(epoch.0, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest epoch that this process has committed.
    pub fn committed_epoch(&self) -> Option<Epoch> {
        let epoch = self.committed_epoch.load(Ordering::Relaxed);
        (epoch > 0).then_some(Epoch(epoch))
    }

    /// How many checkpoints this process has committed.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    pub fn uploaded(&self, bytes: u64) {
        self.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes of state this process has brought to the checkpoint store.
    pub fn uploaded_bytes(&self) -> u64 {
        self.uploaded_bytes.load(Ordering::Relaxed)
    }
}
