//! Makes the parts of a snapshot durable, off the stream's path.

use std::path::Path;

use bytes::Bytes;

use crate::connector::ConnectorError;
use crate::id::{Attempt, SubtaskId};
use crate::state::{StateError, TransferError, Uploader};
use crate::store::{CheckpointStore, FileRef, FileUploader, StoreError, SubtaskSnapshot};
use crate::task::{PendingPart, help_of_state};
use crate::telemetry::JobCounters;

/// Why a part could not be made durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    #[error("cannot save the state of {subtask}")]
    State { subtask: SubtaskId, source: StateError },
    #[error("cannot save the operator state of {subtask}")]
    Store { subtask: SubtaskId, source: StoreError },
    #[error("cannot prepare the output of {subtask}")]
    Sink { subtask: SubtaskId, source: ConnectorError },
    #[error("preparing the output of {subtask} panicked")]
    Panicked { subtask: SubtaskId },
}

impl UploadError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            UploadError::Store { source, .. } => source.help(),
            UploadError::State { source, .. } => help_of_state(source),
            UploadError::Sink { source, .. } => Some(source.help()),
            UploadError::Panicked { .. } => None,
        }
    }
}

/// One subtask's part, durable.
pub type Part = (SubtaskId, SubtaskSnapshot);

/// Uploads all parts of a task, one after the other.
///
/// # Errors
/// [`UploadError`]; what was uploaded before is collected by retention later.
pub async fn upload(
    parts: Vec<PendingPart>,
    epoch: crate::id::Epoch,
    store: CheckpointStore,
    attempt: Attempt,
    counters: &JobCounters,
) -> Result<Vec<Part>, UploadError> {
    let mut done = Vec::with_capacity(parts.len());
    for part in parts {
        let subtask = part.subtask.clone();
        let uploader = Counted { inner: store.uploader(attempt, &subtask), counters };
        let mut snapshot = SubtaskSnapshot { splits: part.splits, ..SubtaskSnapshot::default() };
        if !part.operator_state.is_empty() {
            let name = format!("operator-{epoch}");
            let file = uploader.inner.put_bytes(&name, Bytes::from(part.operator_state)).await;
            let file = file.map_err(|source| UploadError::Store { subtask: subtask.clone(), source })?;
            counters.uploaded(file.size_bytes);
            snapshot.operator_state = Some(file);
        }
        if let Some(pending) = part.keyed {
            let keyed = pending.upload(&uploader).await;
            snapshot.keyed = Some(keyed.map_err(|source| UploadError::State { subtask: subtask.clone(), source })?);
        }
        if let Some(prepare) = part.prepare {
            // It waits for the disk.
            let prepared = tokio::task::spawn_blocking(prepare).await;
            let prepared = prepared.map_err(|_| UploadError::Panicked { subtask: subtask.clone() })?;
            snapshot.committable = prepared.map_err(|source| UploadError::Sink { subtask: subtask.clone(), source })?;
        }
        done.push((subtask, snapshot));
    }
    Ok(done)
}

/// Uploads for one subtask, counted.
struct Counted<'a> {
    inner: FileUploader,
    counters: &'a JobCounters,
}

impl Uploader for Counted<'_> {
    async fn put_bytes(&self, name: &str, content: Bytes) -> Result<FileRef, TransferError> {
        let file = self.inner.put_bytes(name, content).await?;
        self.counters.uploaded(file.size_bytes);
        Ok(file)
    }

    async fn put_file(&self, name: &str, path: &Path) -> Result<FileRef, TransferError> {
        let file = self.inner.put_file(name, path).await?;
        self.counters.uploaded(file.size_bytes);
        Ok(file)
    }
}
