//! One job: recover, wire, run, checkpoint, start again after a failure, stop.
//!
//! Invariant: all that this room spawns is joined before [`run`] returns.

mod attempts;
mod commit;
mod dry_run;
mod guards;
mod keyed;
mod opener;
mod progress;
mod pump;
mod recover;
mod requests;
mod take_up;
mod upgrade;
mod upload;
mod wire;
mod worth;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use attempts::with_causes;

pub use attempts::run;
pub use commit::CommitError;
pub use dry_run::{DryRun, DryRunError, DryRunTable, dry_run};
pub use recover::preview::preview;
pub use requests::{Components, JobHandle, RequestRefused, Requests, requests};
pub use upgrade::{PROBATION_MAX, UpgradeFailed, UpgradeRequest, Upgraded};
pub use upload::UploadError;

use crate::connector::{ConnectorError, EventTimeOptions, SinkOptions, SourceOptions};
use crate::graph::Plan;
use crate::guest::{Limits, OperatorFactory};
use crate::id::{Epoch, Name};
use crate::protocol::decision::DecisionRefused;
use crate::protocol::isolation::TooMuchPoison;
use crate::protocol::recovery::RecoveryRefused;
use crate::protocol::restart::RestartStrategy;
use crate::protocol::{
    Alignment, CoordinatorOptions, FailReason, Guarantee, MaxParallelism, OnError, WatermarkOptions,
};
use crate::store::StoreError;
use crate::task::TaskError;

/// A job that has been checked and can be run.
pub struct Job {
    pub name: Name,
    /// Its lock and the live state of the running attempt.
    pub state_dir: PathBuf,
    /// The root of its checkpoint store.
    pub store: PathBuf,
    pub max_parallelism: MaxParallelism,
    pub checkpoints: CoordinatorOptions,
    pub alignment: Alignment,
    /// How many checkpoints are kept.
    pub retain: NonZeroU32,
    pub restart: RestartStrategy,
    pub guarantee: Guarantee,
    pub plan: Plan,
    pub sources: BTreeMap<Name, Source>,
    pub operators: BTreeMap<Name, Operator>,
    pub sinks: BTreeMap<Name, SinkOptions>,
}

/// A source of a job, and what it does for event time.
pub struct Source {
    pub options: SourceOptions,
    pub event_time: EventTimeOptions,
    pub watermarks: WatermarkOptions,
}

/// An operator of a job: what makes its instances, and what they are given.
pub struct Operator {
    pub factory: Arc<dyn OperatorFactory>,
    /// Of an upgrade that may have been interrupted: the new component. It takes the place of `factory` if the checkpoint from which
    /// the job goes on names it; otherwise it is dropped.
    pub candidate: Option<Arc<dyn OperatorFactory>>,
    pub config_json: String,
    pub limits: Limits,
    /// Changed keyed state that one subtask keeps in memory before it is merged into RocksDB.
    pub state_memory_bytes_max: usize,
    /// What becomes of records that it can't process.
    pub on_error: OnError,
    /// How many capsules of its failures are kept.
    pub capsules_max: u32,
}

/// How a job came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its input had ended; otherwise it was asked to stop.
    pub ended: bool,
    /// It was asked to end at once, without a last checkpoint: what was read since the newest one is to be read again.
    pub cancelled: bool,
    /// It was asked to stop while it waited for its next attempt, so what was read since its last checkpoint is to be read
    /// again.
    pub between_attempts: bool,
    /// The checkpoint that it started from.
    pub resumed_from: Option<Epoch>,
    /// The last checkpoint of this run; `None` if nothing had changed since the one it started from.
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
    #[error("it isn't known where job '{job}' has left off")]
    Undecided { job: Name, source: Box<DecisionRefused> },
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
    #[error("checkpoint {epoch} was given up after {} s: {}", .waited.as_secs(), .waits.join("; "))]
    Stuck { epoch: Epoch, waited: Duration, waits: Vec<String> },
    #[error("the attempt was ended: {0}")]
    Attempt(FailReason),
    #[error("cannot find an end of the records at which the operators of job '{job}' trap")]
    Poison { job: Name, source: TooMuchPoison },
    #[error(
        "job '{job}' has failed {failures} times in a row, which is more than its restarts allow; attempts made: {attempts}; the \
         first of these failures: {first}; the last: {}",
        with_causes(.last.as_ref())
    )]
    GivenUp {
        job: Name,
        failures: u32,
        attempts: u64,
        first: String,
        #[source]
        last: Box<RunError>,
    },
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
            RunError::Commit { source, .. } => source.help(),
            RunError::Refused { source, .. } => Some(source.help()),
            RunError::Undecided { source, .. } => Some(source.help()),
            RunError::Stuck { .. } => Some(
                "if operators, sinks or disks are merely slow, raise checkpoint.timeout, or let barriers overtake what they \
                 wait behind: checkpoint.alignment = \"unaligned\""
                    .to_owned(),
            ),
            RunError::Attempt(reason) => reason.help().map(str::to_owned),
            RunError::Poison { .. } => Some(
                "this is the operator's fault rather than that of single records; nothing is lost: correct it and run the job \
                 again"
                    .to_owned(),
            ),
            RunError::GivenUp { last, .. } => {
                let restarts = "[restart] of the job file says how often a job is started again";
                Some(last.help().map_or(restarts.to_owned(), |help| format!("{help}; {restarts}")))
            }
            RunError::CheckpointMissing { .. } => Some(
                "put the checkpoint store back from a backup: from an older checkpoint the job would put out again what is \
                 there already. To start from the beginning, give the job a new name and its sinks new folders"
                    .to_owned(),
            ),
        }
    }
}
