//! One value for each key.

use std::marker::PhantomData;
use std::mem::{needs_drop, size_of};

use super::column::{Column, look_at};
use super::undo::{Old, Restored};
use super::writes::Writes;
use crate::context::Context;
use crate::encoding::{Data, decode, encode, encoded_len};
use crate::error::Error;

/// A table with one value for each key; declared with [`Declaration::value`](crate::Declaration::value).
///
/// All methods are about the key of the record being processed. They fail if it has none, or outside of
/// [`process`](crate::Operator::process).
///
/// ```
/// use lockgate::prelude::*;
///
/// /// Says by how much each sensor's reading has changed.
/// struct Change {
///     last: Value<f64>,
/// }
///
/// impl Operator for Change {
///     fn new(declare: &mut Declaration) -> Change {
///         Change { last: declare.value("last") }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         let reading = record.value_str()?.parse::<f64>()?;
///         if let Some(last) = self.last.get(ctx)? {
///             ctx.emit_fmt(record.key(), format_args!("{:+}", reading - last));
///         }
///         self.last.set(ctx, reading)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Change>::open()?;
/// harness.process([("attic", "20.5"), ("cellar", "11"), ("attic", "19")])?;
/// assert_eq!(harness.take_output(), [("attic", "-1.5")]);
/// # Ok(())
/// # }
/// ```
pub struct Value<V> {
    table: u32,
    of: PhantomData<fn() -> V>,
}

impl<V: Data> Value<V> {
    pub(crate) fn new(table: u32) -> Value<V> {
        Value { table, of: PhantomData }
    }

    pub(crate) fn table(self) -> u32 {
        self.table
    }

    /// A copy of the value; [`read`](Self::read) where a copy is too much.
    ///
    /// # Errors
    /// If there is no key, or the stored bytes aren't a `V`.
    #[inline]
    pub fn get(&self, ctx: &mut Context<'_>) -> Result<Option<V>, Error>
    where
        V: Clone,
    {
        self.read(ctx, |value| value.cloned())
    }

    /// Looks at the value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn read<R>(&self, ctx: &mut Context<'_>, look: impl FnOnce(Option<&V>) -> R) -> Result<R, Error> {
        let slot = self.load(ctx)?;
        let (column, _) = ctx.cache.column::<ValueColumn<V>>(self.table);
        Ok(look(column.cells[slot].as_ref()))
    }

    /// Replaces the value, whatever it was, without reading it.
    ///
    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn set(&self, ctx: &mut Context<'_>, value: V) -> Result<(), Error> {
        let slot = ctx.enter()?;
        ctx.note(self.table, slot)?;
        ctx.cache.mark_loaded(self.table, slot);
        self.change(ctx, slot, |cell| *cell = Some(value));
        Ok(())
    }

    /// Replaces the value by what `next` makes of it, and gives a copy of the new one.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn update(&self, ctx: &mut Context<'_>, next: impl FnOnce(Option<V>) -> V) -> Result<V, Error>
    where
        V: Clone,
    {
        let slot = self.load(ctx)?;
        ctx.note(self.table, slot)?;
        Ok(self.change(ctx, slot, |cell| {
            let value = next(cell.take());
            cell.insert(value).clone()
        }))
    }

    /// Changes the value in place; it starts as `V::default()`. Copies nothing.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn modify<R>(&self, ctx: &mut Context<'_>, change: impl FnOnce(&mut V) -> R) -> Result<R, Error>
    where
        V: Default,
    {
        let slot = self.load(ctx)?;
        ctx.note(self.table, slot)?;
        Ok(self.change(ctx, slot, |cell| change(cell.get_or_insert_with(V::default))))
    }

    /// Removes the value and gives it back.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn take(&self, ctx: &mut Context<'_>) -> Result<Option<V>, Error> {
        let slot = self.load(ctx)?;
        ctx.note(self.table, slot)?;
        Ok(self.change(ctx, slot, Option::take))
    }

    /// Removes the value, whatever it was, without reading it.
    ///
    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn remove(&self, ctx: &mut Context<'_>) -> Result<(), Error> {
        let slot = ctx.enter()?;
        ctx.note(self.table, slot)?;
        ctx.cache.mark_loaded(self.table, slot);
        self.change(ctx, slot, |cell| *cell = None);
        Ok(())
    }

    #[inline]
    fn load(&self, ctx: &mut Context<'_>) -> Result<usize, Error> {
        let slot = ctx.enter()?;
        if !ctx.cache.is_loaded(self.table, slot) {
            ctx.load(self.table)?;
        }
        Ok(slot)
    }

    #[inline]
    fn change<R>(&self, ctx: &mut Context<'_>, slot: usize, change: impl FnOnce(&mut Option<V>) -> R) -> R {
        let newly_dirty = ctx.cache.mark_dirty(self.table, slot);
        let (column, heap_bytes) = ctx.cache.column::<ValueColumn<V>>(self.table);
        let result = change(&mut column.cells[slot]);
        if needs_drop::<V>() && column.changed(slot, newly_dirty, heap_bytes) {
            ctx.cache.measure_dirty(self.table);
        }
        result
    }
}

