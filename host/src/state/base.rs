//! A base: the image of the database after one segment, first as linked files, then as files of the checkpoint store.
//!
//! Invariant: a base contains all segments up to `last` and nothing after it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, OnceCell, watch};

use super::error::StateError;
use super::snapshot::Uploader;
use crate::crash;
use crate::id::SubtaskId;
use crate::store::FileRef;

/// Numbers segments in the order in which they were sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// The SST files that this attempt knows to be in the checkpoint store, by their name in the database.
///
/// Within an attempt, and in the files that it restored, a name is given to one content only. Locked while a base is uploaded,
/// so that two bases don't upload the same file.
pub type KnownFiles = Arc<Mutex<HashMap<String, FileRef>>>;

#[derive(Debug)]
pub struct Base {
    pub last: Sequence,
    capture: watch::Sender<Capture>,
    /// In the checkpoint store.
    files: OnceCell<BTreeMap<String, FileRef>>,
}

#[derive(Clone, Debug)]
enum Capture {
    Pending,
    Done(Arc<Captured>),
    Failed(Arc<StateError>),
    /// All files are in the checkpoint store, or always were.
    Stored {
        bytes: u64,
    },
}

/// A folder with links to the files of a base; goes when it is dropped.
#[derive(Debug)]
pub struct Captured {
    dir: PathBuf,
    files: Vec<(String, u64)>,
}

impl Captured {
    /// Lists a folder that RocksDB has filled. What isn't needed to open the database again is left out.
    ///
    /// # Errors
    /// If it can't be listed.
    pub fn list(subtask: &SubtaskId, dir: PathBuf) -> Result<Captured, StateError> {
        let failed = |source| StateError::File { subtask: subtask.clone(), action: "list", path: dir.clone(), source };
        let mut files = Vec::new();
        for file in std::fs::read_dir(&dir).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name().to_string_lossy().into_owned();
            if is_base_file(&name) {
                files.push((name, file.metadata().map_err(failed)?.len()));
            }
        }
        files.sort();
        Ok(Captured { dir, files })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // What stays is removed with the attempt's work folder.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Whether this is the name of a file that a base consists of.
pub fn is_base_file(name: &str) -> bool {
    name == "CURRENT" || numbered(name, "MANIFEST-", "") || is_sst(name)
}

fn is_sst(name: &str) -> bool {
    numbered(name, "", ".sst")
}

fn numbered(name: &str, prefix: &str, suffix: &str) -> bool {
    let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

impl Base {
    /// A base that is to be captured after the segment `last`.
    pub fn requested(last: Sequence) -> Arc<Base> {
        Arc::new(Base { last, capture: watch::Sender::new(Capture::Pending), files: OnceCell::new() })
    }

    /// The base of a checkpoint, which is in the store already.
    pub fn restored(last: Sequence, files: BTreeMap<String, FileRef>) -> Arc<Base> {
        let bytes = files.values().map(|file| file.size_bytes).sum();
        let capture = watch::Sender::new(Capture::Stored { bytes });
        Arc::new(Base { last, capture, files: OnceCell::new_with(Some(files)) })
    }

    pub fn captured(&self, captured: Captured) {
        self.capture.send_replace(Capture::Done(Arc::new(captured)));
    }

    pub fn failed(&self, error: Arc<StateError>) {
        self.capture.send_replace(Capture::Failed(error));
    }

    /// Whether there is an image, and of how many bytes.
    pub fn bytes(&self) -> Option<u64> {
        match &*self.capture.borrow() {
            Capture::Pending | Capture::Failed(_) => None,
            Capture::Done(captured) => Some(captured.bytes()),
            Capture::Stored { bytes } => Some(*bytes),
        }
    }

    /// Waits for the image and brings what the store doesn't have yet there.
    ///
    /// # Errors
    /// If the image can't be made or a file can't be brought to the store. May be tried again.
    pub async fn upload(
        &self,
        subtask: &SubtaskId,
        known: &KnownFiles,
        uploader: &impl Uploader,
    ) -> Result<BTreeMap<String, FileRef>, StateError> {
        let files = self.files.get_or_try_init(|| async {
            let captured = self.wait(subtask).await?;
            let files = self.upload_files(subtask, &captured, known, uploader).await?;
            // The last holder of the links removes them.
            self.capture.send_replace(Capture::Stored { bytes: captured.bytes() });
            Ok(files)
        });
        files.await.cloned()
    }

    async fn wait(&self, subtask: &SubtaskId) -> Result<Arc<Captured>, StateError> {
        let mut capture = self.capture.subscribe();
        let capture = capture.wait_for(|capture| !matches!(capture, Capture::Pending)).await;
        let capture = capture.map(|capture| capture.clone()).unwrap_or(Capture::Pending);
        match capture {
            Capture::Done(captured) => Ok(captured),
            Capture::Failed(source) => Err(StateError::Background { subtask: subtask.clone(), source }),
            // `self` holds the sender, and only `upload` makes a base stored.
            Capture::Pending | Capture::Stored { .. } => Err(StateError::Stopped { subtask: subtask.clone() }),
        }
    }

    async fn upload_files(
        &self,
        subtask: &SubtaskId,
        captured: &Captured,
        known: &KnownFiles,
        uploader: &impl Uploader,
    ) -> Result<BTreeMap<String, FileRef>, StateError> {
        let mut known = known.lock().await;
        let mut files = BTreeMap::new();
        for (name, bytes) in &captured.files {
            let file = match known.get(name) {
                Some(file) if file.size_bytes == *bytes => file.clone(),
                Some(_) | None => {
                    // The database goes on writing to a file of this name; the image of each base is another one.
                    let stored = if is_sst(name) { name.clone() } else { format!("base-{}-{name}", self.last.0) };
                    put_file(subtask, uploader, &stored, &captured.dir.join(name)).await?
                }
            };
            if is_sst(name) {
                known.insert(name.clone(), file.clone());
            }
            files.insert(name.clone(), file);
        }
        known.retain(|name, _| files.contains_key(name));
        Ok(files)
    }
}

async fn put_file(
    subtask: &SubtaskId,
    uploader: &impl Uploader,
    name: &str,
    path: &Path,
) -> Result<FileRef, StateError> {
    crash::point("state.base_file.before");
    let file = uploader.put_file(name, path).await;
    crash::point("state.base_file.after");
    file.map_err(|source| StateError::Upload { subtask: subtask.clone(), name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_database_needs_belongs_to_a_base() {
        for name in ["CURRENT", "MANIFEST-000005", "000012.sst"] {
            assert!(is_base_file(name), "{name}");
        }
        for name in ["", "LOCK", "OPTIONS-000007", "000004.log", ".sst", "MANIFEST-", "../000012.sst", "a/CURRENT"] {
            assert!(!is_base_file(name), "{name}");
        }
    }
}
