//! Which slot of the cache belongs to a key: one look-up for all tables.
//!
//! A slot holds the key itself if it is short, and for each table whether its cell is loaded and whether it is dirty, so
//! that finding a key touches two cache lines: one of the index, one of the slots.
//!
//! Invariant: every live slot is in the index exactly once, and no two of them have the same key.

use crate::bytes::{ends, hash, same_middle};

/// A slot's bit for "used since the clock came by", beside the loaded bits of the tables.
pub(super) const REFERENCED: u32 = 1 << 31;
/// A key that isn't there: the slot is free.
const FREE: u32 = u32::MAX;
/// How many keys [`Directory::hash_ahead`] takes at most: what they need fits into the nearest cache.
pub(super) const AHEAD_KEYS: usize = 64;
/// Keys up to this length are kept in their slot.
const INLINE_BYTES: usize = 16;

/// Aligned so that none is in two cache lines.
#[repr(align(32))]
pub(super) struct Slot {
    /// A short key padded with zeros; of a longer one the first and last 8 bytes.
    ends: [u64; 2],
    len: u32,
    /// Where a longer key is in `long_keys`.
    at: u32,
    /// Bit `t`: table `t` has this key's cell (or knows that there is none).
    pub(super) loaded: u32,
    /// Bit `t`: table `t` has changes that the host doesn't know.
    pub(super) dirty: u32,
}

/// A key that is about to be looked up, with what that takes.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'k> {
    /// `None`: the record has none.
    key: Option<&'k [u8]>,
    ends: [u64; 2],
    hash: u32,
}

impl Ahead<'_> {
    pub(super) const NONE: Self = Ahead { key: None, ends: [0; 2], hash: 0 };
}

/// Keys to slots.
pub(super) struct Directory {
    /// Open addressing with linear probing: the hash in the upper half, the slot plus one in the lower; 0 is empty.
    index: Vec<u64>,
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    long_keys: Vec<u8>,
    /// Bytes of `long_keys` that belong to no slot any more.
    garbage: usize,
}

impl Directory {
    pub(super) fn new() -> Directory {
        Directory { index: vec![0; 64], slots: Vec::new(), free: Vec::new(), long_keys: Vec::new(), garbage: 0 }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_live(&self, slot: usize) -> bool {
        self.slots[slot].len != FREE
    }

    /// What a slot and its place in the index cost at most.
    pub(super) const SLOT_BYTES: usize = size_of::<Slot>() + 16;

    /// Bytes of long keys.
    pub(super) fn long_key_bytes(&self) -> usize {
        self.long_keys.len() - self.garbage
    }

    #[inline(always)]
    fn holds(&self, slot: u32, key: &[u8], key_ends: [u64; 2]) -> bool {
        let slot = &self.slots[slot as usize];
        slot.ends == key_ends
            && slot.len as usize == key.len()
            && (key.len() <= INLINE_BYTES || same_middle(&self.long_keys[slot.at as usize..][..key.len()], key))
    }

    /// The slot of a key, if it has one.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let key_ends = ends(key);
        let (entry, _) = self.probe(key, key_ends, hash(key, key_ends));
        (entry != 0).then(|| entry as u32 - 1)
    }

    /// The slot of a key, which gets one if it has none.
    pub(super) fn find_or_insert(&mut self, key: &[u8]) -> u32 {
        let key_ends = ends(key);
        self.find_or_insert_hashed(key, key_ends, hash(key, key_ends))
    }

