//! State that an older version of an operator has written, on its way to what the operator declares now.
//!
//! The host hands over the entries of a table part by part. [`Operator::migrate`](crate::Operator::migrate) says for each
//! table and version what is to be done with them; each part goes through it once.
//!
//! Invariant: an entry is changed only by what names its table and its version.

use crate::encoding::{Data, decode, encode};
use crate::error::Error;
use crate::host::{Column, TableEntries, TableEntriesRef};
use crate::operator::Table;
use crate::state::{List, Map, Value};

/// What becomes of the keys of a table: `keys` of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Kept,
    /// Each subtask is to be handed the entries of all.
    Changed,
}

/// One entry of a table, as it is stored: [`encoding`](crate::encoding#tables) says how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key of the records.
    pub key: Vec<u8>,
    /// Empty for a [`Value`].
    pub user_key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A part of the entries of one table, in the version in which they were written; see
/// [`Operator::migrate`](crate::Operator::migrate).
///
/// Each method is for one table and one older version of it, and does nothing when the entries at hand are others. Where several
/// are for the same ones, each takes what the one before has made of them.
pub struct Migration<'a> {
    table: &'a Table,
    index: u32,
    from_version: u32,
    work: Work,
    /// Whether something was said of this table and version.
    known: bool,
    keys: Keys,
}

enum Work {
    /// New entries are to be made of old ones. None at all if it is only asked how.
    Entries(Vec<Entry>),
    /// Pairs of new entries that have become one are to be merged.
    Pairs { pairs: Vec<(Entry, Vec<u8>)>, merged: bool },
}

/// A handle to a table: [`Value`], [`Map`] or [`List`].
pub trait AnyTable: sealed::Handle {}

/// A table of which two entries can become one: [`Value`] or [`Map`].
pub trait MergeTable: AnyTable {
    type Value: Data;
}

mod sealed {
    pub trait Handle {
        fn index(&self) -> u32;
    }
}

impl<V: Data> sealed::Handle for Value<V> {
    fn index(&self) -> u32 {
        self.table()
    }
}

impl<K: Data, V: Data> sealed::Handle for Map<K, V> {
    fn index(&self) -> u32 {
        self.table()
    }
}

impl<V: Data> sealed::Handle for List<V> {
    fn index(&self) -> u32 {
        self.table()
    }
}

impl<V: Data> AnyTable for Value<V> {}
impl<K: Data, V: Data> AnyTable for Map<K, V> {}
impl<V: Data> AnyTable for List<V> {}

impl<V: Data> MergeTable for Value<V> {
    type Value = V;
}

impl<K: Data, V: Data> MergeTable for Map<K, V> {
    type Value = V;
}

