//! The hands of retention: finds what is there, asks the protocol what may go, removes it.
//!
//! Order: manifests, oldest first, then an fsync of their folder, then files. A crash in between leaves files that no manifest
//! reaches, which the next attempt's retention removes, and never a manifest without its files.
//!
//! Invariant: nothing is deleted before everything has been listed, and nothing whose name isn't one that a host writes. While
//! something is deleted, nobody keeps a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;

use object_store::path::Path as ObjectPath;

use super::checkpoints::CheckpointStore;
use super::disk::blocking;
use super::error::StoreError;
use super::layout;
use super::lock::JobLock;
use crate::id::{Attempt, Epoch};
use crate::protocol::retention::{self, Deletions, RetentionFacts};

/// What a retention removed.
#[derive(Debug, Default)]
pub struct Retained {
    pub manifests: Vec<Epoch>,
    pub files: usize,
    /// Bytes of the files.
    pub bytes: u64,
    /// Writes that dead attempts never finished.
    pub leftovers: usize,
    /// Kept manifests that can't be read. What they need isn't known, so no file is removed while there is one; retention
    /// removes them too when newer ones have taken their place.
    pub unreadable: Vec<(Epoch, StoreError)>,
}

/// What was found, besides the facts for the protocol.
struct Found {
    facts: RetentionFacts,
    sizes: BTreeMap<String, u64>,
    leftovers: Vec<PathBuf>,
    unreadable: Vec<(Epoch, StoreError)>,
}

impl CheckpointStore {
    /// Removes what the `keep` newest committed checkpoints, newer ones and those that a user keeps don't need. Files that an upload of `attempt`, which
    /// is the running one, may still be making stay. Calls may overlap; for an epoch before one that was given already there is
    /// nothing to do, and neither is there while another process keeps or removes something: the next retention does it.
    ///
    /// # Errors
    /// If the committed manifest is gone, or something can't be listed or deleted. Nothing needed is lost then.
    pub async fn retain(&self, committed: Epoch, keep: NonZeroU32, attempt: Attempt) -> Result<Retained, StoreError> {
        // One at a time: a retention that was overtaken would miss the manifests that the newer one has removed.
        let mut newest = self.retaining().lock().await;
        if committed < *newest {
            return Ok(Retained::default());
        }
        let Some(_alone) = self.try_alone().await? else { return Ok(Retained::default()) };
        *newest = committed;
        let found = self.look(committed, attempt).await?;
        let mut deletions = retention::plan(&found.facts, keep).map_err(StoreError::Retention)?;
        let going: BTreeSet<Epoch> = deletions.manifests.iter().copied().collect();
        let unreadable: Vec<_> = found.unreadable.into_iter().filter(|(epoch, _)| !going.contains(epoch)).collect();
        if !unreadable.is_empty() {
            deletions.files.clear();
        }
        self.delete_all(&deletions, &found.leftovers).await?;
        let bytes = deletions.files.iter().filter_map(|path| found.sizes.get(path)).sum();
        let (files, leftovers) = (deletions.files.len(), found.leftovers.len());
        Ok(Retained { manifests: deletions.manifests, files, bytes, leftovers, unreadable })
    }

    /// As [`retain`](Self::retain), of a job that doesn't run and isn't started meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Running`] if it does; else as [`retain`](Self::retain).
    pub async fn retain_stopped(&self, keep: NonZeroU32) -> Result<Retained, StoreError> {
        let (folder, job) = (self.disk().place(&ObjectPath::default()), self.job().clone());
        let _lock = blocking(move || JobLock::acquire(&folder, &job)).await?;
        let Some(committed) = self.newest_certain().await? else { return Ok(Retained::default()) };
        let last = self.newest_attempt().await?.max(self.newest_publisher().await?);
        // None is running, so what every one that there was has left and nobody reaches may go.
        let next = Attempt(last.map_or(1, |last| last.0 + 1));
        self.retain(committed, keep, next).await
    }

    /// Files first and manifests after them, so that a manifest that is published meanwhile protects its files.
    async fn look(&self, committed: Epoch, attempt: Attempt) -> Result<Found, StoreError> {
        let (mut files, mut sizes, mut leftovers) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for folder in self.subtask_folders().await? {
            for (path, size) in self.disk().list(&folder).await?.files {
                if let Some((relative, writer)) = self.written(&path) {
                    sizes.insert(relative.clone(), size);
                    files.insert(relative, writer);
                }
            }
            let dead = |of: &str| layout::writer(of).is_some_and(|writer| writer < attempt);
            leftovers.extend(self.unfinished(&folder, dead).await?);
        }
        let dead = |of: &str| layout::numbered(of).is_some_and(|number| number < attempt.0);
        leftovers.extend(self.unfinished(&layout::attempts(self.slot()), dead).await?);
        let done = |of: &str| layout::numbered(of).is_some_and(|number| number <= committed.0);
        leftovers.extend(self.unfinished(&layout::manifests(self.slot()), done).await?);
        // Nobody writes one now.
        leftovers.extend(self.unfinished(&layout::kept_marks(self.slot()), |_| true).await?);
        let (mut manifests, mut unreadable) = (BTreeMap::new(), Vec::new());
        for epoch in self.epochs().await? {
            let reached = match self.reached(epoch).await {
                Ok(reached) => reached,
                // Another process was faster.
                Err(StoreError::NoCheckpoint { .. }) => continue,
                Err(error) => {
                    unreadable.push((epoch, error));
                    BTreeSet::new()
                }
            };
            manifests.insert(epoch, reached);
        }
        let facts = RetentionFacts { files, manifests, kept: self.kept().await?, committed, attempt };
        Ok(Found { facts, sizes, leftovers, unreadable })
    }

    async fn subtask_folders(&self) -> Result<Vec<ObjectPath>, StoreError> {
        let mut folders = Vec::new();
        for operator in self.disk().list(&layout::files(self.slot())).await?.folders {
            folders.extend(self.disk().list(&operator).await?.folders);
        }
        Ok(folders)
    }

    /// The path as manifests have it and the attempt that wrote it; `None` for what isn't ours.
    fn written(&self, path: &ObjectPath) -> Option<(String, Attempt)> {
        let relative = path.as_ref().strip_prefix(&format!("{}/", self.slot()))?;
        layout::check(relative).ok()?;
        Some((relative.to_owned(), layout::writer(path.filename()?)?))
    }

    async fn unfinished(&self, folder: &ObjectPath, goes: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, StoreError> {
        let mut found = self.disk().unfinished(folder).await?;
        found.retain(|path| {
            let of = path.file_name().and_then(|name| name.to_str()).and_then(layout::unfinished);
            of.is_some_and(&goes)
        });
        Ok(found)
    }

    async fn delete_all(&self, deletions: &Deletions, leftovers: &[PathBuf]) -> Result<(), StoreError> {
        for epoch in &deletions.manifests {
            crate::crash::point("store.retain-manifest.before");
            self.disk().delete(&layout::manifest(self.slot(), *epoch)).await?;
            crate::crash::point("store.retain-manifest.after");
            self.forget(*epoch);
        }
        if !deletions.manifests.is_empty() {
            // A power cut may not bring back a manifest whose files are gone.
            self.disk().sync_folder(&layout::manifests(self.slot())).await?;
        }
        for path in &deletions.files {
            crate::crash::point("store.retain-file.before");
            self.disk().delete(&layout::file(self.slot(), path)?).await?;
            crate::crash::point("store.retain-file.after");
        }
        let leftovers = leftovers.to_vec();
        blocking(move || leftovers.iter().try_for_each(|path| super::disk::remove(path))).await
    }
}
