//! Metadata: topics, their partitions, and what may be done with them. Asks without making a topic.

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};
use super::Operations;

#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    pub name: String,
    /// Why there is no more to say of it, as [`ResponseError::UnknownTopicOrPartition`] if it isn't there.
    pub error: Option<ResponseError>,
    /// Kafka's own.
    pub internal: bool,
    /// By number.
    pub partitions: Vec<Partition>,
    pub operations: Option<Operations>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    pub index: i32,
    /// `None`: nobody leads it at the moment.
    pub leader: Option<i32>,
    pub replicas: usize,
    pub in_sync: usize,
}

impl Client {
    /// One answer for each name, in the order of the broker.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn topics(&mut self, names: &[&str]) -> Result<Vec<Topic>, WireError> {
        let of_name = |name: &&str| {
            MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string((*name).to_owned()))))
        };
        self.metadata(Some(names.iter().map(of_name).collect()))
    }

    /// All that this user may see.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn all_topics(&mut self) -> Result<Vec<Topic>, WireError> {
        self.metadata(None)
    }

    fn metadata(&mut self, topics: Option<Vec<MetadataRequestTopic>>) -> Result<Vec<Topic>, WireError> {
        let request = MetadataRequest::default()
            .with_topics(topics)
            .with_allow_auto_topic_creation(false)
            .with_include_topic_authorized_operations(true);
        let answer = self.any().call(&request)?;
        Ok(answer.topics.iter().map(topic).collect())
    }
}

fn topic(told: &MetadataResponseTopic) -> Topic {
    let partitions = told.partitions.iter().map(|told| Partition {
        index: told.partition_index,
        leader: Some(*told.leader_id).filter(|leader| *leader >= 0),
        replicas: told.replica_nodes.len(),
        in_sync: told.isr_nodes.len(),
    });
    let mut partitions = partitions.collect::<Vec<_>>();
    partitions.sort_by_key(|partition| partition.index);
    Topic {
        name: told.name.as_ref().map(|name| name.to_string()).unwrap_or_default(),
        error: told.error_code.err(),
        internal: told.is_internal,
        partitions,
        operations: Operations::told(told.topic_authorized_operations),
    }
}
