//! Events of a job's life, one struct each, which write the log.

use std::error::Error;
use std::time::Duration;

use crate::id::{Attempt, Epoch, Name, SubtaskId};
use crate::units::duration;

pub struct JobStarted<'a> {
    pub job: &'a Name,
    pub attempt: Attempt,
    pub resumed_from: Option<Epoch>,
    pub tasks: usize,
}

impl JobStarted<'_> {
    pub fn emit(&self) {
        let epoch = self.resumed_from.map(|epoch| epoch.0);
        tracing::info!(job = %self.job, attempt = %self.attempt, resumed_from = epoch, tasks = self.tasks, "job started");
    }
}

/// A component that takes seconds is about to be compiled.
pub struct CompilationStarted<'a> {
    pub sha256: &'a str,
    pub size_bytes: usize,
}

impl CompilationStarted<'_> {
    pub fn emit(&self) {
        let size_mb = self.size_bytes as f64 / 1e6;
        tracing::info!(
            sha256 = self.sha256,
            "compiling a component of {size_mb:.1} MB, once: the machine code is kept"
        );
    }
}

/// An attempt has failed and another one will be made.
pub struct AttemptFailed<'a> {
    pub job: &'a Name,
    /// What failed, with its causes.
    pub cause: &'a str,
    pub next: NextAttempt,
}

/// Why there is another attempt.
pub enum NextAttempt {
    /// Restart `restart` of at most `of` in a row, after a delay.
    Restart { restart: u32, of: u32, delay: Duration },
    /// To find or leave out the record at which an operator traps, at once.
    Isolation,
    /// With the component that an operator had before it was upgraded, at once.
    Revert,
}

impl AttemptFailed<'_> {
    pub fn emit(&self) {
        let (job, cause) = (self.job, self.cause);
        match self.next {
            NextAttempt::Restart { restart, of, delay } => {
                let delay = spoken(delay);
                tracing::warn!(%job, "the job failed; restart {restart} of {of} in {delay}: {cause}");
            }
            NextAttempt::Isolation => {
                tracing::warn!(
                    %job,
                    "an operator trapped; the job goes back to its last checkpoint to find the record: {cause}"
                );
            }
            NextAttempt::Revert => {
                tracing::warn!(
                    %job,
                    "the job failed while an upgrade was on probation; it goes back to what was decided last: {cause}"
                );
            }
        }
    }
}

/// An operator has another component, from one barrier on.
pub struct OperatorSwapped<'a> {
    pub job: &'a Name,
    pub operator: &'a Name,
    pub component: &'a str,
    pub epoch: Epoch,
}

impl OperatorSwapped<'_> {
    pub fn emit(&self) {
        let OperatorSwapped { job, operator, component, epoch } = self;
        tracing::info!(%job, %operator, component, %epoch, "the operator is swapped at the barrier of this epoch");
    }
}

/// An upgrade has proved itself: the new component is in force.
pub struct UpgradeAdopted<'a> {
    pub job: &'a Name,
    pub operator: &'a Name,
    pub component: &'a str,
    /// The first epoch that is its work.
    pub epoch: Epoch,
}

impl UpgradeAdopted<'_> {
    pub fn emit(&self) {
        let UpgradeAdopted { job, operator, component, epoch } = self;
        tracing::info!(%job, %operator, component, %epoch, "the upgrade is adopted");
    }
}

/// The old component of an operator goes on.
pub struct UpgradeReverted<'a> {
    pub job: &'a Name,
    pub operator: &'a Name,
    pub component: &'a str,
    /// Why the new one could not stay.
    pub cause: &'a str,
}

impl UpgradeReverted<'_> {
    pub fn emit(&self) {
        let UpgradeReverted { job, operator, component, cause } = self;
        tracing::warn!(%job, %operator, component, "the upgrade is reverted: {cause}");
    }
}

/// A delay as it is said: to the millisecond below a minute, else to the second.
fn spoken(delay: Duration) -> String {
    let whole = if delay < Duration::from_secs(60) { delay.as_millis() as u64 } else { delay.as_secs() * 1_000 };
    duration::format(Duration::from_millis(whole))
}

/// A checkpoint that was published has turned out to be one that was never decided, and is removed.
pub struct CheckpointWithdrawn<'a> {
    pub job: &'a Name,
    pub epoch: Epoch,
    /// The one that was decided last.
    pub resumed: Option<Epoch>,
}

