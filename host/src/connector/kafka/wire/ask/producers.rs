//! DescribeProducers: which producers have something open on a partition, as its leader sees it.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::{DescribeProducersRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};

/// A transaction that holds the last stable offset of a partition back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenOnPartition {
    pub topic: String,
    pub partition: i32,
    pub producer_id: i64,
    pub producer_epoch: i32,
    /// Of its first record here.
    pub start_offset: i64,
    /// Of its last record here, in milliseconds since the Unix epoch.
    pub last_ms: i64,
}

impl Client {
    /// What is open on these partitions, of which each is with its leader's number. A partition that has moved or gone meanwhile is left out.
    ///
    /// # Errors
    /// If a leader can't be asked, or refuses.
    pub fn open_on(&mut self, partitions: &[(i32, &str, i32)]) -> Result<Vec<OpenOnPartition>, WireError> {
        let mut by_leader = BTreeMap::<i32, BTreeMap<&str, Vec<i32>>>::new();
        for &(leader, topic, partition) in partitions {
            by_leader.entry(leader).or_default().entry(topic).or_default().push(partition);
        }
        let mut open = Vec::new();
        for (leader, topics) in by_leader {
            let topics = topics.into_iter().map(|(topic, partitions)| {
                let name = TopicName(StrBytes::from_string(topic.to_owned()));
                TopicRequest::default().with_name(name).with_partition_indexes(partitions)
            });
            let connection = self.at(leader)?;
            let answer = connection.call(&DescribeProducersRequest::default().with_topics(topics.collect()))?;
            for topic in &answer.topics {
                for partition in &topic.partitions {
                    let name = topic.name.as_str();
                    match partition.error_code.err() {
                        Some(ResponseError::NotLeaderOrFollower | ResponseError::UnknownTopicOrPartition) => continue,
                        _ => connection.refuse::<DescribeProducersRequest>(
                            &format!("{name}/{}", partition.partition_index),
                            partition.error_code,
                        )?,
                    }
                    let producers = partition.active_producers.iter().filter(|told| told.current_txn_start_offset >= 0);
                    open.extend(producers.map(|told| OpenOnPartition {
                        topic: name.to_owned(),
                        partition: partition.partition_index,
                        producer_id: *told.producer_id,
                        producer_epoch: told.producer_epoch,
                        start_offset: told.current_txn_start_offset,
                        last_ms: told.last_timestamp,
                    }));
                }
            }
        }
        open.sort();
        Ok(open)
    }
}
