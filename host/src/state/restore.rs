//! Taking up the snapshots of a checkpoint: the same key groups as they are, or parts of several after a change of parallelism.
//!
//! Invariant: every entry of the own key groups is taken up exactly once, and no other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::base::{Base, KnownFiles, Sequence, is_base_file};
use super::chain::Chain;
use super::delta_file::DeltaFile;
use super::entry::KeyRef;
use super::error::{Corruption, StateError, TransferError};
use super::keyed::StateOptions;
use super::rocks::{Builder, Rocks};
use super::snapshot::Delta;
use super::tables::Tables;
use crate::id::SubtaskId;
use crate::protocol::KeyGroupRange;
use crate::store::{FileRef, KeyedSnapshot};

/// Copies a file of the checkpoint store to a path, and fails if its size or checksum is wrong.
pub type Fetch<'a> = dyn Fn(&FileRef, &Path) -> Result<(), TransferError> + 'a;

/// What an opened state begins with; the deltas are still to be read.
pub struct Restored {
    pub tables: Tables,
    pub rocks: Option<Rocks>,
    pub chain: Chain,
    pub known: KnownFiles,
    /// Of all snapshots, oldest first.
    pub deltas: Vec<RestoredDelta>,
}

/// Makes the work folder and takes up tables and bases.
///
/// # Errors
/// See [`KeyedState::open`](super::KeyedState::open).
pub fn open(options: &StateOptions, restored: &[KeyedSnapshot], fetch: &Fetch<'_>) -> Result<Restored, StateError> {
    let mine: Vec<_> = restored.iter().filter(|s| s.key_groups.overlaps(options.key_groups)).collect();
    check_snapshots(&options.subtask, options.key_groups, restored, &mine)?;
    let snapshot_tables = restored.first().map(|snapshot| &snapshot.tables[..]);
    let tables = Tables::assign(&options.subtask, &options.tables, snapshot_tables)?;
    make_work_dir(options)?;

    let deltas = mine.iter().flat_map(|snapshot| {
        let of = |file: &FileRef| RestoredDelta {
            file: file.clone(),
            key_groups: snapshot.key_groups,
            tables: snapshot.tables.len(),
            path: options.work_dir.join("restored-delta"),
        };
        snapshot.deltas.iter().map(of).collect::<Vec<_>>()
    });
    let deltas: Vec<_> = deltas.collect();
    if let [snapshot] = mine[..]
        && snapshot.key_groups == options.key_groups
    {
        return open_same(options, snapshot, tables, deltas, fetch);
    }
    let rocks = open_parts(options, &mine, fetch)?;
    let chain = Chain::new(None, rocks.is_some() || !deltas.is_empty());
    Ok(Restored { tables, rocks, chain, known: KnownFiles::default(), deltas })
}

fn check_snapshots(
    subtask: &SubtaskId,
    key_groups: KeyGroupRange,
    all: &[KeyedSnapshot],
    mine: &[&KeyedSnapshot],
) -> Result<(), StateError> {
    let Some(first) = all.first() else { return Ok(()) };
    if all.iter().any(|snapshot| snapshot.tables != first.tables) {
        return Err(StateError::TablesDiffer { subtask: subtask.clone() });
    }
    let (own_first, own_last) = (key_groups.first.0, key_groups.last.0);
    let mut ranges: Vec<_> = mine.iter().map(|s| (s.key_groups.first.0, s.key_groups.last.0)).collect();
    ranges.sort_unstable();
    let is_whole = ranges.first().is_some_and(|range| range.0 <= own_first)
        && ranges.last().is_some_and(|range| range.1 >= own_last)
        && ranges.windows(2).all(|pair| u32::from(pair[0].1) + 1 == u32::from(pair[1].0));
    if !is_whole {
        return Err(StateError::KeyGroups { subtask: subtask.clone(), first: own_first, last: own_last });
    }
    for name in all.iter().flat_map(|snapshot| snapshot.base.keys()) {
        if !is_base_file(name) {
            return Err(StateError::FileName { subtask: subtask.clone(), name: name.clone() });
        }
    }
    Ok(())
}

fn make_work_dir(options: &StateOptions) -> Result<(), StateError> {
    let path = &options.work_dir;
    let failed = file_error(&options.subtask, "make the folder", path);
    std::fs::create_dir_all(path).map_err(&failed)?;
    if std::fs::read_dir(path).map_err(&failed)?.next().is_some() {
        return Err(StateError::WorkDirUsed { subtask: options.subtask.clone(), path: path.clone() });
    }
    Ok(())
}

fn file_error<'a>(
    subtask: &'a SubtaskId,
    action: &'static str,
    path: &'a Path,
) -> impl Fn(std::io::Error) -> StateError + 'a {
    move |source| StateError::File { subtask: subtask.clone(), action, path: path.to_owned(), source }
}

fn fetch_file(subtask: &SubtaskId, file: &FileRef, to: &Path, fetch: &Fetch<'_>) -> Result<(), StateError> {
    fetch(file, to).map_err(|source| StateError::Fetch { subtask: subtask.clone(), path: file.path.clone(), source })
}

