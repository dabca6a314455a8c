//! What keeps other processes out of a job's folders, and what this process has made of them.
//!
//! Invariant: a folder is removed only if this process made it, holds its lock, and no output names the job that it is of.

use std::path::{Path, PathBuf};

use crate::connector::SinkOptions;
use crate::runtime::Job;
use crate::store::{JobLock, StoreError};

/// Held from the first attempt to the last, so that no other process can slip in between two of them.
#[derive(Default)]
pub struct Locks {
    state: Option<JobLock>,
    store: Option<JobLock>,
    /// The state folder and those above it, as far as they weren't there; the innermost first.
    made: Vec<PathBuf>,
}

impl Locks {
    /// Takes the lock of the state folder.
    ///
    /// # Errors
    /// If another process has it, or the folder can't be used.
    pub fn acquire_state(&mut self, job: &Job) -> Result<(), StoreError> {
        if self.state.is_none() {
            let made = missing(&job.state_dir);
            self.state = Some(JobLock::acquire(&job.state_dir, &job.name)?);
            self.made = made;
        }
        Ok(())
    }

    /// Takes that of the store, when it is known to be there.
    ///
    /// # Errors
    /// As [`acquire_state`](Self::acquire_state).
    pub fn acquire_store(&mut self, job: &Job) -> Result<(), StoreError> {
        if self.store.is_none() {
            self.store = Some(JobLock::acquire(&job.store.join(job.name.as_str()), &job.name)?);
        }
        Ok(())
    }

    /// Removes the state folder if it wasn't there before and nothing depends on it. What isn't removed the next run takes up.
    pub fn remove_what_was_made(&self, job: &Job) {
        let (Some(lock), Some((state_dir, above))) = (&self.state, self.made.split_first()) else { return };
        // Those have claimed their folders for the job of this store.
        let has_claimed = job.sinks.values().any(|options| match options {
            SinkOptions::File(_) => true,
            SinkOptions::Kafka(_) | SinkOptions::Null(_) => false,
        });
        // Of a store elsewhere another state folder may know.
        if has_claimed || !job.store.starts_with(state_dir) {
            return;
        }
        let removed = lock.remove_folder(state_dir);
        if let Err(error) = removed.and_then(|()| above.iter().try_for_each(std::fs::remove_dir)) {
            tracing::debug!(job = %job.name, %error, "the folder of a run that was refused is left to the next");
        }
    }
}

/// A folder and those above it, as far as they aren't there.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let named = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    named.take_while(|folder| !folder.exists()).map(Path::to_owned).collect()
}
