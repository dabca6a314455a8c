//! What a store holds, for people: its checkpoints with what is in them.
//!
//! Invariant: nothing is written, so that it may be asked of a job that runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::checkpoints::CheckpointStore;
use super::error::StoreError;
use super::manifest::{Manifest, total};
use crate::id::{Epoch, Name};

/// A checkpoint that a job could continue from.
#[derive(Debug)]
pub struct ListedCheckpoint {
    pub epoch: Epoch,
    /// Whether a user keeps it.
    pub kept: bool,
    /// Or why its manifest can't be read.
    pub content: Result<CheckpointContent, StoreError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointContent {
    pub attempt: u64,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Whether the job's input had ended.
    pub ended: bool,
    pub files: usize,
    pub bytes: u64,
    /// The SHA-256 of the component of each operator that has taken its snapshots.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<Name, String>,
}

impl CheckpointContent {
    fn of(manifest: &Manifest) -> CheckpointContent {
        // A file that several parts name is counted once.
        let sizes: BTreeMap<_, _> = manifest.files().map(|file| (&file.path, file.size_bytes)).collect();
        let component = |name: &Name| Some((name.clone(), manifest.component(name)?.to_owned()));
        CheckpointContent {
            attempt: manifest.attempt.0,
            created_ms: manifest.created_ms,
            ended: manifest.ended,
            files: sizes.len(),
            bytes: total(sizes.values()),
            components: manifest.operators.keys().filter_map(component).collect(),
        }
    }
}

impl CheckpointStore {
    /// All checkpoints, oldest first. The job continues from the last that is decided.
    ///
    /// # Errors
    /// If the store can't be listed. A manifest that can't be read is part of the list.
    pub async fn list(&self) -> Result<Vec<ListedCheckpoint>, StoreError> {
        let kept = self.kept().await?;
        let mut checkpoints = Vec::new();
        for epoch in self.epochs().await? {
            let content = match self.inspect(epoch).await {
                Ok(manifest) => Ok(CheckpointContent::of(&manifest)),
                // Retention has removed it meanwhile.
                Err(StoreError::NoCheckpoint { .. }) => continue,
                Err(error) => Err(error),
            };
            checkpoints.push(ListedCheckpoint { epoch, kept: kept.contains(&epoch), content });
        }
        Ok(checkpoints)
    }
}
