//! The positions of Kafka sources, committed with the output: other tools see how far the job has got, and a job that goes on
//! elsewhere can begin there. The job itself doesn't read them.
//!
//! Invariant: an offset is that of the next record to be read, and belongs to the epoch that the transaction decides.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::connector::kafka::{Client, Cluster, Listener};
use crate::connector::kafka_source::{NoPosition, Partition, next_offsets};
use crate::connector::{ConnectorError, SplitState};
use crate::id::Name;

/// For one group.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// A source whose positions are committed, and the group in whose name that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGroup {
    pub brokers: String,
    pub group: String,
}

/// A group as the brokers are told of it. It has no members.
pub struct Group {
    /// It keeps its consumer, and that is never subscribed to anything.
    consumer: BaseConsumer<Listener>,
}

impl Group {
    /// # Errors
    /// If the settings can't be used.
    pub fn open(cluster: &Cluster, name: &Name, id: &str) -> Result<Group, ConnectorError> {
        let own = [("group.id", id), ("enable.auto.commit", "false"), ("enable.auto.offset.store", "false")];
        let config = cluster.config(name, Client::Consumer, &own)?;
        let consumer = config.create_with_context::<_, BaseConsumer<Listener>>(Listener::new(name));
        let consumer = consumer.map_err(|error| ConnectorError::Refused {
            name: name.clone(),
            problem: format!("cannot make a consumer of group '{id}': {error}"),
            advice: format!("correct properties of '{name}' in the job file"),
        })?;
        Ok(Group { consumer })
    }

    /// Without a generation and a member, as of a group that only keeps offsets.
    pub fn metadata(&self) -> Option<ConsumerGroupMetadata> {
        self.consumer.group_metadata()
    }
}

/// The next offset of each partition.
pub type Offsets = BTreeMap<Partition, i64>;

/// The offsets of each group, from the positions of the sources that are covered.
///
/// # Errors
/// If a position is that of another kind of source.
pub fn by_group(
    sources: &BTreeMap<Name, SourceGroup>,
    positions: &BTreeMap<Name, Vec<SplitState>>,
) -> Result<BTreeMap<String, Offsets>, NoPosition> {
    let mut groups: BTreeMap<String, Offsets> = BTreeMap::new();
    for (name, SourceGroup { group, .. }) in sources {
        let Some(splits) = positions.get(name).filter(|splits| !splits.is_empty()) else { continue };
        let offsets = groups.entry(group.clone()).or_default();
        for (partition, next) in next_offsets(splits)? {
            // Two sources of one group that read the same: what both have read.
            let known = offsets.entry(partition).or_insert(next);
            *known = (*known).min(next);
        }
    }
    Ok(groups)
}

/// The same as librdkafka takes it.
///
/// # Errors
/// If an offset isn't one.
pub fn list_of(offsets: &Offsets) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (Partition { topic, index }, next) in offsets {
        list.add_partition_offset(topic, *index, Offset::Offset(*next))?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a name")
    }

    fn split(split: &str, position: serde_json::Value) -> SplitState {
        SplitState { split: split.to_owned(), position }
    }

    #[test]
    fn the_positions_of_covered_sources_become_the_offsets_of_their_groups() {
        let group = |group: &str| SourceGroup { brokers: "a:1".to_owned(), group: group.to_owned() };
        let sources = BTreeMap::from([(name("a"), group("g")), (name("b"), group("g")), (name("c"), group("h"))]);
        let positions = BTreeMap::from([
            (name("a"), vec![split("in/0", json!({"next": 17})), split("in/1", json!({"next": 0, "end": 40}))]),
            (name("b"), vec![split("in/0", json!({"next": 12})), split("other/2", json!({"next": 5}))]),
            (name("files"), vec![split("x/0", json!({"next": 1}))]),
        ]);
        let groups = by_group(&sources, &positions).expect("positions");
        let offset = |topic: &str, index, next| (Partition { topic: topic.to_owned(), index }, next);
        let expected = BTreeMap::from([offset("in", 0, 12), offset("in", 1, 0), offset("other", 2, 5)]);
        assert_eq!(groups, BTreeMap::from([("g".to_owned(), expected)]));
        let list = list_of(&groups["g"]).expect("offsets");
        assert_eq!(list.count(), 3);
        let found = list.find_partition("in", 0).expect("it was added").offset();
        assert_eq!(found, Offset::Offset(12));
    }

    #[test]
    fn a_position_of_another_kind_of_source_is_an_error() {
        let sources = BTreeMap::from([(name("a"), SourceGroup { brokers: "a:1".to_owned(), group: "g".to_owned() })]);
        for state in [split("in/x", json!({"next": 1})), split("in/0", json!({"line": 1}))] {
            by_group(&sources, &BTreeMap::from([(name("a"), vec![state])])).expect_err("no offset");
        }
    }

    #[test]
    fn a_group_that_nobody_joins_has_no_generation_and_no_member() {
        let cluster =
            Cluster { brokers: "127.0.0.1:1".to_owned(), properties: Default::default(), properties_file: None };
        let group = Group::open(&cluster, &name("sink"), "lockgate-copy").expect("it connects later");
        assert!(group.metadata().is_some());
    }
}
