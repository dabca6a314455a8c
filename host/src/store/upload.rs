//! Files on their way into the store.
//!
//! Invariant: a [`FileRef`] is given only for a file that is on the disk under its name, and its checksum is that of the bytes
//! that were read, not of what the disk says afterwards.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::checkpoints::CheckpointStore;
use super::disk::{Created, blocking, create_folder, sync};
use super::error::StoreError;
use super::layout;
use super::manifest::FileRef;
use super::sealed::digits;
use crate::id::{Attempt, SubtaskId};

/// How much of a file is in memory at a time. Object stores want parts of at least 5 MiB.
const PART_BYTES: usize = 5 << 20;
/// The same where a file is only looked at.
const HASHED_BYTES: usize = 1 << 20;

/// Uploads for one subtask in one attempt. Clones are the same.
#[derive(Clone, Debug)]
pub struct FileUploader {
    store: CheckpointStore,
    attempt: Attempt,
    subtask: SubtaskId,
}

impl FileUploader {
    pub(super) fn new(store: CheckpointStore, attempt: Attempt, subtask: SubtaskId) -> FileUploader {
        FileUploader { store, attempt, subtask }
    }

    /// Uploads bytes under a name that this subtask hasn't used in this attempt, or has used for the same bytes. Durable on
    /// return. Dropped half-way, it may be tried again.
    ///
    /// # Errors
    /// [`StoreError::UnsafePath`] for a name that isn't 1 to 200 letters, digits, `.`, `_`, `-`; [`StoreError::Exists`] for one that
    /// was used for other bytes; else if it can't be written. Nothing is there under the name then, or all of it.
    pub async fn put_bytes(&self, name: &str, bytes: Bytes) -> Result<FileRef, StoreError> {
        let (path, target) = self.target(name)?;
        let file = FileRef { path, size_bytes: bytes.len() as u64, xxh3: digits(xxh3_64(&bytes)) };
        crate::crash::point("store.upload.before");
        let created = self.store.disk().put_new("upload", &target, bytes).await?;
        crate::crash::point("store.upload.after");
        match created {
            Created::New => Ok(file),
            Created::Exists => self.adopt(file, &target).await,
        }
    }

    /// Uploads a file, as [`put_bytes`](Self::put_bytes), whatever its size in a few megabytes of memory.
    ///
    /// The content of `source` may never change again, though its name may go: on the same file system the upload is a hard
    /// link to it. That is as safe as a copy, since both would be on the same disk.
    ///
    /// # Errors
    /// As [`put_bytes`](Self::put_bytes), and if `source` can't be read.
    pub async fn put_file(&self, name: &str, source: &Path) -> Result<FileRef, StoreError> {
        let (path, target) = self.target(name)?;
        if self.store.disk().size("upload", &target).await?.is_some() {
            let source = source.to_owned();
            let file = blocking(move || describe(path, &source)).await?;
            return self.adopt(file, &target).await;
        }
        crate::crash::point("store.upload.before");
        let file = match self.link(&path, &target, source).await? {
            Some((file, Created::New)) => file,
            Some((file, Created::Exists)) => self.adopt(file, &target).await?,
            None => self.copy(path, &target, source).await?,
        };
        crate::crash::point("store.upload.after");
        Ok(file)
    }

    /// What is there already is the file, if it was an earlier try that put it there; that try may not have synced it.
    async fn adopt(&self, file: FileRef, target: &ObjectPath) -> Result<FileRef, StoreError> {
        match self.store.check(&file).await {
            Ok(()) => {}
            Err(StoreError::Damaged { path, .. }) => return Err(StoreError::Exists { path }),
            Err(error) => return Err(error),
        }
        self.store.disk().sync_file(target).await?;
        Ok(file)
    }

    fn target(&self, name: &str) -> Result<(String, ObjectPath), StoreError> {
        let path = layout::new_file(self.attempt, &self.subtask, name)?;
        let target = layout::file(self.store.slot(), &path)?;
        Ok((path, target))
    }

