//! How far the sources of an at-most-once job have got, made durable before their records go on.
//!
//! One file per source subtask, which is replaced as a whole: written under another name, synced, renamed, and the folder synced.
//! A crash in between leaves the record before. An attempt may deal the splits to other subtasks than the one before, and then a
//! subtask's first record replaces positions of splits that aren't its own any more: so where all splits of a source go on is
//! recorded first (the *start*).
//!
//! Invariant: when [`ProgressLog::record`] returns without an error, the positions survive a power cut, and no later record of
//! any subtask takes them back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::{create_folder, sync};
use super::error::StoreError;
use super::sealed::{Damage, seal, unseal};
use crate::connector::SplitState;
use crate::crash;
use crate::id::{Attempt, JobUid, Name};

const VERSION: u32 = 1;
const WHAT: &str = "a record of progress";

/// Whose progress it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressOf {
    pub job_uid: JobUid,
    /// The attempt that has read so far.
    pub attempt: Attempt,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    of: &'a ProgressOf,
    splits: &'a [SplitState],
}

#[derive(Debug, Deserialize)]
struct Read {
    #[serde(flatten)]
    of: ProgressOf,
    splits: Vec<SplitState>,
}

/// Where one source subtask records its progress.
#[derive(Debug)]
pub struct ProgressLog {
    of: ProgressOf,
    path: PathBuf,
}

impl ProgressLog {
    /// # Errors
    /// If the folder can't be made.
    pub fn open(folder: &Path, source: &Name, subtask: u32, of: ProgressOf) -> Result<ProgressLog, StoreError> {
        create_folder(folder)?;
        let path = folder.join(format!("{}{subtask}.json", prefix(source)));
        Ok(ProgressLog { of, path })
    }

    /// Replaces what was recorded.
    ///
    /// # Errors
    /// If it isn't certain that the positions are durable.
    pub fn record(&self, splits: &[SplitState]) -> Result<(), StoreError> {
        replace(&self.path, &self.of, splits)
    }
}

fn replace(path: &Path, of: &ProgressOf, splits: &[SplitState]) -> Result<(), StoreError> {
    crash::point("store.progress.before");
    let bytes = seal(&Written { version: VERSION, of, splits });
    let temp = path.with_extension("new");
    let write = || {
        let mut file = File::create(&temp)?;
        file.write_all(&bytes)?;
        file.sync_all()
    };
    write().map_err(|error| StoreError::io("write", &temp, error))?;
    crash::point("store.progress.written");
    fs::rename(&temp, path).map_err(|error| StoreError::io("replace", path, error))?;
    sync(path.parent().expect("a record is in a folder"))?;
    crash::point("store.progress.after");
    Ok(())
}

/// Names can't hold a dot.
fn prefix(source: &Name) -> String {
    format!("{source}.")
}

fn start_name(source: &Name) -> String {
    format!("{}start.json", prefix(source))
}

/// The positions from which a source goes on in the attempt `of`: those of a checkpoint, or later ones that were recorded
/// since. They are recorded as the start of that attempt, so they may be taken up by whichever subtask. To be called before
/// the attempt's first [`ProgressLog::record`].
///
/// # Errors
/// If a record can't be read or is damaged, or it isn't certain that the start is durable.
pub fn take_up_progress(
    folder: &Path,
    source: &Name,
    of: &ProgressOf,
    checkpoint: Option<Attempt>,
    splits: Vec<SplitState>,
) -> Result<Vec<SplitState>, StoreError> {
    let records = records_since(folder, source, &of.job_uid, checkpoint)?;
    // Another subtask of this attempt may have been here.
    let is_recorded = records.iter().any(|record| record.of == *of);
    let adds = !records.is_empty();
    let splits = latest(splits, records);
    if adds && !is_recorded {
        replace(&folder.join(start_name(source)), of, &splits)?;
    }
    Ok(splits)
}

/// The records that are later than a checkpoint, the latest last. Those of the attempt that took it are; its start isn't.
fn records_since(
    folder: &Path,
    source: &Name,
    job_uid: &JobUid,
    checkpoint: Option<Attempt>,
) -> Result<Vec<Read>, StoreError> {
    let mut records = read_all(folder, source)?;
    records.retain(|(is_start, record)| {
        let attempt = Some(record.of.attempt);
        record.of.job_uid == *job_uid && if *is_start { attempt > checkpoint } else { attempt >= checkpoint }
    });
    records.sort_by_key(|(is_start, record)| (record.of.attempt, !is_start));
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

/// Of several positions of a split the last.
fn latest(splits: Vec<SplitState>, records: Vec<Read>) -> Vec<SplitState> {
    let of_records = records.into_iter().flat_map(|record| record.splits);
    let latest = splits.into_iter().chain(of_records).map(|state| (state.split, state.position));
    let latest = latest.collect::<BTreeMap<_, _>>();
    latest.into_iter().map(|(split, position)| SplitState { split, position }).collect()
}

/// All records of a source, and whether each is a start.
fn read_all(folder: &Path, source: &Name) -> Result<Vec<(bool, Read)>, StoreError> {
    let failed = |error| StoreError::io("list", folder, error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&prefix(source)) && name.ends_with(".json") {
            let bytes = fs::read(&path).map_err(|error| StoreError::io("read", &path, error))?;
            records.push((name == start_name(source), decode(&bytes, &path)?));
        }
    }
    Ok(records)
}

