//! A component on its way into the data folder, piece by piece.
//!
//! Invariant: an upload that isn't finished leaves nothing, whether it is dropped or the process dies; and it never takes more
//! memory than one piece, nor more disk than a component may have.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::durable::{blocking, create_new};
use super::error::ServeError;
use super::plugins::{Added, Plugins};
use crate::id::PluginHash;

/// Uploads under way at a time.
pub const UPLOADS_MAX: usize = 8;
/// What is collected before it is written.
const PIECE_BYTES: usize = 1 << 20;

/// Starts uploads.
pub struct Uploads {
    plugins: Arc<Plugins>,
    bytes_max: u64,
    places: Arc<Semaphore>,
}

/// A component that is being uploaded.
pub struct Upload {
    plugins: Arc<Plugins>,
    bytes_max: u64,
    /// What errors call it.
    shown: PathBuf,
    temp: Temp,
    /// `None` only while a piece is being written, or after that has failed.
    sink: Option<Sink>,
    piece: Vec<u8>,
    bytes: u64,
    _place: OwnedSemaphorePermit,
}

struct Sink {
    file: File,
    hasher: Sha256,
}

/// Removes the file unless it has got another name.
struct Temp(PathBuf);

impl Drop for Temp {
    fn drop(&mut self) {
        // If it can't be removed now, it is when the daemon starts again.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Uploads {
    pub fn new(plugins: Arc<Plugins>, bytes_max: u64) -> Uploads {
        Uploads { plugins, bytes_max, places: Arc::new(Semaphore::new(UPLOADS_MAX)) }
    }

    /// # Errors
    /// If too many are under way, or nothing can be written.
    pub async fn begin(&self) -> Result<Upload, ServeError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| ServeError::TooManyUploads { uploads_max: UPLOADS_MAX })?;
        self.begin_as(PathBuf::from("the component"), place).await
    }

    /// Takes in the component at a path.
    ///
    /// # Errors
    /// If it can't be read, is too large, isn't an operator, or can't be written.
    pub async fn take_in(&self, path: &Path) -> Result<Added, ServeError> {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("never closed");
        let mut upload = self.begin_as(path.to_owned(), place).await?;
        let mut file = open(path.to_owned()).await?;
        loop {
            let shown = path.to_owned();
            let piece = blocking(move || {
                let mut piece = Vec::new();
                let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
                read.map_err(|error| unreadable(&shown, &error.to_string()))?;
                Ok((file, piece))
            });
            let (rest, piece) = piece.await?;
            if piece.is_empty() {
                return upload.finish().await;
            }
            upload.write(&piece).await?;
            file = rest;
        }
    }

    async fn begin_as(&self, shown: PathBuf, place: OwnedSemaphorePermit) -> Result<Upload, ServeError> {
        let folder = self.plugins.folder();
        let path = folder.scratch(&folder.plugins());
        let (temp, sink) = blocking(move || {
            let file = create_new(&path)?;
            Ok((Temp(path), Sink { file, hasher: Sha256::new() }))
        })
        .await?;
        let (plugins, piece) = (Arc::clone(&self.plugins), Vec::new());
        Ok(Upload { plugins, bytes_max: self.bytes_max, shown, temp, sink: Some(sink), piece, bytes: 0, _place: place })
    }
}

async fn open(path: PathBuf) -> Result<File, ServeError> {
    blocking(move || {
        // Asked before it is opened: to open a pipe is to wait for its writer.
        let found = std::fs::metadata(&path).map_err(|error| unreadable(&path, &error.to_string()))?;
        if !found.is_file() {
            return Err(unreadable(&path, "it is not a file"));
        }
        File::open(&path).map_err(|error| unreadable(&path, &error.to_string()))
    })
    .await
}

fn unreadable(path: &Path, problem: &str) -> ServeError {
    ServeError::Unfit {
        message: format!("cannot read the component {}: {problem}", path.display()),
        help: Some(
            "check the path of `wasm`, which is one on the daemon's machine; or upload it as a plugin".to_owned(),
        ),
    }
}

impl Upload {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`ServeError::PluginTooLarge`], or if they can't be written. Then it can only be dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ServeError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(ServeError::PluginTooLarge { limit_bytes: self.bytes_max });
        }
        for bytes in bytes.chunks(PIECE_BYTES) {
            self.piece.extend_from_slice(bytes);
            if self.piece.len() >= PIECE_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ServeError> {
        let (mut sink, piece) = (self.sink()?, std::mem::take(&mut self.piece));
        let path = self.temp.0.clone();
        let sink = blocking(move || {
            sink.file.write_all(&piece).map_err(ServeError::folder("write", &path))?;
            sink.hasher.update(&piece);
            Ok(sink)
        });
        self.sink = Some(sink.await?);
        Ok(())
    }

    fn sink(&mut self) -> Result<Sink, ServeError> {
        let failed = || std::io::Error::other("a piece of it could not be written");
        self.sink.take().ok_or_else(|| ServeError::folder("write", &self.temp.0)(failed()))
    }

    /// Checks the component, compiles it and takes it in under its hash. The same content twice is one plugin.
    ///
    /// # Errors
    /// If it isn't an operator, there are too many, or it can't be written.
    pub async fn finish(mut self) -> Result<Added, ServeError> {
        self.flush().await?;
        let (sink, path) = (self.sink()?, self.temp.0.clone());
        let hash = blocking(move || {
            sink.file.sync_all().map_err(ServeError::folder("write", &path))?;
            Ok(PluginHash::of_digest(&sink.hasher.finalize().into()))
        });
        let hash = hash.await?;
        self.plugins.add(&self.temp.0, &hash, &self.shown).await
    }
}