    /// Hashes keys, as many as `ahead` has room for at most, and brings what [`find_or_insert_ahead`](Self::find_or_insert_ahead)
    /// will look at close to the processor: one after the other each key would wait for memory twice; in short loops of their own
    /// the loads of many keys wait together. Gives what was filled.
    pub(super) fn hash_ahead<'a, 'k>(
        &self,
        keys: impl Iterator<Item = Option<&'k [u8]>>,
        ahead: &'a mut [Ahead<'k>; AHEAD_KEYS],
    ) -> &'a [Ahead<'k>] {
        let mut count = 0usize;
        for (place, key) in ahead.iter_mut().zip(keys) {
            let key_ends = key.map_or([0; 2], ends);
            *place = Ahead { key, ends: key_ends, hash: key.map_or(0, |key| hash(key, key_ends)) };
            count += 1;
        }
        let (eights, _) = ahead[..count.next_multiple_of(8)].as_chunks::<8>();
        let mask = self.index.len() - 1;
        let mut lengths = 0u32;
        for eight in eights {
            let slots = eight.map(|key| {
                // A key that isn't at its own place is most likely at the next one.
                let at = key.hash as usize & mask;
                let (own, next) = (self.index[at], self.index[(at + 1) & mask]);
                if (own >> 32) as u32 == key.hash { own as u32 } else { next as u32 }
            });
            for slot in slots {
                let known = self.slots.get((slot as usize).wrapping_sub(1));
                lengths = lengths.wrapping_add(known.map_or(0, |slot| slot.len));
            }
        }
        std::hint::black_box(lengths);
        &ahead[..count]
    }

    /// The slot of a key that was hashed before, which gets one if it has none; nothing if there is no key.
    #[inline(always)]
    pub(super) fn find_or_insert_ahead(&mut self, ahead: &Ahead<'_>) -> Option<u32> {
        ahead.key.map(|key| self.find_or_insert_hashed(key, ahead.ends, ahead.hash))
    }

    #[inline(always)]
    fn find_or_insert_hashed(&mut self, key: &[u8], key_ends: [u64; 2], key_hash: u32) -> u32 {
        let (entry, at) = self.probe(key, key_ends, key_hash);
        if entry != 0 { entry as u32 - 1 } else { self.insert(key, key_ends, key_hash, at) }
    }

    /// The entry of a key, or 0 and where in the index it would be.
    #[inline(always)]
    fn probe(&self, key: &[u8], key_ends: [u64; 2], key_hash: u32) -> (u64, usize) {
        let at = key_hash as usize & (self.index.len() - 1);
        let entry = self.index[at];
        if self.ends_probe(entry, key, key_ends, key_hash) {
            (entry, at)
        } else {
            self.probe_behind(at, key, key_ends, key_hash)
        }
    }

    /// Goes on behind a place that another key has. Most keys are at their own, and a loop costs a guest something even where it
    /// goes round once.
    #[inline(never)]
    fn probe_behind(&self, mut at: usize, key: &[u8], key_ends: [u64; 2], key_hash: u32) -> (u64, usize) {
        loop {
            at = (at + 1) & (self.index.len() - 1);
            let entry = self.index[at];
            if self.ends_probe(entry, key, key_ends, key_hash) {
                return (entry, at);
            }
        }
    }

    #[inline(always)]
    fn ends_probe(&self, entry: u64, key: &[u8], key_ends: [u64; 2], key_hash: u32) -> bool {
        entry == 0 || ((entry >> 32) as u32 == key_hash && self.holds(entry as u32 - 1, key, key_ends))
    }

    fn insert(&mut self, key: &[u8], ends: [u64; 2], hash: u32, at: usize) -> u32 {
        let len = u32::try_from(key.len()).expect("a key under 4 GiB");
        let mut new = Slot { ends, len, at: 0, loaded: REFERENCED, dirty: 0 };
        if key.len() > INLINE_BYTES {
            new.at = u32::try_from(self.long_keys.len()).expect("keys under 4 GiB");
            self.long_keys.extend_from_slice(key);
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                self.slots.len() as u32 - 1
            }
        };
        self.index[at] = u64::from(hash) << 32 | u64::from(slot + 1);
        // Linear probing stays short up to five eighths.
        if self.len() * 8 > self.index.len() * 5 {
            self.resize_index(self.index.len() * 2);
        }
        slot
    }

    fn resize_index(&mut self, len: usize) {
        let old = std::mem::replace(&mut self.index, vec![0; len]);
        for entry in old.into_iter().filter(|&entry| entry != 0) {
            let mut at = (entry >> 32) as usize & (len - 1);
            while self.index[at] != 0 {
                at = (at + 1) & (len - 1);
            }
            self.index[at] = entry;
        }
    }

    /// Appends the key of a live slot.
    pub(super) fn push_key(&self, slot: usize, to: &mut Vec<u8>) {
        let slot = &self.slots[slot];
        let len = slot.len as usize;
        if len > INLINE_BYTES {
            to.extend_from_slice(&self.long_keys[slot.at as usize..][..len]);
            return;
        }
        let start = to.len();
        to.extend_from_slice(&slot.ends[0].to_le_bytes());
        to.extend_from_slice(&slot.ends[1].to_le_bytes());
        to.truncate(start + len);
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, slot: usize) {
        let mut key = Vec::new();
        self.push_key(slot, &mut key);
        let key_ends = ends(&key);
        let (_, mut hole) = self.probe(&key, key_ends, hash(&key, key_ends));
        let mask = self.index.len() - 1;
        // Close the gap: an entry moves into it unless that would put it before its own place.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry == 0 {
                break;
            }
            let home = (entry >> 32) as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = entry;
                hole = at;
            }
        }
        self.index[hole] = 0;
        if key.len() > INLINE_BYTES {
            self.garbage += key.len();
        }
        self.slots[slot].len = FREE;
        self.slots[slot].loaded = 0;
        self.free.push(slot as u32);
    }

    /// Gives up the room of removed long keys once it is the larger part.
    pub(super) fn sweep_long_keys(&mut self) {
        if self.garbage < 4096 || self.garbage * 2 < self.long_keys.len() {
            return;
        }
        let mut kept = Vec::with_capacity(self.long_key_bytes());
        for slot in self.slots.iter_mut().filter(|slot| slot.len != FREE && slot.len as usize > INLINE_BYTES) {
            let key = &self.long_keys[slot.at as usize..][..slot.len as usize];
            slot.at = kept.len() as u32;
            kept.extend_from_slice(key);
        }
        self.long_keys = kept;
        self.garbage = 0;
    }

    /// Moves the live slots together and gives back the rest of the memory; says where they were, in their new order.
    pub(super) fn compact(&mut self) -> Vec<u32> {
        let live = (0..self.slots.len() as u32).filter(|&slot| self.is_live(slot as usize)).collect::<Vec<_>>();
        let mut keys = Vec::new();
        let mut compact = Directory::new();
        for &slot in &live {
            keys.clear();
            self.push_key(slot as usize, &mut keys);
            let new = compact.find_or_insert(&keys) as usize;
            compact.slots[new].loaded = self.slots[slot as usize].loaded;
            compact.slots[new].dirty = self.slots[slot as usize].dirty;
        }
        *self = compact;
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Short, long and equal-ended keys.
    fn key(number: u16) -> Vec<u8> {
        let number = number % 700;
        let middle = "x".repeat(usize::from(number % 40));
        format!("{}{middle}{number}{middle}same", number % 3).into_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_directory_is_a_map_of_keys(steps in prop::collection::vec((any::<u16>(), 0..40u8), 1..1500)) {
            let mut directory = Directory::new();
            let mut model = BTreeMap::new();
            for (number, step) in steps {
                let key = key(number);
                match step {
                    0..20 => {
                        let slot = directory.find_or_insert(&key);
                        prop_assert_eq!(*model.entry(key).or_insert(slot), slot);
                    }
                    20..39 => {
                        if let Some(slot) = model.remove(&key) {
                            directory.remove(slot as usize);
                            directory.sweep_long_keys();
                        }
                    }
                    _ => {
                        let old = directory.compact();
                        prop_assert_eq!(old.len(), model.len());
                        for slot in model.values_mut() {
                            *slot = old.binary_search(slot).expect("kept in order") as u32;
                        }
                    }
                }
            }
            prop_assert_eq!(directory.len(), model.len());
            for number in 0..700 {
                let key = key(number);
                prop_assert_eq!(directory.find(&key), model.get(&key).copied());
            }
            for (key, slot) in model {
                let mut kept = Vec::new();
                directory.push_key(slot as usize, &mut kept);
                prop_assert_eq!(kept, key);
            }
        }
    }
}
