//! Where the sources of an at-most-once job go on, and what records how far they get.
//!
//! Invariant: other jobs neither read nor write any such record.

use std::path::PathBuf;

use super::recover::Recovered;
use super::{Job, RunError};
use crate::connector::{SourceReader, SplitState};
use crate::id::{Name, SubtaskId};
use crate::protocol::Guarantee;
use crate::store::{ProgressLog, ProgressOf, StoreError, take_up_progress};
use crate::task::{Log, Recorded};

fn folder(job: &Job) -> PathBuf {
    job.state_dir.join("progress")
}

fn is_recorded(job: &Job) -> bool {
    match job.guarantee {
        Guarantee::AtMostOnce => true,
        Guarantee::AtLeastOnce | Guarantee::ExactlyOnce => false,
    }
}

fn failed(job: &Job) -> impl Fn(StoreError) -> RunError {
    let job = job.name.clone();
    move |source| RunError::Store { job: job.clone(), source }
}

fn of(recovered: &Recovered) -> ProgressOf {
    ProgressOf { job_uid: recovered.store.job_uid().clone(), attempt: recovered.attempt }
}

/// The positions from which a source goes on, given those of the checkpoint. Asked for every subtask before any of them runs.
///
/// # Errors
/// If a record of progress can't be read, or where the source goes on can't be recorded.
pub fn taken_up(
    job: &Job,
    recovered: &Recovered,
    source: &Name,
    splits: Vec<SplitState>,
) -> Result<Vec<SplitState>, RunError> {
    if !is_recorded(job) {
        return Ok(splits);
    }
    let checkpoint = recovered.manifest.as_ref().map(|manifest| manifest.attempt);
    take_up_progress(&folder(job), source, &of(recovered), checkpoint, splits).map_err(failed(job))
}

/// A source that has taken up its positions, and records from there on if the job asks for it.
///
/// # Errors
/// If there is no place for the records.
pub fn recorded(
    job: &Job,
    recovered: &Recovered,
    subtask: &SubtaskId,
    reader: Box<dyn SourceReader>,
) -> Result<Box<dyn SourceReader>, RunError> {
    if !is_recorded(job) {
        return Ok(reader);
    }
    let log = ProgressLog::open(&folder(job), &subtask.operator, subtask.index, of(recovered)).map_err(failed(job))?;
    Ok(Box::new(Recorded::new(reader, Log { source: subtask.operator.clone(), log })))
}