impl<'a> Migration<'a> {
    /// For a part of the entries of table `index`; with none it only finds out what is to be done.
    pub(crate) fn of_entries(
        table: &'a Table,
        index: u32,
        from_version: u32,
        entries: Option<TableEntriesRef<'_>>,
    ) -> Migration<'a> {
        let entries = entries.map(|entries| (0..entries.keys.rows()).map(|row| entry(entries, row)).collect());
        Migration::new(table, index, from_version, Work::Entries(entries.unwrap_or_default()))
    }

    pub(crate) fn of_pairs(
        table: &'a Table,
        index: u32,
        from_version: u32,
        (entries, others): (TableEntriesRef<'_>, crate::host::ColumnRef<'_>),
    ) -> Migration<'a> {
        let pair = |row| (entry(entries, row), others.get(row).to_vec());
        let pairs = (0..entries.keys.rows()).map(pair).collect();
        Migration::new(table, index, from_version, Work::Pairs { pairs, merged: false })
    }

    fn new(table: &'a Table, index: u32, from_version: u32, work: Work) -> Migration<'a> {
        Migration { table, index, from_version, work, known: false, keys: Keys::Kept }
    }

    /// The name of the table whose entries are at hand.
    pub fn table(&self) -> &str {
        self.table.name
    }

    /// The version in which they were written.
    pub fn from_version(&self) -> u32 {
        self.from_version
    }

    /// Makes new values of the old ones of a [`Value`].
    ///
    /// # Errors
    /// If an old one isn't an `Old`, or a new one can't be encoded.
    pub fn value<Old: Data, New: Data>(
        &mut self,
        table: Value<New>,
        from_version: u32,
        mut next: impl FnMut(Old) -> New,
    ) -> Result<(), Error> {
        self.entries(table, from_version, |mut entry| {
            entry.value = encode(&next(decode(&entry.value)?))?;
            Ok(Some(entry))
        })
    }

    /// Makes new user keys and values of the old ones of a [`Map`].
    ///
    /// # Errors
    /// If an old one isn't an `OldKey` or `Old`, or a new one can't be encoded.
    pub fn map<OldKey: Data, Old: Data, NewKey: Data, New: Data>(
        &mut self,
        table: Map<NewKey, New>,
        from_version: u32,
        mut next: impl FnMut(OldKey, Old) -> (NewKey, New),
    ) -> Result<(), Error> {
        self.entries(table, from_version, |mut entry| {
            let (user_key, value) = next(decode(&entry.user_key)?, decode(&entry.value)?);
            (entry.user_key, entry.value) = (encode(&user_key)?, encode(&value)?);
            Ok(Some(entry))
        })
    }

    /// Makes new elements of the old ones of a [`List`]; each keeps its place.
    ///
    /// # Errors
    /// If an old one isn't an `Old`, or a new one can't be encoded.
    pub fn list<Old: Data, New: Data>(
        &mut self,
        table: List<New>,
        from_version: u32,
        mut next: impl FnMut(Old) -> New,
    ) -> Result<(), Error> {
        self.entries(table, from_version, |mut entry| {
            // The entry without a user key is the length.
            if !entry.user_key.is_empty() {
                entry.value = encode(&next(decode(&entry.value)?))?;
            }
            Ok(Some(entry))
        })
    }

    /// Makes new keys of the old ones, where the records come with other keys now. The values stay, unless another call is for
    /// them. If two entries get the same key and user key, [`merge`](Self::merge) has to say what becomes of them.
    ///
    /// It takes longer than other migrations, for each subtask goes through the state of all. It is refused while timers
    /// are set, since they would keep the old keys.
    ///
    /// # Errors
    /// Never; as the others, for `?`.
    pub fn keys(
        &mut self,
        table: impl AnyTable,
        from_version: u32,
        mut next: impl FnMut(&[u8]) -> Vec<u8>,
    ) -> Result<(), Error> {
        if self.is_for(&table, from_version) {
            self.keys = Keys::Changed;
            if let Work::Entries(entries) = &mut self.work {
                entries.iter_mut().for_each(|entry| entry.key = next(&entry.key));
            }
        }
        Ok(())
    }

    /// Does anything else with entries, as they are stored; `None` drops one.
    ///
    /// # Errors
    /// What `next` says, or if it changes a key: that is for [`keys`](Self::keys).
    pub fn entries(
        &mut self,
        table: impl AnyTable,
        from_version: u32,
        mut next: impl FnMut(Entry) -> Result<Option<Entry>, Error>,
    ) -> Result<(), Error> {
        if !self.is_for(&table, from_version) {
            return Ok(());
        }
        let Work::Entries(entries) = &mut self.work else { return Ok(()) };
        let mut left = Vec::with_capacity(entries.len());
        for entry in std::mem::take(entries) {
            let key = entry.key.clone();
            let new = next(entry).map_err(|error| at_entry(error, self.table, &key))?;
            if new.as_ref().is_some_and(|new| new.key != key) {
                let error = Error::fatal("its key was changed, which is for `Migration::keys`");
                return Err(at_entry(error, self.table, &key));
            }
            left.extend(new);
        }
        *entries = left;
        Ok(())
    }

    /// Says what becomes of two values whose entries got the same key and user key. Neither is the older, and where more
    /// than two have become one, what was merged is merged again.
    ///
    /// # Errors
    /// If a value can't be decoded or encoded.
    pub fn merge<T: MergeTable>(
        &mut self,
        table: T,
        from_version: u32,
        mut merge: impl FnMut(T::Value, T::Value) -> T::Value,
    ) -> Result<(), Error> {
        if table.index() != self.index || from_version != self.from_version {
            return Ok(());
        }
        let Work::Pairs { pairs, merged } = &mut self.work else { return Ok(()) };
        *merged = true;
        for (entry, other) in pairs {
            let mut value = || encode(&merge(decode(&entry.value)?, decode(other)?));
            let value = value().map_err(|error| at_entry(error, self.table, &entry.key))?;
            entry.value = value;
        }
        Ok(())
    }

    fn is_for(&mut self, table: &impl AnyTable, from_version: u32) -> bool {
        let is_for = table.index() == self.index && from_version == self.from_version;
        self.known |= is_for;
        is_for
    }

    /// What becomes of keys, if the operator knows this version of the table.
    ///
    /// # Errors
    /// If it doesn't.
    pub(crate) fn prepared(&self) -> Result<Keys, Error> {
        if self.known {
            return Ok(self.keys);
        }
        let Table { name, version, .. } = self.table;
        let from_version = self.from_version;
        Err(Error::fatal(format_args!(
            "the state of table '{name}' is in version {from_version}, and the operator declares version {version}; its \
             `Operator::migrate` doesn't say how to get from {from_version} to {version}"
        )))
    }

    /// The new entries.
    pub(crate) fn into_entries(self) -> Result<TableEntries, Error> {
        self.prepared()?;
        let Work::Entries(entries) = self.work else { unreachable!("made of entries") };
        let mut columns = TableEntries { keys: Column::new(), user_keys: Column::new(), values: Column::new() };
        for entry in &entries {
            columns.keys.push(&entry.key);
            columns.user_keys.push(&entry.user_key);
            columns.values.push(&entry.value);
        }
        Ok(columns)
    }

    /// The merged values.
    pub(crate) fn into_merged(self) -> Result<Column, Error> {
        let Work::Pairs { pairs, merged } = self.work else { unreachable!("made of pairs") };
        if let Some((entry, _)) = pairs.first().filter(|_| !merged) {
            let error = Error::fatal("two entries have become one, and `Migration::merge` isn't called for them");
            return Err(at_entry(error, self.table, &entry.key));
        }
        let mut values = Column::new();
        pairs.iter().for_each(|(entry, _)| values.push(&entry.value));
        Ok(values)
    }
}

fn entry(entries: TableEntriesRef<'_>, row: usize) -> Entry {
    let TableEntriesRef { keys, user_keys, values } = entries;
    let [key, user_key, value] = [keys, user_keys, values].map(|column| column.get(row).to_vec());
    Entry { key, user_key, value }
}

fn at_entry(error: Error, table: &Table, key: &[u8]) -> Error {
    error.context(format_args!("table '{}', key '{}'", table.name, key.escape_ascii()))
}
