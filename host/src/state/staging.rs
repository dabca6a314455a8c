//! The segment that takes writes: those of the running call can be taken back until they are accepted.
//!
//! Staged entries are appended behind `mark` in the same segment, so that accepting is nothing but moving the mark. What they
//! change before the mark is noted for [`Staging::discard`]; new keys need no note.
//!
//! Invariant: after `discard` the segment answers as it did after the last `accept`.

use hashbrown::hash_table::Entry as Place;

use super::entry::{self, HEADER_BYTES, KeyRef};
use super::segment::{Segment, Slot};
use super::spares::Spares;

/// Below this a segment isn't worth compacting.
const COMPACT_BYTES_MIN: usize = 4096;

#[derive(Debug, Default)]
pub struct Staging {
    segment: Segment,
    /// Arena bytes that are accepted.
    mark: usize,
    dead_bytes_at_mark: usize,
    /// Accepted slots that staged entries have replaced.
    replaced: Vec<Slot>,
    /// Accepted values that were overwritten in place: where they are, and below what they were.
    overwritten: Vec<(u32, u32)>,
    overwritten_bytes: Vec<u8>,
}

impl Staging {
    pub fn new(spares: Spares) -> Staging {
        Staging { segment: Segment::new(spares), ..Staging::default() }
    }

    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    pub fn has_staged(&self) -> bool {
        self.segment.arena.len() > self.mark || !self.overwritten.is_empty()
    }

    /// Bytes in memory, with what is noted for `discard`.
    pub fn bytes(&self) -> usize {
        self.segment.bytes() + self.replaced.len() * 8 + self.overwritten.len() * 8 + self.overwritten_bytes.len()
    }

    /// Makes room for entries, so that [`put`](Self::put) doesn't grow.
    pub fn reserve(&mut self, entries: usize, bytes: usize) {
        self.segment.arena.reserve(bytes);
        self.segment.slots.reserve(entries, |slot| Slot::spread(slot.hash));
    }

    /// Writes a value or (`None`) a tombstone.
    ///
    /// # Panics
    /// If the segment would pass 4 GiB; the memory bound is far below.
    #[inline]
    pub fn put(&mut self, key: &KeyRef<'_>, value: Option<&[u8]>) {
        let Segment { arena, slots, dead_bytes, .. } = &mut self.segment;
        let offset = u32::try_from(arena.len()).expect("a segment under 4 GiB");
        let slot = Slot { hash: key.hash(), offset };
        let matches = |slot: &Slot| slot.hash == key.hash() && key.matches(entry::at(arena, slot.offset).key);
        match slots.entry(Slot::spread(slot.hash), matches, |slot| Slot::spread(slot.hash)) {
            Place::Vacant(place) => {
                place.insert(slot);
            }
            Place::Occupied(mut place) => {
                let old_slot = *place.get();
                let old = entry::at(arena, old_slot.offset);
                let accepted = (old_slot.offset as usize) < self.mark;
                if let (Some(old_value), Some(value)) = (old.value, value)
                    && old_value.len() == value.len()
                {
                    let at = old_slot.offset as usize + HEADER_BYTES + old.key.len();
                    if accepted {
                        self.overwritten.push((at as u32, value.len() as u32));
                        self.overwritten_bytes.extend_from_slice(old_value);
                    }
                    arena[at..at + value.len()].copy_from_slice(value);
                    return;
                }
                if accepted {
                    self.replaced.push(old_slot);
                }
                *dead_bytes += old.bytes();
                *place.get_mut() = slot;
            }
        }
        entry::append(arena, key, value);
    }

    /// The call succeeded: what it wrote counts.
    pub fn accept(&mut self) {
        self.replaced.clear();
        self.overwritten.clear();
        self.overwritten_bytes.clear();
        if self.segment.arena.len() > COMPACT_BYTES_MIN && self.segment.dead_bytes > self.segment.arena.len() / 2 {
            self.compact();
        }
        self.mark = self.segment.arena.len();
        self.dead_bytes_at_mark = self.segment.dead_bytes;
    }

