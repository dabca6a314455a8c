//! `lockgate checkpoint list` and `verify`: what a job could continue from, and whether it is whole.
//!
//! Invariant: nothing here writes to a store, so that both may be used while the job runs.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::error::CliError;
use crate::id::{Epoch, JobUid, Name};
use crate::store::{CheckpointContent, CheckpointStore, StoreError, VerifyReport};

/// What `checkpoint list` says. As JSON it is what `--json` prints.
#[derive(Debug, Serialize)]
pub struct CheckpointList {
    pub job: Name,
    pub job_uid: JobUid,
    /// Oldest first. The job continues from the last.
    pub checkpoints: Vec<ListedCheckpoint>,
}

#[derive(Debug, Serialize)]
pub struct ListedCheckpoint {
    pub epoch: Epoch,
    /// Whether it is a savepoint: it stays until somebody deletes it.
    pub kept: bool,
    /// `None` if the manifest can't be read; `problem` says why.
    #[serde(flatten)]
    pub content: Option<CheckpointContent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What `checkpoint verify` says. As JSON it is what `--json` prints.
#[derive(Debug, Serialize)]
pub struct CheckpointsVerified {
    pub job: Name,
    pub checkpoints: Vec<VerifiedCheckpoint>,
}

#[derive(Debug, Serialize)]
pub struct VerifiedCheckpoint {
    pub epoch: Epoch,
    pub files: usize,
    pub bytes: u64,
    /// Empty if the checkpoint can be restored.
    pub problems: Vec<String>,
}

/// Lists the checkpoints of a job.
///
/// # Errors
/// If the store can't be read or isn't this job's. A manifest that can't be read is part of the list.
pub fn list(store: &Path, job: &Name) -> Result<CheckpointList, CliError> {
    block_on(async {
        let store = CheckpointStore::open_existing(store, job, 0).await?;
        let listed = store.list().await?.into_iter().map(|listed| {
            let (content, problem) = match listed.content {
                Ok(content) => (Some(content), None),
                Err(error) => (None, Some(with_causes(&error))),
            };
            ListedCheckpoint { epoch: listed.epoch, kept: listed.kept, content, problem }
        });
        Ok(CheckpointList { job: job.clone(), job_uid: store.job_uid().clone(), checkpoints: listed.collect() })
    })
}

/// Reads every file of a checkpoint, or of all of them, and compares it with what the manifest says.
///
/// # Errors
/// If the store can't be read, isn't this job's, or has no such checkpoint. Damage is part of what is returned; ask
/// [`CheckpointsVerified::failure`].
pub fn verify(store: &Path, job: &Name, epoch: Option<Epoch>) -> Result<CheckpointsVerified, CliError> {
    block_on(async {
        let store = CheckpointStore::open_existing(store, job, 0).await?;
        let epochs = match epoch {
            Some(epoch) => vec![epoch],
            None => store.epochs().await?,
        };
        let mut checkpoints = Vec::new();
        for wanted in epochs {
            match store.verify(wanted).await {
                Ok(report) => checkpoints.push(VerifiedCheckpoint::of(report)),
                Err(StoreError::NoCheckpoint { .. }) if epoch.is_none() => {}
                Err(
                    error @ (StoreError::Damaged { .. } | StoreError::TooNew { .. } | StoreError::OtherIdentity { .. }),
                ) => {
                    let problems = vec![with_causes(&error)];
                    checkpoints.push(VerifiedCheckpoint { epoch: wanted, files: 0, bytes: 0, problems });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(CheckpointsVerified { job: job.clone(), checkpoints })
    })
}

pub(super) fn block_on<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot start a runtime").caused_by(&error))?;
    Ok(runtime.block_on(work)?)
}

fn with_causes(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> CliError {
        let message = error.to_string();
        let asked_for_nothing =
            matches!(error, StoreError::NoJob { .. } | StoreError::NoCheckpoint { .. } | StoreError::NotKept { .. });
        let failed = if asked_for_nothing { CliError::unusable(message) } else { CliError::failed(message) };
        let failed = match error.source() {
            Some(cause) => failed.caused_by(cause),
            None => failed,
        };
        match error.help() {
            Some(help) => failed.help(help),
            None => failed,
        }
    }
}

impl VerifiedCheckpoint {
    fn of(report: VerifyReport) -> VerifiedCheckpoint {
        let VerifyReport { epoch, files, bytes, problems } = report;
        VerifiedCheckpoint { epoch, files, bytes, problems: problems.iter().map(with_causes).collect() }
    }
}

impl CheckpointsVerified {
    /// What the verb fails with after its report is printed; `None` if every checkpoint can be restored.
    pub fn failure(&self) -> Option<CliError> {
        let broken = self.checkpoints.iter().filter(|checkpoint| !checkpoint.problems.is_empty());
        let epochs: Vec<String> = broken.map(|checkpoint| checkpoint.epoch.to_string()).collect();
        let newest_is_whole = self.checkpoints.last().is_some_and(|newest| newest.problems.is_empty());
        let help = if newest_is_whole {
            "the job runs on from its newest checkpoint, which is whole; check that disk, and let newer ones replace the others"
        } else {
            "restore the files that are named from a backup, then verify again; the job can't continue without them"
        };
        let message = || format!("job '{}' can't be restored from checkpoint {}", self.job, epochs.join(", "));
        (!epochs.is_empty()).then(|| CliError::failed(message()).help(help))
    }
}

impl fmt::Display for CheckpointList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {} ({})", self.job, self.job_uid)?;
        if self.checkpoints.is_empty() {
            return writeln!(f, "no checkpoint yet");
        }
        writeln!(f, "{:>10}  {:>8}  {:>10}  {:>7}  {:>11}", "checkpoint", "attempt", "age", "files", "size")?;
        for ListedCheckpoint { epoch, kept, content, problem } in &self.checkpoints {
            let kept = if *kept { "  savepoint" } else { "" };
            if let Some(CheckpointContent { attempt, created_ms, ended, files, bytes, .. }) = content {
                let (age, size) = (age(*created_ms), size(*bytes));
                let end = if *ended { "  input ended" } else { "" };
                writeln!(
                    f,
                    "{epoch:>10}  {attempt:>8}  {age:>10}  {files:>7}  {size:>11}{kept}{end}",
                    epoch = epoch.0
                )?;
            }
            if let Some(problem) = problem {
                writeln!(f, "{epoch:>10}  unreadable: {problem}{kept}", epoch = epoch.0)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CheckpointsVerified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.checkpoints.is_empty() {
            return writeln!(f, "job {}: no checkpoint yet", self.job);
        }
        for VerifiedCheckpoint { epoch, files, bytes, problems } in &self.checkpoints {
            if problems.is_empty() {
                writeln!(f, "checkpoint {epoch}: whole ({files} files, {})", size(*bytes))?;
            } else {
                writeln!(f, "checkpoint {epoch}: can't be restored")?;
            }
            for problem in problems {
                writeln!(f, "  {problem}")?;
            }
        }
        Ok(())
    }
}

/// A size for people: "1.5 GiB".
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let fits = |(at, _): &(usize, &&str)| bytes >> (10 * (at + 1)) > 0;
    match UNITS.iter().enumerate().rfind(fits) {
        Some((at, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << (10 * (at + 1))) as f64),
        None => format!("{bytes} B"),
    }
}

/// How long ago, for people: "3 min".
pub(super) fn age(created_ms: u64) -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    match now_ms.saturating_sub(created_ms) / 1_000 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::cli::Exit;
    use crate::id::Attempt;
    use crate::store::sample::{checkpoint, name, subtask};

    /// Two checkpoints that share a file; the second has one more. Gives the path of that one.
    fn filled(root: &Path) -> std::path::PathBuf {
        let fill = async {
            let store = CheckpointStore::open(root, &name("word-count"), 0).await?;
            let uploader = store.uploader(Attempt(1), &subtask());
            let shared = uploader.put_bytes("shared", Bytes::from(vec![1; 2_000])).await?;
            let second = uploader.put_bytes("second", Bytes::from("second")).await?;
            let _receipt = store.publish(&checkpoint(&store, 1, Attempt(1), &[&shared])).await?;
            let _receipt = store.publish(&checkpoint(&store, 2, Attempt(1), &[&shared, &second])).await?;
            store.keep(Epoch(1)).await?;
            Ok(root.join("word-count/0").join(second.path))
        };
        block_on(fill).expect("a store")
    }

    #[test]
    fn checkpoints_are_listed_with_what_they_hold_and_damaged_ones_with_why() {
        let root = tempfile::tempdir().expect("a folder");
        filled(root.path());
        std::fs::write(root.path().join("word-count/0/manifests/00000000000000000003.json"), "half").expect("a file");
        let listed = list(root.path(), &name("word-count")).expect("listed");
        let json = serde_json::to_value(&listed).expect("JSON");
        assert_eq!(json["checkpoints"][1]["epoch"], 2);
        assert_eq!(json["checkpoints"][1]["files"], 2);
        assert_eq!(json["checkpoints"][1]["bytes"], 2_006);
        assert_eq!(json["checkpoints"][1]["attempt"], 1);
        assert_eq!((&json["checkpoints"][0]["kept"], &json["checkpoints"][1]["kept"]), (&true.into(), &false.into()));
        let text = listed.to_string();
        assert!(text.starts_with("job word-count (") && text.contains(" 2.0 KiB\n"), "{text}");
        assert!(text.contains(" 2.0 KiB  savepoint\n"), "{text}");
        assert!(text.contains("         3  unreadable: the manifest is damaged: "), "{text}");
    }

    #[test]
    fn a_checkpoint_with_a_damaged_file_fails_and_the_file_is_named() {
        let root = tempfile::tempdir().expect("a folder");
        let second = filled(root.path());
        let job = name("word-count");
        let whole = verify(root.path(), &job, None).expect("verified");
        assert!(whole.failure().is_none());
        let wanted = "checkpoint 1: whole (1 files, 2.0 KiB)\ncheckpoint 2: whole (2 files, 2.0 KiB)\n";
        assert_eq!(whole.to_string(), wanted);
        std::fs::write(&second, "sekond").expect("damaged");
        let broken = verify(root.path(), &job, None).expect("verified");
        let failure = broken.failure().expect("damage");
        assert!(
            failure.to_string().starts_with("error: job 'word-count' can't be restored from checkpoint 2\n"),
            "{failure}"
        );
        assert!(broken.to_string().contains(second.to_str().expect("UTF-8")), "{broken}");
        assert!(verify(root.path(), &job, Some(Epoch(1))).expect("verified").failure().is_none());
    }

    #[test]
    fn what_is_not_there_is_said_to_be_a_mistake_of_the_command_line() {
        let root = tempfile::tempdir().expect("a folder");
        filled(root.path());
        let no_job = list(root.path(), &name("other")).expect_err("no job");
        assert_eq!(no_job.exit(), Exit::Unusable, "{no_job}");
        let no_epoch = verify(root.path(), &name("word-count"), Some(Epoch(9))).expect_err("no checkpoint");
        assert_eq!(no_epoch.exit(), Exit::Unusable, "{no_epoch}");
        assert!(no_epoch.to_string().contains("help: `lockgate checkpoint list` shows which there are"), "{no_epoch}");
    }

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1_023, 1_024, 1_536, 1 << 30, u64::MAX].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "16777216.0 TiB"]);
    }
}
