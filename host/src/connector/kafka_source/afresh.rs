//! What is left to do when the records that a job was to go on with are gone.
//!
//! A topic that is created again under the old name is another one: its offsets mean other records. So it isn't enough to put one there.
//!
//! Invariant: what is advised here works: a new name gives the job a new store, a new marker and no claim on old output.

use std::collections::BTreeSet;

use super::position::Partition;
use crate::connector::{ConnectorError, SplitState};
use crate::id::Name;

/// How a job begins again. A new state directory alone won't do: a marker of the old one would still be there, and files.
pub const BEGIN_AFRESH: &str =
    "begin afresh: give the job a new name, and its file sinks new folders, and say with start what it is to read";

/// Of a topic that the job has read, and that isn't there any more.
pub fn deleted_advice(source: &Name, topic: &str) -> String {
    format!(
        "what it held and this job hadn't read is gone, and one that is created again under this name is another topic, in which the job \
         can't go on. If the cluster is the wrong one, correct brokers of [source.{source}]. If '{topic}' isn't wanted any more and there \
         are others, take it out of topics. Else {BEGIN_AFRESH} of the new topic"
    )
}

/// `when`: "while the job was running".
pub fn deleted(source: &Name, brokers: &str, topic: &str, when: &str) -> ConnectorError {
    ConnectorError::Unfit {
        name: source.clone(),
        problem: format!("cannot read topic '{topic}': it isn't there any more; it was deleted at {brokers} {when}"),
        advice: deleted_advice(source, topic),
    }
}

/// The topics of which positions are part of a checkpoint.
pub fn topics_of(splits: &[SplitState]) -> BTreeSet<String> {
    splits.iter().filter_map(|split| Some(split.split.parse::<Partition>().ok()?.topic)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::connector::said;

    #[test]
    fn a_topic_that_was_deleted_is_not_to_be_created_again() {
        let error = deleted(&Name::new("in").expect("a name"), "a:1", "orders", "while the job was running");
        let text = said(&error);
        for part in
            ["topic 'orders'", "deleted at a:1 while the job was running", "another topic", "new name", "[source.in]"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("--create"), "{text}");
        assert!(matches!(error, ConnectorError::Unfit { .. }));
    }

    #[test]
    fn the_topics_of_a_checkpoint_are_those_of_its_splits() {
        let split = |split: &str| SplitState { split: split.to_owned(), position: json!({"next": 1}) };
        let topics = topics_of(&[split("orders/0"), split("orders/7"), split("others/1"), split("input.txt")]);
        assert_eq!(topics, BTreeSet::from(["orders".to_owned(), "others".to_owned()]));
    }
}
