//! One run of a job at a time.
//!
//! The lock is the kernel's (`flock`), so that no way of dying leaves it behind; the text in the file is for people. The file is
//! never removed while a run goes on, since one that holds a removed file and one that made a new one would both believe they are alone.
//!
//! Invariant: while a [`JobLock`] lives, no other process has one for the same folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::disk::create_folder;
use super::error::StoreError;
use super::identity::now_ms;
use crate::id::Name;

/// How often a lock file that somebody replaces is opened again.
const REPLACED_MAX: usize = 100;

/// Held while a job runs; dropping it lets the next run in.
#[derive(Debug)]
pub struct JobLock {
    _file: File,
}

impl JobLock {
    /// Takes the lock `lock` in a folder, which is made if need be.
    ///
    /// # Errors
    /// [`StoreError::Running`] if another process has it; else if the file can't be used.
    pub fn acquire(folder: &Path, job: &Name) -> Result<JobLock, StoreError> {
        create_folder(folder)?;
        let path = folder.join("lock");
        let failed = |error| StoreError::io("lock", &path, error);
        for _ in 0..REPLACED_MAX {
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let Holder { job: other, process } = holder(&mut file);
                    let (folder, job) = (folder.to_owned(), job.clone());
                    return Err(match other.filter(|other| *other != job) {
                        Some(other) => StoreError::OtherRuns { folder, other, process, job },
                        None => StoreError::Running { job, process, folder },
                    });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let ours = file.metadata().map_err(failed)?;
            // Somebody may have removed the file between its opening and the lock; then it guards nothing.
            if std::fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
                let text = format!("{} {} {job}\n", std::process::id(), now_ms());
                file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
                return Ok(JobLock { _file: file });
            }
        }
        Err(failed(std::io::Error::other("somebody keeps on replacing it")))
    }

    /// Removes the folder that this lock is of, which nobody is to use any more. The lock goes last: until then nobody else gets in, and
    /// who comes after it finds the folder as it was before there was a job.
    ///
    /// # Errors
    /// If something can't be removed, or somebody has put something there meanwhile.
    pub fn remove_folder(&self, folder: &Path) -> std::io::Result<()> {
        let lock = folder.join("lock");
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path() == lock {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path())?,
                false => std::fs::remove_file(entry.path())?,
            }
        }
        std::fs::remove_file(lock)?;
        std::fs::remove_dir(folder)
    }
}

/// Who holds a lock.
struct Holder {
    /// `None`: it doesn't say.
    job: Option<Name>,
    /// In words.
    process: String,
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(200).read_to_string(&mut text));
    let parts = || -> Option<Holder> {
        let mut words = text.trim_end().split(' ');
        let (process, since_ms) = (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u64>().ok()?);
        let since = ago(now_ms().saturating_sub(since_ms) / 1_000);
        let job = words.next().and_then(|job| Name::new(job).ok());
        Some(Holder { job, process: format!("process {process}, started {since}") })
    };
    // It was just taken, and its holder hasn't written yet.
    let unknown = || Holder { job: None, process: "another process".to_owned() };
    read.ok().and_then(|_| parts()).unwrap_or_else(unknown)
}

/// How long ago something was, for people.
fn ago(seconds: u64) -> String {
    match seconds {
        0 => "just now".to_owned(),
        s @ 1..120 => format!("{s} s ago"),
        s @ 120..7_200 => format!("{} min ago", s / 60),
        s => format!("{} h ago", s / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn times_past_are_short() {
        let times = [0, 1, 119, 120, 7_199, 7_200, 90_000].map(ago);
        assert_eq!(times, ["just now", "1 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "25 h ago"]);
    }
}
