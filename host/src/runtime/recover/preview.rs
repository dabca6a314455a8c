//! What a recovery would refuse, found out without being one.
//!
//! Invariant: nothing is claimed, made, committed or removed, and nothing is refused that a recovery would take up, also while the
//! job runs.

use std::collections::BTreeMap;

use super::{SLOT, context, continue_from};
use crate::connector::{ConnectorError, SinkOptions};
use crate::id::{Attempt, Epoch, Name};
use crate::runtime::commit::CommitError;
use crate::runtime::{Job, RunError};
use crate::store::{CheckpointStore, Manifest, StoreError};

/// Finds out whether a run could continue from the newest checkpoint, or begin if there is none. What only others know, such as
/// which checkpoint a sink has decided, isn't asked.
///
/// # Errors
/// What a run would say.
pub async fn preview(job: &Job) -> Result<(), RunError> {
    let store_failed = |source: StoreError| RunError::Store { job: job.name.clone(), source };
    let store = match CheckpointStore::open_existing(&job.store, &job.name, SLOT).await {
        Ok(store) => store,
        Err(StoreError::NoJob { .. }) => return Ok(()),
        Err(error) => return Err(store_failed(error)),
    };
    // Looked at before the manifests, of which a run that is under way always has the one that it commits.
    let committed = committed(job, &store)?;
    let newest = store.epochs().await.map_err(store_failed)?.pop();
    let resumed = continue_from(job, &store, newest).await?;
    for (sink, committed) in committed {
        if Some(committed) > newest {
            return Err(RunError::CheckpointMissing { sink, committed, newest });
        }
    }
    match resumed {
        Some((manifest, _)) if manifest.decision.is_none() => can_commit(job, &store, &manifest),
        Some(_) | None => Ok(()),
    }
}

/// What each sink remembers to have committed.
fn committed(job: &Job, store: &CheckpointStore) -> Result<BTreeMap<Name, Epoch>, RunError> {
    let mut all = BTreeMap::new();
    for (name, options) in &job.sinks {
        let SinkOptions::File(options) = options else { continue };
        let committed = options.committed(&context(job, store, Attempt(0), name, 1));
        let failed = |source: ConnectorError| RunError::Connector { job: job.name.clone(), source: Box::new(source) };
        if let Some(epoch) = committed.map_err(failed)? {
            all.insert(name.clone(), epoch);
        }
    }
    Ok(all)
}

/// Whether the output of a checkpoint is there, be it committed or not.
fn can_commit(job: &Job, store: &CheckpointStore, manifest: &Manifest) -> Result<(), RunError> {
    let epoch = manifest.epoch;
    for (name, options) in &job.sinks {
        let SinkOptions::File(options) = options else { continue };
        let subtasks = manifest.operators.get(name).into_iter().flat_map(|operator| &operator.subtasks);
        let committables = subtasks.map(|part| part.committable.clone()).collect::<Vec<_>>();
        let outcome = options.can_commit(&context(job, store, Attempt(0), name, 1), epoch, &committables);
        outcome.map_err(|source| RunError::Commit {
            epoch,
            source: Box::new(CommitError::Sink { sink: name.clone(), source }),
        })?;
    }
    Ok(())
}
