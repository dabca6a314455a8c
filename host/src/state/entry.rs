//! The bytes of a stored key and of an entry, in memory, in delta files and in RocksDB.
//!
//! Stored key: key group u16 BE, table u16 BE, key length u32 BE, key, user key. In bytewise order all entries of one key are
//! neighbours, sorted by user key, and a key group is one range.
//!
//! Entry (in memory and in delta files): length of the stored key u32 LE, length of the value u32 LE or `0xffff_ffff` for a
//! tombstone, stored key, value.
//!
//! Invariant: an entry in an arena was written by [`append`], so its lengths are right.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::id::KeyGroup;

/// Bytes of a stored key before the key.
pub const PREFIX_BYTES: usize = 8;
/// Bytes of an entry before the stored key.
pub const HEADER_BYTES: usize = 8;
/// In place of a value's length: the entry is deleted.
const TOMBSTONE: u32 = u32::MAX;

pub const KEY_BYTES_MAX: usize = 1 << 20;
pub const USER_KEY_BYTES_MAX: usize = 1 << 20;
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// A stored key that isn't assembled.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a> {
    prefix: [u8; PREFIX_BYTES],
    key: &'a [u8],
    user_key: &'a [u8],
    hash: u32,
}

impl<'a> KeyRef<'a> {
    /// `key_hash` is the XXH3-64 of the key. Keys are at most [`KEY_BYTES_MAX`] long.
    #[inline]
    pub fn new(group: KeyGroup, table: u16, key: &'a [u8], user_key: &'a [u8], key_hash: u64) -> KeyRef<'a> {
        let length = key.len() as u32;
        let word = u64::from(group.0) << 48 | u64::from(table) << 32 | u64::from(length);
        KeyRef { prefix: word.to_be_bytes(), key, user_key, hash: hash(table, key_hash, user_key) }
    }

    /// Takes a stored key apart; `None` if it isn't one.
    pub fn parse(stored: &'a [u8]) -> Option<KeyRef<'a>> {
        let (prefix, rest) = stored.split_first_chunk::<PREFIX_BYTES>()?;
        let word = u64::from_be_bytes(*prefix);
        let (key, user_key) = rest.split_at_checked(word as u32 as usize)?;
        let table = (word >> 32) as u16;
        Some(KeyRef { prefix: *prefix, key, user_key, hash: hash(table, xxh3_64(key), user_key) })
    }

    pub fn group(&self) -> KeyGroup {
        KeyGroup(u16::from_be_bytes([self.prefix[0], self.prefix[1]]))
    }

    pub fn table(&self) -> u16 {
        u16::from_be_bytes([self.prefix[2], self.prefix[3]])
    }

    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    pub fn user_key(&self) -> &'a [u8] {
        self.user_key
    }

    #[inline]
    pub fn hash(&self) -> u32 {
        self.hash
    }

    #[inline]
    pub fn stored_bytes(&self) -> usize {
        PREFIX_BYTES + self.key.len() + self.user_key.len()
    }

    /// Whether `stored` is this key.
    #[inline]
    pub fn matches(&self, stored: &[u8]) -> bool {
        // The key's length is part of the prefix, so equal prefixes split at the same place.
        stored.len() == self.stored_bytes()
            && stored[..PREFIX_BYTES] == self.prefix
            && stored[PREFIX_BYTES..PREFIX_BYTES + self.key.len()] == *self.key
            && stored[PREFIX_BYTES + self.key.len()..] == *self.user_key
    }

    /// Appends the stored key.
    #[inline]
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.prefix);
        to.extend_from_slice(self.key);
        to.extend_from_slice(self.user_key);
    }
}

/// What the stored keys of a table's entries in one key group begin with.
pub fn table_prefix(group: u16, table: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (group.to_be_bytes(), table.to_be_bytes());
    [a, b, c, d]
}

/// The hash of a stored key in a segment's table.
///
/// The key group fixes `key_hash` modulo the number of key groups, so its low bits are the same for most keys of a subtask;
/// the high half of a product depends on all bits.
#[inline]
fn hash(table: u16, key_hash: u64, user_key: &[u8]) -> u32 {
    let hash = if user_key.is_empty() { key_hash } else { xxh3_64_with_seed(user_key, key_hash) };
    let mixed = (hash ^ u64::from(table)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// One entry of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The stored key.
    pub key: &'a [u8],
    /// `None`: deleted.
    pub value: Option<&'a [u8]>,
}

impl Entry<'_> {
    /// Bytes it takes in an arena.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }
}

