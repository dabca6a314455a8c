//! The checkpoints of one slot of a job: who may write, what is published, what is read back.
//!
//! Fencing: a new run claims its attempt and *then* looks for the newest manifest; a publisher writes its manifest and *then*
//! looks for newer attempts. Whichever comes first, one of them sees the other, so no checkpoint is committed that the newer run
//! doesn't know of.
//!
//! Invariant: a [`PublishReceipt`] is given only for a manifest that has been on the disk, name and content, before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;

use super::codec::ManifestError;
use super::disk::{Created, Disk, blocking, create_folder};
use super::error::StoreError;
use super::manifest::Manifest;
use super::sealed::{checksum, seal};
use super::upload::FileUploader;
use super::{identity, layout};
use crate::id::{Attempt, Epoch, JobUid, Name, SubtaskId};
use crate::protocol::PublishReceipt;
use crate::protocol::decision::{Digest, Published};

/// No manifest is larger; one that claims to be is not ours.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// How often a run tries for an attempt against others that start at the same moment.
const CLAIMS_MAX: usize = 100;
/// Old claims are kept for people to look at, this many.
const CLAIMS_KEPT: u64 = 16;

/// The checkpoint store of one slot of one job. Clones share it.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Disk,
    job: Name,
    uid: JobUid,
    slot: u32,
    runtime: tokio::runtime::Handle,
    /// The files of the manifests that were read or published here; manifests never change.
    reached: Mutex<BTreeMap<Epoch, BTreeSet<String>>>,
    /// Held while a retention is under way: the newest committed epoch that one was for.
    retaining: tokio::sync::Mutex<Epoch>,
}

/// What a claim says inside, for people.
#[derive(Serialize)]
struct Claim {
    attempt: Attempt,
    process: u32,
    claimed_ms: u64,
}

/// What a note of a decision says inside, for people: its name says the same.
#[derive(Serialize)]
struct Decision {
    epoch: Epoch,
}

impl CheckpointStore {
    /// Opens the store of a job to run it; makes what isn't there yet, and gives the job its uid when it first runs.
    ///
    /// # Errors
    /// If the folder can't be written, is another job's, is damaged, or was written by a newer host.
    pub async fn open(root: &Path, job: &Name, slot: u32) -> Result<CheckpointStore, StoreError> {
        let folder = root.join(job.as_str());
        let disk = blocking(move || {
            create_folder(&folder.join(slot.to_string()))?;
            let disk = Disk::below(&folder)?;
            disk.check_writable()?;
            Ok(disk)
        })
        .await?;
        let uid = identity::read_or_create(&disk, job).await?;
        Ok(CheckpointStore::new(disk, job, uid, slot))
    }

    /// Opens the store of a job that has run, to look at it; writes nothing.
    ///
    /// # Errors
    /// [`StoreError::NoJob`] if it has never run; else as [`open`](Self::open).
    pub async fn open_existing(root: &Path, job: &Name, slot: u32) -> Result<CheckpointStore, StoreError> {
        let none = || StoreError::NoJob { job: job.clone(), root: root.to_owned() };
        let folder = root.join(job.as_str());
        if !folder.is_dir() {
            return Err(none());
        }
        let disk = Disk::below(&folder)?;
        match identity::read(&disk, job).await? {
            Some(uid) => Ok(CheckpointStore::new(disk, job, uid, slot)),
            None => {
                identity::refuse_orphans(&disk).await?;
                Err(none())
            }
        }
    }

    fn new(disk: Disk, job: &Name, uid: JobUid, slot: u32) -> CheckpointStore {
        let runtime = tokio::runtime::Handle::current();
        let (reached, retaining) = (Mutex::default(), tokio::sync::Mutex::new(Epoch(0)));
        CheckpointStore { inner: Arc::new(Inner { disk, job: job.clone(), uid, slot, runtime, reached, retaining }) }
    }

    pub fn job(&self) -> &Name {
        &self.inner.job
    }

    pub fn job_uid(&self) -> &JobUid {
        &self.inner.uid
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.inner.disk
    }

