//! Asks a cluster for all that its part of the job depends on.
//!
//! Invariant: it makes nothing, not even one of Kafka's own topics: no coordinator is asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, TopicFacts, Unread};
use super::wanted::{Wanted, WantedSink, WantedSource, WantedTopics};
use crate::connector::kafka::Cluster;
use crate::connector::kafka::wire::{Client, Configs, Group, ResponseError, Topic, WireError};

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
    let told = client.topics(&names.iter().copied().collect::<Vec<_>>())?;
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
