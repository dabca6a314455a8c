//! The keys a subtask may touch, and the check of everything a guest hands over.
//!
//! Invariant: a [`KeyRef`] that comes from here belongs to the subtask's own key groups and to a table of its operator, and no
//! part of it is too long.

use xxhash_rust::xxh3::xxh3_64;

use super::entry::{KEY_BYTES_MAX, KeyRef, USER_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use super::error::StateError;
use super::tables::Tables;
use super::timers::TAG_BYTES_MAX;
use crate::element::{Column, Malformed};
use crate::id::SubtaskId;
use crate::protocol::{KeyGroupRange, MaxParallelism};

/// Enough to find a record by.
const KEY_BYTES_SHOWN: usize = 48;

#[derive(Debug)]
pub struct KeySpace {
    pub subtask: SubtaskId,
    pub key_groups: KeyGroupRange,
    pub max_parallelism: MaxParallelism,
    pub tables: Tables,
}

/// Keys with their user keys, as a guest hands them over, checked.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    keys: &'a Column,
    /// `None`: all are empty.
    user_keys: Option<&'a Column>,
    pub count: usize,
}

impl<'a> Rows<'a> {
    #[inline]
    pub fn get(&self, row: usize) -> (&'a [u8], &'a [u8]) {
        (self.keys.get(row), self.user_keys.map_or(&[], |user_keys| user_keys.get(row)))
    }

    pub fn bytes(&self) -> usize {
        self.keys.data.len() + self.user_keys.map_or(0, |user_keys| user_keys.data.len())
    }
}

impl KeySpace {
    /// The stored number of the operator's table.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn table(&self, table: u32) -> Result<u16, StateError> {
        self.tables.number(table).ok_or_else(|| {
            let tables = self.tables.declared();
            StateError::NoSuchTable { subtask: self.subtask.clone(), table, tables }
        })
    }

    /// # Errors
    /// If the columns are malformed or don't have the same number of rows.
    pub fn rows<'a>(&self, keys: &'a Column, user_keys: &'a Column) -> Result<Rows<'a>, StateError> {
        let count = keys.rows();
        self.well_formed("keys", keys.check(count))?;
        let all_empty = user_keys.offsets.is_empty() && user_keys.data.is_empty();
        if !all_empty {
            self.well_formed("user keys", user_keys.check(count))?;
        }
        Ok(Rows { keys, user_keys: (!all_empty).then_some(user_keys), count })
    }

    /// # Errors
    /// If the columns of a write are malformed or don't have the same number of rows.
    pub fn writes<'a>(
        &self,
        keys: &'a Column,
        user_keys: &'a Column,
        values: &Column,
        deletes: &[u8],
    ) -> Result<Rows<'a>, StateError> {
        let rows = self.rows(keys, user_keys)?;
        self.well_formed("values", values.check(rows.count))?;
        self.bitmap_fits(deletes, rows.count)?;
        Ok(rows)
    }

    /// # Errors
    /// If a bitmap isn't empty and not one of so many rows.
    pub fn bitmap_fits(&self, bitmap: &[u8], rows: usize) -> Result<(), StateError> {
        if bitmap.is_empty() || bitmap.len() == rows.div_ceil(8) {
            return Ok(());
        }
        Err(StateError::Bitmap { subtask: self.subtask.clone(), rows, bytes: bitmap.len() })
    }

    /// # Errors
    /// If the key belongs to another subtask, or is too long.
    #[inline]
    pub fn locate<'a>(&self, table: u16, key: &'a [u8], user_key: &'a [u8]) -> Result<KeyRef<'a>, StateError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(self.key_too_long(key));
        }
        if user_key.len() > USER_KEY_BYTES_MAX {
            return Err(self.too_long("user key", user_key.len(), USER_KEY_BYTES_MAX));
        }
        let hash = xxh3_64(key);
        let group = self.max_parallelism.key_group_of_hash(hash);
        if !self.key_groups.contains(group) {
            return Err(StateError::ForeignKey {
                subtask: self.subtask.clone(),
                group,
                first: self.key_groups.first.0,
                last: self.key_groups.last.0,
            });
        }
        Ok(KeyRef::new(group, table, key, user_key, hash))
    }

    /// # Errors
    /// If the value is too long.
    #[inline]
    pub fn value_fits(&self, value: &[u8]) -> Result<(), StateError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(self.too_long("value", value.len(), VALUE_BYTES_MAX));
        }
        Ok(())
    }

    /// # Errors
    /// If the tag of a timer is too long.
    pub fn tag_fits(&self, tag: &[u8]) -> Result<(), StateError> {
        if tag.len() > TAG_BYTES_MAX {
            return Err(self.too_long("tag of a timer", tag.len(), TAG_BYTES_MAX));
        }
        Ok(())
    }

    fn well_formed(&self, what: &'static str, checked: Result<(), Malformed>) -> Result<(), StateError> {
        checked.map_err(|source| StateError::Malformed { subtask: self.subtask.clone(), what, source })
    }

    #[cold]
    fn key_too_long(&self, key: &[u8]) -> StateError {
        let begins = key[..KEY_BYTES_SHOWN].escape_ascii().to_string();
        let (bytes, bytes_max) = (key.len(), KEY_BYTES_MAX);
        StateError::KeyTooLong { subtask: self.subtask.clone(), bytes, bytes_max, begins }
    }

    #[cold]
    fn too_long(&self, what: &'static str, bytes: usize, bytes_max: usize) -> StateError {
        StateError::TooLong { subtask: self.subtask.clone(), what, bytes, bytes_max }
    }
}

/// Bit `row` of a bitmap, least significant first; all 0 if it is empty.
#[inline]
pub fn bit(bitmap: &[u8], row: usize) -> bool {
    bitmap.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
}