/// Appends an entry.
#[inline]
pub fn append(arena: &mut Vec<u8>, key: &KeyRef<'_>, value: Option<&[u8]>) {
    let value_word = value.map_or(TOMBSTONE, |value| value.len() as u32);
    let header = u64::from(value_word) << 32 | key.stored_bytes() as u64;
    arena.extend_from_slice(&header.to_le_bytes());
    key.write(arena);
    arena.extend_from_slice(value.unwrap_or_default());
}

/// The entry at `offset` of an arena.
///
/// # Panics
/// If none was appended there.
#[inline]
pub fn at(arena: &[u8], offset: u32) -> Entry<'_> {
    let rest = &arena[offset as usize..];
    let (header, rest) = rest.split_first_chunk::<HEADER_BYTES>().expect("an entry's header");
    let header = u64::from_le_bytes(*header);
    let (key, rest) = rest.split_at(header as u32 as usize);
    let value_word = (header >> 32) as u32;
    Entry { key, value: (value_word != TOMBSTONE).then(|| &rest[..value_word as usize]) }
}

/// The first entry of bytes from outside, and what comes after it; `None` if they don't begin with one.
pub fn split_first(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = u64::from_le_bytes(*header);
    let (key, rest) = rest.split_at_checked(header as u32 as usize)?;
    let value_word = (header >> 32) as u32;
    if value_word == TOMBSTONE {
        return Some((Entry { key, value: None }, rest));
    }
    let (value, rest) = rest.split_at_checked(value_word as usize)?;
    Some((Entry { key, value: Some(value) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_key_has_the_documented_bytes_and_comes_apart_again() {
        let key = KeyRef::new(KeyGroup(0x0102), 0x0304, b"key", b"user", xxh3_64(b"key"));
        let mut stored = Vec::new();
        key.write(&mut stored);
        assert_eq!(stored, b"\x01\x02\x03\x04\0\0\0\x03keyuser");
        let parsed = KeyRef::parse(&stored).expect("a stored key");
        assert_eq!((parsed.group(), parsed.table()), (KeyGroup(0x0102), 0x0304));
        assert_eq!(parsed.hash(), key.hash());
        assert!(parsed.matches(&stored) && key.matches(&stored));
        assert!(KeyRef::parse(&stored[..10]).is_none(), "shorter than its key");
        assert!(KeyRef::parse(&stored[..7]).is_none(), "shorter than a prefix");
    }

    #[test]
    fn keys_that_differ_in_one_part_don_t_match() {
        let of = |group, table, key, user_key| KeyRef::new(KeyGroup(group), table, key, user_key, xxh3_64(key));
        let all = [
            of(1, 1, b"ab", b"c"),
            of(1, 1, b"a", b"bc"),
            of(1, 1, b"abc", b""),
            of(1, 2, b"ab", b"c"),
            of(2, 1, b"ab", b"c"),
        ];
        for (i, one) in all.iter().enumerate() {
            let mut stored = Vec::new();
            one.write(&mut stored);
            for (j, other) in all.iter().enumerate() {
                assert_eq!(other.matches(&stored), i == j, "{i} and {j}");
            }
        }
    }

    #[test]
    fn entries_are_read_as_they_were_appended() {
        let key = KeyRef::new(KeyGroup(1), 2, b"k", b"u", 3);
        let mut arena = Vec::new();
        let mut offsets = Vec::new();
        for value in [Some(&b"value"[..]), None, Some(b"")] {
            offsets.push(arena.len() as u32);
            append(&mut arena, &key, value);
        }
        let mut rest = &arena[..];
        for (offset, value) in offsets.into_iter().zip([Some(&b"value"[..]), None, Some(b"")]) {
            let entry = at(&arena, offset);
            assert!(key.matches(entry.key) && entry.value == value);
            let (first, after) = split_first(rest).expect("an entry");
            assert_eq!(first, entry);
            assert_eq!(rest.len() - after.len(), entry.bytes());
            rest = after;
        }
        assert!(rest.is_empty());
    }
}
