//! What librdkafka's statistics say of the partitions that a consumer reads.
//!
//! Invariant: the end of a partition is older than the count of records that wait for it: with none waiting, all before that
//! end were handed over.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::position::Partition;

/// Of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Fetched, and not taken yet.
    pub queued_records: u64,
    pub queued_bytes: u64,
    /// The offset at which the consumer last found that there is no more.
    pub end: Option<u64>,
    /// Behind the last record that can be read.
    pub high: u64,
}

#[derive(Deserialize)]
struct Statistics {
    topics: BTreeMap<String, Topic>,
}

#[derive(Deserialize)]
struct Topic {
    partitions: BTreeMap<String, Raw>,
}

/// Offsets are negative while they aren't known.
#[derive(Deserialize)]
struct Raw {
    fetchq_cnt: u64,
    fetchq_size: u64,
    eof_offset: i64,
    hi_offset: i64,
    ls_offset: i64,
}

/// Reads statistics; nothing if they aren't what they should be.
pub fn read(statistics: &[u8], committed_only: bool) -> BTreeMap<Partition, Figures> {
    let Ok(statistics) = serde_json::from_slice::<Statistics>(statistics) else { return BTreeMap::new() };
    let of_topic = |(topic, Topic { partitions }): (String, Topic)| {
        let of_partition = move |(index, raw): (String, Raw)| {
            // The one numbered -1 is librdkafka's own.
            let index = index.parse().ok().filter(|index| *index >= 0)?;
            Some((Partition { topic: topic.clone(), index }, figures(&raw, committed_only)))
        };
        partitions.into_iter().filter_map(of_partition)
    };
    statistics.topics.into_iter().flat_map(of_topic).collect()
}

fn figures(raw: &Raw, committed_only: bool) -> Figures {
    let high = if committed_only && raw.ls_offset >= 0 { raw.ls_offset } else { raw.hi_offset };
    Figures {
        queued_records: raw.fetchq_cnt,
        queued_bytes: raw.fetchq_size,
        end: u64::try_from(raw.eof_offset).ok(),
        high: u64::try_from(high).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_partition() {
        let json = br#"{"name":"x","ts":1,"topics":{"orders":{"topic":"orders","partitions":{
            "0":{"partition":0,"fetchq_cnt":3,"fetchq_size":120,"eof_offset":-1001,"hi_offset":40,"ls_offset":35},
            "-1":{"partition":-1,"fetchq_cnt":0,"fetchq_size":0,"eof_offset":-1001,"hi_offset":-1001,"ls_offset":-1001},
            "1":{"partition":1,"fetchq_cnt":0,"fetchq_size":0,"eof_offset":7,"hi_offset":7,"ls_offset":-1001}}}}}"#;
        let partition = |index| Partition { topic: "orders".to_owned(), index };
        let of_0 = Figures { queued_records: 3, queued_bytes: 120, end: None, high: 35 };
        let of_1 = Figures { queued_records: 0, queued_bytes: 0, end: Some(7), high: 7 };
        assert_eq!(read(json, true), BTreeMap::from([(partition(0), of_0), (partition(1), of_1)]));
        assert_eq!(read(json, false)[&partition(0)].high, 40);
        assert_eq!(read(b"{}", true), BTreeMap::new());
    }
}
