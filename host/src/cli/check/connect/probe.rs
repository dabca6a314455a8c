//! Asks a cluster for all that its part of the job depends on.
//!
//! Invariant: it makes nothing, not even one of Kafka's own topics: no coordinator is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use super::facts::{Facts, TopicFacts, Unread};
use super::wanted::{Wanted, WantedSink, WantedSource, WantedTopics};
use crate::cli::print;
use crate::connector::kafka::wire::{Client, Configs, Group, ResponseError, Topic, WireError};
use crate::connector::kafka::{Cluster, ELECTION_MAX};

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// What librdkafka's producer takes if nothing is set.
const MESSAGE_BYTES_MAX: i64 = 1_000_000;

/// The parts of a job that belong to one cluster.
pub(super) struct Parts<'a> {
    pub sources: Vec<&'a WantedSource>,
    pub sinks: Vec<&'a WantedSink>,
}

impl<'a> Parts<'a> {
    pub fn of(wanted: &'a Wanted, cluster: &Cluster) -> Parts<'a> {
        Parts {
            sources: wanted.sources.iter().filter(|source| source.cluster == *cluster).collect(),
            sinks: wanted.sinks.iter().filter(|sink| sink.cluster == *cluster).collect(),
        }
    }

    fn topics(&self) -> BTreeSet<&'a str> {
        let read = self.sources.iter().flat_map(|source| match &source.topics {
            WantedTopics::Named(names) => names.as_slice(),
            WantedTopics::Pattern { .. } => &[],
        });
        let written = self.sinks.iter().flat_map(|sink| {
            let marker = sink.transaction.as_ref().map(|transaction| &transaction.marker_topic);
            [Some(&sink.topic), marker].into_iter().flatten()
        });
        read.chain(written).map(String::as_str).collect()
    }
}

/// `properties`: the settings of the job's clients.
///
/// # Errors
/// If the cluster stops answering.
pub(super) fn probe(
    client: &mut Client,
    parts: &Parts<'_>,
    properties: &BTreeMap<String, String>,
) -> Result<Facts, WireError> {
    let matching = matching(client, parts)?;
    let mut names = parts.topics();
    names.extend(matching.values().flatten().map(String::as_str));
    let topics = topics(client, &names)?;
    let message_bytes_max = properties.get("message.max.bytes").and_then(|bytes| bytes.parse().ok());
    Ok(Facts {
        cluster: client.cluster().id.clone(),
        operations: client.cluster_operations()?,
        brokers: brokers(client),
        groups: groups(client, parts)?,
        ids: ids(client, parts)?,
        matching,
        topics,
        message_bytes_max: message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX),
        marker: None,
        is_marker_missed: false,
    })
}

/// The topics that each pattern takes at the moment.
fn matching(client: &mut Client, parts: &Parts<'_>) -> Result<BTreeMap<String, Vec<String>>, WireError> {
    let patterns = parts.sources.iter().filter_map(|source| match &source.topics {
        WantedTopics::Pattern { pattern, takes } => Some((pattern, takes)),
        WantedTopics::Named(_) => None,
    });
    let mut found = BTreeMap::new();
    let mut all: Option<Vec<Topic>> = None;
    for (pattern, takes) in patterns {
        let all = match &mut all {
            Some(all) => all,
            none @ None => none.insert(client.all_topics()?),
        };
        let names = all.iter().filter(|topic| takes(&topic.name)).map(|topic| topic.name.clone());
        found.insert(pattern.clone(), names.collect());
    }
    Ok(found)
}

fn topics(client: &mut Client, names: &BTreeSet<&str>) -> Result<BTreeMap<String, TopicFacts>, WireError> {
    let told = after_elections(client, &names.iter().copied().collect::<Vec<_>>())?;
    let mut found = BTreeMap::new();
    for topic in told {
        let configs = match topic.error {
            None => allowed(client.topic_configs(&topic.name))?,
            Some(_) => None,
        };
        found.insert(topic.name.clone(), TopicFacts { topic, configs });
    }
    Ok(found)
}

