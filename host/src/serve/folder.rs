//! Where things are in a data folder, and who has it.
//!
//! ```text
//! <data>/lock                        held while a daemon runs
//! <data>/plugins/<sha256>.wasm       a component, as it was uploaded
//! <data>/plugins/<sha256>.json       what it says of itself, so that it needn't be asked again
//! <data>/jobs/<name>/spec.json       what the job is, and whether it is to run
//! <data>/jobs/<name>/job.toml        its job file, a copy for people
//! <data>/jobs/<name>/state/          its state and checkpoints, unless the job file places them elsewhere
//! ```
//!
//! What begins with a dot in `plugins` or `jobs` is a write that hasn't finished, or a removal; it means nothing after a crash.
//!
//! Invariant: while a [`DataLock`] lives, nobody else has one of the same folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::durable::{create_folder, names_in};
use super::error::ServeError;
use crate::id::{Name, PluginHash};

/// What names of unfinished work begin with.
const SCRATCH: char = '.';

/// Held while a daemon has the folder. It is the kernel's, so that no way of dying leaves it behind.
#[derive(Debug)]
pub struct DataLock(#[expect(dead_code, reason = "it is held, not read")] File);

#[derive(Debug)]
pub struct DataFolder {
    root: PathBuf,
    scratches: AtomicU64,
}

impl DataLock {
    /// Makes the folder if need be, and takes it.
    ///
    /// # Errors
    /// [`ServeError::Locked`] if another daemon has it; else if it can't be used.
    pub fn take(root: &Path) -> Result<DataLock, ServeError> {
        create_folder(root)?;
        take_lock(root).map(DataLock)
    }
}

impl DataFolder {
    /// Removes what dead daemons have left unfinished in a folder that was taken.
    ///
    /// # Errors
    /// If it can't be used.
    pub fn open(root: &Path, _taken: &DataLock) -> Result<DataFolder, ServeError> {
        let root = root.canonicalize().map_err(ServeError::folder("find", root))?;
        let folder = DataFolder { root, scratches: AtomicU64::new(0) };
        for part in [folder.plugins(), folder.jobs()] {
            create_folder(&part)?;
            remove_scratches(&part)?;
        }
        Ok(folder)
    }

    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    pub fn plugin(&self, hash: &PluginHash) -> PathBuf {
        self.plugins().join(format!("{hash}.wasm"))
    }

    pub fn plugin_facts(&self, hash: &PluginHash) -> PathBuf {
        self.plugins().join(format!("{hash}.json"))
    }

    pub fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    pub fn job(&self, name: &Name) -> PathBuf {
        self.jobs().join(name.as_str())
    }

    /// The state directory of a job that names none.
    pub fn state(&self, name: &Name) -> PathBuf {
        self.job(name).join("state")
    }

    /// A name that nobody has used, in a folder of ours.
    pub fn scratch(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{SCRATCH}{}", self.scratches.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The specification of a job within its folder.
pub fn spec_in(job: &Path) -> PathBuf {
    job.join("spec.json")
}

/// The copy of its job file.
pub fn job_file_in(job: &Path) -> PathBuf {
    job.join("job.toml")
}

fn take_lock(root: &Path) -> Result<File, ServeError> {
    let path = root.join("lock");
    let failed = |error| ServeError::folder("lock", &path)(error);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // For people; who has just taken it hasn't written yet.
            let read = file.take(20).read_to_string(&mut text);
            let number = read.ok().and_then(|_| text.trim_end().parse::<u32>().ok());
            let process = number.map_or("another process".to_owned(), |number| format!("process {number}"));
            return Err(ServeError::Locked { path: root.to_owned(), process });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let text = format!("{}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
    Ok(file)
}

/// All is listed before any is removed.
fn remove_scratches(folder: &Path) -> Result<(), ServeError> {
    let scratches = names_in(folder)?.into_iter().filter(|name| name.starts_with(SCRATCH));
    for path in scratches.map(|name| folder.join(name)).collect::<Vec<_>>() {
        let removed = if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.map_err(ServeError::folder("delete", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_has_the_folder_and_gets_it_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("data");
        let first = DataLock::take(&root).expect("free");
        let error = DataLock::take(&root).expect_err("taken").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        DataLock::take(&root).expect("free again");
    }

    #[test]
    fn what_a_dead_daemon_left_unfinished_goes_and_everything_else_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir_all(root.join("jobs/.0/state")).expect("a folder");
        std::fs::create_dir_all(root.join("jobs/words")).expect("a folder");
        std::fs::create_dir_all(root.join("plugins")).expect("a folder");
        std::fs::write(root.join("plugins/.7"), "half").expect("a file");
        std::fs::write(root.join("plugins/notes"), "mine").expect("a file");
        let data = DataFolder::open(root, &DataLock::take(root).expect("free")).expect("opened");
        assert_eq!(names_in(&data.jobs()).expect("listed"), ["words"]);
        assert_eq!(names_in(&data.plugins()).expect("listed"), ["notes"]);
    }
}
