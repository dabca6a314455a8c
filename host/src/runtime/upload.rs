//! Makes the parts of a snapshot durable, off the stream's path.

use std::path::Path;

use bytes::Bytes;

use crate::connector::ConnectorError;
use crate::id::{Attempt, Epoch, SubtaskId};
use crate::state::{StateError, TransferError, Uploader};
use crate::store::in_flight::{self, ChannelContent};
use crate::store::{CheckpointStore, EdgeRef, FileRef, FileUploader, InFlightSnapshot, StoreError, SubtaskSnapshot};
use crate::task::{InFlight, PendingPart, help_of_state};
use crate::telemetry::{JobCounters, StateSize};

/// Why a part could not be made durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    #[error("cannot save the state of {subtask}")]
    State { subtask: SubtaskId, source: StateError },
    #[error("cannot save the operator state of {subtask}")]
    Store { subtask: SubtaskId, source: StoreError },
    #[error("cannot save the records in flight to {subtask}")]
    InFlight { subtask: SubtaskId, source: StoreError },
    #[error("cannot prepare the output of {subtask}")]
    Sink { subtask: SubtaskId, source: ConnectorError },
    #[error("preparing the output of {subtask} panicked")]
    Panicked { subtask: SubtaskId },
}

impl UploadError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            UploadError::Store { source, .. } | UploadError::InFlight { source, .. } => source.help(),
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
    epoch: Epoch,
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
            let metrics = pending.metrics();
            let keyed = pending.upload(&uploader).await;
            let keyed = keyed.map_err(|source| UploadError::State { subtask: subtask.clone(), source })?;
            counters.subtask(&subtask).set_state(StateSize {
                snapshot_bytes: keyed.base.values().chain(&keyed.deltas).map(|file| file.size_bytes).sum(),
                memory_bytes: metrics.memory_bytes as u64,
                disk_bytes: metrics.disk_bytes,
            });
            snapshot.keyed = Some(keyed);
        }
        if !part.in_flight.is_empty() {
            let in_flight = upload_in_flight(part.in_flight, epoch, &uploader).await;
            let in_flight = in_flight.map_err(|source| UploadError::InFlight { subtask: subtask.clone(), source })?;
            snapshot.in_flight = Some(in_flight);
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

async fn upload_in_flight(
    in_flight: Vec<InFlight>,
    epoch: Epoch,
    uploader: &Counted<'_>,
) -> Result<InFlightSnapshot, StoreError> {
    let mut edges = Vec::new();
    let mut channels = Vec::with_capacity(in_flight.len());
    for InFlight { label, batches } in in_flight {
        let (from, output) = (label.from.operator.clone(), label.output.clone());
        let edge = EdgeRef { from, output, input: label.port, exchange: label.exchange };
        let place = edges.iter().position(|known| *known == edge).unwrap_or_else(|| {
            edges.push(edge);
            edges.len() - 1
        });
        channels.push(ChannelContent { edge: place as u32, sender: label.from.index, batches });
    }
    let bytes = Bytes::from(in_flight::encode(&channels));
    let file = uploader.inner.put_bytes(&format!("in-flight-{epoch}"), bytes).await?;
    uploader.counters.uploaded(file.size_bytes);
    Ok(InFlightSnapshot { edges, file })
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