impl<V> Clone for Value<V> {
    fn clone(&self) -> Value<V> {
        *self
    }
}

impl<V> Copy for Value<V> {}

/// A table's values, decoded.
pub(crate) struct ValueColumn<V> {
    cells: Vec<Option<V>>,
    /// What each value was last found to hold outside of its cell; without rows if values hold nothing there.
    heap: Vec<u32>,
    changes: u32,
}

/// A value is measured when it becomes dirty and when it is written; in between after so many changes of the table.
const CHANGES_UNMEASURED_MAX: u32 = 1 << 14;

impl<V: Data> ValueColumn<V> {
    pub(crate) fn new() -> ValueColumn<V> {
        ValueColumn { cells: Vec::new(), heap: Vec::new(), changes: 0 }
    }

    /// Counts a change; says whether it is time to measure all dirty values.
    fn changed(&mut self, slot: usize, newly_dirty: bool, heap_bytes: &mut usize) -> bool {
        if newly_dirty {
            let bytes = self.cells[slot].as_ref().map_or(0, encoded_len);
            self.set_heap(slot, bytes, heap_bytes);
            return false;
        }
        self.changes += 1;
        let due = self.changes == CHANGES_UNMEASURED_MAX;
        if due {
            self.changes = 0;
        }
        due
    }

    /// Takes the encoded size, doubled, as a measure of what a value holds in memory.
    fn set_heap(&mut self, slot: usize, encoded_bytes: usize, heap_bytes: &mut usize) {
        if needs_drop::<V>() {
            let bytes = u32::try_from(encoded_bytes * 2).unwrap_or(u32::MAX);
            *heap_bytes = *heap_bytes + bytes as usize - self.heap[slot] as usize;
            self.heap[slot] = bytes;
        }
    }
}

impl<V: Data> Column for ValueColumn<V> {
    fn grow(&mut self, slots: usize) {
        self.cells.resize_with(slots, || None);
        if needs_drop::<V>() {
            self.heap.resize(slots, 0);
        }
    }

    fn touch(&self, slots: &[u32]) {
        look_at(&self.cells, slots, Option::is_some);
    }

    fn cell_bytes(&self) -> usize {
        size_of::<Option<V>>() + if needs_drop::<V>() { size_of::<u32>() } else { 0 }
    }

    fn load(&mut self, slot: usize, value: Option<&[u8]>, heap_bytes: &mut usize) -> Result<(), Error> {
        self.cells[slot] = value.map(decode).transpose()?;
        self.set_heap(slot, value.map_or(0, <[u8]>::len), heap_bytes);
        Ok(())
    }

    fn write_dirty(
        &mut self,
        slot: usize,
        key: &[u8],
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<(), Error> {
        let bytes = match &self.cells[slot] {
            Some(value) => writes.put(key, &[], value)?,
            None => {
                writes.delete(key, &[]);
                0
            }
        };
        self.set_heap(slot, bytes, heap_bytes);
        Ok(())
    }

    fn save(&self, slot: usize, _: Option<&[u8]>, is_loaded: bool) -> Result<Old, Error> {
        match &self.cells[slot] {
            Some(value) => encode(value).map(Old::Encoded),
            None if is_loaded => Ok(Old::Absent),
            None => Ok(Old::Unknown),
        }
    }

    fn restore(
        &mut self,
        (slot, _): (usize, &[u8]),
        _: Option<&[u8]>,
        old: Old,
        _: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<Restored, Error> {
        match old {
            Old::Encoded(value) => self.load(slot, Some(&value), heap_bytes).map(|()| Restored::Dirty),
            Old::Absent => self.load(slot, None, heap_bytes).map(|()| Restored::Dirty),
            Old::Unknown => {
                self.forget(slot, heap_bytes);
                Ok(Restored::Unknown)
            }
            Old::Length { .. } | Old::Entries { .. } => unreachable!("a value has no elements"),
        }
    }

    fn forget(&mut self, slot: usize, heap_bytes: &mut usize) {
        self.cells[slot] = None;
        self.set_heap(slot, 0, heap_bytes);
    }

    fn keep(&mut self, slots: &[u32]) {
        self.cells = slots.iter().map(|&slot| self.cells[slot as usize].take()).collect();
        if needs_drop::<V>() {
            self.heap = slots.iter().map(|&slot| self.heap[slot as usize]).collect();
        }
    }

    fn measure(&mut self, slots: &[u32], heap_bytes: &mut usize) {
        for slot in slots.iter().map(|&slot| slot as usize) {
            let bytes = self.cells[slot].as_ref().map_or(0, encoded_len);
            self.set_heap(slot, bytes, heap_bytes);
        }
    }
}
