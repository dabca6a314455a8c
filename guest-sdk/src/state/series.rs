//! Many values for each key, by number: those of a map, for entries that come and go about in the order of their numbers.
//!
//! The owner knows which there are and asks for no others. So an absent entry takes no memory, and one that is set and
//! removed again between two barriers leaves no trace.
//!
//! Invariant: an entry that the host may have, and that was removed, is in `removed` until the host has been told.

use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::mem::{needs_drop, size_of};

use super::cache::unreadable;
use super::column::{Column, look_at};
use super::undo::{Old, Restored};
use super::writes::Writes;
use crate::context::Context;
use crate::encoding::{Data, decode, encode, encoded_len};
use crate::error::Error;
use crate::host::{self, bit};

/// A table that is stored as a [`Map<i64, V>`](super::Map) is.
pub(crate) struct Series<V> {
    table: u32,
    of: PhantomData<fn() -> V>,
}

impl<V: Data> Series<V> {
    pub(crate) fn new(table: u32) -> Series<V> {
        Series { table, of: PhantomData }
    }

    /// Looks at the value of a number that has one; `None` if it hasn't.
    pub(crate) fn read<R>(
        &self,
        ctx: &mut Context<'_>,
        number: i64,
        look: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, Error> {
        let slot = ctx.enter()?;
        let Some(at) = self.find_or_fetch(ctx, slot, number)? else { return Ok(None) };
        let (column, _) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        Ok(Some(look(&column.cell(slot).entries[at].value)))
    }

    /// Changes the value of a number that has one; `None` if it hasn't.
    pub(crate) fn change<R>(
        &self,
        ctx: &mut Context<'_>,
        number: i64,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, Error> {
        let slot = ctx.enter()?;
        let Some(at) = self.find_or_fetch(ctx, slot, number)? else { return Ok(None) };
        self.begin(ctx, slot, number)?;
        let (column, heap_bytes) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        let cell = column.cell(slot);
        let entry = &mut cell.entries[at];
        entry.dirty = true;
        let result = change(&mut entry.value);
        cell.measure(at, heap_bytes);
        Ok(Some(result))
    }

    /// Gives a number a value, whether it has one or not.
    pub(crate) fn set(&self, ctx: &mut Context<'_>, number: i64, value: V) -> Result<(), Error> {
        self.put(ctx, number, value, AtHost::Maybe)
    }

    /// Gives a number that has no value one.
    pub(crate) fn add(&self, ctx: &mut Context<'_>, number: i64, value: V) -> Result<(), Error> {
        self.put(ctx, number, value, AtHost::No)
    }

    #[inline]
    fn put(&self, ctx: &mut Context<'_>, number: i64, value: V, at_host: AtHost) -> Result<(), Error> {
        let slot = ctx.enter()?;
        self.begin(ctx, slot, number)?;
        let (column, heap_bytes) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        column.cell(slot).put(number, value, at_host, heap_bytes);
        Ok(())
    }

    /// Takes the value of a number away, if it has one.
    pub(crate) fn remove(&self, ctx: &mut Context<'_>, number: i64) -> Result<(), Error> {
        let slot = ctx.enter()?;
        self.begin(ctx, slot, number)?;
        let (column, heap_bytes) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        column.cell(slot).remove(number, heap_bytes);
        Ok(())
    }

    /// Before a change.
    #[inline]
    fn begin(&self, ctx: &mut Context<'_>, slot: usize, number: i64) -> Result<(), Error> {
        if ctx.may_reject() {
            ctx.note_entry(self.table, slot, &encode(&number)?)?;
        }
        ctx.cache.mark_dirty(self.table, slot);
        Ok(())
    }

    /// Where an entry is, which is read if it isn't in the cache.
    #[inline]
    fn find_or_fetch(&self, ctx: &mut Context<'_>, slot: usize, number: i64) -> Result<Option<usize>, Error> {
        let (column, _) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        match column.cell(slot).find(number) {
            Ok(at) => Ok(Some(at)),
            Err(at) => self.fetch(ctx, slot, number, at),
        }
    }

    #[cold]
    fn fetch(&self, ctx: &mut Context<'_>, slot: usize, number: i64, at: usize) -> Result<Option<usize>, Error> {
        let [mut keys, mut user_keys] = [host::Column::new(), host::Column::new()];
        keys.push(&ctx.key_bytes());
        user_keys.push(&encode(&number)?);
        let entries = ctx.host.get_many(self.table, keys.as_ref(), user_keys.as_ref());
        if !bit(&entries.found, 0) {
            return Ok(None);
        }
        let value = decode(entries.values.as_ref().get(0)).map_err(|error| unreadable(self.table, error))?;
        let (column, heap_bytes) = ctx.cache.column::<SeriesColumn<V>>(self.table);
        let entry = SeriesEntry { number, value, dirty: false, at_host: AtHost::Maybe, value_bytes: 0 };
        column.cell(slot).insert(at, entry, heap_bytes);
        Ok(Some(at))
    }
}

/// Whether the host has an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtHost {
    No,
    Maybe,
}

/// By slot: the entries that are known, by number. Slots without any take no more than a pointer.
pub(crate) struct SeriesColumn<V> {
    cells: Vec<Option<Box<SeriesCell<V>>>>,
}

struct SeriesCell<V> {
    entries: VecDeque<SeriesEntry<V>>,
    removed: BTreeSet<i64>,
    heap_bytes: usize,
}

struct SeriesEntry<V> {
    value: V,
    number: i64,
    /// What the value was last found to hold in memory.
    value_bytes: u32,
    dirty: bool,
    at_host: AtHost,
}

impl<V: Data> SeriesColumn<V> {
    pub(crate) fn new() -> SeriesColumn<V> {
        SeriesColumn { cells: Vec::new() }
    }

