//! What a daemon says of plugins, jobs, checkpoints and upgrades, as it is sent.
//!
//! Invariant: every field is there in every answer, null where there is nothing to say; times are milliseconds since the Unix epoch
//! if their name ends in `_at_ms`, and spans if it ends in `_ms` alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{Epoch, Name, PluginHash};

/// A component that the daemon has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginInfo {
    pub hash: PluginHash,
    pub size_bytes: u64,
    pub added_at_ms: u64,
    /// `None` if the component can't be used; `problem` says why.
    pub operator: Option<PluginFacts>,
    pub problem: Option<String>,
    /// The jobs that name it, running or not.
    pub used_by: Vec<Name>,
}

/// What a component says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFacts {
    pub name: String,
    pub version: String,
    /// The world that it was built for.
    pub world: String,
    pub inputs: Vec<InputInfo>,
    pub outputs: Vec<String>,
    pub tables: Vec<TableInfo>,
    pub timers: bool,
    /// `split`, `union` or `broadcast`.
    pub redistribution: String,
    pub imports: Vec<String>,
    pub exports: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputInfo {
    pub name: String,
    pub broadcast: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    pub name: String,
    /// `value`, `map` or `list`.
    pub kind: String,
    pub version: u32,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Nothing has run yet since it was started.
    Starting,
    Running,
    /// It has failed, or can't be started yet, and is tried again: see `retry`.
    Restarting,
    /// It takes its last checkpoint.
    Stopping,
    Stopped,
    /// Its input has ended, and all of its output is committed.
    Ended,
    /// It has failed for good: see `failure`.
    Failed,
}

/// A job of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobInfo {
    pub name: Name,
    pub status: JobStatus,
    /// Whether it is started again with the daemon.
    pub resumes: bool,
    pub failure: Option<FailureInfo>,
    pub retry: Option<RetryInfo>,
    pub submitted_at_ms: u64,
    /// When it was started last, by a request or with the daemon.
    pub started_at_ms: Option<u64>,
    /// Since its attempt that runs now has begun.
    pub uptime_ms: Option<u64>,
    /// How often it was started again after a failure, since `started_at_ms`.
    pub restarts: u64,
    pub guarantee: Option<String>,
    /// Since `started_at_ms`.
    pub checkpoints: u64,
    /// The newest checkpoint since `started_at_ms`.
    pub checkpoint: Option<NewestCheckpoint>,
    /// Sources, operators and sinks by their names. Their figures begin with `started_at_ms`.
    pub parts: BTreeMap<Name, PartInfo>,
    /// By operator: its component.
    pub plugins: BTreeMap<Name, PluginHash>,
    /// An upgrade that is under way.
    pub upgrading: Option<UpgradingInfo>,
    pub state_dir: Option<PathBuf>,
    pub store: Option<PathBuf>,
    /// What is probably a mistake in the job file, but can run.
    pub warnings: Vec<String>,
    /// The job file as it was submitted.
    pub job_toml: String,
    pub base_dir: Option<PathBuf>,
}

/// Why a job has failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureInfo {
    pub error: String,
    pub causes: Vec<String>,
    pub help: Option<String>,
    pub at_ms: u64,
}

/// Why and when a job is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetryInfo {
    pub cause: String,
    /// From now.
    pub in_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NewestCheckpoint {
    pub epoch: Epoch,
    pub age_ms: u64,
    /// From its barrier to the last sink's commit.
    pub took_ms: u64,
    pub size_bytes: u64,
}

/// A source, operator or sink of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartInfo {
    pub kind: PartKind,
    pub parallelism: u32,
    pub records_in: u64,
    pub records_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub records_rejected: u64,
    /// Over the last seconds, as are those that follow.
    pub records_in_per_s: f64,
    pub records_out_per_s: f64,
    /// Records between what a source has given and the end of its input, where it is known.
    pub lag_records: Option<u64>,
    /// How far event time is behind the time of day, where it is most.
    pub watermark_lag_ms: Option<u64>,
    /// Files of keyed state that the newest snapshot consists of.
    pub state_bytes: Option<u64>,
    /// Memory of the operator's instances.
    pub guest_memory_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Source,
    Operator,
    Sink,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradingInfo {
    pub operator: Name,
    pub from: PluginHash,
    pub to: PluginHash,
}

/// A checkpoint that a job could continue from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointInfo {
    pub epoch: Epoch,
    /// Whether it is a savepoint: kept until somebody deletes it.
    pub kept: bool,
    /// `None`, as are those that follow, if its manifest can't be read; `problem` says why.
    pub attempt: Option<u64>,
    pub created_at_ms: Option<u64>,
    /// Whether the job's input had ended.
    pub ended: Option<bool>,
    pub files: Option<u64>,
    pub bytes: Option<u64>,
    pub problem: Option<String>,
}

/// What came of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpgradeInfo {
    pub job: Name,
    pub operator: Name,
    pub from: PluginHash,
    pub to: PluginHash,
    pub dry_run: bool,
    /// The checkpoint at which the new component has taken over.
    pub swapped_at: Option<Epoch>,
    /// The first one that it has taken itself: from there on there is no way back.
    pub adopted_at: Option<Epoch>,
    /// The longest that a subtask has stood still.
    pub paused_ms: Option<f64>,
    /// Entries of keyed state that were rewritten, or would be.
    pub migrated_entries: u64,
    /// Of a dry run: what it would do to the state, table by table.
    pub report: Option<serde_json::Value>,
}