/// Asks again while leaders are elected, as they are when a cluster has just come up.
fn after_elections(client: &mut Client, names: &[&str]) -> Result<Vec<Topic>, WireError> {
    let until = Instant::now() + ELECTION_MAX;
    let mut is_told = false;
    loop {
        let told = client.topics(names)?;
        match told.iter().find(|topic| is_electing(topic)) {
            Some(topic) if Instant::now() < until => {
                if !is_told {
                    let (name, wait) = (&topic.name, ELECTION_MAX.as_secs());
                    print::err(&format!(
                        "topic {name} has no leader for a partition; waiting for one for up to {wait} s\n"
                    ));
                    is_told = true;
                }
                thread::sleep(ASK_AGAIN_AFTER);
            }
            Some(_) | None => return Ok(told),
        }
    }
}

fn is_electing(topic: &Topic) -> bool {
    match topic.error {
        Some(ResponseError::LeaderNotAvailable) => true,
        Some(_) => false,
        None => topic.partitions.iter().any(|partition| partition.leader.is_none()),
    }
}

/// A refusal is an answer, too.
fn allowed<T>(asked: Result<T, WireError>) -> Result<Option<T>, WireError> {
    match asked {
        Err(error) if error.refusal().is_some() => Ok(None),
        asked => asked.map(Some),
    }
}

fn brokers(client: &mut Client) -> BTreeMap<i32, Result<Configs, Unread>> {
    let nodes = client.cluster().brokers.keys().copied().collect::<Vec<_>>();
    let read = nodes.into_iter().map(|node| {
        let read = client.broker_configs(node).map_err(|error| match error.refusal() {
            Some(_) => Unread::Denied,
            None => Unread::Unreachable(error.to_string(), error.help()),
        });
        (node, read)
    });
    read.collect()
}

fn groups(client: &mut Client, parts: &Parts<'_>) -> Result<BTreeMap<String, Result<Group, ResponseError>>, WireError> {
    let mut found = BTreeMap::new();
    for name in parts.sources.iter().map(|source| &source.group) {
        let asked = match client.group(name) {
            Err(error) => Err(error.refusal().ok_or(error)?),
            Ok(group) => Ok(group),
        };
        found.insert(name.clone(), asked);
    }
    Ok(found)
}

fn ids(client: &mut Client, parts: &Parts<'_>) -> Result<BTreeMap<String, Result<(), ResponseError>>, WireError> {
    let ids = parts.sinks.iter().filter_map(|sink| sink.transaction.as_ref()).flat_map(|transaction| &transaction.ids);
    let ids = ids.map(String::as_str).collect::<BTreeSet<_>>();
    let mut found = BTreeMap::new();
    for id in ids {
        let asked = match client.may_see_id(id) {
            Err(error) => Err(error.refusal().ok_or(error)?),
            Ok(()) => Ok(()),
        };
        found.insert(id.to_owned(), asked);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::kafka::wire::Partition;

    #[test]
    fn a_partition_without_a_leader_is_waited_for_and_a_topic_that_is_not_there_is_not() {
        let partition = |index, leader| Partition { index, leader, replicas: 1, in_sync: 1 };
        let topic = |error, leaders: &[Option<i32>]| Topic {
            name: "orders".to_owned(),
            error,
            internal: false,
            partitions: (0..).zip(leaders).map(|(index, leader)| partition(index, *leader)).collect(),
            operations: None,
        };
        assert!(is_electing(&topic(None, &[Some(1), None])));
        assert!(is_electing(&topic(Some(ResponseError::LeaderNotAvailable), &[])));
        assert!(!is_electing(&topic(None, &[Some(1), Some(2)])));
        assert!(!is_electing(&topic(Some(ResponseError::UnknownTopicOrPartition), &[])));
    }
}
