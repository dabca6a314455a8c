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
use super::keyed::StateMetrics;
use super::queue::Covers;
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

/// What changed in one or several epochs, in memory until it is in the checkpoint store.
#[derive(Debug)]
pub struct Delta {
    pub sequence: Sequence,
    pub epoch: Epoch,
    /// In the checkpoint store.
    name: String,
    segment: Mutex<Option<Arc<Segment>>>,
    file: OnceCell<FileRef>,
    /// About the size of its file.
    pub bytes: u64,
}

impl Delta {
    /// What was written in one epoch.
    pub fn new(sequence: Sequence, epoch: Epoch, segment: Arc<Segment>) -> Arc<Delta> {
        Delta::named(format!("delta-{epoch}-{}", sequence.0), sequence, epoch, segment)
    }

    /// What was written in several epochs, of which `epoch` is the last.
    pub fn consolidated(covers: Covers, epoch: Epoch, segment: Arc<Segment>) -> Arc<Delta> {
        Delta::named(format!("delta-{epoch}-{}-{}", covers.first.0, covers.last.0), covers.last, epoch, segment)
    }

    fn named(name: String, sequence: Sequence, epoch: Epoch, segment: Arc<Segment>) -> Arc<Delta> {
        let bytes = segment.arena().len() as u64;
        let (segment, file) = (Mutex::new(Some(segment)), OnceCell::new());
        Arc::new(Delta { sequence, epoch, name, segment, file, bytes })
    }

    /// A delta of the checkpoint that was restored.
    pub fn restored(sequence: Sequence, file: FileRef) -> Arc<Delta> {
        let (name, bytes) = (file.path.clone(), file.size_bytes);
        let (segment, file) = (Mutex::new(None), OnceCell::new_with(Some(file)));
        Arc::new(Delta { sequence, epoch: Epoch(0), name, segment, file, bytes })
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
            crash::point("state.delta.before");
            let file = uploader.put_bytes(&self.name, encoded.into()).await;
            crash::point("state.delta.after");
            let name = || self.name.clone();
            file.map_err(|source| StateError::Upload { subtask: subtask.clone(), name: name(), source })
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
    pub(super) metrics: StateMetrics,
}

impl PendingSnapshot {
    /// How large the state was when the snapshot was taken.
    pub fn metrics(&self) -> StateMetrics {
        self.metrics
    }

    /// Whether anything was written in this epoch.
    pub fn has_writes_of(&self, epoch: Epoch) -> bool {
        self.deltas.iter().any(|delta| delta.epoch == epoch)
    }

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
