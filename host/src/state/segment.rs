//! A segment: entries in memory, the newest of each key found by hash.
//!
//! Entries lie one after the other in one arena, so that handing over an entry costs one probe and one append, and writing a
//! segment to a file is a copy. A key that is written again with another length leaves a dead entry behind.
//!
//! Invariant: a slot names an entry of the arena, and no two slots name the same key. A segment is immutable once it is behind
//! an `Arc` (its order, which is derived, aside).

use std::sync::{Mutex, MutexGuard};

use hashbrown::HashTable;

use super::entry::{self, Entry, KeyRef};
use super::order::Order;
use super::spares::{Buffers, Spares};

/// What a slot takes in a table that has just doubled.
pub const SLOT_BYTES: usize = 20;

/// The live entry of one key.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub hash: u32,
    pub offset: u32,
}

impl Slot {
    /// The hash table takes the place from the low bits and a tag from the highest seven.
    #[inline]
    pub fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

#[derive(Debug, Default)]
pub struct Segment {
    pub(super) arena: Vec<u8>,
    pub(super) slots: HashTable<Slot>,
    /// Bytes of the arena that no slot names.
    pub(super) dead_bytes: usize,
    pub(super) order: Mutex<Order>,
    /// Where its buffers come from and go.
    pub(super) spares: Spares,
}

impl Drop for Segment {
    fn drop(&mut self) {
        let (arena, slots) = (std::mem::take(&mut self.arena), std::mem::take(&mut self.slots));
        self.spares.put(Buffers { arena, slots });
    }
}

impl Segment {
    /// An empty one.
    pub fn new(spares: Spares) -> Segment {
        let Buffers { arena, slots } = spares.take();
        Segment { arena, slots, dead_bytes: 0, order: Mutex::default(), spares }
    }

    /// How many keys there are, deleted ones included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes in memory, about.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.slots.len() * SLOT_BYTES
    }

    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    pub fn dead_bytes(&self) -> usize {
        self.dead_bytes
    }

    #[inline]
    pub fn find(&self, key: &KeyRef<'_>) -> Option<Entry<'_>> {
        if self.slots.is_empty() {
            return None;
        }
        let matches = |slot: &Slot| slot.hash == key.hash() && key.matches(self.entry(slot.offset).key);
        let slot = self.slots.find(Slot::spread(key.hash()), matches)?;
        Some(self.entry(slot.offset))
    }

    #[inline]
    pub fn entry(&self, offset: u32) -> Entry<'_> {
        entry::at(&self.arena, offset)
    }

    /// One slot for each key, in no order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied()
    }

    /// The entries by key, up to date.
    pub fn order(&self) -> MutexGuard<'_, Order> {
        let mut order = self.order.lock().expect("no panic while ordering");
        order.catch_up(&self.arena);
        order
    }
}