impl CheckpointWithdrawn<'_> {
    pub fn emit(&self) {
        let resumed = self.resumed.map(|epoch| epoch.0);
        tracing::info!(job = %self.job, epoch = %self.epoch, resumed, "checkpoint withdrawn: its output was never committed");
    }
}

/// Others could not be told how far a source has got.
pub struct ProgressNotReported<'a> {
    pub source: &'a Name,
    pub error: &'a dyn Error,
}

impl ProgressNotReported<'_> {
    pub fn emit(&self) {
        tracing::warn!(source = %self.source, error = %self.error, "the offsets of the source's group were not committed");
    }
}

pub struct CheckpointCompleted {
    pub epoch: Epoch,
    /// From the injection of the barrier to the last sink's commit.
    pub took: Duration,
}

impl CheckpointCompleted {
    pub fn emit(&self) {
        tracing::info!(epoch = %self.epoch, took_ms = self.took.as_millis() as u64, "checkpoint completed");
    }
}

pub struct CheckpointDiscarded {
    pub epoch: Epoch,
}

impl CheckpointDiscarded {
    pub fn emit(&self) {
        tracing::debug!(epoch = %self.epoch, "checkpoint discarded, since nothing had changed");
    }
}

/// Old checkpoints could not be removed. Nothing is lost; it is tried again after the next checkpoint.
pub struct RetentionFailed<'a> {
    pub error: &'a (dyn std::error::Error + 'static),
}

impl RetentionFailed<'_> {
    pub fn emit(&self) {
        tracing::warn!(error = self.error, "old checkpoints could not be removed; trying again after the next one");
    }
}

/// Records that a sink was given were not written, in a job that allows it.
pub struct RecordsUndelivered {
    pub sink: Name,
    pub records: u64,
    /// Of the first of them.
    pub reason: String,
}

impl RecordsUndelivered {
    pub fn emit(&self) {
        let (sink, records, reason) = (&self.sink, self.records, &self.reason);
        tracing::warn!(%sink, records, reason, "records were not delivered and are lost, as at-most-once allows");
    }
}

/// Something in the input is no regular file.
pub struct InputPassedOver<'a> {
    pub source: &'a Name,
    pub path: &'a std::path::Path,
}

impl InputPassedOver<'_> {
    pub fn emit(&self) {
        let (source, path) = (self.source, self.path.display());
        tracing::warn!(%source, %path, "not read, since it is no regular file (a pipe, socket, device or link to a folder)");
    }
}

/// A partition is no longer read, and its position is forgotten.
pub struct PartitionDropped<'a> {
    pub source: &'a Name,
    pub partition: &'a str,
    pub why: &'a str,
}

impl PartitionDropped<'_> {
    pub fn emit(&self) {
        let (source, partition) = (self.source, self.partition);
        tracing::warn!(%source, partition, "partition is no longer read, and its position forgotten: {}", self.why);
    }
}

/// A migration takes long.
pub struct TableMigrating<'a> {
    pub subtask: &'a SubtaskId,
    pub table: &'a str,
    /// So far.
    pub entries: u64,
}

impl TableMigrating<'_> {
    pub fn emit(&self) {
        let (operator, table, entries) = (self.subtask, self.table, self.entries);
        tracing::info!(%operator, table, entries, "still migrating the state of a table");
    }
}

/// The state of a table is in its new version; the next checkpoint will hold it.
pub struct TableMigrated<'a> {
    pub subtask: &'a SubtaskId,
    pub table: &'a str,
    pub from_version: u32,
    pub to_version: u32,
    pub entries_before: u64,
    pub entries_after: u64,
    pub took: Duration,
}

impl TableMigrated<'_> {
    pub fn emit(&self) {
        let (operator, table, from, to) = (self.subtask, self.table, self.from_version, self.to_version);
        let (entries_before, entries_after) = (self.entries_before, self.entries_after);
        let took = spoken(self.took);
        tracing::info!(%operator, table, entries_before, entries_after, took, "state migrated from version {from} to {to}");
    }
}

pub struct JobFinished<'a> {
    pub job: &'a Name,
    pub ended: bool,
    pub epoch: Option<Epoch>,
}

impl JobFinished<'_> {
    pub fn emit(&self) {
        let epoch = self.epoch.map(|epoch| epoch.0);
        tracing::info!(job = %self.job, ended = self.ended, epoch, "job finished");
    }
}
