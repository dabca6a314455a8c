//! DescribeProducers: which producers have something open on a partition, as its leader sees it.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::{DescribeProducersRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};
use super::Partition;

/// A transaction that holds the last stable offset of a partition back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenOnPartition {
    pub topic: String,
    pub partition: i32,
    /// The broker that leads the partition.
    pub leader: i32,
    pub producer_id: i64,
    pub producer_epoch: i32,
    /// Of the coordinator that last ended one of this producer's here; -1 if none has.
    pub coordinator_epoch: i32,
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
        self.open_where(partitions, |error| {
            matches!(error, ResponseError::NotLeaderOrFollower | ResponseError::UnknownTopicOrPartition)
        })
    }

    /// What is open in a topic. `None`: it isn't there, or this user may not read it.
    ///
    /// # Errors
    /// As [`open_on`](Client::open_on), and if one of its partitions has moved or is led by nobody at the moment.
    pub fn open_in(&mut self, topic: &str) -> Result<Option<Vec<OpenOnPartition>>, WireError> {
        let Some(told) = self.topics(&[topic])?.pop() else { return Ok(None) };
        match told.error {
            Some(ResponseError::UnknownTopicOrPartition | ResponseError::TopicAuthorizationFailed) => return Ok(None),
            Some(error) => self.any().refuse::<MetadataRequest>(topic, error.code())?,
            None => {}
        }
        let mut led = Vec::new();
        for Partition { index, leader, .. } in &told.partitions {
            match leader {
                Some(leader) => led.push((*leader, topic, *index)),
                None => {
                    let nobody = ResponseError::LeaderNotAvailable.code();
                    self.any().refuse::<MetadataRequest>(&format!("{topic}/{index}"), nobody)?;
                }
            }
        }
        match self.open_where(&led, |_| false) {
            Err(error) if error.refusal() == Some(ResponseError::TopicAuthorizationFailed) => Ok(None),
            asked => asked.map(Some),
        }
    }

    fn open_where(
        &mut self,
        partitions: &[(i32, &str, i32)],
        is_left_out: impl Fn(ResponseError) -> bool,
    ) -> Result<Vec<OpenOnPartition>, WireError> {
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
                    if partition.error_code.err().is_some_and(&is_left_out) {
                        continue;
                    }
                    let what = format!("{name}/{}", partition.partition_index);
                    connection.refuse::<DescribeProducersRequest>(&what, partition.error_code)?;
                    let producers = partition.active_producers.iter().filter(|told| told.current_txn_start_offset >= 0);
                    open.extend(producers.map(|told| OpenOnPartition {
                        topic: name.to_owned(),
                        partition: partition.partition_index,
                        leader,
                        producer_id: *told.producer_id,
                        producer_epoch: told.producer_epoch,
                        coordinator_epoch: told.coordinator_epoch,
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
