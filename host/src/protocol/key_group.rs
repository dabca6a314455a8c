//! Which subtask owns a key.
//!
//! Invariant: for any parallelism up to `max_parallelism` the ranges of the subtasks cover every key group exactly once.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::id::KeyGroup;

/// Key groups `first ..= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyGroupRange {
    pub first: KeyGroup,
    pub last: KeyGroup,
}

/// How many key groups a job has; its parallelism can't exceed it. Fixed for the life of a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaxParallelism(u16);

impl MaxParallelism {
    /// 1 ..= 32,768; `None` outside of it.
    pub fn new(key_groups: u32) -> Option<MaxParallelism> {
        (1..=32_768).contains(&key_groups).then_some(MaxParallelism(key_groups as u16))
    }

    pub fn key_groups(self) -> u32 {
        u32::from(self.0)
    }

    /// The key group of a key: XXH3-64 (seed 0) of its bytes, modulo the number of key groups.
    #[inline]
    pub fn key_group(self, key: &[u8]) -> KeyGroup {
        self.key_group_of_hash(xxh3_64(key))
    }

    /// The key group of a key whose XXH3-64 (seed 0) is known.
    #[inline]
    pub fn key_group_of_hash(self, hash: u64) -> KeyGroup {
        let groups = u64::from(self.0);
        // The same number either way; a division costs as much as all the rest.
        let group = if groups.is_power_of_two() { hash & (groups - 1) } else { hash % groups };
        KeyGroup(group as u16)
    }

    /// The subtask that owns a key group: `floor(key_group * parallelism / max_parallelism)`, as in Flink.
    ///
    /// # Panics
    /// If `parallelism` isn't in `1 ..= max_parallelism`.
    #[inline]
    pub fn subtask(self, group: KeyGroup, parallelism: u32) -> u32 {
        assert!((1..=self.key_groups()).contains(&parallelism), "a parallelism in range");
        u32::from(group.0) * parallelism / self.key_groups()
    }

    /// The key groups of a subtask; the inverse of [`subtask`](Self::subtask).
    ///
    /// # Panics
    /// If `parallelism` isn't in `1 ..= max_parallelism`, or `index` isn't below it.
    pub fn range(self, index: u32, parallelism: u32) -> KeyGroupRange {
        assert!((1..=self.key_groups()).contains(&parallelism), "a parallelism in range");
        assert!(index < parallelism, "subtask {index} of {parallelism}");
        let first = (index * self.key_groups()).div_ceil(parallelism);
        let end = ((index + 1) * self.key_groups()).div_ceil(parallelism);
        KeyGroupRange { first: KeyGroup(first as u16), last: KeyGroup((end - 1) as u16) }
    }
}

impl KeyGroupRange {
    #[inline]
    pub fn contains(self, group: KeyGroup) -> bool {
        self.first <= group && group <= self.last
    }

    pub fn overlaps(self, other: KeyGroupRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_group_has_exactly_one_owner_at_every_parallelism() {
        for groups in [1, 2, 3, 7, 128, 300] {
            let max = MaxParallelism::new(groups).expect("in range");
            for parallelism in 1..=groups {
                for group in 0..groups {
                    let group = KeyGroup(group as u16);
                    let owners = (0..parallelism).filter(|&index| max.range(index, parallelism).contains(group));
                    assert_eq!(owners.collect::<Vec<_>>(), [max.subtask(group, parallelism)]);
                }
            }
        }
    }

    #[test]
    fn the_hash_never_changes() {
        let max = MaxParallelism::new(128).expect("in range");
        // A change of these values would hand the state of every existing job to the wrong subtask.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(max.key_group(b""), KeyGroup(0x42));
    }
}
