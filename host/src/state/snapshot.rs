//! What `freeze` gives and the runtime finishes: the files of one subtask's snapshot on their way to the checkpoint store.
//!
//! Invariant: what a snapshot consists of is fixed when it is made. Nothing that is written to the state afterwards, and no work
//! in the background, changes a byte of it.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::base::{Base, KnownFiles, Sequence};
use super::delta_file;
use super::error::{StateError, TransferError};
use super::segment::Segment;
use crate::crash;
use crate::id::{Epoch, SubtaskId};
use crate::protocol::KeyGroupRange;
use crate::store::{FileRef, KeyedSnapshot, TableRef};

/// Brings files of one subtask and attempt to the checkpoint store.
///
/// An implementor owes: when a future is done, the file is durable under a name that no other attempt and no other subtask
/// uses. A name may come again, always with the same content, if an earlier try failed or was dropped half-way.
pub trait Uploader: Sync {
    fn put_bytes(&self, name: &str, content: Bytes) -> impl Future<Output = Result<FileRef, TransferError>> + Send;
    fn put_file(&self, name: &str, path: &Path) -> impl Future<Output = Result<FileRef, TransferError>> + Send;
}

/// What changed in one epoch, in memory until it is in the checkpoint store.
#[derive(Debug)]
pub struct Delta {
    pub sequence: Sequence,
    epoch: Epoch,
    segment: Mutex<Option<Arc<Segment>>>,
    file: OnceCell<FileRef>,
    /// About the size of its file.
    pub bytes: u64,
}

impl Delta {
    pub fn new(sequence: Sequence, epoch: Epoch, segment: Arc<Segment>) -> Arc<Delta> {
        let bytes = segment.arena().len() as u64;
        Arc::new(Delta { sequence, epoch, segment: Mutex::new(Some(segment)), file: OnceCell::new(), bytes })
    }

    /// A delta of the checkpoint that was restored.
    pub fn restored(sequence: Sequence, file: FileRef) -> Arc<Delta> {
        let bytes = file.size_bytes;
        let file = OnceCell::new_with(Some(file));
        Arc::new(Delta { sequence, epoch: Epoch(0), segment: Mutex::new(None), file, bytes })
    }

    /// Bytes that are kept in memory because they aren't in the store yet.
    pub fn unsent_bytes(&self) -> u64 {
        if self.file.initialized() { 0 } else { self.bytes }
    }

    async fn upload(&self, subtask: &SubtaskId, uploader: &impl Uploader) -> Result<FileRef, StateError> {
        let file = self.file.get_or_try_init(|| async {
            let segment = self.segment.lock().expect("no panic under this lock").clone();
            let segment = segment.expect("a delta has its segment until it is in the store");
            let epoch = self.epoch;
            let encoded = tokio::task::spawn_blocking(move || delta_file::encode(epoch, &segment)).await;
            let encoded = encoded.map_err(|_| StateError::Stopped { subtask: subtask.clone() })?;
            let name = format!("delta-{epoch}-{}", self.sequence.0);
            crash::point("state.delta.before");
            let file = uploader.put_bytes(&name, encoded.into()).await;
            crash::point("state.delta.after");
            file.map_err(|source| StateError::Upload { subtask: subtask.clone(), name, source })
        });
        let file = file.await?.clone();
        self.segment.lock().expect("no panic under this lock").take();
        Ok(file)
    }
}

/// A snapshot whose files aren't all in the checkpoint store yet. Dropped, it is as if it had never been: a later snapshot
/// brings what it needs.
#[derive(Debug)]
#[must_use = "a snapshot counts only when it is uploaded"]
pub struct PendingSnapshot {
    pub(super) subtask: SubtaskId,
    pub(super) key_groups: KeyGroupRange,
    pub(super) tables: Vec<TableRef>,
    pub(super) base: Option<Arc<Base>>,
    pub(super) deltas: Vec<Arc<Delta>>,
    pub(super) known: KnownFiles,
}

impl PendingSnapshot {
    /// Brings the missing files to the store. Must be awaited in a tokio runtime.
    ///
    /// # Errors
    /// If one can't be brought there or made.
    pub async fn upload(self, uploader: &impl Uploader) -> Result<KeyedSnapshot, StateError> {
        // Deltas first: they are small, and hold memory.
        let mut deltas = Vec::with_capacity(self.deltas.len());
        for delta in &self.deltas {
            deltas.push(delta.upload(&self.subtask, uploader).await?);
        }
        let base = match &self.base {
            Some(base) => base.upload(&self.subtask, &self.known, uploader).await?,
            None => Default::default(),
        };
        Ok(KeyedSnapshot { key_groups: self.key_groups, tables: self.tables, base, deltas })
    }
}
