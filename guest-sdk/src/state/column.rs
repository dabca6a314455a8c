//! One table's cells, by slot, as the cache sees them whatever their type.

use std::any::Any;

use super::undo::{Old, Restored};
use super::writes::Writes;
use crate::error::Error;

/// The cells of a table.
///
/// `heap_bytes` is the cache's count of memory behind cells (not of the cells themselves): every call keeps it right.
pub(crate) trait Column: Any + Send {
    /// Makes cells for all slots below `slots`.
    fn grow(&mut self, slots: usize);
    /// Brings the cells of these slots close to the processor, all at once instead of one by one. Some may be
    /// [`NO_SLOT`](super::rows::NO_SLOT).
    fn touch(&self, slots: &[u32]);
    /// Bytes of a cell without what it points to.
    fn cell_bytes(&self) -> usize;
    /// Takes up the entry with the empty user key, as the host has it.
    ///
    /// # Errors
    /// If it can't be decoded.
    fn load(&mut self, slot: usize, value: Option<&[u8]>, heap_bytes: &mut usize) -> Result<(), Error>;
    /// Writes what is dirty in a cell, which is clean afterwards. `key` is that of the slot.
    ///
    /// # Errors
    /// If it can't be encoded.
    fn write_dirty(
        &mut self,
        slot: usize,
        key: &[u8],
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<(), Error>;
    /// What a cell is, or the entry of a map with a user key. `is_loaded`: whether the host's part is known.
    ///
    /// # Errors
    /// If it can't be encoded.
    fn save(&self, slot: usize, user_key: Option<&[u8]>, is_loaded: bool) -> Result<Old, Error>;
    /// Makes a cell, or the entry of a map with a user key, what it was. What the host has to know at once goes to `writes`.
    ///
    /// # Errors
    /// If it can't be decoded or encoded.
    fn restore(
        &mut self,
        cell: (usize, &[u8]),
        user_key: Option<&[u8]>,
        old: Old,
        writes: &mut Writes<'_>,
        heap_bytes: &mut usize,
    ) -> Result<Restored, Error>;
    /// Drops a clean cell.
    fn forget(&mut self, slot: usize, heap_bytes: &mut usize);
    /// Keeps the cells of these slots only, in this order.
    fn keep(&mut self, slots: &[u32]);
    /// Measures again what grew unseen in these dirty cells.
    fn measure(&mut self, slots: &[u32], heap_bytes: &mut usize);
}

/// Looks at the cells of some slots. The loads depend on nothing, so those that miss the processor's cache wait together.
pub(super) fn look_at<C>(cells: &[C], slots: &[u32], look: impl Fn(&C) -> bool) {
    let seen = |slots: &[u32]| slots.iter().filter(|&&slot| cells.get(slot as usize).is_some_and(&look)).count();
    let (eights, rest) = slots.as_chunks::<8>();
    let seen = eights.iter().map(|eight| seen(eight)).sum::<usize>() + seen(rest);
    std::hint::black_box(seen);
}

impl dyn Column {
    /// The column as what it is.
    ///
    /// # Panics
    /// If a handle is used that this operator didn't declare.
    #[inline]
    pub(super) fn of<C: Column>(&mut self) -> &mut C {
        let column: &mut dyn Any = self;
        column.downcast_mut().expect("a table handle of this operator's own declaration")
    }
}
