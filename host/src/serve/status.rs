//! What a job is doing, from what is known of it at one moment.
//!
//! Invariant: looking changes nothing and waits for nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::checked::Shape;
use super::info::{JobInfo, JobStatus, NewestCheckpoint, PartInfo, PartKind, RetryInfo};
use super::job::{JobEntry, State};
use super::run::{Run, Wish};
use super::spec::{Outcome, Wanted};
use crate::id::Name;
use crate::telemetry::SubtaskCounters;

/// As the API counts.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl State {
    fn status(&self) -> JobStatus {
        if let Some(run) = self.live() {
            let waits = run.retries.is_some() || run.counters.pending_restart().is_some();
            return match (run.wished(), waits, run.counters.began()) {
                (Wish::Stop | Wish::Cancel, ..) => JobStatus::Stopping,
                (Wish::GoOn, true, _) => JobStatus::Restarting,
                (Wish::GoOn, false, Some(_)) => JobStatus::Running,
                (Wish::GoOn, false, None) => JobStatus::Starting,
            };
        }
        if self.trouble.is_some() {
            return JobStatus::Failed;
        }
        match self.spec.as_ref().and_then(|spec| spec.outcome.as_ref()) {
            Some(Outcome::Ended) => JobStatus::Ended,
            Some(Outcome::Failed(_)) => JobStatus::Failed,
            // Without an outcome it goes on with the next start.
            Some(Outcome::Stopped) | None => JobStatus::Stopped,
        }
    }
}

impl JobStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            JobStatus::Starting => "starting",
            JobStatus::Running => "running",
            JobStatus::Restarting => "restarting",
            JobStatus::Stopping => "stopping",
            JobStatus::Stopped => "stopped",
            JobStatus::Ended => "ended",
            JobStatus::Failed => "failed",
        }
    }
}

impl JobEntry {
    pub fn status(&self) -> JobStatus {
        self.state().status()
    }

    pub fn info(&self, now: Instant, wall: SystemTime) -> JobInfo {
        let state = self.state();
        let (status, live, spec) = (state.status(), state.live(), state.spec.as_ref());
        let outcome = spec.and_then(|spec| spec.outcome.as_ref());
        let failure = match outcome {
            _ if live.is_some() => None,
            Some(Outcome::Failed(failure)) => Some(failure.clone()),
            Some(Outcome::Ended | Outcome::Stopped) | None => state.trouble.clone(),
        };
        let pending = live.and_then(|run| run.retries.clone().or_else(|| run.counters.pending_restart()));
        let retry = pending
            .filter(|_| status == JobStatus::Restarting)
            .map(|pending| RetryInfo { cause: pending.cause, in_ms: ms(pending.due.saturating_duration_since(now)) });
        let runs = live.filter(|_| matches!(status, JobStatus::Running | JobStatus::Stopping));
        let began = runs.and_then(|run| run.counters.began());
        let shape = state.shape.as_ref();
        let parts = shape.map(|shape| parts(shape, state.run.as_ref(), live.is_some(), wall)).unwrap_or_default();
        JobInfo {
            name: self.name.clone(),
            status,
            resumes: spec.is_some_and(|spec| spec.wanted == Wanted::Running),
            failure,
            retry,
            submitted_at_ms: spec.map_or(0, |spec| spec.submitted_at_ms),
            started_at_ms: state.run.as_ref().map(|run| run.started_at_ms),
            uptime_ms: began.map(|began| ms(now.saturating_duration_since(began))),
            restarts: state.run.as_ref().map_or(0, |run| run.counters.restarts()),
            guarantee: shape.map(|shape| shape.guarantee.clone()),
            checkpoints: state.run.as_ref().map_or(0, |run| run.counters.checkpoints()),
            checkpoint: state.run.as_ref().and_then(|run| newest(run, now)),
            parts,
            plugins: spec.map(|spec| spec.plugins.clone()).unwrap_or_default(),
            upgrading: spec.and_then(|spec| spec.upgrading.clone()),
            state_dir: shape.map(|shape| shape.state_dir.clone()),
            store: shape.map(|shape| shape.store.clone()),
            warnings: shape.map(|shape| shape.warnings.clone()).unwrap_or_default(),
            job_toml: spec.map(|spec| spec.job_toml.clone()).unwrap_or_default(),
            base_dir: spec.and_then(|spec| spec.base_dir.clone()),
        }
    }
}

fn newest(run: &Run, now: Instant) -> Option<NewestCheckpoint> {
    let newest = run.counters.checkpoint_figures().read().newest?;
    Some(NewestCheckpoint {
        epoch: newest.epoch,
        age_ms: ms(now.saturating_duration_since(newest.committed)),
        took_ms: ms(newest.took),
        size_bytes: newest.size_bytes,
    })
}

/// What was counted in the job's run, or nothing yet. What is of the moment only, a job that doesn't run has not.
fn parts(shape: &Shape, run: Option<&Run>, is_live: bool, wall: SystemTime) -> BTreeMap<Name, PartInfo> {
    let subtasks = run.map(|run| run.counters.subtasks()).unwrap_or_default();
    let part = |(name, &(kind, parallelism)): (&Name, &(PartKind, u32))| {
        let totals = run.map(|run| run.counters.totals_of(name)).unwrap_or_default();
        let own = subtasks.iter().filter(|(subtask, _)| subtask.operator == *name).map(|(_, counters)| &**counters);
        let own = own.filter(|_| is_live).collect::<Vec<_>>();
        let (in_per_s, out_per_s) = run.filter(|_| is_live).map(|run| run.rates.of(name)).unwrap_or_default();
        let sum = |of: fn(&SubtaskCounters) -> Option<u64>| own.iter().filter_map(|it| of(it)).reduce(|a, b| a + b);
        let info = PartInfo {
            kind,
            parallelism,
            records_in: totals.records_in,
            records_out: totals.records_out,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
            records_rejected: totals.records_rejected,
            records_in_per_s: in_per_s,
            records_out_per_s: out_per_s,
            lag_records: sum(|counters| counters.backlog().lag_records()),
            watermark_lag_ms: own.iter().filter_map(|it| it.times().read().lag(wall)).max().map(ms),
            state_bytes: sum(|counters| counters.state().map(|state| state.snapshot_bytes)),
            guest_memory_bytes: sum(|counters| counters.guest().memory_bytes()),
        };
        (name.clone(), info)
    };
    shape.parts.iter().map(part).collect()
}
