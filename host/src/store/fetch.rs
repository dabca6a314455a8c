//! Files of a checkpoint, read back.
//!
//! Invariant: no byte is handed on whose file doesn't have the size and the checksum that its manifest says.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::checkpoints::CheckpointStore;
use super::error::StoreError;
use super::layout;
use super::manifest::{FileRef, total};
use super::sealed::{Damage, digits};
use crate::id::Epoch;

/// How much of a file is in memory at a time.
const PART_BYTES: u64 = 4 << 20;

/// What [`CheckpointStore::verify`] found.
#[derive(Debug)]
pub struct VerifyReport {
    pub epoch: Epoch,
    /// How many files the checkpoint has, and how large they are together, by its manifest.
    pub files: usize,
    pub bytes: u64,
    /// Why it can't be restored; empty if it can.
    pub problems: Vec<StoreError>,
}

impl CheckpointStore {
    /// Copies a file of a checkpoint to `to`, where nothing may be. Blocks: for a thread of its own, not for a task of the runtime.
    /// On an error nothing is left at `to`.
    ///
    /// # Errors
    /// If the file is missing, isn't as it was written, or the copy can't be written.
    ///
    /// # Panics
    /// In an asynchronous task.
    pub fn fetch(&self, file: &FileRef, to: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::io("write", to, error);
        let path = self.runtime().block_on(self.find(file))?;
        let mut copy = File::create_new(to).map_err(failed)?;
        let mut write = |part: &[u8]| copy.write_all(part).map_err(failed);
        let fetched = self.runtime().block_on(self.read_parts(file, &path, &mut write));
        if fetched.is_err() {
            // The first error is the one to tell; the folder is thrown away with the attempt.
            let _ = fs::remove_file(to);
        }
        fetched
    }

    /// Reads a small file of a checkpoint.
    ///
    /// # Errors
    /// If the file is missing or isn't as it was written.
    pub async fn read(&self, file: &FileRef) -> Result<Bytes, StoreError> {
        let path = self.find(file).await?;
        let bytes = self.disk().get("read", &path).await?.ok_or_else(|| self.missing(&path))?;
        self.compare(file, &path, bytes.len() as u64, xxh3_64(&bytes))?;
        Ok(bytes)
    }

    /// Reads every file of a checkpoint and compares it with the manifest.
    ///
    /// # Errors
    /// If the manifest itself can't be read, or the disk fails. A file that is missing or damaged is a finding of the report.
    pub async fn verify(&self, epoch: Epoch) -> Result<VerifyReport, StoreError> {
        let manifest = self.inspect(epoch).await?;
        // Two references to one path that disagree can't both be true, so both are looked at.
        let files: BTreeMap<_, _> = manifest.files().map(|file| (file, file.size_bytes)).collect();
        let bytes = total(files.values());
        let mut report = VerifyReport { epoch, files: files.len(), bytes, problems: Vec::new() };
        for file in files.keys() {
            match self.check(file).await {
                Ok(()) => {}
                Err(error @ (StoreError::Missing { .. } | StoreError::Damaged { .. })) => report.problems.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Whether the file is there as it was written.
    pub(super) async fn check(&self, file: &FileRef) -> Result<(), StoreError> {
        let path = self.find(file).await?;
        self.read_parts(file, &path, &mut |_| Ok(())).await
    }

    /// Where the file is, if it is there with the right size.
    async fn find(&self, file: &FileRef) -> Result<ObjectPath, StoreError> {
        let path = layout::file(self.slot(), &file.path)?;
        let found = self.disk().size("read", &path).await?.ok_or_else(|| self.missing(&path))?;
        if found == file.size_bytes {
            return Ok(path);
        }
        Err(self.damaged(&path, Damage::Size { expected: file.size_bytes, found }))
    }

    /// Hands the content on part by part; an error at the end says that none of it can be used.
    async fn read_parts(
        &self,
        file: &FileRef,
        path: &ObjectPath,
        part_to: &mut (dyn FnMut(&[u8]) -> Result<(), StoreError> + Send),
    ) -> Result<(), StoreError> {
        let mut hash = Xxh3::new();
        let mut at = 0;
        while at < file.size_bytes {
            let end = file.size_bytes.min(at + PART_BYTES);
            let part = self.disk().objects().get_range(path, at..end).await;
            let part = part.map_err(|error| StoreError::object("read", &self.disk().place(path), error))?;
            hash.update(&part);
            part_to(&part)?;
            at = end;
        }
        self.compare(file, path, at, hash.digest())
    }

    fn compare(&self, file: &FileRef, path: &ObjectPath, size: u64, xxh3: u64) -> Result<(), StoreError> {
        if size != file.size_bytes {
            return Err(self.damaged(path, Damage::Size { expected: file.size_bytes, found: size }));
        }
        let found = digits(xxh3);
        if found == file.xxh3 {
            return Ok(());
        }
        Err(self.damaged(path, Damage::Checksum { expected: file.xxh3.clone(), found }))
    }

    fn missing(&self, path: &ObjectPath) -> StoreError {
        StoreError::Missing { what: "a file of the checkpoint", path: self.disk().place(path) }
    }

    fn damaged(&self, path: &ObjectPath, source: Damage) -> StoreError {
        StoreError::Damaged { what: "a file of the checkpoint", path: self.disk().place(path), source }
    }
}
