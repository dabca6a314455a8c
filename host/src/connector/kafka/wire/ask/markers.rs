//! WriteTxnMarkers: tells a partition how a transaction has ended, which its coordinator did not.

use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{TopicName, WriteTxnMarkersRequest};
use kafka_protocol::protocol::StrBytes;

use super::super::{Client, WireError};
use super::OpenOnPartition;

impl Client {
    /// Ends what is open on a partition: as committed, or as aborted.
    ///
    /// # Errors
    /// If the leader refuses, as it does if the producer has begun something newer there, or if this user may not do that.
    pub fn write_end(&mut self, open: &OpenOnPartition, is_committed: bool) -> Result<(), WireError> {
        let OpenOnPartition { topic, partition, leader, .. } = open;
        let what = format!("{topic}/{partition}");
        let connection = self.at(*leader)?;
        let marker = marker(open, is_committed);
        let answer = connection.call(&WriteTxnMarkersRequest::default().with_markers(vec![marker]))?;
        let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
        let mut told = topics.filter(|told| told.name.as_str() == topic).flat_map(|told| &told.partitions);
        let told = told.find(|told| told.partition_index == *partition);
        let told = told.ok_or_else(|| connection.says_nothing::<WriteTxnMarkersRequest>(&what))?;
        connection.refuse::<WriteTxnMarkersRequest>(&what, told.error_code)
    }
}

fn marker(open: &OpenOnPartition, is_committed: bool) -> WritableTxnMarker {
    let topic = WritableTxnMarkerTopic::default()
        .with_name(TopicName(StrBytes::from_string(open.topic.clone())))
        .with_partition_indexes(vec![open.partition]);
    // A broker tells epochs as wider numbers than it takes.
    WritableTxnMarker::default()
        .with_producer_id(open.producer_id.into())
        .with_producer_epoch(i16::try_from(open.producer_epoch).unwrap_or(i16::MAX))
        .with_coordinator_epoch(open.coordinator_epoch.max(0))
        .with_transaction_result(is_committed)
        .with_topics(vec![topic])
}
