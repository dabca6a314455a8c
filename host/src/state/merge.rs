//! Several segments as one: sorted, for the database, or as another segment.
//!
//! Invariant: of each key exactly the newest entry comes out.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use super::entry::{self, Entry};
use super::segment::{SLOT_BYTES, Segment, Slot};
use super::spares::Spares;

/// An entry and the beginning of its stored key, which decides most comparisons.
struct Located {
    head: u128,
    segment: u32,
    offset: u32,
}

/// The newest entry of each key, sorted by key.
pub struct Merged<'a> {
    segments: &'a [Arc<Segment>],
    places: Vec<Located>,
}

impl<'a> Merged<'a> {
    /// `segments` come oldest first.
    pub fn of(segments: &'a [Arc<Segment>]) -> Merged<'a> {
        let mut places = newest(segments);
        places.sort_unstable_by(|a, b| {
            let key = |place: &Located| segments[place.segment as usize].entry(place.offset).key;
            a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b)))
        });
        Merged { segments, places }
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + '_ {
        self.places.iter().map(|place| self.segments[place.segment as usize].entry(place.offset))
    }
}

/// The newest entry of each key as a segment; `None` if it would have more bytes than `bytes_max`.
///
/// `segments` come oldest first.
pub fn in_memory(segments: &[Arc<Segment>], bytes_max: usize, spares: &Spares) -> Option<Segment> {
    let mut merged = Segment::new(spares.clone());
    let Segment { arena, slots, .. } = &mut merged;
    for segment in segments.iter().rev() {
        for slot in segment.slots() {
            let entry = segment.entry(slot.offset);
            let same = |other: &Slot| other.hash == slot.hash && entry::at(arena, other.offset).key == entry.key;
            let place = slots.entry(Slot::spread(slot.hash), same, |slot| Slot::spread(slot.hash));
            let Place::Vacant(place) = place else { continue };
            place.insert(Slot { hash: slot.hash, offset: arena.len() as u32 });
            let from = slot.offset as usize;
            arena.extend_from_slice(&segment.arena()[from..from + entry.bytes()]);
            if arena.len() + slots.len() * SLOT_BYTES > bytes_max {
                return None;
            }
        }
    }
    Some(merged)
}

fn newest(segments: &[Arc<Segment>]) -> Vec<Located> {
    let mut places = Vec::with_capacity(segments.iter().map(|segment| segment.len()).max().unwrap_or(0));
    let mut seen: HashTable<(Slot, u32)> = HashTable::new();
    for (index, segment) in segments.iter().enumerate().rev() {
        // A single segment, and the keys of the oldest one, have nothing older to hide.
        let remember = index > 0;
        if remember {
            seen.reserve(segment.len(), |(slot, _)| Slot::spread(slot.hash));
        }
        for slot in segment.slots() {
            let key = segment.entry(slot.offset).key;
            let same = |(other, at): &(Slot, u32)| {
                other.hash == slot.hash && segments[*at as usize].entry(other.offset).key == key
            };
            if seen.find(Slot::spread(slot.hash), same).is_some() {
                continue;
            }
            if remember {
                seen.insert_unique(Slot::spread(slot.hash), (slot, index as u32), |(slot, _)| Slot::spread(slot.hash));
            }
            places.push(Located { head: head(key), segment: index as u32, offset: slot.offset });
        }
    }
    places
}

/// The first sixteen bytes as a number that sorts as they do; shorter keys are filled up with zeros.
fn head(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(16);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::id::KeyGroup;
    use crate::state::entry::KeyRef;
    use crate::state::staging::Staging;

    type Writes = Vec<(Vec<u8>, Option<u8>)>;

    fn writes() -> impl Strategy<Value = Vec<Writes>> {
        let key = proptest::collection::vec(0..3u8, 0..12);
        let write = (key, proptest::option::of(any::<u8>()));
        proptest::collection::vec(proptest::collection::vec(write, 0..40), 0..5)
    }

    proptest! {
        #[test]
        fn the_newest_entry_of_each_key_comes_out_in_order(all in writes()) {
            let mut model = BTreeMap::new();
            let mut segments = Vec::new();
            for writes in &all {
                let mut staging = Staging::default();
                for (key, value) in writes {
                    let key = KeyRef::new(KeyGroup(0), 0, b"key", key, xxh3_64(b"key"));
                    let value = value.map(|value| vec![value]);
                    staging.put(&key, value.as_deref());
                    let mut stored = Vec::new();
                    key.write(&mut stored);
                    model.insert(stored, value);
                }
                staging.accept();
                segments.push(Arc::new(staging.seal()));
            }
            let merged = in_memory(&segments, usize::MAX, &Spares::default()).expect("no bound");
            prop_assert_eq!(merged.len(), model.len());
            for (key, value) in &model {
                let key = KeyRef::parse(key).expect("a stored key");
                prop_assert_eq!(merged.find(&key).expect("a key").value, value.as_deref());
            }
            if !model.is_empty() {
                prop_assert!(in_memory(&segments, merged.bytes() - 1, &Spares::default()).is_none());
            }
            let merged = Merged::of(&segments);
            let entries = merged.entries().map(|e| (e.key.to_vec(), e.value.map(<[u8]>::to_vec)));
            prop_assert_eq!(entries.collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
