//! Events of a job's life, one struct each, which write the log.

use std::time::Duration;

use crate::id::{Attempt, Epoch, Name};
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
}

impl AttemptFailed<'_> {
    pub fn emit(&self) {
        let (job, cause) = (self.job, self.cause);
        match self.next {
            NextAttempt::Restart { restart, of, delay } => {
                tracing::warn!(%job, cause, "the job failed; restart {restart} of {of} in {}", spoken(delay));
            }
            NextAttempt::Isolation => {
                tracing::warn!(%job, cause, "an operator trapped; the job goes back to its last checkpoint to find the record");
            }
        }
    }
}

/// A delay as it is said: to the millisecond below a minute, else to the second.
fn spoken(delay: Duration) -> String {
    let whole = if delay < Duration::from_secs(60) { delay.as_millis() as u64 } else { delay.as_secs() * 1_000 };
    duration::format(Duration::from_millis(whole))
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
