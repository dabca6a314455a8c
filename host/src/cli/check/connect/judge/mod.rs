//! From what a job wants and what was read of the clusters to what is to be said.
//!
//! Invariant: pure: it asks nobody.

mod group;
mod marker;
mod sink;
mod source;
mod topic;
mod transaction;

use super::facts::{Facts, Unread};
use super::finding::Finding;
use super::wanted::{WantedSink, WantedSource};

/// The brokers themselves.
pub(super) fn brokers(facts: &Facts) -> Vec<Finding> {
    let about = format!("cluster {}", facts.cluster);
    let found = facts.brokers.iter().filter_map(|(node, read)| match read {
        Ok(_) => None,
        Err(Unread::Denied) => Some(Finding::warning(
            &about,
            format!("this user may not read the settings of broker {node}, so its limits aren't compared"),
            "give it DescribeConfigs on the cluster, for this check only",
        )),
        Err(Unread::Unreachable(problem, advice)) => Some(Finding::error(
            &about,
            format!("broker {node} belongs to it and can't be asked: {problem}"),
            advice.clone(),
        )),
    });
    found.collect()
}

pub(super) fn source(wanted: &WantedSource, facts: &Facts) -> Vec<Finding> {
    let mut found = source::topics(wanted, facts);
    found.extend(group::group(wanted, facts));
    found
}

pub(super) fn sink(wanted: &WantedSink, facts: &Facts) -> Vec<Finding> {
    sink::topic(wanted, facts)
}

pub(super) use marker::marker;
pub(super) use transaction::transaction;

/// `sinks`: those that share a transaction, each with the id of its cluster.
pub(super) fn one_cluster(sinks: &[(&WantedSink, &str)]) -> Option<Finding> {
    let (first, cluster) = sinks.first()?;
    let (other, elsewhere) = sinks.iter().find(|(_, found)| found != cluster)?;
    Some(Finding::error(
        &other.about(),
        format!(
            "it writes to cluster {elsewhere}, and sink {} to cluster {cluster}: a transaction can't span both",
            first.name
        ),
        "let all Kafka sinks of an exactly-once job write to one cluster, or split the job",
    ))
}
