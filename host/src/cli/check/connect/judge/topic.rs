//! What is said of any topic: whether it is there, can be used, and would survive the loss of a broker.
//!
//! Invariant: only what is there is judged further.

use super::super::facts::{Facts, TopicFacts};
use super::super::finding::Finding;
use crate::connector::kafka::wire::{Operation, ResponseError, Topic};

/// A topic that is there, or why it can't be used.
pub(super) fn usable<'a>(
    about: &str,
    name: &str,
    needed: &[Operation],
    facts: &'a Facts,
) -> Result<&'a TopicFacts, Option<Finding>> {
    let found = facts.topics.get(name).ok_or(None)?;
    let cluster = &facts.cluster;
    match found.topic.error {
        None => Ok(found),
        Some(ResponseError::UnknownTopicOrPartition) => Err(None),
        Some(ResponseError::TopicAuthorizationFailed) => Err(Some(Finding::error(
            about,
            format!("this user may not see topic '{name}' of cluster {cluster}"),
            acls(name, &needed.iter().map(|operation| operation.name()).collect::<Vec<_>>()),
        ))),
        Some(error) => {
            let text = format!("topic '{name}' of cluster {cluster} can't be used: {error}");
            Err(Some(Finding::error(about, text, "see kafka-topics.sh --describe, or try again in a moment")))
        }
    }
}

/// The rights that are missing, if the broker tells.
pub(super) fn rights(about: &str, topic: &Topic, needed: &[Operation]) -> Option<Finding> {
    let told = topic.operations?;
    let missing = needed.iter().filter(|operation| !told.allows(**operation)).map(|operation| operation.name());
    let missing = missing.collect::<Vec<_>>();
    (!missing.is_empty()).then(|| {
        Finding::error(
            about,
            format!("this user has no right to {} topic '{}'", missing.join(" and "), topic.name),
            acls(&topic.name, &missing),
        )
    })
}

fn acls(topic: &str, operations: &[&str]) -> String {
    let options = operations.iter().map(|name| format!("--operation {name}")).collect::<Vec<_>>().join(" ");
    format!("kafka-acls.sh --add --topic {topic} {options} --allow-principal User:…")
}

/// Replicas and leaders. `written`: whether the job writes to it.
pub(super) fn health(about: &str, found: &TopicFacts, written: bool) -> Vec<Finding> {
    let topic = &found.topic;
    let name = &topic.name;
    let mut said = Vec::new();
    let leaderless = topic.partitions.iter().filter(|partition| partition.leader.is_none());
    let leaderless = leaderless.map(|partition| partition.index.to_string()).collect::<Vec<_>>();
    if !leaderless.is_empty() {
        let text = format!("partition {} of topic '{name}' has no leader", leaderless.join(", "));
        said.push(Finding::error(about, text, "start the brokers that have it; kafka-topics.sh --describe names them"));
    }
    let replicas = topic.partitions.iter().map(|partition| partition.replicas).min().unwrap_or(0);
    let least = found.configs.as_ref().and_then(|configs| configs.number("min.insync.replicas"));
    let least = least.and_then(|least| usize::try_from(least).ok()).unwrap_or(1);
    if replicas == 1 {
        let text = format!("topic '{name}' has one replica: it is lost with its broker");
        said.push(Finding::warning(
            about,
            text,
            "on a cluster of several brokers give it 3 replicas, and min.insync.replicas = 2",
        ));
    }
    if replicas < least && written {
        let text = format!("topic '{name}' has {replicas} replicas, fewer than its min.insync.replicas of {least}");
        said.push(Finding::warning(
            about,
            text,
            "brokers may refuse what is written to it: give it more replicas, or lower the setting",
        ));
    }
    let behind = topic.partitions.iter().filter(|partition| partition.in_sync < least.min(replicas));
    let behind = behind.map(|partition| partition.index.to_string()).collect::<Vec<_>>();
    if written && leaderless.is_empty() && !behind.is_empty() {
        let text = format!(
            "partition {} of topic '{name}' has fewer replicas in sync than its min.insync.replicas of {least}, so it takes no \
             records at the moment",
            behind.join(", ")
        );
        said.push(Finding::error(about, text, "start the brokers that have it, and wait until they have caught up"));
    }
    said
}

/// "4 partitions, 3 replicas".
pub(super) fn size(topic: &Topic) -> String {
    let count = |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    let replicas = topic.partitions.iter().map(|partition| partition.replicas).min().unwrap_or(0);
    format!("{}, {}", count(topic.partitions.len(), "partition"), count(replicas, "replica"))
}
