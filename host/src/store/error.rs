//! What can go wrong with the checkpoint store.
//!
//! Invariant: every error names the file or folder and what was tried, and [`StoreError::help`] says what to do.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use super::sealed::Damage;
use crate::id::{Attempt, Epoch, Name};
use crate::protocol::retention::RetentionRefused;

/// A failure of the checkpoint store. None of them has published a checkpoint that wasn't reported as published, with one
/// exception: after an [`Io`](StoreError::Io) or [`Fenced`](StoreError::Fenced) failure of a publish the outcome isn't known,
/// and the next attempt finds it out by reading the newest manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot {action} {}: no space is left on its disk", path.display())]
    Full { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {action} {}: its file system is read-only", path.display())]
    ReadOnly { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {action} {}: not permitted", path.display())]
    Denied { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: Box<dyn Error + Send + Sync> },
    /// A file that a manifest or the caller names isn't there.
    #[error("{what} is missing: {}", path.display())]
    Missing { what: &'static str, path: PathBuf },
    #[error("{what} is damaged: {}", path.display())]
    Damaged { what: &'static str, path: PathBuf, source: Damage },
    #[error("the job's identity is damaged: {}", path.display())]
    IdentityDamaged { path: PathBuf, source: Damage },
    #[error("{what} has format version {found}, and this host reads version 1 to {known}: {}", path.display())]
    TooNew { what: &'static str, path: PathBuf, found: u32, known: u32 },
    #[error("{} belongs to the job '{found}', not to '{wanted}'", path.display())]
    OtherJob { path: PathBuf, found: Name, wanted: Name },
    #[error("{} isn't of this job: its {field} is '{found}' and not '{wanted}'", path.display())]
    OtherIdentity { path: PathBuf, field: &'static str, found: String, wanted: String },
    #[error("{} has checkpoints but no job.json, which says whose they are", folder.display())]
    NoIdentity { folder: PathBuf },
    #[error("there is no checkpoint of the job '{job}' in {}", root.display())]
    NoJob { job: Name, root: PathBuf },
    #[error("there is no checkpoint {epoch} of the job '{job}'")]
    NoCheckpoint { job: Name, epoch: Epoch },
    #[error("checkpoint {epoch} of the job '{job}' is no savepoint")]
    NotKept { job: Name, epoch: Epoch },
    #[error("'{path}' can't be a file of the store: {problem}")]
    UnsafePath { path: String, problem: &'static str },
    /// Files are immutable: an upload may not write over one.
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("checkpoint {epoch} can't be published: another run has published checkpoint {found}")]
    Overtaken { epoch: Epoch, found: Epoch },
    #[error("attempt {ours} of the job was replaced by attempt {newer}, started elsewhere")]
    Fenced { ours: Attempt, newer: Attempt },
    /// Retention found what can't be; nothing was removed.
    #[error(transparent)]
    Retention(RetentionRefused),
    #[error("the job '{job}' is already running as {process}, in {}", folder.display())]
    Running { job: Name, process: String, folder: PathBuf },
    #[error("{} is in use by the job '{other}' ({process}), so the job '{job}' can't run there", folder.display())]
    OtherRuns { folder: PathBuf, other: Name, process: String, job: Name },
}

impl StoreError {
    /// An error of the operating system, sorted by what the user can do about it.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> StoreError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { action, path, source },
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { action, path, source },
            io::ErrorKind::PermissionDenied => StoreError::Denied { action, path, source },
            _ => StoreError::Io { action, path, source: source.into() },
        }
    }

    /// An error of the object store; the operating system's own is somewhere in its causes.
    pub(super) fn object(action: &'static str, path: &Path, error: object_store::Error) -> StoreError {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(found) = cause {
            if let Some(source) = found.downcast_ref::<io::Error>()
                && let Some(code) = source.raw_os_error()
            {
                return StoreError::io(action, path, io::Error::from_raw_os_error(code));
            }
            cause = found.source();
        }
        StoreError::Io { action, path: path.to_owned(), source: error.into() }
    }

    /// What the user can do, as a sentence without its full stop; `None` if the error says it already.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            StoreError::Full { .. } => {
                "nothing was published; free space on that disk and run the job again: it continues from its last checkpoint"
            }
            StoreError::ReadOnly { .. } => {
                "mount that file system for writing, or set `store` of `[checkpoint]` to another folder"
            }
            StoreError::Denied { .. } => {
                "give this user the right to read and write there, or set `store` of `[checkpoint]` to another folder"
            }
            StoreError::Io { .. } => {
                "check the disk and the path, then run the job again: it continues from its last checkpoint"
            }
            StoreError::Missing { .. } | StoreError::Damaged { .. } => {
                "restore the file from a backup; `lockgate checkpoint verify` lists which checkpoints are whole. An older checkpoint is \
                 never taken silently, since what came after it has already been given out"
            }
            StoreError::IdentityDamaged { path, .. } => {
                let folder = path.parent().unwrap_or(path).display();
                return Some(format!(
                    "put job.json back from a backup: it says whose checkpoints these are, and the job continues where it was. \
                     Without one, start the job afresh: move {folder} and the job's output folders away"
                ));
            }
            StoreError::TooNew { .. } => "run the job with the host that wrote it, or with a newer one",
            StoreError::OtherJob { .. } | StoreError::OtherIdentity { .. } => {
                "give this job its own `store` folder or another name, or put back the folder that belongs to it"
            }
            StoreError::NoIdentity { .. } => {
                "put back job.json from a backup, or move the folder away to start the job anew"
            }
            StoreError::NoJob { .. } => "check the store's path and the job's name",
            StoreError::NoCheckpoint { .. } => "`lockgate checkpoint list` shows which there are",
            StoreError::NotKept { .. } => {
                "`lockgate checkpoint list` shows which are kept; others go by themselves when newer ones take their place"
            }
            StoreError::UnsafePath { .. } => "the checkpoint was not written by this host; don't use it",
            StoreError::Exists { .. } => "this is a fault of the host; please report it",
            StoreError::Overtaken { .. } | StoreError::Fenced { .. } => {
                "stop the other run of this job, then run it again; one checkpoint store serves one run at a time"
            }
            StoreError::Retention(_) => return None,
            StoreError::Running { .. } => "stop that process first, or give this job another name and `state_dir`",
            StoreError::OtherRuns { .. } => "give this job a `state_dir` of its own",
        };
        Some(help.to_owned())
    }
}