fn fetch_base(
    options: &StateOptions,
    snapshot: &KeyedSnapshot,
    to: &Path,
    fetch: &Fetch<'_>,
) -> Result<(), StateError> {
    std::fs::create_dir_all(to).map_err(file_error(&options.subtask, "make the folder", to))?;
    for (name, file) in &snapshot.base {
        fetch_file(&options.subtask, file, &to.join(name), fetch)?;
    }
    Ok(())
}

/// The own key groups are those of one snapshot: its files are taken as they are, and stay part of later snapshots.
fn open_same(
    options: &StateOptions,
    snapshot: &KeyedSnapshot,
    tables: Tables,
    deltas: Vec<RestoredDelta>,
    fetch: &Fetch<'_>,
) -> Result<Restored, StateError> {
    let (mut rocks, mut base, mut known) = (None, None, HashMap::new());
    if !snapshot.base.is_empty() {
        let dir = options.work_dir.join("db");
        fetch_base(options, snapshot, &dir, fetch)?;
        rocks = Some(Rocks::open(&options.subtask, &dir, &options.block_cache)?);
        base = Some(Base::restored(Sequence(0), snapshot.base.clone()));
        // The database keeps the names of the files that it is opened on, and numbers new ones higher.
        let files = snapshot.base.iter().filter(|(name, _)| name.ends_with(".sst"));
        known = files.map(|(name, file)| (name.clone(), file.clone())).collect();
    }
    let mut chain = Chain::new(base, false);
    for delta in &deltas {
        chain.add_restored(|sequence| Delta::restored(sequence, delta.file.clone()));
    }
    Ok(Restored { tables, rocks, chain, known: Arc::new(Mutex::new(known)), deltas })
}

/// Copies the own key groups out of each base into a new database; `None` if there is no base.
fn open_parts(
    options: &StateOptions,
    snapshots: &[&KeyedSnapshot],
    fetch: &Fetch<'_>,
) -> Result<Option<Rocks>, StateError> {
    let mut with_base: Vec<_> = snapshots.iter().filter(|snapshot| !snapshot.base.is_empty()).collect();
    if with_base.is_empty() {
        return Ok(None);
    }
    // In this order, what comes out of the bases is sorted as a whole.
    with_base.sort_by_key(|snapshot| snapshot.key_groups.first);
    let rocks = Rocks::open(&options.subtask, &options.work_dir.join("db"), &options.block_cache)?;
    let mut builder = rocks.builder();
    for snapshot in with_base {
        let dir = options.work_dir.join("restored-base");
        fetch_base(options, snapshot, &dir, fetch)?;
        copy_part(options, snapshot, &dir, &mut builder)?;
        std::fs::remove_dir_all(&dir).map_err(file_error(&options.subtask, "remove the folder", &dir))?;
    }
    builder.ingest()?;
    Ok(Some(rocks))
}

fn copy_part(
    options: &StateOptions,
    snapshot: &KeyedSnapshot,
    dir: &Path,
    builder: &mut Builder<'_>,
) -> Result<(), StateError> {
    let base = Rocks::open_read_only(&options.subtask, dir, &options.block_cache)?;
    let first = options.key_groups.first.max(snapshot.key_groups.first).0;
    let last = options.key_groups.last.min(snapshot.key_groups.last).0;
    let mut rows = base.scan(&first.to_be_bytes(), &(last + 1).to_be_bytes());
    while let Some(entry) = rows.current()? {
        builder.add(entry)?;
        rows.advance();
    }
    Ok(())
}

/// A delta that is still to be fetched.
pub struct RestoredDelta {
    file: FileRef,
    key_groups: KeyGroupRange,
    tables: usize,
    path: PathBuf,
}

impl RestoredDelta {
    /// Fetches and checks the file, and gives its entries of the `own` key groups in order.
    ///
    /// # Errors
    /// If the file can't be fetched or is corrupt, or what `visit` says.
    pub fn fetch(
        &self,
        subtask: &SubtaskId,
        own: KeyGroupRange,
        fetch: &Fetch<'_>,
        mut visit: impl FnMut(&KeyRef<'_>, Option<&[u8]>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        fetch_file(subtask, &self.file, &self.path, fetch)?;
        let content = std::fs::read(&self.path).map_err(file_error(subtask, "read", &self.path))?;
        std::fs::remove_file(&self.path).map_err(file_error(subtask, "remove", &self.path))?;
        let corrupt = |problem| StateError::Corrupt { subtask: subtask.clone(), path: self.file.path.clone(), problem };
        let delta = DeltaFile::decode(&content).map_err(corrupt)?;
        for (index, entry) in delta.entries().enumerate() {
            let key = KeyRef::parse(entry.key).ok_or_else(|| corrupt(Corruption::Entry(index as u64)))?;
            let is_of_snapshot = self.key_groups.contains(key.group()) && usize::from(key.table()) < self.tables;
            if !is_of_snapshot {
                return Err(corrupt(Corruption::Foreign(key.group().0)));
            }
            if own.contains(key.group()) {
                visit(&key, entry.value)?;
            }
        }
        Ok(())
    }
}