    /// The call failed: what it wrote never was.
    pub fn discard(&mut self) {
        let Segment { arena, slots, dead_bytes, order, .. } = &mut self.segment;
        slots.retain(|slot| (slot.offset as usize) < self.mark);
        for slot in self.replaced.drain(..) {
            slots.insert_unique(Slot::spread(slot.hash), slot, |slot| Slot::spread(slot.hash));
        }
        // Last first: a value that was overwritten twice was noted twice, and the first note is the accepted one.
        for (at, length) in self.overwritten.drain(..).rev() {
            let (at, length) = (at as usize, length as usize);
            let from = self.overwritten_bytes.len() - length;
            arena[at..at + length].copy_from_slice(&self.overwritten_bytes[from..]);
            self.overwritten_bytes.truncate(from);
        }
        arena.truncate(self.mark);
        *dead_bytes = self.dead_bytes_at_mark;
        order.get_mut().expect("no panic while ordering").forget_from(self.mark);
    }

    /// Gives the segment away and begins an empty one.
    ///
    /// # Panics
    /// If there are staged writes: the caller has to accept or discard them first.
    pub fn seal(&mut self) -> Segment {
        assert!(!self.has_staged(), "a segment was sealed in the middle of a call");
        self.mark = 0;
        self.dead_bytes_at_mark = 0;
        let next = Segment::new(self.segment.spares.clone());
        std::mem::replace(&mut self.segment, next)
    }

    /// Drops dead entries.
    fn compact(&mut self) {
        let Segment { arena, slots, dead_bytes, order, .. } = &mut self.segment;
        let mut compacted = Vec::with_capacity(arena.len() - *dead_bytes);
        for slot in slots.iter_mut() {
            let from = slot.offset as usize;
            slot.offset = compacted.len() as u32;
            compacted.extend_from_slice(&arena[from..from + entry::at(arena, from as u32).bytes()]);
        }
        *arena = compacted;
        *dead_bytes = 0;
        *order.get_mut().expect("no panic while ordering") = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::id::KeyGroup;

    fn key(name: &[u8]) -> KeyRef<'_> {
        KeyRef::new(KeyGroup(0), 0, name, b"", xxh3_64(name))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, Option<u8>),
        Accept,
        Discard,
        Order,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0..20u8, proptest::option::of(0..4u8)).prop_map(|(key, length)| Step::Put(key, length)),
            2 => Just(Step::Accept),
            1 => Just(Step::Discard),
            1 => Just(Step::Order),
        ]
    }

    type Model = BTreeMap<u8, Option<Vec<u8>>>;

    fn check(staging: &Staging, model: &Model) {
        let segment = staging.segment();
        assert_eq!(segment.len(), model.len());
        for (name, value) in model {
            assert_eq!(segment.find(&key(&[*name])).expect("a key").value, value.as_deref());
        }
        let live: usize = segment.slots().map(|slot| segment.entry(slot.offset).bytes()).sum();
        assert_eq!(segment.arena().len(), live + segment.dead_bytes());
        let order = segment.order();
        let mut names = Vec::new();
        for run in order.runs() {
            let keys: Vec<_> = run.iter().map(|&offset| segment.entry(offset).key.to_vec()).collect();
            assert!(keys.is_sorted());
            names.extend(keys.into_iter().map(|key| key[8]));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, model.keys().copied().collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn discard_restores_what_was_accepted(steps in proptest::collection::vec(step(), 1..200)) {
            let mut staging = Staging::default();
            let (mut accepted, mut staged) = (Model::new(), Model::new());
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(name, length) => {
                        let value = length.map(|length| vec![i as u8; usize::from(length)]);
                        staging.put(&key(&[name]), value.as_deref());
                        staged.insert(name, value);
                    }
                    Step::Accept => {
                        staging.accept();
                        accepted = staged.clone();
                    }
                    Step::Discard => {
                        staging.discard();
                        staged = accepted.clone();
                        check(&staging, &staged);
                    }
                    Step::Order => check(&staging, &staged),
                }
            }
            check(&staging, &staged);
            staging.discard();
            check(&staging, &accepted);
        }
    }

    #[test]
    fn a_segment_of_dead_entries_is_compacted() {
        let mut staging = Staging::default();
        for round in 0..1000usize {
            staging.put(&key(b"a"), Some(&vec![1; round % 100]));
            staging.put(&key(b"b"), (round % 2 == 0).then_some(b"b"));
            staging.accept();
            assert!(staging.bytes() < 3 * COMPACT_BYTES_MIN, "round {round}: {} bytes", staging.bytes());
        }
        assert_eq!(staging.segment().find(&key(b"a")).expect("a").value, Some(&[1; 99][..]));
        assert_eq!(staging.segment().find(&key(b"b")).expect("b").value, None);
    }
}
