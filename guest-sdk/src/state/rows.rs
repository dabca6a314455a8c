//! The slots of the records of the current batch.

/// A record without a key has no slot.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Slots of a run of rows.
#[derive(Default)]
pub(super) struct RowSlots {
    first: usize,
    slots: Vec<u32>,
}

impl RowSlots {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<u32> {
        self.slots.get(row.wrapping_sub(self.first)).copied()
    }

    /// Those of `row` and what follows.
    pub(super) fn from(&self, row: usize) -> &[u32] {
        self.slots.get(row.wrapping_sub(self.first)..).unwrap_or_default()
    }

    /// Starts with no slots; those of `first` and what follows will be [pushed](Self::push).
    pub(super) fn start(&mut self, first: usize) {
        self.first = first;
        self.slots.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, slot: u32) {
        self.slots.push(slot);
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }
}
