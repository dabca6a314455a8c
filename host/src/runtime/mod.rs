//! One job: recover, wire, run, checkpoint, stop.
//!
//! Invariant: nothing outside of this room spawns; all that is spawned is joined before [`run`] returns.

mod pump;
mod recover;
mod upload;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

pub use pump::CommitError;
pub use upload::UploadError;

use crate::connector::{ConnectorError, SinkOptions, SourceOptions};
use crate::graph::Plan;
use crate::guest::{Limits, OperatorFactory};
use crate::id::{Epoch, Name};
use crate::protocol::recovery::RecoveryRefused;
use crate::protocol::{Coordinator, CoordinatorOptions, FailReason, MaxParallelism};
use crate::store::StoreError;
use crate::task::TaskError;
use crate::telemetry::{JobCounters, JobFinished, JobStarted};

/// A job that has been checked and can be run.
pub struct Job {
    pub name: Name,
    /// Its lock and the live state of the running attempt.
    pub state_dir: PathBuf,
    /// The root of its checkpoint store.
    pub store: PathBuf,
    pub max_parallelism: MaxParallelism,
    pub checkpoints: CoordinatorOptions,
    /// How many checkpoints are kept.
    pub retain: NonZeroU32,
    pub plan: Plan,
    pub sources: BTreeMap<Name, SourceOptions>,
    pub operators: BTreeMap<Name, Operator>,
    pub sinks: BTreeMap<Name, SinkOptions>,
}

/// An operator of a job: what makes its instances, and what they are given.
pub struct Operator {
    pub factory: Arc<dyn OperatorFactory>,
    pub config_json: String,
    pub limits: Limits,
    /// Changed keyed state that one subtask keeps in memory before it is merged into RocksDB.
    pub state_memory_bytes_max: usize,
}

/// How a job came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its input had ended; otherwise it was asked to stop.
    pub ended: bool,
    /// The checkpoint that it started from.
    pub resumed_from: Option<Epoch>,
    /// The last checkpoint of this attempt; `None` if nothing had changed since the one it started from.
    pub epoch: Option<Epoch>,
}

/// Why a job could not be run to its end. Whatever it is, nothing committed is lost and the next run continues from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error("cannot use the checkpoint store of job '{job}'")]
    Store { job: Name, source: StoreError },
    #[error("cannot continue job '{job}' from its newest checkpoint")]
    Refused { job: Name, source: Box<RecoveryRefused> },
    #[error(
        "the output of epoch {committed} is committed in sink '{sink}', and the newest checkpoint is {}: a manifest is missing",
        .newest.map_or_else(|| "none".to_owned(), |epoch| format!("epoch {epoch}"))
    )]
    CheckpointMissing { sink: Name, committed: Epoch, newest: Option<Epoch> },
    #[error("cannot {action} the working folder {path}", path = path.display())]
    WorkFolder { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot open a source or sink of job '{job}'")]
    Connector { job: Name, source: Box<ConnectorError> },
    #[error("cannot commit what checkpoint {epoch} holds")]
    Commit { epoch: Epoch, source: Box<CommitError> },
    #[error("cannot publish checkpoint {epoch}")]
    Publish { epoch: Epoch, source: StoreError },
    #[error("cannot take checkpoint {epoch}")]
    Snapshot { epoch: Epoch, source: Box<UploadError> },
    #[error("task {chain} failed")]
    Task { chain: String, source: Box<TaskError> },
    #[error("the host failed, which is a bug in Lockgate: {message}")]
    Panicked { message: String },
    #[error("the attempt was ended: {0}")]
    Attempt(FailReason),
}

impl RunError {
    /// What to do about it, where there is more to say than the error itself does.
    pub fn help(&self) -> Option<String> {
        match self {
            RunError::Store { source, .. } | RunError::Publish { source, .. } => source.help(),
            RunError::Snapshot { source, .. } => source.help(),
            RunError::Task { source, .. } => source.help(),
            RunError::WorkFolder { .. } => {
                Some("check its permissions and the disk; job.state_dir says where it is".to_owned())
            }
            RunError::Panicked { .. } => {
                Some("please report it; nothing is lost, so the job can be run again".to_owned())
            }
            RunError::Connector { source, .. } => Some(source.help()),
            RunError::Commit { source, .. } => Some(source.help()),
            RunError::Refused { source, .. } => Some(source.help()),
            RunError::Attempt(reason) => reason.help().map(str::to_owned),
            RunError::CheckpointMissing { .. } => Some(
                "put the checkpoint store back from a backup: from an older checkpoint the job would put out again what is \
                 there already. To start from the beginning, give the job a new name and its sinks new folders"
                    .to_owned(),
            ),
        }
    }
}

/// Runs a job until its input ends, it is asked to stop, or it fails.
///
/// `stop` turning true asks for a last checkpoint and an orderly end. `counters` can be read by others meanwhile.
///
/// # Errors
/// [`RunError`]; the process may go on.
pub async fn run(job: Job, counters: Arc<JobCounters>, stop: watch::Receiver<bool>) -> Result<Finished, RunError> {
    let recovered = recover::recover(&job).await?;
    let resumed_from = recovered.manifest.as_ref().map(|manifest| manifest.epoch);
    let started = Instant::now();
    let running = wire::start(&job, &recovered, &counters)?;
    let tasks = running.names.keys().copied().collect::<BTreeSet<_>>();
    JobStarted { job: &job.name, attempt: recovered.attempt, resumed_from, tasks: tasks.len() }.emit();
    let coordinator =
        Coordinator::new(job.checkpoints, tasks, running.sources.clone(), resumed_from, started.elapsed());
    let attempted = pump::Attempted {
        job: job.name.clone(),
        store: recovered.store.clone(),
        attempt: recovered.attempt,
        resumed_from,
        slot: recover::SLOT,
        max_parallelism: job.max_parallelism,
        retain: job.retain,
        committers: recovered.committers.clone(),
        counters,
    };
    let outcome = pump::Pump::new(attempted, coordinator, running, started, stop).run().await;
    recovered.remove_work_folder();
    let finished = outcome?;
    JobFinished { job: &job.name, ended: finished.ended, epoch: finished.epoch }.emit();
    Ok(finished)
}
