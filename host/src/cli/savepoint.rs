//! `lockgate checkpoint keep`, `delete` and `gc`: checkpoints that stay because somebody wants them to.
//!
//! Invariant: nothing is deleted that the job could need, whether it runs or not.

use std::fmt;
use std::num::NonZeroU32;

use serde::Serialize;

use super::checkpoint::{block_on, size};
use super::error::CliError;
use crate::config::JobFile;
use crate::id::{Epoch, Name};
use crate::store::{CheckpointStore, Retained, StoreError};

/// What `checkpoint keep` says. As JSON it is what `--json` prints.
#[derive(Debug, Serialize)]
pub struct Kept {
    pub job: Name,
    pub epoch: Epoch,
}

/// What `checkpoint delete` and `gc` say. As JSON it is what `--json` prints.
#[derive(Debug, Serialize)]
pub struct Collected {
    pub job: Name,
    /// The savepoint that is none any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Epoch>,
    /// Whether the job runs, so that it removes by itself what nobody needs.
    pub running: bool,
    /// The checkpoints that were removed.
    pub removed: Vec<Epoch>,
    pub files: usize,
    pub bytes: u64,
}

/// Makes a checkpoint a savepoint; the newest that is certain to be decided unless another is named.
///
/// # Errors
/// If there is no such checkpoint, or it can't be marked.
pub fn keep(file: &JobFile, epoch: Option<Epoch>) -> Result<Kept, CliError> {
    let job = file.job.clone();
    block_on(async {
        let store = CheckpointStore::open_existing(&file.checkpoint.store, &job, 0).await?;
        let newest = store.newest_certain().await?;
        let none = StoreError::NoJob { job: job.clone(), root: file.checkpoint.store.clone() };
        let newest = newest.ok_or(none)?;
        let epoch = epoch.unwrap_or(newest);
        if epoch > newest {
            return Err(StoreError::NoCheckpoint { job: job.clone(), epoch });
        }
        store.keep(epoch).await?;
        Ok(Kept { job: job.clone(), epoch })
    })
}

/// Deletes a savepoint, and of a job that doesn't run also what only it needs.
///
/// # Errors
/// If it is none, or the store can't be changed.
pub fn delete(file: &JobFile, epoch: Epoch) -> Result<Collected, CliError> {
    block_on(async {
        let store = CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await?;
        store.release(epoch).await?;
        let retained = match store.retain_stopped(retain(file)).await {
            Ok(retained) => Some(retained),
            Err(StoreError::Running { .. } | StoreError::OtherRuns { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Collected::new(file, Some(epoch), retained))
    })
}

/// Removes what nobody needs, of a job that doesn't run.
///
/// # Errors
/// If the job runs, or the store can't be changed.
pub fn collect(file: &JobFile) -> Result<Collected, CliError> {
    block_on(async {
        let store = CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await?;
        Ok(Collected::new(file, None, Some(store.retain_stopped(retain(file)).await?)))
    })
}

fn retain(file: &JobFile) -> NonZeroU32 {
    NonZeroU32::new(file.checkpoint.retain).expect("the job file retains at least one")
}

impl Collected {
    fn new(file: &JobFile, deleted: Option<Epoch>, retained: Option<Retained>) -> Collected {
        let (job, running) = (file.job.clone(), retained.is_none());
        let Retained { manifests: removed, files, bytes, .. } = retained.unwrap_or_default();
        Collected { job, deleted, running, removed, files, bytes }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checkpoint {} of job {} stays until it is deleted", self.epoch, self.job)
    }
}

impl fmt::Display for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(epoch) = self.deleted {
            writeln!(f, "checkpoint {epoch} of job {} is no savepoint any more", self.job)?;
        }
        match (self.running, self.removed.len(), self.files) {
            (true, ..) => writeln!(f, "the job runs: what nobody needs goes with its next checkpoint"),
            (false, 0, 0) => writeln!(f, "nothing to remove"),
            (false, checkpoints, files) => {
                writeln!(f, "removed: {checkpoints} checkpoints and {files} files, {}", size(self.bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::id::Attempt;
    use crate::store::JobLock;
    use crate::store::sample::{checkpoint, name, subtask};

    const JOB: &str = "
        [job]
        name = \"word-count\"
        [checkpoint]
        retain = 1
        store = \"store\"
        [source.numbers]
        type = \"generator\"
        [sink.nowhere]
        type = \"null\"
        input = \"numbers\"
    ";

    /// Three checkpoints with a file each.
    fn filled(folder: &std::path::Path) -> JobFile {
        let file = JobFile::parse(&folder.join("job.toml"), JOB).expect("a job file");
        let fill = async {
            let store = CheckpointStore::open(&file.checkpoint.store, &name("word-count"), 0).await?;
            let uploader = store.uploader(Attempt(1), &subtask());
            for epoch in 1..=3 {
                let own = uploader.put_bytes(&format!("delta-{epoch}"), Bytes::from(vec![1; 1_000])).await?;
                let _receipt = store.publish(&checkpoint(&store, epoch, Attempt(1), &[&own])).await?;
            }
            Ok(())
        };
        block_on(fill).expect("a store");
        file
    }

    fn epochs(file: &JobFile) -> Vec<u64> {
        let store =
            async { CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await?.epochs().await };
        block_on(store).expect("listed").into_iter().map(|epoch| epoch.0).collect()
    }

    #[test]
    fn what_is_kept_outlives_a_collection_and_goes_when_it_is_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = filled(folder.path());
        assert_eq!(keep(&file, Some(Epoch(2))).expect("kept").epoch, Epoch(2));
        let collected = collect(&file).expect("collected");
        assert_eq!((collected.removed.as_slice(), collected.bytes), (&[Epoch(1)][..], 1_000));
        assert_eq!(epochs(&file), [2, 3]);
        let deleted = delete(&file, Epoch(2)).expect("deleted");
        assert_eq!((deleted.removed.as_slice(), deleted.running), (&[Epoch(2)][..], false));
        assert_eq!(epochs(&file), [3]);
        let again = delete(&file, Epoch(2)).expect_err("it is none any more").to_string();
        assert!(again.contains("checkpoint 2 of the job 'word-count' is no savepoint"), "{again}");
    }

    #[test]
    fn of_a_running_job_only_the_mark_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = filled(folder.path());
        assert_eq!(keep(&file, None).expect("kept").epoch, Epoch(3));
        let lock = JobLock::acquire(&file.checkpoint.store.join("word-count"), &file.job).expect("as a run has it");
        let deleted = delete(&file, Epoch(3)).expect("deleted");
        assert!(deleted.running && deleted.to_string().contains("with its next checkpoint"), "{deleted}");
        assert!(collect(&file).is_err(), "a running job collects by itself");
        assert_eq!(epochs(&file), [1, 2, 3]);
        drop(lock);
        assert_eq!(collect(&file).expect("collected").removed, [Epoch(1), Epoch(2)]);
    }

    #[test]
    fn what_is_not_there_can_not_be_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = filled(folder.path());
        let error = keep(&file, Some(Epoch(9))).expect_err("not there");
        assert_eq!(error.exit(), crate::cli::Exit::Unusable, "{error}");
    }
}
