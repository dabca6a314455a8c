//! Loads, copies and hashes of short byte strings.
//!
//! Keys and fields are mostly shorter than 32 bytes. In WebAssembly a copy or comparison of variable length is a call that
//! costs more than the work, and a multiplication to 128 bits is four of 64; so short strings are moved as whole words.

/// The 8 bytes at `at`.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes")))
}

/// The 8 bytes at `at`, padded with zeros where there are fewer.
#[inline]
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).unwrap_or_default() {
        rest if rest.len() >= 8 => word(rest, 0),
        rest => padded(rest)[0],
    }
}

/// At most 16 bytes as two little-endian words, padded with zeros.
#[inline]
pub(crate) fn padded(bytes: &[u8]) -> [u64; 2] {
    let len = bytes.len();
    // Where two words overlap they agree, so that one can be laid over the other.
    if len > 8 {
        [word(bytes, 0), word(bytes, len - 8) >> ((16 - len) * 8)]
    } else if len == 8 {
        [word(bytes, 0), 0]
    } else if len >= 4 {
        [half(bytes, 0) | half(bytes, len - 4) << ((len - 4) * 8), 0]
    } else if len > 0 {
        let byte = |at: usize| u64::from(bytes[at]) << (at * 8);
        [byte(0) | byte(len / 2) | byte(len - 1), 0]
    } else {
        [0, 0]
    }
}

/// Copies `from` to the start of `to`.
///
/// # Panics
/// If it doesn't fit.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    let to = &mut to[..len];
    // From both ends: what is copied twice is the same.
    if len > 16 {
        copy_long(to, from);
    } else if len >= 8 {
        let [first, last] = [word(from, 0), word(from, len - 8)];
        to[..8].copy_from_slice(&first.to_le_bytes());
        to[len - 8..].copy_from_slice(&last.to_le_bytes());
    } else if len >= 4 {
        let [first, last] = [half(from, 0) as u32, half(from, len - 4) as u32];
        to[..4].copy_from_slice(&first.to_le_bytes());
        to[len - 4..].copy_from_slice(&last.to_le_bytes());
    } else if len > 0 {
        to[0] = from[0];
        to[len / 2] = from[len / 2];
        to[len - 1] = from[len - 1];
    }
}

/// More than 16 bytes, without a loop. A call would cost a guest as much as a turn of one.
#[inline(always)]
fn copy_long(to: &mut [u8], from: &[u8]) {
    match from.len() {
        ..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        65..=128 => copy_ends::<64>(to, from),
        129..=256 => copy_ends::<128>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    *to.first_chunk_mut().expect("so many bytes") = *from.first_chunk::<N>().expect("so many bytes");
    *to.last_chunk_mut().expect("so many bytes") = *from.last_chunk::<N>().expect("so many bytes");
}

/// A hash of short strings with good low bits. Not for files: it may change with any version.
#[inline]
pub(crate) fn hash(bytes: &[u8], ends: [u64; 2]) -> u32 {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
    let mut hash = (ends[0] ^ bytes.len() as u64).wrapping_mul(FIRST);
    hash ^= hash >> 32;
    if bytes.len() > 16 {
        for chunk in bytes[8..bytes.len() - 8].chunks(8) {
            hash = (hash ^ padded(chunk)[0]).wrapping_mul(SECOND);
            hash ^= hash >> 29;
        }
    }
    hash = (hash ^ ends[1]).wrapping_mul(SECOND);
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(FIRST);
    (hash >> 32) as u32
}

/// The first and last 8 bytes of a string of more than 16, all of a shorter one.
#[inline]
pub(crate) fn ends(bytes: &[u8]) -> [u64; 2] {
    if bytes.len() <= 16 { padded(bytes) } else { [word(bytes, 0), word(bytes, bytes.len() - 8)] }
}

/// Whether two strings of the same length, of more than 16 bytes and with equal ends, are equal.
#[inline]
pub(crate) fn same_middle(one: &[u8], other: &[u8]) -> bool {
    let middle = 8..one.len() - 8;
    let pairs = one[middle.clone()].chunks(8).zip(other[middle].chunks(8));
    pairs.fold(0, |difference, (one, other)| difference | (padded(one)[0] ^ padded(other)[0])) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 37 + 11) as u8 | 1).collect()
    }

    #[test]
    fn padding_keeps_every_byte_in_its_place() {
        for len in 0..=16 {
            let bytes = sample(len);
            let [first, second] = padded(&bytes);
            let mut whole = [first.to_le_bytes(), second.to_le_bytes()].concat();
            assert!(whole[len..].iter().all(|&byte| byte == 0), "length {len}");
            whole.truncate(len);
            assert_eq!(whole, bytes);
        }
    }

    #[test]
    fn a_copy_is_exact_at_every_length() {
        for len in 0..600 {
            let bytes = sample(len);
            let mut to = vec![0xee; len + 1];
            copy(&mut to, &bytes);
            assert_eq!(to[..len], bytes);
            assert_eq!(to[len], 0xee);
        }
    }

    #[test]
    fn every_byte_of_a_string_counts() {
        for len in 1..80 {
            let bytes = sample(len);
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                assert_ne!(hash(&bytes, ends(&bytes)), hash(&other, ends(&other)), "byte {at} of {len}");
                let same = ends(&bytes) == ends(&other) && (len <= 16 || same_middle(&bytes, &other));
                assert!(!same, "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn numbered_keys_spread_over_the_low_bits() {
        for template in ["k{}", "user-{}", "a long prefix that all the keys share {}", "{}-a long tail that all share"]
        {
            let mut buckets = vec![0u32; 1 << 16];
            for i in 0..1 << 16 {
                let key = template.replace("{}", &i.to_string()).into_bytes();
                buckets[(hash(&key, ends(&key)) & 0xffff) as usize] += 1;
            }
            let fullest = buckets.iter().max().copied().unwrap_or(0);
            let empty = buckets.iter().filter(|&&count| count == 0).count();
            assert!(fullest < 12, "{template}: {fullest} keys in one bucket");
            // A random function leaves 1 / e of the buckets empty.
            assert!((22_000..26_500).contains(&empty), "{template}: {empty} empty buckets");
        }
    }
}
