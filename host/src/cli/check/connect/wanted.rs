//! What a job wants of Kafka.
//!
//! Invariant: it says nothing of what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::JobFile;
use crate::connector::kafka::Cluster;
use crate::connector::{Partition, SinkOptions, SourceOptions, Start};
use crate::id::Name;
use crate::protocol::Guarantee;

pub(super) struct Wanted {
    pub sources: Vec<WantedSource>,
    pub sinks: Vec<WantedSink>,
}

pub(super) struct WantedSource {
    pub name: Name,
    pub cluster: Cluster,
    pub topics: WantedTopics,
    pub group: String,
    /// Topics of which it has read something, by its newest checkpoint.
    pub read_before: BTreeSet<String>,
    /// The partitions of each topic that `start` gives an offset for.
    pub starts: BTreeMap<String, Vec<i32>>,
}

pub(super) enum WantedTopics {
    Named(Vec<String>),
    Pattern {
        /// A regular expression of whole names.
        pattern: String,
        /// Whether it takes a topic.
        takes: Box<dyn Fn(&str) -> bool>,
    },
}

pub(super) struct WantedSink {
    pub name: Name,
    pub cluster: Cluster,
    pub topic: String,
    /// `None`: any of the topic.
    pub partition: Option<i32>,
    /// `None`: not exactly-once.
    pub transaction: Option<WantedTransaction>,
}

pub(super) struct WantedTransaction {
    pub timeout: Duration,
    pub marker_topic: String,
    /// The transactional ids.
    pub ids: Vec<String>,
}

impl WantedSource {
    pub fn about(&self) -> String {
        format!("source {}", self.name)
    }
}

impl WantedSink {
    pub fn about(&self) -> String {
        format!("sink {}", self.name)
    }
}

impl Wanted {
    pub fn of(file: &JobFile) -> Wanted {
        let sources = file.sources.iter().filter_map(|(name, source)| match &source.options {
            SourceOptions::Kafka(options) => Some(WantedSource {
                name: name.clone(),
                cluster: options.cluster(),
                topics: match &options.topic_pattern {
                    Some(pattern) => {
                        let options = options.clone();
                        WantedTopics::Pattern {
                            pattern: pattern.clone(),
                            takes: Box::new(move |topic| options.takes(topic)),
                        }
                    }
                    None => WantedTopics::Named(options.topics.clone()),
                },
                group: options.group(&file.job),
                read_before: BTreeSet::new(),
                starts: match &options.start {
                    Start::Offsets(offsets) => {
                        offsets.iter().map(|(topic, of)| (topic.clone(), of.keys().copied().collect())).collect()
                    }
                    Start::Earliest | Start::Latest | Start::Committed | Start::Timestamp { .. } => BTreeMap::new(),
                },
            }),
            SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => None,
        });
        let sinks = file.sinks.iter().filter_map(|(name, sink)| match &sink.options {
            SinkOptions::Kafka(options) => Some(WantedSink {
                name: name.clone(),
                cluster: options.cluster(),
                topic: options.topic.clone(),
                partition: match options.partition {
                    Partition::Number(number) => Some(number),
                    Partition::Key | Partition::RoundRobin => None,
                },
                transaction: match file.guarantee {
                    Guarantee::ExactlyOnce => Some(WantedTransaction {
                        timeout: options.transaction_timeout,
                        marker_topic: options.marker_topic(&file.job),
                        ids: ["A", "B"].map(|id| format!("{}/0/{id}", file.job)).into(),
                    }),
                    Guarantee::AtLeastOnce | Guarantee::AtMostOnce => None,
                },
            }),
            SinkOptions::File(_) | SinkOptions::Null(_) => None,
        });
        Wanted { sources: sources.collect(), sinks: sinks.collect() }
    }

    /// The clusters by their settings, each once, with the name of the first source or sink that has them.
    pub fn clusters(&self) -> Vec<(&Name, &Cluster)> {
        let sinks = self.sinks.iter().map(|sink| (&sink.name, &sink.cluster));
        let all = sinks.chain(self.sources.iter().map(|source| (&source.name, &source.cluster)));
        let mut clusters: Vec<(&Name, &Cluster)> = Vec::new();
        for (name, cluster) in all {
            if !clusters.iter().any(|(_, known)| *known == cluster) {
                clusters.push((name, cluster));
            }
        }
        clusters
    }
}
