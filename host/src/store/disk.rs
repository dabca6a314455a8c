//! The object store under a job's folder, on a local disk, with the three things that `object_store` leaves out: an fsync for a
//! folder, sight of writes that never finished, and files taken over by a hard link.
//!
//! Invariant: what a `put_*` has returned for is on the disk, content and name, and whole: a file appears under its name at once
//! and never changes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::error::StoreError;

/// Whether a create-if-absent created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Created {
    New,
    /// Something is there already, perhaps with the same content.
    Exists,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub files: Vec<(ObjectPath, u64)>,
    pub folders: Vec<ObjectPath>,
}

#[derive(Clone, Debug)]
pub(super) struct Disk {
    objects: Arc<LocalFileSystem>,
    root: Arc<Path>,
}

impl Disk {
    /// The disk below a folder that exists.
    ///
    /// # Errors
    /// If the folder can't be used.
    pub fn below(root: &Path) -> Result<Disk, StoreError> {
        let found = |error| StoreError::io("open the checkpoint store", root, error);
        let root: Arc<Path> = root.canonicalize().map_err(found)?.into();
        let objects = LocalFileSystem::new_with_prefix(&root)
            .map_err(|error| StoreError::object("open the checkpoint store", &root, error))?;
        Ok(Disk { objects: Arc::new(objects.with_fsync(true)), root })
    }

    /// Says early that nothing can be written here; without this the first checkpoint would.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        let failed = |kind: io::ErrorKind| Err(StoreError::io("write to", &self.root, kind.into()));
        let found = rustix::fs::statvfs(&*self.root);
        let found = found.map_err(|error| StoreError::io("look at", &self.root, error.into()))?;
        if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return failed(io::ErrorKind::ReadOnlyFilesystem);
        }
        // File systems without a fixed number of blocks say that they have none in all.
        if found.f_blocks > 0 && found.f_bavail == 0 {
            return failed(io::ErrorKind::StorageFull);
        }
        Ok(())
    }

    pub fn objects(&self) -> &LocalFileSystem {
        &self.objects
    }

    /// Where something is, for the operating system and for error messages.
    pub fn place(&self, path: &ObjectPath) -> PathBuf {
        self.root.join(path.as_ref())
    }

    /// Creates a file, durably, unless there is one.
    pub async fn put_new(&self, action: &'static str, path: &ObjectPath, bytes: Bytes) -> Result<Created, StoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(path, bytes.into(), options).await {
            Ok(_) => Ok(Created::New),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(Created::Exists),
            Err(error) => Err(StoreError::object(action, &self.place(path), error)),
        }
    }

    /// The size of a file; `None` if there is no such file.
    pub async fn size(&self, action: &'static str, path: &ObjectPath) -> Result<Option<u64>, StoreError> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::object(action, &self.place(path), error)),
        }
    }

    /// A whole file; `None` if there is no such file. The caller has bounded its size.
    pub async fn get(&self, action: &'static str, path: &ObjectPath) -> Result<Option<Bytes>, StoreError> {
        let read = async { self.objects.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::object(action, &self.place(path), error)),
        }
    }

    /// What is directly in a folder; nothing if there is no such folder.
    pub async fn list(&self, folder: &ObjectPath) -> Result<Listing, StoreError> {
        let failed = |error| StoreError::object("list", &self.place(folder), error);
        let listed = self.objects.list_with_delimiter(Some(folder)).await.map_err(failed)?;
        let files = listed.objects.into_iter().map(|meta| (meta.location, meta.size)).collect();
        Ok(Listing { files, folders: listed.common_prefixes })
    }

    /// Removes a file; one that is gone already is no error.
    pub async fn delete(&self, path: &ObjectPath) -> Result<(), StoreError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(StoreError::object("delete", &self.place(path), error)),
        }
    }

    /// Makes what was created, linked or deleted in a folder durable.
    pub async fn sync_folder(&self, folder: &ObjectPath) -> Result<(), StoreError> {
        let place = self.place(folder);
        blocking(move || sync(&place)).await
    }

    /// Makes sure that a file another process has put here would survive a power cut.
    pub async fn sync_file(&self, path: &ObjectPath) -> Result<(), StoreError> {
        let place = self.place(path);
        blocking(move || {
            sync(&place)?;
            place.parent().map_or(Ok(()), sync)
        })
        .await
    }

    /// The names in a folder that `list` leaves out: writes that never finished.
    pub async fn unfinished(&self, folder: &ObjectPath) -> Result<Vec<PathBuf>, StoreError> {
        let place = self.place(folder);
        blocking(move || {
            let failed = |error| StoreError::io("list", &place, error);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(failed(error)),
            };
            let mut unfinished = Vec::new();
            for entry in entries {
                let path = entry.map_err(failed)?.path();
                if path.file_name().and_then(|name| name.to_str()).and_then(super::layout::unfinished).is_some() {
                    unfinished.push(path);
                }
            }
            unfinished.sort();
            Ok(unfinished)
        })
        .await
    }
}

/// Runs file work where it may block.
///
/// # Errors
/// What the work says; an [`StoreError::Io`] if the process is shutting down.
///
/// # Panics
/// If the work does.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => {
            Err(StoreError::Io { action: "use", path: PathBuf::from("the checkpoint store"), source: error.into() })
        }
    }
}

/// fsync of a file or folder.
pub(super) fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| StoreError::io("sync", path, error))
}

/// Creates a folder and those above it, each of them durably.
pub(super) fn create_folder(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("create the folder", path, error);
    match fs::create_dir(path) {
        Ok(()) => path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                create_folder(parent)?;
                create_folder(path)
            }
            Some(_) | None => Err(failed(error)),
        },
        Err(error) => Err(failed(error)),
    }
}

/// Removes a file; one that is gone already is no error.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("delete", path, error)),
    }
}
