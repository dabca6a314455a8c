//! How `buffer` is dealt out to the queues of the partitions. Pure.
//!
//! Each partition has a queue of its own, which librdkafka bounds by itself, in bytes of records and in records. What a record
//! costs beside its bytes counts, too: with small records that is most of it. One more fetch may come on top of a queue that is
//! just below its bounds.
//!
//! Invariant: all queues together, with a fetch each on top, hold about `buffer` and never a multiple of it.

/// What librdkafka keeps beside the bytes of a record.
const RECORD_OVERHEAD_BYTES: u64 = 512;
const FETCH_BYTES_MIN: u64 = 16 << 10;
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// The settings of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of records in the queue of one partition.
    pub queue_kib: u64,
    /// Records in the queue of one partition.
    pub queue_records: u64,
    /// Asked of one partition at once.
    pub fetch_bytes: u64,
}

impl Memory {
    /// Half for the records, of which a part is for the fetch on its way, half for what they cost beside their bytes.
    pub fn dealt(buffer_bytes: u64, partitions: usize) -> Memory {
        let share = buffer_bytes / (partitions.max(1) as u64);
        let fetch_bytes = (share / 8).clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX);
        Memory {
            queue_kib: (share / 2).saturating_sub(fetch_bytes).max(fetch_bytes / 2) >> 10,
            queue_records: (share / 2 / RECORD_OVERHEAD_BYTES).max(64),
            fetch_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queues_together_stay_within_the_buffer_while_shares_are_of_use() {
        for buffer_mib in [1u64, 32, 512, 2048] {
            for partitions in [1usize, 4, 50, 1000] {
                let buffer = buffer_mib << 20;
                let Memory { queue_kib, queue_records, fetch_bytes } = Memory::dealt(buffer, partitions);
                assert!((1..=2_097_151).contains(&queue_kib) && (1..=10_000_000).contains(&queue_records));
                let share = (queue_kib << 10) + queue_records * RECORD_OVERHEAD_BYTES + fetch_bytes;
                let least = partitions as u64 * 3 * FETCH_BYTES_MIN * 2;
                assert!(share * partitions as u64 <= buffer.max(least), "{buffer_mib} MiB, {partitions}: {share} each");
            }
        }
    }

    #[test]
    fn four_partitions_share_the_default() {
        assert_eq!(Memory::dealt(32 << 20, 4), Memory { queue_kib: 3072, queue_records: 8192, fetch_bytes: 1 << 20 });
    }
}
