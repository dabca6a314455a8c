//! Stopping jobs, and deleting them.
//!
//! Invariant: that a job is to stop is durable before it is asked to, so that no crash starts it again; nothing of a job is removed
//! while it runs or somebody keeps a checkpoint of it.

use std::sync::Arc;

use super::daemon::Daemon;
use super::durable::{blocking, rename};
use super::error::ServeError;
use super::info::JobInfo;
use super::job::JobEntry;
use super::request::StopMode;
use super::run::{Ending, Wish};
use super::spec::{Outcome, Wanted};
use crate::crash;

impl Daemon {
    /// Stops a job and waits until nothing of it runs any more. A job that doesn't run stays as it is.
    ///
    /// # Errors
    /// If there is no such job, the wish can't be written, or there is nothing to keep as a savepoint.
    pub async fn stop(&self, name: &str, how: StopMode) -> Result<JobInfo, ServeError> {
        self.refuse_when_shutting_down()?;
        let entry = self.entry(name)?;
        let own = Arc::clone(&entry);
        blocking(move || {
            own.change(|spec| {
                let was_to_run = spec.wanted == Wanted::Running;
                spec.wanted = Wanted::Stopped;
                if was_to_run && !own.is_live() {
                    // It couldn't be started, and nobody will tell more of it.
                    spec.outcome = Some(Outcome::Stopped);
                }
            })
        })
        .await?;
        let was_live = entry.is_live();
        entry.wish(match how {
            StopMode::Checkpoint | StopMode::Savepoint => Wish::Stop,
            StopMode::Now => Wish::Cancel,
        });
        let ending = if was_live { entry.ended().await } else { None };
        entry.rests();
        match how {
            StopMode::Savepoint => self.keep_last(&entry, ending).await?,
            StopMode::Checkpoint | StopMode::Now => {}
        }
        self.job(name)
    }

    /// Keeps the checkpoint that a job has ended with.
    async fn keep_last(&self, entry: &Arc<JobEntry>, ending: Option<Ending>) -> Result<(), ServeError> {
        match ending {
            Some(Ending::Failed(failure)) => {
                let problem = format!("it has failed: {}", failure.error);
                Err(ServeError::NoCheckpoint { job: entry.name.clone(), problem })
            }
            Some(Ending::Ended { epoch: Some(epoch) } | Ending::Stopped { epoch: Some(epoch) }) => {
                self.keep(entry, epoch).await
            }
            Some(Ending::Ended { epoch: None } | Ending::Stopped { epoch: None }) | None => {
                self.keep_newest(entry).await.map(drop)
            }
        }
    }

    /// Deletes a job that doesn't run: what the data folder has of it. Output, and state that the job file has placed elsewhere,
    /// stay.
    ///
    /// # Errors
    /// If it runs or has savepoints, or can't be removed for certain.
    pub async fn delete(&self, name: &str) -> Result<(), ServeError> {
        self.refuse_when_shutting_down()?;
        let entry = self.entry(name)?;
        let job = || entry.name.clone();
        let _changing = entry.changing.try_lock().map_err(|_| ServeError::Changing { job: job() })?;
        if entry.is_live() {
            let status = entry.status().as_str();
            return Err(ServeError::WrongStatus { job: job(), status, help: "stop it first" });
        }
        let epochs = self.kept(&entry).await?;
        if !epochs.is_empty() {
            return Err(ServeError::HasSavepoints { job: job(), epochs });
        }
        let (folder, own) = (Arc::clone(&self.folder), Arc::clone(&entry));
        let removed = blocking(move || {
            let gone = folder.scratch(&folder.jobs());
            crash::point("serve.delete.before");
            // From here on it is none, whatever becomes of its files.
            rename(&folder.job(&own.name), &gone)?;
            crash::point("serve.delete.after");
            own.deleted();
            Ok(gone)
        });
        let removed = removed.await?;
        self.gone(&entry.name);
        blocking(move || {
            if let Err(error) = std::fs::remove_dir_all(&removed) {
                tracing::warn!(path = %removed.display(), %error, "what is left of a deleted job goes with the daemon's next start");
            }
            Ok(())
        })
        .await
    }
}
