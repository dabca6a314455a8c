//! Events of a job's life, one struct each, which write the log.

use std::time::Duration;

use crate::id::{Attempt, Epoch, Name};

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
