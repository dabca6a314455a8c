//! A partition and how far it was read, as splits of a checkpoint have them. Pure.
//!
//! Invariant: an offset fits what Kafka has for it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::connector::SplitState;
use crate::connector::kafka::{TopicId, is_topic_name};

/// The largest offset, with room to count on.
pub const OFFSET_MAX: u64 = i64::MAX as u64 - 1;

/// A partition of a topic. As text it is `TOPIC/PARTITION`, the name of a split.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    pub topic: String,
    pub index: i32,
}

impl Partition {
    /// The subtask that reads it.
    pub fn owner(&self, parallelism: u32) -> u32 {
        let place = xxh3_64(self.topic.as_bytes()).wrapping_add(self.index as u64);
        (place % u64::from(parallelism)) as u32
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// A text or position that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPosition(String);

impl FromStr for Partition {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Partition, NoPosition> {
        let parse = || {
            let (topic, index) = text.rsplit_once('/')?;
            let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
            let index = index.parse().ok().filter(|_| is_number)?;
            is_topic_name(topic).then(|| Partition { topic: topic.to_owned(), index })
        };
        parse().ok_or_else(|| NoPosition("it is no partition of a topic".to_owned()))
    }
}

/// How far a partition was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The offset of the next record, or one before it that holds none.
    pub next: u64,
    /// Where a bounded source ends: this offset is the first that it doesn't read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// Which topic of that name it is; `None` where that can't be found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
}

impl Position {
    pub fn has_ended(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    fn parse(json: &serde_json::Value) -> Result<Position, NoPosition> {
        let position = Position::deserialize(json).map_err(|_| NoPosition(format!("{json} is no position")))?;
        let fits = position.next <= OFFSET_MAX && position.end.is_none_or(|end| end <= OFFSET_MAX);
        if fits { Ok(position) } else { Err(NoPosition(format!("{json} is out of range"))) }
    }
}

/// # Errors
/// If it is the position of something else.
pub fn parse_state(state: &SplitState) -> Result<(Partition, Position), NoPosition> {
    Ok((state.split.parse()?, Position::parse(&state.position)?))
}

pub fn split_state(partition: &Partition, position: &Position) -> SplitState {
    let position = serde_json::to_value(position).expect("numbers and a text");
    SplitState { split: partition.to_string(), position }
}

/// The offsets that a consumer group would commit for these positions of a Kafka source.
///
/// # Errors
/// If one is the position of something else.
pub fn next_offsets(splits: &[SplitState]) -> Result<Vec<(Partition, i64)>, NoPosition> {
    let offset = |state| parse_state(state).map(|(partition, position)| (partition, position.next as i64));
    splits.iter().map(offset).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn partition(topic: &str, index: i32) -> Partition {
        Partition { topic: topic.to_owned(), index }
    }

    #[test]
    fn the_encoding_is_the_documented_one() {
        let state = |next, end| split_state(&partition("orders", 3), &Position { next, end, topic_id: None });
        assert_eq!(state(17, None), SplitState { split: "orders/3".to_owned(), position: json!({"next": 17}) });
        assert_eq!(state(17, Some(40)).position, json!({"next": 17, "end": 40}));
        let named = Position { next: 17, end: Some(40), topic_id: TopicId::told(1) };
        let named = split_state(&partition("orders", 3), &named);
        assert_eq!(named.position, json!({"next": 17, "end": 40, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}));
        assert_eq!(next_offsets(&[named]), Ok(vec![(partition("orders", 3), 17)]));
        assert_eq!(next_offsets(&[state(17, Some(40))]), Ok(vec![(partition("orders", 3), 17)]));
    }

    proptest! {
        #[test]
        fn a_position_comes_back_as_it_was(
            topic in "[a-zA-Z0-9._-]{3,20}", index in 0..i32::MAX, next in 0..=OFFSET_MAX,
            end in prop::option::of(0..=OFFSET_MAX), id in any::<u128>(),
        ) {
            let wanted = (partition(&topic, index), Position { next, end, topic_id: TopicId::told(id) });
            prop_assert_eq!(parse_state(&split_state(&wanted.0, &wanted.1)), Ok(wanted));
        }

        #[test]
        fn bytes_from_outside_are_no_position_or_one_that_reads_back(
            split in "[a-z/.%0-9]{0,12}|orders/[0-9]{1,11}",
            changes in prop::collection::vec((0usize..100, any::<u8>()), 0..4),
        ) {
            let mut bytes = br#"{"next":17,"end":40,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ"}"#.to_vec();
            for (place, byte) in changes {
                let place = place % bytes.len();
                bytes[place] = byte;
            }
            let Ok(position) = serde_json::from_slice(&bytes) else { return Ok(()) };
            let state = SplitState { split, position };
            if let Ok((partition, position)) = parse_state(&state) {
                prop_assert_eq!(parse_state(&split_state(&partition, &position)), Ok((partition, position)));
                prop_assert!(next_offsets(&[state]).is_ok_and(|offsets| offsets[0].1 >= 0 && offsets[0].1 < i64::MAX));
            }
        }
    }

    #[test]
    fn what_is_no_position_of_a_partition_is_refused() {
        for split in
            ["orders", "orders/", "/1", "orders/-1", "orders/+1", "orders/x", "a/b/1", "orders/99999999999", "../1"]
        {
            assert!(split.parse::<Partition>().is_err(), "{split}");
        }
        for position in
            [json!(17), json!({}), json!({"next": -1}), json!({"next": 1, "until": 2}), json!({"next": u64::MAX})]
        {
            assert!(Position::parse(&position).is_err(), "{position}");
        }
        for id in [json!(""), json!(1), json!([1]), json!("AAAAAAAAAAAAAAAAAAAAAA"), json!("A".repeat(100_000))] {
            assert!(Position::parse(&json!({"next": 1, "topic_id": id})).is_err(), "{id}");
        }
    }

    #[test]
    fn the_partitions_of_a_topic_are_dealt_evenly_and_each_to_one_subtask() {
        for topic in ["orders", "a", "payments.eu"] {
            let owners = (0..12).map(|index| partition(topic, index).owner(4)).collect::<Vec<_>>();
            assert!((0..4).all(|subtask| owners.iter().filter(|owner| **owner == subtask).count() == 3), "{owners:?}");
            assert_eq!(partition(topic, 5).owner(1), 0);
        }
    }
}
