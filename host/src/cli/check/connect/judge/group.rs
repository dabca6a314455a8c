//! The group in which a source records how far it has read.
//!
//! Invariant: nothing of it decides where a job goes on; its checkpoint does.

use std::time::Duration;

use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::wanted::WantedSource;
use crate::connector::kafka::wire::Operation;
use crate::units::duration;

/// How many members are named.
const NAMED_MAX: usize = 5;

pub(super) fn group(wanted: &WantedSource, facts: &Facts) -> Vec<Finding> {
    let (about, group) = (wanted.about(), &wanted.group);
    let acl =
        format!("kafka-acls.sh --add --group {group} --operation Read --operation Describe --allow-principal User:…");
    let mut said = Vec::new();
    match facts.groups.get(group) {
        None => {}
        Some(Err(error)) => {
            let text = format!("this user can't use the group '{group}': {error}");
            said.push(Finding::error(&about, text, acl));
        }
        Some(Ok(found)) => {
            if found.operations.is_some_and(|told| !told.allows(Operation::Read)) {
                let text = format!("this user has no right to Read the group '{group}', so it can't commit offsets");
                said.push(Finding::error(&about, text, acl));
            }
            if !found.members.is_empty() {
                let mut names = found.members.clone();
                names.sort();
                names.dedup();
                names.truncate(NAMED_MAX);
                let count = found.members.len();
                let members = if count == 1 { "a member".to_owned() } else { format!("{count} members") };
                let text = format!(
                    "the group '{group}' has {members} ({}), which commit other offsets to it",
                    names.join(", ")
                );
                said.push(Finding::error(
                    &about,
                    text,
                    format!("give this source a group of its own: group of [source.{}]", wanted.name),
                ));
            }
        }
    }
    let retention =
        facts.brokers.values().flatten().filter_map(|configs| configs.number("offsets.retention.minutes")).min();
    if let Some(minutes) = retention.and_then(|minutes| u64::try_from(minutes).ok()) {
        let kept = duration::format(Duration::from_secs(minutes.saturating_mul(60)));
        let text = format!(
            "group {group}: Kafka keeps its offsets for {kept} without a commit; the job goes on from its checkpoint"
        );
        said.push(Finding::note(&about, text));
    }
    said
}
