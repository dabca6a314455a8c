//! Asking for the ids of topics.
//!
//! librdkafka doesn't give them out, so they are asked for over a connection of our own. Where that can't go (a way to log in that it
//! doesn't know, brokers before Kafka 2.8), ids stay unknown.
//!
//! Invariant: an id that is given was told by the cluster since it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::wire::{self, WireError};
use super::{Cluster, TopicId};
use crate::connector::ConnectorError;
use crate::id::Name;

/// For each step of the way to a broker.
const STEP_MAX: Duration = Duration::from_secs(5);

/// By the names of the topics; those that aren't known are missing.
pub type TopicIds = BTreeMap<String, TopicId>;

/// Asks over one connection for as long as it holds, and over another one then.
pub struct TopicIdAsker {
    cluster: Cluster,
    name: Name,
    client: Option<wire::Client>,
}

impl TopicIdAsker {
    /// `name`: the source or sink that asks.
    pub fn new(cluster: &Cluster, name: &Name) -> TopicIdAsker {
        TopicIdAsker { cluster: cluster.clone(), name: name.clone(), client: None }
    }

    /// # Errors
    /// The outer one if the file of properties can't be read; the inner one says why no ids can be had.
    pub fn ask(&mut self, topics: &BTreeSet<&str>) -> Result<Result<TopicIds, WireError>, ConnectorError> {
        if topics.is_empty() {
            return Ok(Ok(TopicIds::new()));
        }
        // Brokers close what is idle for long.
        let told = self.client.as_mut().and_then(|client| client.topic_ids(topics).ok());
        if let Some(ids) = told {
            return Ok(Ok(ids));
        }
        self.client = None;
        Ok(self.cluster.connect(&self.name, STEP_MAX)?.and_then(|mut client| {
            let ids = client.topic_ids(topics)?;
            self.client = Some(client);
            Ok(ids)
        }))
    }
}
