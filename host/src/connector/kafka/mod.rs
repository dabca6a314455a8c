//! What Kafka's source, sink and tools share: the cluster they speak to, the settings of its clients, its headers, its errors.
//!
//! Invariant: no value of a setting is printed, in an error, a log line or for debugging, unless it is one of ours.

mod cluster;
mod election;
mod failure;
mod greeting;
mod headers;
mod known;
mod listener;
mod properties;
mod reachable;
mod refused;
mod topic_id;
mod topic_ids;
pub mod wire;

#[cfg(test)]
mod tests;

pub use cluster::{Client, Cluster, offline, resolve_properties_file};
pub use election::{ELECTION_MAX, is_election, through_elections};
pub use failure::{Doing, is_silence};
pub use greeting::greet;
pub use headers::{push_rdkafka_headers, rdkafka_headers};
pub use listener::Listener;
pub use properties::Properties;
pub use topic_id::TopicId;
pub use topic_ids::{TopicIdAsker, TopicIds};

/// Whether brokers keep a topic of this name for themselves, and let nobody else write to it.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state" | "__cluster_metadata")
}

/// Whether Kafka allows this as the name of a topic.
pub fn is_topic_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(allowed) && !matches!(name, "." | "..")
}
