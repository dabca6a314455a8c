//! `type = "kafka"` of a source.
//!
//! Invariant: options that were validated name topics in one way, and a buffer that clients can be made with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::selection::Selection;
use super::start::Start;
use crate::connector::BadOption;
use crate::connector::kafka::{Cluster, Properties, is_topic_name, resolve_properties_file};
use crate::id::Name;
use crate::units;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSourceOptions {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// By name; or by `topic_pattern`.
    #[serde(default)]
    pub topics: Vec<String>,
    /// A regular expression for the whole name of a topic.
    #[serde(default)]
    pub topic_pattern: Option<String>,
    /// Where a source begins that no checkpoint knows.
    #[serde(default)]
    pub start: Start,
    #[serde(default)]
    pub mode: KafkaMode,
    /// The consumer group to which offsets are committed, for others to see. `None`: `lockgate-` and the job's name.
    #[serde(default)]
    pub group: Option<String>,
    /// How often partitions and topics are looked for that are new (continuous).
    #[serde(default = "default_discover_interval", with = "units::duration")]
    pub discover_interval: Duration,
    #[serde(default)]
    pub isolation: Isolation,
    /// Memory for records that were fetched and not taken yet, of one subtask.
    #[serde(default = "default_buffer", with = "units::size")]
    pub buffer: u64,
    #[serde(default)]
    pub properties: Properties,
    #[serde(default)]
    pub properties_file: Option<PathBuf>,
}

/// When the source ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KafkaMode {
    /// At the offsets that the topics had when the job first started.
    Bounded,
    /// Never.
    #[default]
    Continuous,
}

/// Which records of transactions are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Those of committed ones.
    #[default]
    ReadCommitted,
    /// All, also of those that are open or were aborted.
    ReadUncommitted,
}

impl Isolation {
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read_committed",
            Isolation::ReadUncommitted => "read_uncommitted",
        }
    }
}

fn default_discover_interval() -> Duration {
    Duration::from_secs(30)
}

fn default_buffer() -> u64 {
    32 << 20
}

const BUFFER_MIN: u64 = 1 << 20;
const BUFFER_MAX: u64 = 2 << 30;
const DISCOVER_INTERVAL_MIN: Duration = Duration::from_millis(100);

impl KafkaSourceOptions {
    pub(in crate::connector) fn validate(&self) -> Result<(), BadOption> {
        self.cluster().validate()?;
        self.validate_topics()?;
        self.start.validate(&self.topics)?;
        if self.group.as_deref().is_some_and(|group| group.is_empty() || group.contains('\0')) {
            return Err(BadOption::new("group", "''", "name a consumer group, or leave the key out"));
        }
        if self.discover_interval < DISCOVER_INTERVAL_MIN {
            let value = units::duration::format(self.discover_interval);
            return Err(BadOption::new("discover_interval", value, "it must be 100ms or more"));
        }
        if !(BUFFER_MIN..=BUFFER_MAX).contains(&self.buffer) {
            let value = units::size::format(self.buffer);
            return Err(BadOption::new("buffer", value, "it must be 1MiB to 2GiB"));
        }
        Ok(())
    }

    fn validate_topics(&self) -> Result<(), BadOption> {
        match (&self.topics[..], &self.topic_pattern) {
            ([], None) => Err(BadOption::new("topics", "[]", "name a topic, or give a topic_pattern")),
            ([_, ..], Some(pattern)) => {
                let reason = "topics names the topics already: take one of the two";
                Err(BadOption::new("topic_pattern", format!("'{pattern}'"), reason))
            }
            ([], Some(pattern)) => Selection::pattern(pattern)
                .map(|_| ())
                .map_err(|reason| BadOption::new("topic_pattern", format!("'{pattern}'"), reason)),
            (topics, None) => {
                if let Some(topic) = topics.iter().find(|topic| !is_topic_name(topic)) {
                    let reason = "a topic's name is 1 to 249 letters, digits, '.', '_' or '-'";
                    return Err(BadOption::new("topics", format!("'{topic}'"), reason));
                }
                let twice = topics.iter().enumerate().find(|(index, topic)| topics[..*index].contains(topic));
                let twice = twice.map(|(_, topic)| BadOption::new("topics", format!("'{topic}'"), "it is there twice"));
                twice.map_or(Ok(()), Err)
            }
        }
    }

    /// Makes the path of a file of properties usable from anywhere.
    pub(in crate::connector) fn resolve(&mut self, base: &Path) {
        resolve_properties_file(&mut self.properties_file, base);
    }

    pub fn is_bounded(&self) -> bool {
        match self.mode {
            KafkaMode::Bounded => true,
            KafkaMode::Continuous => false,
        }
    }

    pub fn cluster(&self) -> Cluster {
        Cluster {
            brokers: self.brokers.clone(),
            properties: self.properties.clone(),
            properties_file: self.properties_file.clone(),
        }
    }

    /// The consumer group of the source in this job.
    pub fn group(&self, job: &Name) -> String {
        self.group.clone().unwrap_or_else(|| format!("lockgate-{job}"))
    }

    /// Whether it reads a topic of this name.
    ///
    /// # Panics
    /// If the options weren't validated.
    pub fn takes(&self, topic: &str) -> bool {
        self.selection().has(topic)
    }

    /// # Panics
    /// If the options weren't validated.
    pub(super) fn selection(&self) -> Selection {
        match &self.topic_pattern {
            Some(pattern) => Selection::pattern(pattern).expect("a pattern that was validated"),
            None => Selection::Names(self.topics.clone()),
        }
    }
}
