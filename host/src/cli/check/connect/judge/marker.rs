//! The topic of the marker, by which an exactly-once job finds out what was decided.
//!
//! Invariant: what would lose the marker, or takes another job's for this one's, is an error.

use super::super::facts::{Facts, MarkerFacts, TopicFacts};
use super::super::finding::Finding;
use super::super::wanted::WantedSink;
use super::topic::{health, rights, size, usable};
use crate::connector::kafka::wire::Operation;

const NEEDED: &[Operation] = &[Operation::Read, Operation::Write, Operation::Describe];

pub(in super::super) fn marker(sink: &WantedSink, name: &str, facts: &Facts) -> Vec<Finding> {
    let about = sink.about();
    let found = match usable(&about, name, NEEDED, facts) {
        Ok(found) => found,
        Err(Some(finding)) => return vec![finding],
        // That it isn't there is told of the checkpoint that needs it.
        Err(None) if facts.is_marker_missed => return Vec::new(),
        Err(None) => return vec![to_be_made(&about, name, facts)],
    };
    let mut said = vec![Finding::note(&about, format!("marker topic {name}: {}", size(&found.topic)))];
    said.extend(rights(&about, &found.topic, NEEDED));
    said.extend(health(&about, found, true));
    said.extend(cleaned(&about, name, found));
    if found.topic.partitions.len() > 1 {
        let text = format!(
            "the marker topic '{name}' has {} partitions; only partition 0 is used",
            found.topic.partitions.len()
        );
        said.push(Finding::warning(&about, text, "a topic of its own with one partition is enough"));
    }
    said.extend(facts.marker.as_ref().and_then(|marker| whose(sink, name, marker)));
    said
}

fn to_be_made(about: &str, name: &str, facts: &Facts) -> Finding {
    match facts.operations {
        Some(told) if !told.allows(Operation::Create) => {
            let text = format!(
                "the marker topic '{name}' isn't there yet, and this user has no right to Create topics on the cluster"
            );
            let help = format!(
                "kafka-topics.sh --create --topic {name} --partitions 1 --config cleanup.policy=compact makes it; or kafka-acls.sh \
                 --add --topic {name} --operation Create --allow-principal User:…"
            );
            // A right to make this one topic isn't told by anybody.
            Finding::warning(about, text, help)
        }
        Some(_) | None => Finding::note(about, format!("marker topic {name}: not there yet; the job makes it")),
    }
}

/// Whether Kafka would clean the marker away.
fn cleaned(about: &str, name: &str, found: &TopicFacts) -> Option<Finding> {
    let policy = found.configs.as_ref()?.text("cleanup.policy")?.trim();
    let text = format!(
        "the marker topic '{name}' has cleanup.policy={policy}: in time Kafka would delete the marker, and the job could not go on"
    );
    let help = format!(
        "kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact; or name another \
         marker_topic"
    );
    (policy != "compact").then(|| Finding::error(about, text, help))
}

fn whose(sink: &WantedSink, name: &str, marker: &MarkerFacts) -> Option<Finding> {
    let about = sink.about();
    let found = marker.job_uid.as_ref()?;
    let refused = |text| {
        let help = format!(
            "if that job is gone for good, give this one another name or marker_topic of [sink.{}]; if the store of this one is lost, \
             restore it from a backup",
            sink.name
        );
        Some(Finding::error(&about, text, help))
    };
    match &marker.own_uid {
        Some(own) if own == found => {
            Some(Finding::note(&about, format!("marker topic {name}: it has the marker of this job")))
        }
        Some(own) => {
            refused(format!("the marker in '{name}' is of another job of this name ({found}), and this one is {own}"))
        }
        None => refused(format!(
            "the marker in '{name}' is of another job of this name ({found}), and this one has never run"
        )),
    }
}
