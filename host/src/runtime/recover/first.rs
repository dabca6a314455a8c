//! What a first run can't begin with, found out before anything is made for it, here or on a cluster.
//!
//! Invariant: nothing is refused that a run would get past, and nothing is made or changed.

use super::{SLOT, connect};
use crate::connector::{check_sink, check_source};
use crate::runtime::{Job, RunError};
use crate::store::{CheckpointStore, StoreError};

/// Asks the clusters of the job for what it names, as its sinks and sources will. A job that has a checkpoint isn't looked at: what it
/// goes on from is for its sources to say.
///
/// # Errors
/// What a run would say.
pub async fn check(job: &Job) -> Result<(), RunError> {
    if has_begun(job).await {
        return Ok(());
    }
    for (name, options) in &job.sinks {
        let (name, options) = (name.clone(), options.clone());
        connect(job, move || check_sink(&options, &name)).await?;
    }
    for (name, source) in &job.sources {
        let (name, options, job_name) = (name.clone(), source.options.clone(), job.name.clone());
        match connect(job, move || check_source(&options, &name, &job_name)).await {
            Err(error) if error.is_unfit() || error.is_silence() => return Err(error),
            // What else may be wrong with a source is met when it runs, and another attempt may get past it.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Whether there is a checkpoint. A store that can't be read is told by who opens it.
async fn has_begun(job: &Job) -> bool {
    match CheckpointStore::open_existing(&job.store, &job.name, SLOT).await {
        Ok(store) => store.epochs().await.map_or(true, |epochs| !epochs.is_empty()),
        Err(StoreError::NoJob { .. }) => false,
        Err(_) => true,
    }
}
