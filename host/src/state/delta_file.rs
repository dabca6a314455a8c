//! The delta file: what one subtask's keyed state changed in one epoch. All numbers are little-endian.
//!
//! | offset   | bytes | what                                                        |
//! |----------|-------|-------------------------------------------------------------|
//! | 0        | 8     | `lgdelta` and a zero byte                                   |
//! | 8        | 4     | layout version, 1                                           |
//! | 12       | 4     | reserved, 0                                                 |
//! | 16       | 8     | epoch                                                       |
//! | 24       | 8     | number of entries                                           |
//! | 32       | 8     | length of the entries, in bytes                             |
//! | 40       |       | the entries, as [`entry`] describes them, in no order of keys |
//! | 40 + len | 8     | XXH3-64 (seed 0) of everything before                       |
//!
//! A key may occur more than once; the last entry of a key counts.
//!
//! Invariant: no entry of a file is used before the whole file has been compared with its checksum.

use xxhash_rust::xxh3::xxh3_64;

use super::entry::{self, Entry};
use super::error::Corruption;
use super::segment::Segment;
use crate::id::Epoch;

const MAGIC: &[u8; 8] = b"lgdelta\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 8;

/// The file that holds a segment.
pub fn encode(epoch: Epoch, segment: &Segment) -> Vec<u8> {
    let arena = segment.arena();
    let live_bytes = arena.len() - segment.dead_bytes();
    // Dead entries come before the live one of their key, so the arena as it is is a right file. Copying it is ten times
    // faster than picking, but not worth storing it twice as large.
    let as_it_is = segment.dead_bytes() <= arena.len() / 8;
    let body_bytes = if as_it_is { arena.len() } else { live_bytes };
    let mut file = Vec::with_capacity(HEADER_BYTES + body_bytes + CHECKSUM_BYTES);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&0u32.to_le_bytes());
    file.extend_from_slice(&epoch.0.to_le_bytes());
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&(body_bytes as u64).to_le_bytes());
    let entries = if as_it_is { append_all(&mut file, arena) } else { append_live(&mut file, segment) };
    file[24..32].copy_from_slice(&entries.to_le_bytes());
    let checksum = xxh3_64(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

fn append_all(file: &mut Vec<u8>, arena: &[u8]) -> u64 {
    file.extend_from_slice(arena);
    let (mut at, mut entries) = (0, 0);
    while at < arena.len() {
        at += entry::at(arena, at as u32).bytes();
        entries += 1;
    }
    entries
}

fn append_live(file: &mut Vec<u8>, segment: &Segment) -> u64 {
    for slot in segment.slots() {
        let from = slot.offset as usize;
        file.extend_from_slice(&segment.arena()[from..from + segment.entry(slot.offset).bytes()]);
    }
    segment.len() as u64
}

/// A file that has passed all checks.
#[derive(Debug)]
pub struct DeltaFile<'a> {
    body: &'a [u8],
}

impl<'a> DeltaFile<'a> {
    /// # Errors
    /// If a byte is missing, added or changed, or the layout is unknown.
    pub fn decode(file: &'a [u8]) -> Result<DeltaFile<'a>, Corruption> {
        let length = |expected: u64| Corruption::Length { bytes: file.len() as u64, expected };
        if !file.starts_with(MAGIC) {
            return Err(Corruption::Magic);
        }
        let least = (HEADER_BYTES + CHECKSUM_BYTES) as u64;
        let (header, rest) = file.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| length(least))?;
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Corruption::Version(version));
        }
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (entries, body_bytes) = (word(24), word(32));
        let expected = body_bytes.saturating_add(least);
        if file.len() as u64 != expected {
            return Err(length(expected));
        }
        let (body, checksum) = rest.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(|| length(expected))?;
        if xxh3_64(&file[..file.len() - CHECKSUM_BYTES]) != u64::from_le_bytes(*checksum) {
            return Err(Corruption::Checksum);
        }
        let (mut left, mut index) = (body, 0);
        while !left.is_empty() {
            let (entry, after) = entry::split_first(left).ok_or(Corruption::Entry(index))?;
            entry::KeyRef::parse(entry.key).ok_or(Corruption::Entry(index))?;
            left = after;
            index += 1;
        }
        if index == entries { Ok(DeltaFile { body }) } else { Err(Corruption::Entry(index)) }
    }

    /// The entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut left = self.body;
        std::iter::from_fn(move || {
            let (entry, after) = entry::split_first(left)?;
            left = after;
            Some(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::id::KeyGroup;
    use crate::state::entry::KeyRef;
    use crate::state::staging::Staging;

    fn segment(writes: &[(&[u8], Option<&[u8]>)]) -> Segment {
        let mut staging = Staging::default();
        for (key, value) in writes {
            staging.put(&KeyRef::new(KeyGroup(7), 1, key, b"u", xxh3_64(key)), *value);
        }
        staging.accept();
        staging.seal()
    }

    fn small_file() -> Vec<u8> {
        encode(Epoch(3), &segment(&[(b"one", Some(b"1")), (b"two", None), (b"three", Some(b""))]))
    }

    #[test]
    fn what_was_written_is_read() {
        let file = small_file();
        let entries: Vec<_> = DeltaFile::decode(&file).expect("a good file").entries().collect();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].key, b"\0\x07\0\x01\0\0\0\x03oneu");
        assert_eq!(entries.iter().map(|entry| entry.value).collect::<Vec<_>>(), [Some(&b"1"[..]), None, Some(b"")]);
        let empty = encode(Epoch(1), &Segment::default());
        assert_eq!(DeltaFile::decode(&empty).expect("a good file").entries().count(), 0);
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let file = small_file();
        assert_eq!(file[..8], *b"lgdelta\0");
        assert_eq!(file[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(file[16..32], [3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(file[32..40], (file.len() as u64 - 48).to_le_bytes());
        assert_eq!(file[40..48], [12, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(file[file.len() - 8..], xxh3_64(&file[..file.len() - 8]).to_le_bytes());
    }

    #[test]
    fn a_truncated_or_lengthened_file_is_refused_at_every_length() {
        let file = small_file();
        for length in 0..file.len() {
            DeltaFile::decode(&file[..length]).expect_err("a truncated file");
        }
        let mut longer = file;
        longer.push(0);
        assert!(matches!(DeltaFile::decode(&longer), Err(Corruption::Length { .. })));
    }

    #[test]
    fn a_file_with_any_bit_flipped_is_refused() {
        let file = small_file();
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            DeltaFile::decode(&flipped).expect_err("a flipped bit");
        }
    }

    #[test]
    fn a_right_checksum_over_malformed_entries_doesn_t_help() {
        for (at, byte) in [(40, 200), (41, 1), (44, 2), (47, 255), (24, 2), (55, 200)] {
            let mut file = small_file();
            let body = file.len() - 8;
            file[at] = byte;
            let checksum = xxh3_64(&file[..body]).to_le_bytes();
            file[body..].copy_from_slice(&checksum);
            assert!(matches!(DeltaFile::decode(&file), Err(Corruption::Entry(_))), "byte {at}");
        }
    }

    #[test]
    fn many_dead_entries_are_left_out() {
        let long = vec![b'x'; 500];
        let file = encode(Epoch(1), &segment(&[(b"k", Some(&long)), (b"other", None), (b"k", Some(b"last"))]));
        assert!(file.len() < 200);
        let entries: Vec<_> = DeltaFile::decode(&file).expect("a good file").entries().map(|e| e.value).collect();
        assert!(entries.len() == 2 && entries.contains(&Some(b"last")) && entries.contains(&None));
    }
}
