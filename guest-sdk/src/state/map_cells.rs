//! A table's cached map entries, by slot and user key.

use std::mem::{needs_drop, size_of};

use hashbrown::HashTable;

use super::column::{Column, look_at};
use super::undo::{Old, Restored};
use super::writes::Writes;
use crate::bytes::{ends, hash};
use crate::encoding::{Data, decode, encode, encoded_len};
use crate::error::Error;

/// By slot: the entries that are known. Slots without any take no more than a pointer.
pub(crate) struct MapColumn<V> {
    cells: Vec<Option<Box<MapCell<V>>>>,
}

struct MapCell<V> {
    /// Places in `entries` by user key.
    index: HashTable<u32>,
    entries: Vec<MapEntry<V>>,
    /// Places of the dirty entries.
    dirty: Vec<u32>,
    heap_bytes: usize,
}

pub(super) struct MapEntry<V> {
    user_key: Box<[u8]>,
    /// `None`: known to be absent.
    pub(super) value: Option<V>,
    dirty: bool,
    /// What the value was last found to hold in memory.
    value_bytes: u32,
}

impl<V: Data> MapColumn<V> {
    pub(crate) fn new() -> MapColumn<V> {
        MapColumn { cells: Vec::new() }
    }

    /// The entry of a user key, if it is known.
    pub(super) fn get(&self, slot: usize, user_key: &[u8]) -> Option<&MapEntry<V>> {
        let cell = self.cells[slot].as_ref()?;
        let place = *cell.index.find(user_hash(user_key), |&at| *cell.entries[at as usize].user_key == *user_key)?;
        Some(&cell.entries[place as usize])
    }

    /// Takes up an entry that wasn't known, as the host has it.
    pub(super) fn insert(&mut self, slot: usize, user_key: &[u8], value: Option<V>, heap_bytes: &mut usize) {
        let cell = self.cells[slot].get_or_insert_with(|| Box::new(MapCell::new()));
        let place = cell.entries.len() as u32;
        cell.entries.push(MapEntry { user_key: user_key.into(), value, dirty: false, value_bytes: 0 });
        let entries = &cell.entries;
        cell.index.insert_unique(user_hash(user_key), place, |&at| user_hash(&entries[at as usize].user_key));
        // The entry, its place in the index and the allocation of its user key.
        let bytes = size_of::<MapEntry<V>>() + 16 + user_key.len() + 8;
        cell.heap_bytes += bytes;
        *heap_bytes += bytes;
        cell.measure(place as usize, heap_bytes);
    }

    /// Changes a known entry.
    ///
    /// # Panics
    /// If it isn't known.
    pub(super) fn change<R>(
        &mut self,
        slot: usize,
        user_key: &[u8],
        heap_bytes: &mut usize,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> R {
        let cell = self.cells[slot].as_mut().expect("a cell with the entry");
        let place = *cell
            .index
            .find(user_hash(user_key), |&at| *cell.entries[at as usize].user_key == *user_key)
            .expect("an entry that is known");
        let entry = &mut cell.entries[place as usize];
        let result = change(&mut entry.value);
        if !entry.dirty {
            entry.dirty = true;
            cell.dirty.push(place);
        }
        cell.measure(place as usize, heap_bytes);
        result
    }

    /// Drops all entries, dirty ones too.
    pub(super) fn clear(&mut self, slot: usize, heap_bytes: &mut usize) {
        if let Some(cell) = self.cells[slot].take() {
            *heap_bytes -= cell.heap_bytes;
        }
    }
}

fn user_hash(user_key: &[u8]) -> u64 {
    // The upper bits choose the tag, the lower ones the bucket.
    u64::from(hash(user_key, ends(user_key))).wrapping_mul(0x1_0000_0001)
}

impl<V: Data> MapCell<V> {
    fn new() -> MapCell<V> {
        MapCell { index: HashTable::new(), entries: Vec::new(), dirty: Vec::new(), heap_bytes: 0 }
    }

    fn measure(&mut self, place: usize, heap_bytes: &mut usize) {
        if needs_drop::<V>() {
            let entry = &mut self.entries[place];
            let bytes = entry.value.as_ref().map_or(0, |value| encoded_len(value) * 2);
            let grown = bytes.wrapping_sub(entry.value_bytes as usize);
            entry.value_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.heap_bytes = self.heap_bytes.wrapping_add(grown);
            *heap_bytes = heap_bytes.wrapping_add(grown);
        }
    }
}

impl<V: Data> Column for MapColumn<V> {
    fn grow(&mut self, slots: usize) {
        self.cells.resize_with(slots, || None);
    }

    fn touch(&self, slots: &[u32]) {
        look_at(&self.cells, slots, Option::is_some);
    }

    fn cell_bytes(&self) -> usize {
        size_of::<Option<Box<MapCell<V>>>>()
    }

    fn load(&mut self, _: usize, _: Option<&[u8]>, _: &mut usize) -> Result<(), Error> {
        unreachable!("a map is read entry by entry");
    }

    fn write_dirty(&mut self, slot: usize, key: &[u8], writes: &mut Writes<'_>, _: &mut usize) -> Result<(), Error> {
        let Some(cell) = &mut self.cells[slot] else { return Ok(()) };
        for place in std::mem::take(&mut cell.dirty) {
            let entry = &mut cell.entries[place as usize];
            entry.dirty = false;
            match &entry.value {
                Some(value) => {
                    writes.put(key, &entry.user_key, value)?;
                }
                None => writes.delete(key, &entry.user_key),
            }
        }
        Ok(())
    }

    fn save(&self, slot: usize, user_key: Option<&[u8]>, is_loaded: bool) -> Result<Old, Error> {
        let user_key = user_key.expect("a map changes by entries");
        match self.get(slot, user_key) {
            Some(MapEntry { value: Some(value), .. }) => encode(value).map(Old::Encoded),
            Some(MapEntry { value: None, .. }) => Ok(Old::Absent),
            None if is_loaded => Ok(Old::Absent),
            None => Ok(Old::Unknown),
        }
    }

    fn restore(
        &mut self,
        (slot, _): (usize, &[u8]),
        user_key: Option<&[u8]>,
        old: Old,
        _: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<Restored, Error> {
        let value = match old {
            Old::Encoded(value) => Some(decode(&value)?),
            Old::Absent => None,
            Old::Entries { .. } => {
                self.clear(slot, heap_bytes);
                return Ok(Restored::Unknown);
            }
            Old::Unknown | Old::Length { .. } => unreachable!("the host was asked for the entry"),
        };
        let user_key = user_key.expect("a map changes by entries");
        if self.get(slot, user_key).is_none() {
            self.insert(slot, user_key, None, heap_bytes);
        }
        self.change(slot, user_key, heap_bytes, |entry| *entry = value);
        Ok(Restored::Dirty)
    }

    fn forget(&mut self, slot: usize, heap_bytes: &mut usize) {
        self.clear(slot, heap_bytes);
    }

    fn keep(&mut self, slots: &[u32]) {
        self.cells = slots.iter().map(|&slot| self.cells[slot as usize].take()).collect();
    }

    fn measure(&mut self, _: &[u32], _: &mut usize) {}
}