    pub(super) fn slot(&self) -> u32 {
        self.inner.slot
    }

    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.inner.runtime
    }

    /// Takes the next attempt, greater than every one taken before, in this process or another. Look for the newest manifest
    /// after this, not before.
    ///
    /// # Errors
    /// If the claim can't be written.
    pub async fn claim_attempt(&self) -> Result<Attempt, StoreError> {
        let published = self.newest_publisher().await?;
        for _ in 0..CLAIMS_MAX {
            let newest = self.newest_attempt().await?.max(published);
            let attempt = Attempt(newest.map_or(1, |newest| newest.0 + 1));
            let claim = Claim { attempt, process: std::process::id(), claimed_ms: identity::now_ms() };
            let path = layout::attempt(self.slot(), attempt);
            crate::crash::point("store.claim.before");
            let created = self.disk().put_new("claim", &path, Bytes::from(seal(&claim))).await?;
            crate::crash::point("store.claim.after");
            // A claim below another one was made from an outdated list; that number may have been used and pruned.
            if created == Created::New && self.newest_attempt().await? == Some(attempt) {
                self.prune_claims(attempt).await?;
                return Ok(attempt);
            }
        }
        let path = self.disk().place(&layout::attempts(self.slot()));
        let source = format!("other runs of the job took the attempt {CLAIMS_MAX} times in a row").into();
        Err(StoreError::Io { action: "claim an attempt in", path, source })
    }

    pub(super) async fn newest_attempt(&self) -> Result<Option<Attempt>, StoreError> {
        Ok(self.numbered(&layout::attempts(self.slot())).await?.last().copied().map(Attempt))
    }

    /// The attempt that published the newest manifest: should somebody have removed the claims, no number may come back that files
    /// in the store have in their names. A manifest that can't be read is an error of the load that follows.
    pub(super) async fn newest_publisher(&self) -> Result<Option<Attempt>, StoreError> {
        let Some(newest) = self.epochs().await?.pop() else { return Ok(None) };
        Ok(self.inspect(newest).await.ok().map(|manifest| manifest.attempt))
    }

    /// The newest claim is never removed, so the numbers go on growing.
    async fn prune_claims(&self, newest: Attempt) -> Result<(), StoreError> {
        for number in self.numbered(&layout::attempts(self.slot())).await? {
            if number + CLAIMS_KEPT <= newest.0 {
                self.disk().delete(&layout::attempt(self.slot(), Attempt(number))).await?;
            }
        }
        Ok(())
    }

    /// The numbers of the files of a folder, growing.
    pub(super) async fn numbered(&self, folder: &object_store::path::Path) -> Result<Vec<u64>, StoreError> {
        let files = self.disk().list(folder).await?.files;
        let mut numbers: Vec<u64> =
            files.iter().filter_map(|(path, _)| path.filename()).filter_map(layout::numbered).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The epochs that have a manifest, growing. What the manifests hold is not looked at.
    ///
    /// # Errors
    /// If the folder can't be listed.
    pub async fn epochs(&self) -> Result<Vec<Epoch>, StoreError> {
        Ok(self.numbered(&layout::manifests(self.slot())).await?.into_iter().map(Epoch).collect())
    }

    /// Reads the manifest of an epoch and makes sure that it is durable, whoever wrote it: a receipt may follow.
    ///
    /// # Errors
    /// If it isn't there, is damaged, is of a newer host, or isn't of this job, slot and epoch.
    pub async fn load(&self, epoch: Epoch) -> Result<(Manifest, PublishReceipt), StoreError> {
        let (manifest, digest) = self.read_manifest(epoch).await?;
        // Its writer may have died between creating the name and syncing the folder.
        self.disk().sync_file(&layout::manifest(self.slot(), epoch)).await?;
        Ok((manifest, PublishReceipt::for_published(epoch, digest)))
    }

    /// What tells whether a published checkpoint was decided.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub async fn published(&self, epoch: Epoch) -> Result<Published, StoreError> {
        let (manifest, digest) = self.read_manifest(epoch).await?;
        Ok(Published { digest, decision: manifest.decision })
    }

    /// Notes that a sink has decided this epoch, so that a marker that goes back later is noticed. Durable on return.
    ///
    /// # Errors
    /// If it can't be noted; the epoch is decided all the same.
    pub async fn note_decided(&self, epoch: Epoch) -> Result<(), StoreError> {
        let older = self.numbered(&layout::decisions(self.slot())).await?;
        let note = Bytes::from(seal(&Decision { epoch }));
        crate::crash::point("store.note-decided.before");
        self.disk().put_new("note the decision in", &layout::decision(self.slot(), epoch), note).await?;
        crate::crash::point("store.note-decided.after");
        for older in older.into_iter().filter(|older| *older < epoch.0) {
            self.disk().delete(&layout::decision(self.slot(), Epoch(older))).await?;
        }
        Ok(())
    }

    /// The newest epoch that was noted as decided.
    ///
    /// # Errors
    /// If the folder can't be listed.
    pub async fn noted_decided(&self) -> Result<Option<Epoch>, StoreError> {
        Ok(self.numbered(&layout::decisions(self.slot())).await?.last().copied().map(Epoch))
    }

    /// Removes the newest manifest, which was never decided and never will be: nobody may be able to decide it any more. Its
    /// files go with the next retention.
    ///
    /// # Errors
    /// If it can't be removed for certain.
    pub async fn withdraw(&self, undecided: Epoch) -> Result<(), StoreError> {
        crate::crash::point("store.withdraw.before");
        self.disk().delete(&layout::manifest(self.slot(), undecided)).await?;
        self.disk().sync_folder(&layout::manifests(self.slot())).await?;
        crate::crash::point("store.withdraw.after");
        self.disk().delete(&layout::kept_mark(self.slot(), undecided)).await?;
        self.forget(undecided);
        Ok(())
    }

    /// As [`load`](Self::load), only to look at it: writes nothing and gives no receipt.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub async fn inspect(&self, epoch: Epoch) -> Result<Manifest, StoreError> {
        Ok(self.read_manifest(epoch).await?.0)
    }

    async fn read_manifest(&self, epoch: Epoch) -> Result<(Manifest, Digest), StoreError> {
        let path = layout::manifest(self.slot(), epoch);
        let place = self.disk().place(&path);
        let none = || StoreError::NoCheckpoint { job: self.job().clone(), epoch };
        let size = self.disk().size("read", &path).await?.ok_or_else(none)?;
        if size > MANIFEST_BYTES_MAX {
            let problem = format!("it has {size} bytes");
            let source = super::sealed::Damage::Content { problem };
            return Err(StoreError::Damaged { what: "the manifest", path: place, source });
        }
        let bytes = self.disk().get("read", &path).await?.ok_or_else(none)?;
        let manifest = Manifest::decode(&bytes).map_err(|error: ManifestError| error.at(&place))?;
        self.check_identity(&manifest, epoch, &place)?;
        Ok((manifest, Digest(checksum(&bytes))))
    }

    pub(super) fn retaining(&self) -> &tokio::sync::Mutex<Epoch> {
        &self.inner.retaining
    }

    /// The paths of the files that a manifest needs.
    pub(super) async fn reached(&self, epoch: Epoch) -> Result<BTreeSet<String>, StoreError> {
        let known = self.known().get(&epoch).cloned();
        match known {
            Some(paths) => Ok(paths),
            None => {
                let manifest = self.inspect(epoch).await?;
                Ok(self.remember(&manifest))
            }
        }
    }

    pub(super) fn forget(&self, epoch: Epoch) {
        self.known().remove(&epoch);
    }

    fn remember(&self, manifest: &Manifest) -> BTreeSet<String> {
        let paths: BTreeSet<String> = manifest.files().map(|file| file.path.clone()).collect();
        self.known().insert(manifest.epoch, paths.clone());
        paths
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Epoch, BTreeSet<String>>> {
        // A map of whole entries is sound whatever a panicking thread was doing.
        self.inner.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_identity(&self, manifest: &Manifest, epoch: Epoch, place: &Path) -> Result<(), StoreError> {
        if manifest.job != self.inner.job {
            let (found, wanted) = (manifest.job.clone(), self.inner.job.clone());
            return Err(StoreError::OtherJob { path: place.to_owned(), found, wanted });
        }
        let fields = [
            ("job uid", manifest.job_uid.to_string(), self.inner.uid.to_string()),
            ("slot", manifest.slot.to_string(), self.inner.slot.to_string()),
            ("epoch", manifest.epoch.to_string(), epoch.to_string()),
        ];
        match fields.into_iter().find(|(_, found, wanted)| found != wanted) {
            Some((field, found, wanted)) => {
                Err(StoreError::OtherIdentity { path: place.to_owned(), field, found, wanted })
            }
            None => Ok(()),
        }
    }

    /// Writes the manifest, which makes its checkpoint the one to continue from. Durable on return. Published again with the
    /// same content, it is the same success.
    ///
    /// # Errors
    /// [`StoreError::Overtaken`] and [`StoreError::Fenced`] if another run is at work; else if it can't be written. After an
    /// error the attempt must end: the manifest may be there or not, and the next attempt finds out.
    ///
    /// # Panics
    /// If the manifest isn't of this job and slot.
    pub async fn publish(&self, manifest: &Manifest) -> Result<PublishReceipt, StoreError> {
        let epoch = manifest.epoch;
        let path = layout::manifest(self.slot(), epoch);
        let place = self.disk().place(&path);
        self.check_identity(manifest, epoch, &place).unwrap_or_else(|error| panic!("a manifest of our own: {error}"));
        self.refuse_fenced(manifest.attempt).await?;
        if let Some(found) = self.epochs().await?.pop().filter(|newest| *newest > epoch) {
            return Err(StoreError::Overtaken { epoch, found });
        }
        let bytes = Bytes::from(manifest.encode());
        crate::crash::point("store.publish.before");
        let created = self.disk().put_new("publish the manifest", &path, bytes.clone()).await?;
        crate::crash::point("store.publish.after");
        if created == Created::Exists {
            if self.disk().get("read", &path).await?.as_ref() != Some(&bytes) {
                return Err(StoreError::Overtaken { epoch, found: epoch });
            }
            self.disk().sync_file(&path).await?;
        }
        self.refuse_fenced(manifest.attempt).await?;
        self.remember(manifest);
        Ok(PublishReceipt::for_published(epoch, Digest(checksum(&bytes))))
    }

    async fn refuse_fenced(&self, ours: Attempt) -> Result<(), StoreError> {
        match self.newest_attempt().await? {
            Some(newer) if newer > ours => Err(StoreError::Fenced { ours, newer }),
            Some(_) | None => Ok(()),
        }
    }

    /// Uploads for one subtask in one attempt.
    pub fn uploader(&self, attempt: Attempt, subtask: &SubtaskId) -> FileUploader {
        FileUploader::new(self.clone(), attempt, subtask.clone())
    }
}
