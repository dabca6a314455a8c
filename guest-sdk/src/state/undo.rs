//! What the current record has changed in keyed state, so that it can be undone if the record is rejected.
//!
//! Invariant: undone last first, the changes bring cache and host together back to the state at the record's start. Where
//! records can't be rejected, nothing is noted.

use super::cache::Cache;
use super::scan::Scan;
use super::writes::Writes;
use crate::error::Error;
use crate::host::{self, Host, bit};

/// Above this many changes it isn't looked whether one was noted already: noting it twice is as good.
const SEARCHED_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Undo {
    changes: Vec<Change>,
}

struct Change {
    table: u32,
    slot: usize,
    /// Where it is an entry of a map.
    user_key: Option<Vec<u8>>,
    old: Old,
}

/// What a cell was.
pub(crate) enum Old {
    /// Not in the cache; the host knows.
    Unknown,
    Absent,
    Encoded(Vec<u8>),
    /// Elements of a list: those that the host has, those that it hasn't, and what these take in memory.
    Length {
        stored: u64,
        pending: usize,
        heap_bytes: usize,
    },
    /// All entries of a map or list, as the host had them when it was cleared.
    Entries {
        user_keys: host::Column,
        values: host::Column,
    },
}

impl Change {
    fn is_unknown_entry(&self) -> bool {
        self.user_key.is_some() && matches!(self.old, Old::Unknown)
    }
}

impl Undo {
    /// Whether the current record has changed nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn is_noted(&self, table: u32, user_key: Option<&[u8]>) -> bool {
        // A record has one key, so one slot. What was noted before a table was cleared doesn't tell what is after.
        let since = self
            .changes
            .iter()
            .rev()
            .take_while(|change| change.table != table || !matches!(change.old, Old::Entries { .. }));
        self.changes.len() <= SEARCHED_MAX
            && since.into_iter().any(|change| change.table == table && change.user_key.as_deref() == user_key)
    }
}

impl Cache {
    /// Another record begins: what the last one has changed stays.
    pub(crate) fn begin_record(&mut self) {
        self.undo.changes.clear();
    }

    /// Notes what a cell or an entry of a map is before it changes for the first time.
    #[inline(never)]
    pub(crate) fn note(&mut self, table: u32, slot: usize, user_key: Option<&[u8]>) -> Result<(), Error> {
        if self.undo.is_noted(table, user_key) {
            return Ok(());
        }
        let is_loaded = self.is_loaded(table, slot);
        let old = self.columns[table as usize].save(slot, user_key, is_loaded)?;
        self.undo.changes.push(Change { table, slot, user_key: user_key.map(<[u8]>::to_vec), old });
        Ok(())
    }

    /// Notes all entries of a map or list before it is cleared.
    #[cold]
    pub(crate) fn note_all(&mut self, table: u32, slot: usize, key: &[u8], host: &mut dyn Host) -> Result<(), Error> {
        let [mut user_keys, mut values] = [host::Column::new(), host::Column::new()];
        let mut scan = Scan::new(table, key.to_vec(), None);
        while let Some((user_key, value)) = scan.next(self, host)? {
            user_keys.push(user_key);
            values.push(value);
        }
        self.undo.changes.push(Change { table, slot, user_key: None, old: Old::Entries { user_keys, values } });
        Ok(())
    }

    /// Asks the host what the entries were that were changed unseen, which it knows until they are written.
    pub(super) fn resolve(&mut self, table: u32, key: &[u8], host: &mut dyn Host) {
        let changes = self.undo.changes.iter_mut();
        let mut unknown =
            changes.filter(|change| change.table == table && change.is_unknown_entry()).collect::<Vec<_>>();
        if unknown.is_empty() {
            return;
        }
        let [mut keys, mut user_keys] = [host::Column::new(), host::Column::new()];
        for user_key in unknown.iter().filter_map(|change| change.user_key.as_deref()) {
            keys.push(key);
            user_keys.push(user_key);
        }
        let entries = host.get_many(table, keys.as_ref(), user_keys.as_ref());
        for (row, change) in unknown.iter_mut().enumerate() {
            let found = bit(&entries.found, row);
            change.old = if found { Old::Encoded(entries.values.as_ref().get(row).to_vec()) } else { Old::Absent };
        }
    }

    /// The current record never was.
    #[cold]
    pub(crate) fn undo(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        while let Some(last) = self.undo.changes.last() {
            let mut key = Vec::new();
            self.directory.push_key(last.slot, &mut key);
            if last.is_unknown_entry() {
                let table = last.table;
                self.resolve(table, &key, host);
            }
            let Some(Change { table, slot, user_key, old }) = self.undo.changes.pop() else { break };
            match old {
                Old::Entries { user_keys, values } => {
                    // What came after has been undone, but the host may not know it yet.
                    self.write_slots(table, &[slot as u32], host)?;
                    let mut writes = Writes::new(table, host);
                    for (user_key, value) in user_keys.as_ref().iter().zip(values.as_ref().iter()) {
                        writes.put_encoded(&key, user_key, value);
                    }
                    writes.send();
                    let old = Old::Entries { user_keys, values };
                    self.restore(table, slot, &key, None, old, host)?;
                }
                old => self.restore(table, slot, &key, user_key.as_deref(), old, host)?,
            }
        }
        Ok(())
    }

    fn restore(
        &mut self,
        table: u32,
        slot: usize,
        key: &[u8],
        user_key: Option<&[u8]>,
        old: Old,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let mut writes = Writes::new(table, host);
        let column = &mut self.columns[table as usize];
        match column.restore((slot, key), user_key, old, &mut writes, &mut self.heap_bytes)? {
            Restored::Dirty => {
                self.mark_dirty(table, slot);
            }
            Restored::Clean => {}
            Restored::Unknown => {
                let slot = &mut self.directory.slots[slot];
                slot.loaded &= !(1 << table);
                slot.dirty &= !(1 << table);
            }
        }
        writes.send();
        Ok(())
    }
}

/// How a cell is after it has been restored.
pub(crate) enum Restored {
    /// To be written.
    Dirty,
    /// As the host has it.
    Clean,
    /// To be read again.
    Unknown,
}
