//! The topics that a source reads.

use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::wanted::{WantedSource, WantedTopics};
use super::topic::{health, rights, size, usable};
use crate::connector::deleted_advice;
use crate::connector::kafka::wire::{Operation, Topic};

const NEEDED: &[Operation] = &[Operation::Read, Operation::Describe];

pub(super) fn topics(wanted: &WantedSource, facts: &Facts) -> Vec<Finding> {
    match &wanted.topics {
        WantedTopics::Named(names) => names.iter().flat_map(|name| topic(wanted, name, facts)).collect(),
        WantedTopics::Pattern { pattern, .. } => matching(wanted, pattern, facts),
    }
}

fn topic(wanted: &WantedSource, name: &str, facts: &Facts) -> Vec<Finding> {
    let about = &wanted.about();
    let found = match usable(about, name, NEEDED, facts) {
        Ok(found) => found,
        Err(Some(finding)) => return vec![finding],
        Err(None) => {
            let text = format!("cluster {} has no topic '{name}'", facts.cluster);
            if wanted.read_before.contains(name) {
                let text = format!("{text} any more, and the job goes on from what it had read of it");
                return vec![Finding::error(about, text, deleted_advice(&wanted.name, name))];
            }
            let create = format!("kafka-topics.sh --create --topic {name} --partitions … makes it; or correct topics");
            return vec![Finding::error(about, text, create)];
        }
    };
    let mut said = vec![Finding::note(about, format!("topic {name}: {}", size(&found.topic)))];
    said.extend(rights(about, &found.topic, NEEDED));
    said.extend(health(about, found, false));
    said.extend(starts(wanted, &found.topic));
    said
}

/// Whether `start` gives offsets for partitions that aren't there.
fn starts(wanted: &WantedSource, topic: &Topic) -> Option<Finding> {
    let (name, count) = (&topic.name, topic.partitions.len());
    let is_there = |index: i32| topic.partitions.iter().any(|partition| partition.index == index);
    let stranger = wanted.starts.get(name)?.iter().find(|index| !is_there(**index))?;
    let text = format!(
        "start gives an offset for partition {stranger} of topic '{name}', which has {count} partitions, numbered from 0"
    );
    let help = format!(
        "correct start of [source.{}]; a partition that it doesn't name begins at its first record",
        wanted.name
    );
    Some(Finding::error(&wanted.about(), text, help))
}

fn matching(wanted: &WantedSource, pattern: &str, facts: &Facts) -> Vec<Finding> {
    let about = wanted.about();
    let names = facts.matching.get(pattern).map(Vec::as_slice).unwrap_or_default();
    if names.is_empty() {
        let text = format!("no topic of cluster {} matches '{pattern}'", facts.cluster);
        return vec![Finding::warning(&about, text, "it reads nothing until there is one that this user may see")];
    }
    let mut said = names.iter().flat_map(|name| topic(wanted, name, facts)).collect::<Vec<_>>();
    let strangers = wanted.starts.keys().filter(|topic| !names.contains(topic));
    said.extend(strangers.map(|topic| {
        let text =
            format!("start gives an offset for topic '{topic}', which isn't among those that '{pattern}' matches");
        Finding::error(&about, text, format!("correct start of [source.{}]", wanted.name))
    }));
    said
}