    /// `None` if the file system can't link here.
    ///
    /// Order: sync the content, so that no name ever leads to half of it; link, which creates the name at once; sync the folder, so
    /// that the name outlasts a power cut before anybody counts on it.
    async fn link(
        &self,
        path: &str,
        target: &ObjectPath,
        source: &Path,
    ) -> Result<Option<(FileRef, Created)>, StoreError> {
        let (path, source, place) = (path.to_owned(), source.to_owned(), self.store.disk().place(target));
        blocking(move || {
            // A link to a symbolic link would be one, too.
            let source = source.canonicalize().map_err(|error| StoreError::io("upload", &source, error))?;
            sync(&source)?;
            let Some(folder) = place.parent() else { return Ok(None) };
            create_folder(folder)?;
            let created = match fs::hard_link(&source, &place) {
                Ok(()) => Created::New,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Created::Exists,
                Err(error) if can_copy_instead(&error) => return Ok(None),
                Err(error) => return Err(StoreError::io("upload", &place, error)),
            };
            sync(folder)?;
            Ok(Some((describe(path, &source)?, created)))
        })
        .await
    }

    async fn copy(&self, path: String, target: &ObjectPath, source: &Path) -> Result<FileRef, StoreError> {
        let disk = self.store.disk();
        let failed = |error| StoreError::object("upload", &disk.place(target), error);
        let mut upload = disk.objects().put_multipart(target).await.map_err(failed)?;
        let copied = async {
            let (size_bytes, xxh3) = copy_parts(upload.as_mut(), source, &disk.place(target)).await?;
            upload.complete().await.map_err(failed)?;
            Ok(FileRef { path, size_bytes, xxh3: digits(xxh3) })
        }
        .await;
        if copied.is_err() {
            // What is left of it is removed by a later retention if this fails too; the first error is the one to tell.
            let _ = upload.abort().await;
        }
        copied
    }
}

/// Sends a file part by part; gives its size and checksum.
async fn copy_parts(upload: &mut dyn MultipartUpload, source: &Path, target: &Path) -> Result<(u64, u64), StoreError> {
    let mut hash = Xxh3::new();
    let mut size_bytes = 0;
    let mut file = open(source.to_owned()).await?;
    loop {
        let (rest, part) = read_part(file, source.to_owned()).await?;
        file = rest;
        if part.is_empty() {
            return Ok((size_bytes, hash.digest()));
        }
        hash.update(&part);
        size_bytes += part.len() as u64;
        let sent = upload.put_part(part.into()).await;
        sent.map_err(|error| StoreError::object("upload", target, error))?;
    }
}

async fn open(source: PathBuf) -> Result<File, StoreError> {
    blocking(move || File::open(&source).map_err(|error| StoreError::io("upload", &source, error))).await
}

async fn read_part(mut file: File, source: PathBuf) -> Result<(File, Bytes), StoreError> {
    blocking(move || {
        let mut part = Vec::with_capacity(PART_BYTES);
        let read = (&mut file).take(PART_BYTES as u64).read_to_end(&mut part);
        read.map_err(|error| StoreError::io("upload", &source, error))?;
        Ok((file, part.into()))
    })
    .await
}

/// Size and checksum of a file, for the path it has in the store.
fn describe(path: String, source: &Path) -> Result<FileRef, StoreError> {
    let failed = |error| StoreError::io("upload", source, error);
    let mut file = File::open(source).map_err(failed)?;
    let mut hash = Xxh3::new();
    let mut part = vec![0; HASHED_BYTES];
    let mut size_bytes = 0;
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(FileRef { path, size_bytes, xxh3: digits(hash.digest()) }),
            Ok(read) => {
                hash.update(&part[..read]);
                size_bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Another file system, one without links, too many links, or a link that isn't allowed: a copy may still be possible.
fn can_copy_instead(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}
