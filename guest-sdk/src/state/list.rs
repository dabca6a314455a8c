//! Elements in order for each key.

use std::marker::PhantomData;
use std::mem::{needs_drop, size_of};

use super::cache::unreadable;
use super::column::{Column, look_at};
use super::scan::Scan;
use super::undo::{Old, Restored};
use super::writes::Writes;
use crate::context::Context;
use crate::encoding::{Data, decode, encoded_len};
use crate::error::Error;
use crate::host::{self, bit};

/// A table with a list of elements for each key; declared with [`Declaration::list`](crate::Declaration::list).
///
/// Appending reads no more than the length; elements stay in memory only until they are written.
///
/// All methods are about the key of the record being processed. They fail if it has none, or outside of
/// [`process`](crate::Operator::process).
///
/// ```
/// use lockgate::prelude::*;
///
/// /// Sends each customer's orders in one piece once they are paid.
/// struct Basket {
///     orders: List<String>,
/// }
///
/// impl Operator for Basket {
///     fn new(declare: &mut Declaration) -> Basket {
///         Basket { orders: declare.list("orders") }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         match record.value_str()? {
///             "pay" => {
///                 let orders = self.orders.to_vec(ctx)?;
///                 ctx.emit(record.key(), orders.join("+"));
///                 self.orders.clear(ctx)
///             }
///             order => self.orders.push(ctx, order.to_owned()),
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Basket>::open()?;
/// harness.process([("ann", "tea"), ("bob", "oil"), ("ann", "rice"), ("ann", "pay")])?;
/// assert_eq!(harness.take_output(), [("ann", "tea+rice")]);
/// assert_eq!(harness.list::<String>("orders", "bob"), ["oil"]);
/// # Ok(())
/// # }
/// ```
pub struct List<V> {
    table: u32,
    of: PhantomData<fn() -> V>,
}

impl<V: Data> List<V> {
    pub(crate) fn new(table: u32) -> List<V> {
        List { table, of: PhantomData }
    }