fn decode(bytes: &[u8], path: &Path) -> Result<Read, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |source| StoreError::Damaged { what: WHAT, path: path.to_owned(), source };
    let content = |error: serde_json::Error| damaged(Damage::Content { problem: error.to_string() });
    let json = unseal(bytes).map_err(damaged)?;
    let Version { version } = serde_json::from_slice(json).map_err(content)?;
    if version > VERSION {
        return Err(StoreError::TooNew { what: WHAT, path: path.to_owned(), found: version, known: VERSION });
    }
    serde_json::from_slice(json).map_err(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Name {
        Name::new("text").expect("a name")
    }

    fn uid() -> JobUid {
        JobUid("u".to_owned())
    }

    fn splits(states: &[(&str, u64)]) -> Vec<SplitState> {
        let state =
            |(split, position): &(&str, u64)| SplitState { split: (*split).to_owned(), position: (*position).into() };
        states.iter().map(state).collect()
    }

    fn record(folder: &Path, subtask: u32, attempt: u64, states: &[(&str, u64)]) {
        let of = ProgressOf { job_uid: uid(), attempt: Attempt(attempt) };
        let log = ProgressLog::open(folder, &source(), subtask, of).expect("a folder");
        log.record(&splits(states)).expect("recorded");
    }

    fn start(folder: &Path, checkpoint: Option<u64>, states: &[(&str, u64)]) -> Vec<SplitState> {
        let records = records_since(folder, &source(), &uid(), checkpoint.map(Attempt)).expect("readable");
        latest(splits(states), records)
    }

    fn take_up(folder: &Path, attempt: u64, checkpoint: u64, states: &[(&str, u64)]) -> Vec<SplitState> {
        let of = ProgressOf { job_uid: uid(), attempt: Attempt(attempt) };
        let checkpoint = Some(Attempt(checkpoint));
        take_up_progress(folder, &source(), &of, checkpoint, splits(states)).expect("readable and writable")
    }

    #[test]
    fn what_was_recorded_since_the_checkpoint_counts_split_by_split() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("progress");
        assert_eq!(start(&folder, None, &[]), [], "nothing was ever recorded");
        record(&folder, 0, 2, &[("a", 1)]);
        record(&folder, 0, 2, &[("a", 5)]);
        assert_eq!(start(&folder, None, &[]), splits(&[("a", 5)]));
        assert_eq!(start(&folder, Some(2), &[("a", 3), ("b", 1)]), splits(&[("a", 5), ("b", 1)]));
        assert_eq!(start(&folder, Some(3), &[("a", 3)]), splits(&[("a", 3)]), "an older attempt has read less");
    }

    #[test]
    fn of_several_subtasks_the_one_that_read_a_split_last_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        record(folder.path(), 1, 2, &[("a", 4), ("b", 4)]);
        record(folder.path(), 0, 3, &[("b", 6)]);
        assert_eq!(start(folder.path(), Some(1), &[("a", 1)]), splits(&[("a", 4), ("b", 6)]));
    }

    #[test]
    fn what_was_read_of_a_split_that_has_moved_to_another_subtask_stays_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, checkpoint) = (folder.path(), [("a", 50), ("b", 0)]);
        record(folder, 0, 2, &[("a", 100), ("b", 0)]);
        for _ in 0..2 {
            let taken_up = take_up(folder, 3, 2, &checkpoint);
            assert_eq!(taken_up, splits(&[("a", 100), ("b", 0)]), "each subtask takes up the same");
        }
        record(folder, 0, 3, &[("b", 6)]);
        assert_eq!(take_up(folder, 4, 2, &checkpoint), splits(&[("a", 100), ("b", 6)]), "'a' was the other subtask's");
    }

    #[test]
    fn a_checkpoint_is_later_than_the_start_of_its_own_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        record(folder.path(), 0, 2, &[("a", 100)]);
        take_up(folder.path(), 3, 2, &[("a", 50)]);
        assert_eq!(start(folder.path(), Some(3), &[("a", 150)]), splits(&[("a", 150)]));
    }

    #[test]
    fn nothing_is_recorded_of_an_attempt_that_starts_from_its_checkpoint() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(take_up(folder.path(), 3, 2, &[("a", 50)]), splits(&[("a", 50)]));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn another_jobs_record_and_an_unfinished_one_do_not_count_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        record(folder.path(), 0, 2, &[("a", 5)]);
        let other = records_since(folder.path(), &source(), &JobUid("v".to_owned()), None);
        assert!(other.expect("readable").is_empty());
        let path = folder.path().join("text.0.json");
        fs::write(path.with_extension("new"), "half").expect("written");
        assert_eq!(start(folder.path(), None, &[]), splits(&[("a", 5)]));
        let mut bytes = fs::read(&path).expect("there");
        bytes[10] ^= 1;
        fs::write(&path, bytes).expect("written");
        let error = records_since(folder.path(), &source(), &uid(), None).expect_err("damaged");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}
