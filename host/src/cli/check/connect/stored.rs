//! What the checkpoint store of the job has to go on from, next to what the clusters say.
//!
//! Invariant: the store is only read, and nothing is refused because a run of the job moved on meanwhile.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::cli::CliError;
use crate::cli::checkpoint::block_on;
use crate::config::JobFile;
use crate::connector::{ConnectorError, KafkaSourceOptions, SourceOptions, SplitState, bad_starts, lost_positions};
use crate::id::{Epoch, Name};
use crate::protocol::decision::{Decided, DeciderFacts, DecisionPlace, DecisionRefused, Marker, Published, resolve};
use crate::store::{CheckpointStore, Manifest, StoreError};

/// A run that goes on moves the marker; one that isn't running leaves it.
const LOOKS_MAX: usize = 5;

/// Where the job would start by this marker. `peek`: the marker of the moment. `None`: nobody knows, since the job has no store or is
/// moving on.
///
/// # Errors
/// If the store can't be read.
pub(super) fn decided(
    file: &JobFile,
    place: &DecisionPlace,
    mut peek: impl FnMut() -> Result<Option<Marker>, ConnectorError>,
) -> Result<Option<Result<Decided, DecisionRefused>>, CliError> {
    // A marker that can't be read is told by who reads it first.
    let Ok(mut marker) = peek() else { return Ok(None) };
    for _ in 0..LOOKS_MAX {
        let facts = DeciderFacts { place: place.clone(), marker: marker.clone() };
        let resolved = block_on(resolved(file, &facts))?;
        let Ok(after) = peek() else { return Ok(None) };
        if after == marker {
            return Ok(resolved);
        }
        marker = after;
    }
    Ok(None)
}

async fn resolved(
    file: &JobFile,
    facts: &DeciderFacts,
) -> Result<Option<Result<Decided, DecisionRefused>>, StoreError> {
    let Some(store) = existing(file).await? else { return Ok(None) };
    let mut published = BTreeMap::<Epoch, Published>::new();
    for epoch in store.epochs().await? {
        match store.published(epoch).await {
            Ok(found) => drop(published.insert(epoch, found)),
            // Retention has removed it meanwhile.
            Err(StoreError::NoCheckpoint { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(resolve(store.job_uid(), &published, Some(facts))))
}

async fn existing(file: &JobFile) -> Result<Option<CheckpointStore>, StoreError> {
    match CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::NoJob { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The checkpoint that the job would go on from, if there is one: the newest, but for one that isn't decided.
///
/// # Errors
/// If the store can't be read.
pub(super) fn checkpoint(file: &JobFile, decided: Option<&Decided>) -> Result<Option<Manifest>, CliError> {
    block_on(async {
        let Some(store) = existing(file).await? else { return Ok(None) };
        let newest = match decided {
            Some(decided) => decided.epoch,
            None => store.epochs().await?.pop(),
        };
        let Some(epoch) = newest else { return Ok(None) };
        match store.inspect(epoch).await {
            Ok(manifest) => Ok(Some(manifest)),
            Err(StoreError::NoCheckpoint { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    })
}

/// What a checkpoint has of a source.
pub(super) fn splits(checkpoint: &Manifest, source: &Name) -> Vec<SplitState> {
    let subtasks = checkpoint.operators.get(source).into_iter().flat_map(|operator| &operator.subtasks);
    subtasks.flat_map(|subtask| subtask.splits.iter().cloned()).collect()
}

/// What a checkpoint goes on from that isn't there any more.
pub(super) fn positions(file: &JobFile, checkpoint: &Manifest) -> Vec<Finding> {
    each_source(file, |name, options| lost_positions(options, name, &file.job, &splits(checkpoint, name)))
}

/// Offsets to start at that aren't there, of a job that has no checkpoint.
pub(super) fn starts(file: &JobFile) -> Vec<Finding> {
    each_source(file, |name, options| bad_starts(options, name, &file.job))
}

fn each_source(
    file: &JobFile,
    look: impl Fn(&Name, &KafkaSourceOptions) -> Result<Vec<ConnectorError>, ConnectorError>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, source) in &file.sources {
        let SourceOptions::Kafka(options) = &source.options else { continue };
        let errors = look(name, options).unwrap_or_else(|error| vec![error]);
        let about = format!("source {name}");
        found.extend(errors.iter().map(|error| Finding::error(&about, error.without_name(), error.help())));
    }
    found
}
