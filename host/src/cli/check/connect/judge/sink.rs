//! The topic that a sink writes.

use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::wanted::WantedSink;
use super::topic::{health, rights, size, usable};
use crate::connector::kafka::wire::Operation;

const NEEDED: &[Operation] = &[Operation::Write, Operation::Describe];

pub(super) fn topic(wanted: &WantedSink, facts: &Facts) -> Vec<Finding> {
    let (about, name) = (wanted.about(), &wanted.topic);
    let found = match usable(&about, name, NEEDED, facts) {
        Ok(found) => found,
        Err(Some(finding)) => return vec![finding],
        Err(None) => {
            let text = format!("cluster {} has no topic '{name}', and a job makes none for its output", facts.cluster);
            return vec![Finding::error(
                &about,
                text,
                format!("kafka-topics.sh --create --topic {name} --partitions … makes it"),
            )];
        }
    };
    let mut said = vec![Finding::note(&about, format!("topic {name}: {}", size(&found.topic)))];
    said.extend(rights(&about, &found.topic, NEEDED));
    said.extend(health(&about, found, true));
    let count = found.topic.partitions.len();
    if let Some(partition) =
        wanted.partition.filter(|partition| usize::try_from(*partition).is_ok_and(|number| number >= count))
    {
        let text = format!("it writes to partition {partition}, and topic '{name}' has {count}, numbered from 0");
        said.push(Finding::error(&about, text, format!("correct partition of [sink.{}]", wanted.name)));
    }
    let taken = found.configs.as_ref().and_then(|configs| configs.number("max.message.bytes"));
    if let Some(taken) = taken.filter(|taken| *taken < facts.message_bytes_max) {
        let ours = facts.message_bytes_max;
        let text = format!(
            "topic '{name}' takes {taken} bytes at once (max.message.bytes), and the sink sends up to {ours}: a larger record \
             would stop the job"
        );
        let help = format!(
            "set \"message.max.bytes\" = \"{taken}\" in properties of [sink.{}], or raise the topic's",
            wanted.name
        );
        said.push(Finding::warning(&about, text, help));
    }
    said
}
