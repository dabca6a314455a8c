//! The checkpoints of jobs, and those of them that somebody keeps.
//!
//! Invariant: a savepoint that was given as one is marked, and its checkpoint is whole, until it is deleted here.

use std::path::PathBuf;
use std::sync::Arc;

use super::daemon::Daemon;
use super::error::{ServeError, with_causes};
use super::info::CheckpointInfo;
use super::job::JobEntry;
use crate::id::Epoch;
use crate::store::{CheckpointStore, ListedCheckpoint, StoreError};

/// One process runs a whole job.
const SLOT: u32 = 0;
/// How often a checkpoint is taken to keep it, if retention was faster than the mark.
const TRIES_MAX: usize = 5;

impl Daemon {
    /// The checkpoints of a job, oldest first.
    ///
    /// # Errors
    /// If there is no such job, or its store can't be read.
    pub async fn checkpoints(&self, name: &str) -> Result<Vec<CheckpointInfo>, ServeError> {
        let entry = self.entry(name)?;
        let Some(store) = self.store_of(&entry).await? else { return Ok(Vec::new()) };
        Ok(store.list().await?.into_iter().map(CheckpointInfo::from).collect())
    }

    /// Takes a checkpoint that is kept until it is deleted. Of a job that doesn't run it is the newest that there is.
    ///
    /// # Errors
    /// If there is no such job, it fails before, or has no checkpoint.
    pub async fn savepoint(&self, name: &str) -> Result<CheckpointInfo, ServeError> {
        self.refuse_when_shutting_down()?;
        let entry = self.entry(name)?;
        let epoch = if entry.is_live() { self.keep_next(&entry).await? } else { self.keep_newest(&entry).await? };
        let checkpoints = self.checkpoints(name).await?;
        let kept = checkpoints.into_iter().find(|checkpoint| checkpoint.epoch == epoch);
        kept.ok_or(ServeError::NoSavepoint { job: entry.name.clone(), epoch })
    }

    /// Makes a savepoint a checkpoint like all others: it goes when newer ones take its place, of a job that doesn't run at once.
    ///
    /// # Errors
    /// If there is no such job or savepoint.
    pub async fn delete_savepoint(&self, name: &str, epoch: u64) -> Result<(), ServeError> {
        self.refuse_when_shutting_down()?;
        let (entry, epoch) = (self.entry(name)?, Epoch(epoch));
        let none = || ServeError::NoSavepoint { job: entry.name.clone(), epoch };
        let store = self.store_of(&entry).await?.ok_or_else(none)?;
        match store.release(epoch).await {
            Err(StoreError::NotKept { .. }) => return Err(none()),
            released => released?,
        }
        let Some(retain) = entry.retain().filter(|_| !entry.is_live()) else { return Ok(()) };
        match store.retain_stopped(retain).await {
            // It was started meanwhile, and does it itself.
            Ok(_) | Err(StoreError::Running { .. } | StoreError::OtherRuns { .. }) => Ok(()),
            Err(error) => {
                tracing::warn!(job = %entry.name, %error, "what a deleted savepoint needed goes with the next checkpoint");
                Ok(())
            }
        }
    }

    /// Has a running job take a checkpoint, and keeps it.
    async fn keep_next(&self, entry: &Arc<JobEntry>) -> Result<Epoch, ServeError> {
        let no_checkpoint = |problem: String| ServeError::NoCheckpoint { job: entry.name.clone(), problem };
        for _ in 0..TRIES_MAX {
            let handle = entry.handle().ok_or_else(|| no_checkpoint(format!("it is {}", entry.status().as_str())))?;
            let epoch = handle.checkpoint().await.map_err(|refused| no_checkpoint(refused.to_string()))?;
            match self.keep(entry, epoch).await {
                // So many newer ones were committed meanwhile that it was removed.
                Err(ServeError::Store { source: StoreError::NoCheckpoint { .. } }) => {}
                kept => return kept.map(|()| epoch),
            }
        }
        Err(no_checkpoint(format!("each of {TRIES_MAX} was removed before it could be kept; raise checkpoint.retain")))
    }

    /// Keeps the newest checkpoint of a job that doesn't run.
    ///
    /// # Errors
    /// If there is none.
    pub(super) async fn keep_newest(&self, entry: &Arc<JobEntry>) -> Result<Epoch, ServeError> {
        let nothing = || ServeError::NothingToKeep { job: entry.name.clone() };
        let store = self.store_of(entry).await?.ok_or_else(nothing)?;
        let newest = store.newest_certain().await?.ok_or_else(nothing)?;
        store.keep(newest).await?;
        Ok(newest)
    }

    pub(super) async fn keep(&self, entry: &Arc<JobEntry>, epoch: Epoch) -> Result<(), ServeError> {
        let nothing = || ServeError::NothingToKeep { job: entry.name.clone() };
        Ok(self.store_of(entry).await?.ok_or_else(nothing)?.keep(epoch).await?)
    }

    /// The savepoints of a job.
    pub(super) async fn kept(&self, entry: &Arc<JobEntry>) -> Result<Vec<Epoch>, ServeError> {
        let Some(store) = self.store_of(entry).await? else { return Ok(Vec::new()) };
        Ok(store.kept().await?.into_iter().collect())
    }

    /// The store of a job; `None` if it has never run.
    async fn store_of(&self, entry: &JobEntry) -> Result<Option<CheckpointStore>, ServeError> {
        let place = self.place_of_store(entry);
        match CheckpointStore::open_existing(&place, &entry.name, SLOT).await {
            Ok(store) => Ok(Some(store)),
            Err(StoreError::NoJob { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where the job file says, else where it would be if that said nothing.
    fn place_of_store(&self, entry: &JobEntry) -> PathBuf {
        let known = entry.state().shape.as_ref().map(|shape| shape.store.clone());
        known.unwrap_or_else(|| self.folder.state(&entry.name).join("checkpoints"))
    }
}

impl From<ListedCheckpoint> for CheckpointInfo {
    fn from(listed: ListedCheckpoint) -> CheckpointInfo {
        let ListedCheckpoint { epoch, kept, content } = listed;
        let (content, problem) = match content {
            Ok(content) => (Some(content), None),
            Err(error) => (None, Some(with_causes(&error))),
        };
        CheckpointInfo {
            epoch,
            kept,
            attempt: content.as_ref().map(|content| content.attempt),
            created_at_ms: content.as_ref().map(|content| content.created_ms),
            ended: content.as_ref().map(|content| content.ended),
            files: content.as_ref().map(|content| content.files as u64),
            bytes: content.as_ref().map(|content| content.bytes),
            problem,
        }
    }
}
