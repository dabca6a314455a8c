//! Savepoints: checkpoints that a user keeps, marked by a file of their number.
//!
//! A checkpoint is published first and marked then, so a retention could come in between. So whoever marks and whoever removes
//! takes one lock (the kernel's, so that no way of dying leaves it behind): either the mark is there before the retention looks, or
//! the manifest is gone before the mark is written, and then it isn't written.
//!
//! Invariant: a mark that [`CheckpointStore::keep`] has returned for is on the disk, and so are the manifest and all files of its
//! checkpoint until the mark is removed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Serialize;

use super::checkpoints::CheckpointStore;
use super::disk::{Created, blocking};
use super::error::StoreError;
use super::identity::now_ms;
use super::layout;
use super::sealed::seal;
use crate::id::Epoch;

/// What a mark says inside, for people: its name says which checkpoint it is.
#[derive(Serialize)]
struct Mark {
    epoch: Epoch,
    kept_ms: u64,
}

/// While it lives nobody else keeps, releases or removes a checkpoint of this slot.
#[derive(Debug)]
pub(super) struct Alone {
    _lock: File,
}

impl CheckpointStore {
    /// Keeps a checkpoint until [`release`](Self::release). It must be decided. Durable on return; kept again, it is the same
    /// success.
    ///
    /// # Errors
    /// [`StoreError::NoCheckpoint`] if it isn't there (any more); else if the mark can't be written.
    pub async fn keep(&self, epoch: Epoch) -> Result<(), StoreError> {
        let _alone = self.alone().await?;
        self.inspect(epoch).await?;
        let mark = Bytes::from(seal(&Mark { epoch, kept_ms: now_ms() }));
        let path = layout::kept_mark(self.slot(), epoch);
        crate::crash::point("store.keep.before");
        if self.disk().put_new("mark as kept by", &path, mark).await? == Created::Exists {
            // Its writer may have died before it was durable.
            self.disk().sync_file(&path).await?;
        }
        crate::crash::point("store.keep.after");
        Ok(())
    }

    /// Makes a kept checkpoint one like all others. Durable on return; what nobody needs any more goes with the next retention.
    ///
    /// # Errors
    /// [`StoreError::NotKept`] if it isn't kept; else if the mark can't be removed.
    pub async fn release(&self, epoch: Epoch) -> Result<(), StoreError> {
        let _alone = self.alone().await?;
        if !self.marks().await?.contains(&epoch) {
            return Err(StoreError::NotKept { job: self.job().clone(), epoch });
        }
        crate::crash::point("store.release.before");
        self.disk().delete(&layout::kept_mark(self.slot(), epoch)).await?;
        self.disk().sync_folder(&layout::kept_marks(self.slot())).await?;
        crate::crash::point("store.release.after");
        Ok(())
    }

    /// The checkpoints that are kept.
    ///
    /// # Errors
    /// If a folder can't be listed.
    pub async fn kept(&self) -> Result<BTreeSet<Epoch>, StoreError> {
        let marks = self.marks().await?;
        if marks.is_empty() {
            return Ok(marks);
        }
        let epochs = self.epochs().await?;
        Ok(epochs.into_iter().filter(|epoch| marks.contains(epoch)).collect())
    }

    /// The newest checkpoint that is decided for certain, as far as the store alone can tell.
    ///
    /// # Errors
    /// If the store can't be read.
    pub async fn newest_certain(&self) -> Result<Option<Epoch>, StoreError> {
        let mut epochs = self.epochs().await?;
        let Some(newest) = epochs.pop() else { return Ok(None) };
        let decided_elsewhere = self.inspect(newest).await?.decision.is_some();
        if !decided_elsewhere || self.noted_decided().await? >= Some(newest) {
            return Ok(Some(newest));
        }
        // None is published before the one before it is committed.
        Ok(epochs.pop())
    }

    async fn marks(&self) -> Result<BTreeSet<Epoch>, StoreError> {
        let marks = self.numbered(&layout::kept_marks(self.slot())).await?;
        Ok(marks.into_iter().map(Epoch).collect())
    }

    /// Waits until nobody else keeps, releases or removes, which takes none of them long.
    async fn alone(&self) -> Result<Alone, StoreError> {
        let path = self.disk().place(&layout::retention_lock(self.slot()));
        blocking(move || {
            let file = open(&path)?;
            file.lock().map_err(|error| StoreError::io("lock", &path, error))?;
            Ok(Alone { _lock: file })
        })
        .await
    }

    /// `None` while somebody else has it.
    pub(super) async fn try_alone(&self) -> Result<Option<Alone>, StoreError> {
        let path: PathBuf = self.disk().place(&layout::retention_lock(self.slot()));
        blocking(move || {
            let file = open(&path)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(Alone { _lock: file })),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path, error)),
            }
        })
        .await
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| StoreError::io("lock", path, error))
}
