//! Where a dry run has its databases: `<state_dir>.dry-run-<process>-<n>`, with a file `lock` in it that it holds.
//!
//! The lock is the kernel's, so that a process that was killed holds none: whoever makes a folder removes those of dead ones first.
//! Who has the lock that the name leads to has the folder; nobody else touches it.
//!
//! Invariant: the folder of a live process is never removed by another one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// More names aren't tried: somebody removes the folders as fast as they are made.
const TRIES_MAX: u32 = 100;

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held as long as the folder is there.
    _lock: File,
}

impl Folder {
    /// Not in `state_dir`, where an attempt of the job that starts meanwhile would remove it.
    ///
    /// # Errors
    /// If it can't be made, with its path.
    pub fn beside(state_dir: &Path) -> Result<Folder, (PathBuf, io::Error)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_dead(state_dir);
        let mut last = PathBuf::new();
        for _ in 0..TRIES_MAX {
            let (mut path, number) = (prefix(state_dir), NEXT.fetch_add(1, Ordering::Relaxed));
            path.push(format!("{}-{number}", std::process::id()));
            let path = PathBuf::from(path);
            match make(&path).and_then(|()| take(&path)) {
                Ok(Some(lock)) => return Ok(Folder { path, _lock: lock }),
                // Another process has taken it for one of a dead one, before it was locked.
                Ok(None) => last = path,
                Err(error) => return Err((path, error)),
            }
        }
        Err((last, io::Error::other("somebody keeps on removing it")))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed now, the next dry run removes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// With what all names begin.
fn prefix(state_dir: &Path) -> OsString {
    let mut prefix = state_dir.as_os_str().to_owned();
    prefix.push(".dry-run-");
    prefix
}

/// Makes the folder, and those above it. One of this name may be left of a process that had the same number.
fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Takes a folder; `None` if somebody else has it, or it is gone.
fn take(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join("lock");
    let file = match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let ours = file.metadata()?;
    // It may have been removed between its opening and the lock; then it is the lock of nothing.
    let is_named = fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()));
    Ok(is_named.then_some(file))
}

/// Removes what dry runs of the same job have left whose processes are dead. What can't be removed is no reason not to go on.
fn remove_dead(state_dir: &Path) {
    let prefix = PathBuf::from(prefix(state_dir));
    let (Some(parent), Some(begin)) = (prefix.parent(), prefix.file_name()) else { return };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(entries) = fs::read_dir(parent) else { return };
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(begin.as_encoded_bytes());
        let is_numbered =
            |rest: &[u8]| !rest.is_empty() && rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        rest.is_some_and(is_numbered) && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let found = entries.filter_map(Result::ok).filter(is_ours).map(|entry| entry.path()).collect::<Vec<_>>();
    for path in found {
        if let Ok(Some(_lock)) = take(&path)
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), %error, "what a dry run has left can't be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("listed");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
        let mut names = names.collect::<Vec<_>>();
        names.sort();
        names
    }

    #[test]
    fn what_the_dead_have_left_goes_and_what_the_living_have_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let state = parent.path().join("state");
        let live = Folder::beside(&state).expect("made");
        fs::write(live.path().join("data"), "of a live one").expect("written");
        // As a kill leaves them: with a lock that nobody holds, or before there was one.
        for dead in ["state.dry-run-4194305-0", "state.dry-run-4194305-1"] {
            fs::create_dir_all(parent.path().join(dead).join("0/db")).expect("made");
        }
        fs::write(parent.path().join("state.dry-run-4194305-0/lock"), "").expect("written");
        // None of ours.
        fs::create_dir(parent.path().join("state.dry-run-notes")).expect("made");
        fs::create_dir(parent.path().join("other.dry-run-4194305-0")).expect("made");
        fs::write(parent.path().join("state.dry-run-1"), "a file").expect("written");
        let next = Folder::beside(&state).expect("made");
        assert_eq!(fs::read_to_string(live.path().join("data")).expect("still there"), "of a live one");
        let name = |folder: &Folder| folder.path().file_name().and_then(|name| name.to_str()).expect("text").to_owned();
        let mut expected = vec![name(&live), name(&next), "other.dry-run-4194305-0".to_owned()];
        expected.extend(["state.dry-run-1", "state.dry-run-notes"].map(str::to_owned));
        expected.sort();
        assert_eq!(names(parent.path()), expected);
        drop((live, next));
        assert_eq!(names(parent.path()).len(), 3, "they leave nothing");
    }

    #[test]
    fn whoever_takes_a_folder_first_has_it() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("state.dry-run-1-0");
        fs::create_dir(&path).expect("made");
        let lock = take(&path).expect("it can be locked").expect("nobody has it");
        assert!(take(&path).expect("it can be looked at").is_none(), "another process, or another run of this one");
        fs::remove_dir_all(&path).expect("removed");
        assert!(take(&path).expect("it can be looked at").is_none(), "it is gone");
        drop(lock);
    }
}
