//! A task: a chain of subtasks (source or inputs, operators, sink or outlets) that run in one thread.
//!
//! Invariant: a task handles one element at a time; a barrier cuts all its subtasks at the same place in the stream.

mod chain;
mod dead_letter;
mod examined;
mod guarded;
mod input;
mod meter;
mod outlet;
mod pace;
mod progress;
mod run;
mod source;
mod source_time;
mod status;
mod swap;
#[cfg(test)]
mod tests;
mod traced;

use std::sync::Arc;

use tokio::sync::mpsc;

pub use chain::{Chain, OperatorSlot, Restored, Tail, Then};
pub use dead_letter::{DeadLetters, base64};
pub use examined::{Examined, SharedEpoch};
pub use guarded::{CommittedEpoch, Guarded, SharedWatch};
pub use outlet::{Exchange, Outlet, WithoutKey};
pub use pace::Pace;
pub use progress::{Log, Recorded};
pub use run::{Head, InputLabel, Task};
pub use source_time::SourceTime;
pub use status::TaskStatus;
pub use swap::{Reopen, Reopened, SwapBoard, SwapFigures, SwapOrder, Swaps};
pub use traced::Traced;

use crate::channel::Closed;
use crate::connector::{ConnectorError, Prepare, SplitState};
use crate::element::{Barrier, Batch};
use crate::guest::OperatorError;
use crate::id::{Epoch, Name, SubtaskId, TaskId};
use crate::state::{PendingSnapshot, StateError};
use crate::store::StoreError;
use crate::store::in_flight::BadInFlight;
use crate::telemetry::SubtaskCounters;

/// What a task tells the runtime.
pub enum TaskEvent {
    /// A source has nothing more to read.
    SourceEnded(TaskId),
    /// A barrier has passed; the parts still have to be made durable.
    Snapshot { task: TaskId, epoch: Epoch, changed: bool, parts: Vec<PendingPart> },
}

/// One subtask's part of a checkpoint before it is durable.
pub struct PendingPart {
    pub subtask: SubtaskId,
    pub splits: Vec<SplitState>,
    /// Non-keyed state; empty means none.
    pub operator_state: Vec<u8>,
    pub keyed: Option<PendingSnapshot>,
    pub prepare: Option<Prepare>,
    /// What the barrier has overtaken on its way to this subtask, in the order in which it is to be taken up.
    pub in_flight: Vec<InFlight>,
}

/// Batches on their way to a subtask.
pub struct InFlight {
    pub label: Arc<InputLabel>,
    pub batches: Vec<Arc<Batch>>,
}

impl PendingPart {
    /// A part with nothing in it.
    pub fn new(subtask: SubtaskId) -> PendingPart {
        let (splits, operator_state, in_flight) = (Vec::new(), Vec::new(), Vec::new());
        PendingPart { subtask, splits, operator_state, keyed: None, prepare: None, in_flight }
    }
}

/// How a task reaches the runtime and is reached by it.
pub struct Wires {
    pub events: mpsc::UnboundedSender<TaskEvent>,
    /// Barriers to inject; only sources get any. Closed when the attempt ends.
    pub barriers: mpsc::Receiver<Barrier>,
    /// What the task is doing, for who asks why a checkpoint isn't complete.
    pub status: Arc<TaskStatus>,
}

/// Why a task ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the state of {subtask} failed")]
    State { subtask: SubtaskId, source: StateError },
    #[error("cannot read the state of {subtask} from the checkpoint")]
    Restore { subtask: SubtaskId, source: StoreError },
    #[error("cannot read the records in flight to {subtask} from the checkpoint")]
    InFlight { subtask: SubtaskId, source: BadInFlight },
    #[error("a record without a key reached operator '{to}', which keeps its state by key")]
    MissingKey { to: Name },
    /// Another task has ended first; its error is the one that counts.
    #[error("cancelled, since another task has ended")]
    Cancelled,
}

impl TaskError {
    /// What to do about it, where there is more to say than the error itself does.
    pub fn help(&self) -> Option<String> {
        match self {
            TaskError::Operator(error) => Some(error.help()),
            TaskError::Restore { source, .. } => source.help(),
            TaskError::InFlight { .. } => {
                Some("run the job with the version of Lockgate that took the checkpoint".to_owned())
            }
            TaskError::MissingKey { .. } => {
                Some("let the operator before it emit its records with a key (a file source has none)".to_owned())
            }
            TaskError::Connector(error) => Some(error.help()),
            TaskError::State { source, .. } => help_of_state(source),
            TaskError::Cancelled => None,
        }
    }
}

/// What to do about keyed state that failed. Errors of the checkpoint store come through it in a box.
pub fn help_of_state(error: &StateError) -> Option<String> {
    match error {
        StateError::Fetch { source, .. } | StateError::Upload { source, .. } => {
            source.downcast_ref::<StoreError>().and_then(StoreError::help)
        }
        StateError::Background { source, .. } => help_of_state(source),
        other => Some(other.help()),
    }
}

impl From<Closed> for TaskError {
    fn from(_: Closed) -> TaskError {
        TaskError::Cancelled
    }
}

/// Counters of one subtask, shared with whoever shows progress.
pub type Counters = Arc<SubtaskCounters>;
