//! Whether a job runs on this machine while its transactions are to be aborted.
//!
//! Invariant: nothing is made to find that out; while the lock is held the job can't start.

use crate::cli::CliError;
use crate::config::JobFile;
use crate::store::{JobLock, StoreError};

/// Holds the locks that a run of the job would take, those that there are.
///
/// # Errors
/// If the job is running.
pub(super) fn hold(file: &JobFile) -> Result<Vec<JobLock>, CliError> {
    let folders = [file.state_dir.clone(), file.checkpoint.store.join(file.job.as_str())];
    let mut held = Vec::new();
    // The two may be one folder, and nobody is shut out by himself.
    let mut seen = Vec::new();
    for folder in folders.iter().filter(|folder| folder.join("lock").is_file()) {
        let place = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if seen.contains(&place) {
            continue;
        }
        seen.push(place);
        held.push(JobLock::acquire(folder, &file.job).map_err(|error| match error {
            StoreError::Running { .. } => {
                CliError::unusable(error.to_string()).help(
                    "stop it first; or say --force: it then ends with exit code 1, saying that another process has taken over its \
                     transactional id, and has to be started again",
                )
            }
            other => other.into(),
        })?);
    }
    Ok(held)
}
