//! Brings what snapshots hold to the versions of the tables that an operator declares, as the host does before `restore`.
//!
//! Invariant: each old entry is handed over once, in parts small enough for a test to have several.

use super::Snapshot;
use super::memory::{EntryMap, MemoryHost};
use crate::error::Error;
use crate::host::{Column, TableEntries};
use crate::instance::Instance;
use crate::migration::Keys;
use crate::operator::{Declaration, Operator};

/// Far fewer than the host hands over at once.
const PART_ROWS: usize = 16;

/// # Errors
/// If the operator refuses, or its state is of a newer version than it declares.
pub(super) fn migrate<Op: Operator>(
    instance: &mut Instance<Op>,
    host: &mut MemoryHost,
    snapshots: &[&Snapshot],
) -> Result<(), Error> {
    for (index, table) in (0..).zip(Declaration::of::<Op>().tables()) {
        let stored = snapshots.iter().find_map(|snapshot| snapshot.versions.get(table.name).copied());
        let Some(from_version) = stored.filter(|stored| *stored != table.version) else { continue };
        if from_version > table.version {
            let (name, version) = (table.name, table.version);
            return Err(Error::fatal(format_args!(
                "the snapshot holds version {from_version} of table '{name}', and the operator declares version {version}; \
                 state can't be brought back to an older version"
            )));
        }
        let keys = instance.prepare_migration(index, from_version)?;
        if keys == Keys::Changed && !host.timers.is_empty() {
            let name = table.name;
            return Err(Error::fatal(format_args!(
                "the keys of table '{name}' change while timers are set, which would keep the old keys"
            )));
        }
        let old = std::mem::take(host.tables.get_mut(table.name).expect("a declared table"));
        let new = migrate_table(instance, index, from_version, &old)?;
        host.tables.insert(table.name.to_owned(), new);
    }
    Ok(())
}

fn migrate_table<Op: Operator>(
    instance: &mut Instance<Op>,
    table: u32,
    from_version: u32,
    old: &EntryMap,
) -> Result<EntryMap, Error> {
    let mut new = EntryMap::new();
    let old = old.iter().collect::<Vec<_>>();
    for part in old.chunks(PART_ROWS) {
        let entries = columns(part.iter().map(|((key, user_key), value)| (&key[..], &user_key[..], &value[..])));
        let TableEntries { keys, user_keys, values } = instance.migrate(table, from_version, entries.as_ref())?;
        for row in 0..keys.as_ref().rows() {
            let [key, user_key, value] = [&keys, &user_keys, &values].map(|column| column.as_ref().get(row).to_vec());
            let place = (key, user_key);
            let value = match new.remove(&place) {
                None => value,
                Some(other) => merged(instance, (table, from_version), &place, &value, &other)?,
            };
            new.insert(place, value);
        }
    }
    Ok(new)
}

fn merged<Op: Operator>(
    instance: &mut Instance<Op>,
    (table, from_version): (u32, u32),
    (key, user_key): &(Vec<u8>, Vec<u8>),
    value: &[u8],
    other: &[u8],
) -> Result<Vec<u8>, Error> {
    let entries = columns(std::iter::once((&key[..], &user_key[..], value)));
    let mut others = Column::new();
    others.push(other);
    let merged = instance.merge(table, from_version, entries.as_ref(), others.as_ref())?;
    Ok(merged.as_ref().get(0).to_vec())
}

fn columns<'a>(entries: impl Iterator<Item = (&'a [u8], &'a [u8], &'a [u8])>) -> TableEntries {
    let mut columns = TableEntries { keys: Column::new(), user_keys: Column::new(), values: Column::new() };
    for (key, user_key, value) in entries {
        columns.keys.push(key);
        columns.user_keys.push(user_key);
        columns.values.push(value);
    }
    columns
}