    #[inline]
    fn cell(&mut self, slot: usize) -> &mut SeriesCell<V> {
        self.cells[slot].get_or_insert_default()
    }
}

impl<V> Default for SeriesCell<V> {
    fn default() -> SeriesCell<V> {
        SeriesCell { entries: VecDeque::new(), removed: BTreeSet::new(), heap_bytes: 0 }
    }
}

impl<V: Data> SeriesCell<V> {
    const ENTRY_BYTES: usize = size_of::<SeriesEntry<V>>();
    /// About what a number takes in a set.
    const REMOVED_BYTES: usize = 16;

    /// Where a number is, or would be. Most are where they are if none before them is missing, or new ones behind the last.
    #[inline]
    fn find(&self, number: i64) -> Result<usize, usize> {
        let Some(first) = self.entries.front() else { return Err(0) };
        let guess = number.wrapping_sub(first.number) as usize;
        if self.entries.get(guess).is_some_and(|entry| entry.number == number) {
            return Ok(guess);
        }
        match self.entries.back() {
            Some(last) if last.number < number => Err(self.entries.len()),
            Some(_) | None => self.entries.binary_search_by_key(&number, |entry| entry.number),
        }
    }

    /// `at_host`: whether the host has an entry of the number if there is none here.
    fn put(&mut self, number: i64, value: V, at_host: AtHost, heap_bytes: &mut usize) {
        match self.find(number) {
            Ok(at) => {
                let entry = &mut self.entries[at];
                (entry.value, entry.dirty) = (value, true);
                self.measure(at, heap_bytes);
            }
            Err(at) => {
                self.insert(at, SeriesEntry { number, value, dirty: true, at_host, value_bytes: 0 }, heap_bytes);
            }
        }
    }

    fn insert(&mut self, at: usize, entry: SeriesEntry<V>, heap_bytes: &mut usize) {
        self.entries.insert(at, entry);
        self.grow(Self::ENTRY_BYTES, heap_bytes);
        self.measure(at, heap_bytes);
    }

