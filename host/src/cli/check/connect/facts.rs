//! What was read of a cluster.
//!
//! Invariant: it says nothing of what the job wants.

use std::collections::BTreeMap;

use crate::connector::kafka::wire::{Configs, Group, Operations, ResponseError, Topic};

pub(super) struct Facts {
    pub cluster: String,
    /// What this user may do to the cluster; `None`: not told.
    pub operations: Option<Operations>,
    /// By number: the settings of a broker, or why they aren't known.
    pub brokers: BTreeMap<i32, Result<Configs, Unread>>,
    /// By name; those that aren't there are here too, with their error.
    pub topics: BTreeMap<String, TopicFacts>,
    /// The names that match each pattern.
    pub matching: BTreeMap<String, Vec<String>>,
    /// By name.
    pub groups: BTreeMap<String, Result<Group, ResponseError>>,
    /// By transactional id: whether this user may see it.
    pub ids: BTreeMap<String, Result<(), ResponseError>>,
    /// What the client that the job would make takes at most in one request.
    pub message_bytes_max: i64,
    /// The marker, if its topic is there.
    pub marker: Option<MarkerFacts>,
    /// The job's checkpoints need a marker that isn't there.
    pub is_marker_missed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct TopicFacts {
    pub topic: Topic,
    /// `None`: not there, or this user may not know them.
    pub configs: Option<Configs>,
}

/// Why the settings of a broker aren't known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It answers, and this user may not know them.
    Denied,
    /// Words and advice.
    Unreachable(String, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkerFacts {
    /// The job that has written it; `None`: there is none.
    pub job_uid: Option<String>,
    /// The job that the checkpoint store belongs to; `None`: nobody's yet.
    pub own_uid: Option<String>,
}