    pub(crate) fn table(self) -> u32 {
        self.table
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// If there is no key, or what is stored isn't a list.
    pub fn len(&self, ctx: &mut Context<'_>) -> Result<u64, Error> {
        let slot = self.load(ctx)?;
        let (column, _) = ctx.cache.column::<ListColumn<V>>(self.table);
        Ok(column.cells[slot].len())
    }

    /// # Errors
    /// As [`len`](Self::len).
    pub fn is_empty(&self, ctx: &mut Context<'_>) -> Result<bool, Error> {
        Ok(self.len(ctx)? == 0)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn push(&self, ctx: &mut Context<'_>, element: V) -> Result<(), Error> {
        let slot = self.load(ctx)?;
        ctx.note(self.table, slot)?;
        ctx.cache.mark_dirty(self.table, slot);
        let (column, heap_bytes) = ctx.cache.column::<ListColumn<V>>(self.table);
        let behind = if needs_drop::<V>() { encoded_len(&element) * 2 } else { 0 };
        let cell = &mut column.cells[slot];
        cell.pending.push(element);
        cell.heap_bytes += size_of::<V>() + behind;
        *heap_bytes += size_of::<V>() + behind;
        Ok(())
    }

    /// The element at an index from 0.
    ///
    /// # Errors
    /// As [`len`](Self::len), or if the stored bytes aren't a `V`.
    pub fn get(&self, ctx: &mut Context<'_>, index: u64) -> Result<Option<V>, Error>
    where
        V: Clone,
    {
        let slot = self.load(ctx)?;
        let (column, _) = ctx.cache.column::<ListColumn<V>>(self.table);
        let ListCell { stored, pending, .. } = &column.cells[slot];
        let stored = *stored;
        if index >= stored {
            let at = usize::try_from(index - stored).ok();
            return Ok(at.and_then(|at| pending.get(at)).cloned());
        }
        let [mut keys, mut user_keys] = [host::Column::new(), host::Column::new()];
        keys.push(&ctx.key_bytes());
        user_keys.push(&index.to_be_bytes());
        let entries = ctx.host.get_many(self.table, keys.as_ref(), user_keys.as_ref());
        if !bit(&entries.found, 0) {
            let lost = format_args!("element {index} of {stored} is missing");
            return Err(unreadable(self.table, Error::fatal(lost)));
        }
        decode(entries.values.as_ref().get(0)).map(Some).map_err(|error| unreadable(self.table, error))
    }

    /// Goes through all elements in order. What is appended on the way may or may not be seen.
    ///
    /// # Errors
    /// If there is no key.
    pub fn iter(&self, ctx: &mut Context<'_>) -> Result<ListElements<V>, Error> {
        ctx.enter()?;
        // The entry with the empty user key is the length; the elements come after it.
        let scan = Scan::new(self.table, ctx.key_bytes(), Some(Vec::new()));
        Ok(ListElements { scan, table: self.table, of: PhantomData })
    }

    /// All elements.
    ///
    /// # Errors
    /// If there is no key, or the stored bytes aren't a `V`.
    pub fn to_vec(&self, ctx: &mut Context<'_>) -> Result<Vec<V>, Error> {
        let mut elements = Vec::new();
        let mut iter = self.iter(ctx)?;
        while let Some(element) = iter.next(ctx)? {
            elements.push(element);
        }
        Ok(elements)
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn clear(&self, ctx: &mut Context<'_>) -> Result<(), Error> {
        let slot = self.load(ctx)?;
        ctx.note_all(self.table, slot)?;
        let (column, heap_bytes) = ctx.cache.column::<ListColumn<V>>(self.table);
        let stored = column.cells[slot].stored;
        column.forget(slot, heap_bytes);
        if stored > 0 {
            let key = ctx.key_bytes();
            let mut writes = Writes::new(self.table, ctx.host);
            writes.delete(&key, &[]);
            (0..stored).for_each(|index| writes.delete(&key, &index.to_be_bytes()));
            writes.send();
        }
        Ok(())
    }

    fn load(&self, ctx: &mut Context<'_>) -> Result<usize, Error> {
        let slot = ctx.enter()?;
        if !ctx.cache.is_loaded(self.table, slot) {
            ctx.load(self.table)?;
        }
        Ok(slot)
    }
}

impl<V> Clone for List<V> {
    fn clone(&self) -> List<V> {
        *self
    }
}

impl<V> Copy for List<V> {}

/// The elements of one key's list. Not an [`Iterator`]: it borrows the context only while it steps, so that the loop may
/// emit and use state.
pub struct ListElements<V> {
    scan: Scan,
    table: u32,
    of: PhantomData<fn() -> V>,
}

impl<V: Data> ListElements<V> {
    /// # Errors
    /// If the stored bytes aren't a `V`.
    pub fn next(&mut self, ctx: &mut Context<'_>) -> Result<Option<V>, Error> {
        let Some((_, value)) = self.scan.next(ctx.cache, ctx.host)? else { return Ok(None) };
        decode(value).map(Some).map_err(|error| unreadable(self.table, error))
    }
}

/// By slot: how long a list is, and what was appended since it was written.
pub(crate) struct ListColumn<V> {
    cells: Vec<ListCell<V>>,
}

struct ListCell<V> {
    /// How many elements the host has.
    stored: u64,
    pending: Vec<V>,
    heap_bytes: usize,
}

impl<V> ListCell<V> {
    fn empty() -> ListCell<V> {
        ListCell { stored: 0, pending: Vec::new(), heap_bytes: 0 }
    }

    fn len(&self) -> u64 {
        self.stored + self.pending.len() as u64
    }
}

impl<V: Data> ListColumn<V> {
    pub(crate) fn new() -> ListColumn<V> {
        ListColumn { cells: Vec::new() }
    }
}

impl<V: Data> Column for ListColumn<V> {
    fn grow(&mut self, slots: usize) {
        self.cells.resize_with(slots, ListCell::empty);
    }

    fn touch(&self, slots: &[u32]) {
        look_at(&self.cells, slots, |cell| cell.stored > 0);
    }

    fn cell_bytes(&self) -> usize {
        size_of::<ListCell<V>>()
    }

    fn load(&mut self, slot: usize, value: Option<&[u8]>, _: &mut usize) -> Result<(), Error> {
        self.cells[slot].stored = value.map(decode).transpose()?.unwrap_or(0);
        Ok(())
    }

    fn write_dirty(
        &mut self,
        slot: usize,
        key: &[u8],
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<(), Error> {
        let cell = &mut self.cells[slot];
        if cell.pending.is_empty() {
            return Ok(());
        }
        for element in std::mem::take(&mut cell.pending) {
            writes.put(key, &cell.stored.to_be_bytes(), &element)?;
            cell.stored += 1;
        }
        writes.put(key, &[], &cell.stored)?;
        *heap_bytes -= std::mem::take(&mut cell.heap_bytes);
        Ok(())
    }

    fn save(&self, slot: usize, _: Option<&[u8]>, _: bool) -> Result<Old, Error> {
        let ListCell { stored, pending, heap_bytes } = &self.cells[slot];
        Ok(Old::Length { stored: *stored, pending: pending.len(), heap_bytes: *heap_bytes })
    }

    fn restore(
        &mut self,
        (slot, key): (usize, &[u8]),
        _: Option<&[u8]>,
        old: Old,
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<Restored, Error> {
        match old {
            Old::Length { stored, pending, heap_bytes: cell_bytes } if stored == self.cells[slot].stored => {
                let cell = &mut self.cells[slot];
                cell.pending.truncate(pending);
                *heap_bytes -= cell.heap_bytes - cell_bytes;
                cell.heap_bytes = cell_bytes;
            }
            // All were written on the way, those of the record too.
            Old::Length { stored, pending, .. } => {
                let (length, written) = (stored + pending as u64, self.cells[slot].stored);
                (length..written).for_each(|index| writes.delete(key, &index.to_be_bytes()));
                if length == 0 {
                    writes.delete(key, &[]);
                } else {
                    writes.put(key, &[], &length)?;
                }
                self.forget(slot, heap_bytes);
                self.cells[slot].stored = length;
            }
            Old::Entries { values, .. } => {
                self.forget(slot, heap_bytes);
                // One of the entries is the length.
                self.cells[slot].stored = values.as_ref().rows().saturating_sub(1) as u64;
            }
            Old::Unknown | Old::Absent | Old::Encoded(_) => unreachable!("a list has a length"),
        }
        Ok(Restored::Clean)
    }

    fn forget(&mut self, slot: usize, heap_bytes: &mut usize) {
        let cell = std::mem::replace(&mut self.cells[slot], ListCell::empty());
        *heap_bytes -= cell.heap_bytes;
    }

    fn keep(&mut self, slots: &[u32]) {
        let take = |&slot: &u32| std::mem::replace(&mut self.cells[slot as usize], ListCell::empty());
        self.cells = slots.iter().map(take).collect();
    }

    fn measure(&mut self, _: &[u32], _: &mut usize) {}
}