    fn remove(&mut self, number: i64, heap_bytes: &mut usize) {
        let known = self.find(number).ok().and_then(|at| self.entries.remove(at));
        if let Some(entry) = &known {
            self.grow((Self::ENTRY_BYTES + entry.value_bytes as usize).wrapping_neg(), heap_bytes);
        }
        let at_host = known.is_none_or(|entry| entry.at_host == AtHost::Maybe);
        if at_host && self.removed.insert(number) {
            self.grow(Self::REMOVED_BYTES, heap_bytes);
        }
    }

    #[inline]
    fn measure(&mut self, at: usize, heap_bytes: &mut usize) {
        if needs_drop::<V>() {
            let entry = &mut self.entries[at];
            let bytes = u32::try_from(encoded_len(&entry.value) * 2).unwrap_or(u32::MAX);
            let before = std::mem::replace(&mut entry.value_bytes, bytes);
            self.grow((bytes as usize).wrapping_sub(before as usize), heap_bytes);
        }
    }

    fn grow(&mut self, bytes: usize, heap_bytes: &mut usize) {
        self.heap_bytes = self.heap_bytes.wrapping_add(bytes);
        *heap_bytes = heap_bytes.wrapping_add(bytes);
    }
}

impl<V: Data> Column for SeriesColumn<V> {
    fn grow(&mut self, slots: usize) {
        self.cells.resize_with(slots, || None);
    }

    fn touch(&self, slots: &[u32]) {
        look_at(&self.cells, slots, Option::is_some);
    }

    fn cell_bytes(&self) -> usize {
        size_of::<Option<Box<SeriesCell<V>>>>()
    }

    fn load(&mut self, _: usize, _: Option<&[u8]>, _: &mut usize) -> Result<(), Error> {
        unreachable!("a series is read entry by entry");
    }

    fn write_dirty(
        &mut self,
        slot: usize,
        key: &[u8],
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<(), Error> {
        let Some(cell) = &mut self.cells[slot] else { return Ok(()) };
        // A number that was removed may have been set again.
        let removed = std::mem::take(&mut cell.removed);
        cell.grow((removed.len() * SeriesCell::<V>::REMOVED_BYTES).wrapping_neg(), heap_bytes);
        for number in removed {
            writes.delete(key, &encode(&number)?);
        }
        for entry in cell.entries.iter_mut().filter(|entry| entry.dirty) {
            writes.put(key, &encode(&entry.number)?, &entry.value)?;
            (entry.dirty, entry.at_host) = (false, AtHost::Maybe);
        }
        Ok(())
    }

    fn save(&self, slot: usize, user_key: Option<&[u8]>, _: bool) -> Result<Old, Error> {
        let number = number_of(user_key)?;
        let Some(cell) = &self.cells[slot] else { return Ok(Old::Unknown) };
        match cell.find(number) {
            Ok(at) => encode(&cell.entries[at].value).map(Old::Encoded),
            Err(_) if cell.removed.contains(&number) => Ok(Old::Absent),
            Err(_) => Ok(Old::Unknown),
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
        let number = number_of(user_key)?;
        match old {
            Old::Encoded(value) => self.cell(slot).put(number, decode(&value)?, AtHost::Maybe, heap_bytes),
            Old::Absent => self.cell(slot).remove(number, heap_bytes),
            Old::Unknown | Old::Length { .. } | Old::Entries { .. } => {
                unreachable!("the host was asked for the entry, and a series isn't cleared")
            }
        }
        Ok(Restored::Dirty)
    }

    fn forget(&mut self, slot: usize, heap_bytes: &mut usize) {
        if let Some(cell) = self.cells[slot].take() {
            *heap_bytes -= cell.heap_bytes;
        }
    }

    fn keep(&mut self, slots: &[u32]) {
        self.cells = slots.iter().map(|&slot| self.cells[slot as usize].take()).collect();
    }

    fn measure(&mut self, _: &[u32], _: &mut usize) {}
}

fn number_of(user_key: Option<&[u8]>) -> Result<i64, Error> {
    decode(user_key.expect("a series changes by entries"))
}
