//! What a migration needs of the state: the entries that are still in an older version, part by part, and a way to be rid of them.
//!
//! The new entries are written as any others are, to the table as the operator declares it. That is another number in the stored
//! keys, so what is written is never read again as something old.
//!
//! Invariant: no snapshot is taken while a table is outdated, and a table stops being outdated only when nothing of it is left.

use std::time::Duration;

use super::entry::{self, KeyRef};
use super::error::StateError;
use super::keyed::KeyedState;
use super::scan::{self, Walk};
use super::tables::Outdated;
use crate::element::Column;
use crate::id::SubtaskId;

/// Of what fits into memory, a call may stage three quarters; a part of a migration stays far below that.
const STAGED_SHARE: usize = 16;

/// How much a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    pub entries: u64,
    /// Of keys, user keys and values.
    pub bytes: u64,
}

impl TableSize {
    pub fn add(&mut self, key: &[u8], user_key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.bytes += (key.len() + user_key.len() + value.len()) as u64;
    }
}

/// A table that was brought to a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedTable {
    pub name: String,
    pub from_version: u32,
    pub to_version: u32,
    /// Whether entries could get other keys.
    pub keys_changed: bool,
    pub before: TableSize,
    pub after: TableSize,
    pub took: Duration,
}

/// The place of a walk through the old entries of a table.
#[derive(Clone, Debug)]
pub struct OldEntries {
    from_number: u16,
    name: String,
    /// The key group that is read next; behind the last one it is at its end.
    group: u32,
    /// The stored key behind which that group is read on.
    after: Option<Vec<u8>>,
}

/// Some old entries of a table.
#[derive(Clone, Debug, Default)]
pub struct OldPage {
    pub keys: Column,
    pub user_keys: Column,
    pub values: Column,
    stored: Column,
    pub size: TableSize,
}

impl OldPage {
    pub fn rows(&self) -> usize {
        self.stored.rows()
    }

    fn push(&mut self, stored: &[u8], key: &KeyRef<'_>, value: &[u8]) {
        self.keys.push(key.key());
        self.user_keys.push(key.user_key());
        self.values.push(value);
        self.stored.push(stored);
        self.size.add(key.key(), key.user_key(), value);
    }
}

impl KeyedState {
    /// The tables that are to be migrated before the first snapshot.
    pub fn outdated(&self) -> &[Outdated] {
        self.space.tables.outdated()
    }

    /// What was migrated since the state was opened, or handed to its present operator.
    pub fn migrated(&self) -> &[MigratedTable] {
        &self.migrated
    }

    /// # Errors
    /// If a table is still outdated.
    pub(super) fn check_migrated(&self) -> Result<(), StateError> {
        let Some(outdated) = self.outdated().first() else { return Ok(()) };
        let Outdated { name, from_version, to_version, .. } = outdated.clone();
        let subtask = self.space.subtask.clone();
        Err(StateError::NotMigrated { subtask, table: name, from: from_version, to: to_version })
    }

    pub fn subtask(&self) -> &SubtaskId {
        &self.space.subtask
    }

    /// Whether a key is one of this subtask's.
    pub fn owns(&self, key: &[u8]) -> bool {
        self.space.key_groups.contains(self.space.max_parallelism.key_group(key))
    }

    /// Whether any timer is set.
    pub fn is_any_timer_set(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| !timers.is_empty())
    }

    /// About how many bytes one part of a migration may read or write.
    pub fn part_bytes_max(&self) -> usize {
        self.memory_bytes_max / STAGED_SHARE
    }

    /// A walk through the entries that a table has in its older version.
    pub fn old_entries(&self, outdated: &Outdated) -> OldEntries {
        let (from_number, name) = (outdated.from_number, outdated.name.clone());
        OldEntries { from_number, name, group: u32::from(self.space.key_groups.first.0), after: None }
    }

    /// The next entries of a walk: about `bytes_max` and at most `rows_max`, but one if there is one; none at its end.
    ///
    /// # Errors
    /// If the state can't be read.
    pub fn read_old(&self, walk: &mut OldEntries, bytes_max: usize, rows_max: usize) -> Result<OldPage, StateError> {
        let mut page = OldPage::default();
        while walk.group <= u32::from(self.space.key_groups.last.0) {
            let prefix = entry::table_prefix(walk.group as u16, walk.from_number);
            let from = walk.after.as_ref().map_or(prefix.to_vec(), |after| [after, &[0][..]].concat());
            let (mut is_full, mut is_malformed) = (false, false);
            self.walk(&prefix, &from, |stored, value| {
                let bytes = page.stored.data.len() + page.values.data.len();
                is_full =
                    page.rows() > 0 && (page.rows() >= rows_max || bytes + stored.len() + value.len() > bytes_max);
                let key = KeyRef::parse(stored);
                is_malformed = key.is_none();
                match key.filter(|_| !is_full) {
                    Some(key) => page.push(stored, &key, value),
                    None => return Walk::Stop,
                }
                Walk::On
            })?;
            if is_malformed {
                let (subtask, table) = (self.space.subtask.clone(), walk.name.clone());
                return Err(StateError::OldEntry { subtask, table });
            }
            if is_full {
                let last = page.stored.get(page.rows() - 1);
                walk.after = last.starts_with(&prefix).then(|| last.to_vec());
                return Ok(page);
            }
            (walk.group, walk.after) = (walk.group + 1, None);
        }
        Ok(page)
    }

    /// Stages that old entries are no more.
    ///
    /// # Errors
    /// If the disk has failed.
    pub fn remove_old(&mut self, page: &OldPage) -> Result<(), StateError> {
        self.make_room(page.rows(), page.stored.data.len())?;
        for row in 0..page.rows() {
            let key = KeyRef::parse(page.stored.get(row)).expect("it was read as a stored key");
            self.current.put(&key, None);
        }
        Ok(())
    }

    /// A table has been migrated: nothing of its older version is left.
    pub fn finish_migration(&mut self, outdated: &Outdated, migrated: MigratedTable) {
        self.space.tables.migrated(outdated.table);
        self.migrated.push(migrated);
    }

    /// How much a table of the operator holds. Reads all of it.
    ///
    /// # Errors
    /// If there is no such table, or the state can't be read.
    pub fn size_of_table(&self, table: u32) -> Result<TableSize, StateError> {
        let number = self.space.table(table)?;
        let mut size = TableSize::default();
        for group in self.space.key_groups.first.0..=self.space.key_groups.last.0 {
            let prefix = entry::table_prefix(group, number);
            self.walk(&prefix, &prefix, |stored, value| {
                let (key, user_key) =
                    KeyRef::parse(stored).map_or((stored, &b""[..]), |key| (key.key(), key.user_key()));
                size.add(key, user_key, value);
                Walk::On
            })?;
        }
        Ok(size)
    }

    /// Goes through entries wherever they are, staged ones included.
    fn walk(&self, prefix: &[u8], from: &[u8], visit: impl FnMut(&[u8], &[u8]) -> Walk) -> Result<(), StateError> {
        self.flusher.check()?;
        let sealed = self.flusher.segments();
        let segments: Vec<_> = std::iter::once(self.current.segment()).chain(sealed.iter().map(|s| &**s)).collect();
        scan::walk(&segments, self.flusher.rocks(), prefix, from, &|| Ok(()), visit)
    }
}
