//! What a job file says of a Kafka sink.
//!
//! Invariant: sinks whose options [`agree`](KafkaSinkOptions::differs_from) can share a transaction.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::connector::BadOption;
use crate::connector::kafka::{Cluster, Properties, is_internal_topic, is_topic_name, resolve_properties_file};
use crate::id::Name;

/// `type = "kafka"` of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSinkOptions {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// It has to be there: the host makes no topic for output.
    pub topic: String,
    #[serde(default)]
    pub partition: Partition,
    /// After this time the brokers abort a transaction that isn't committed. Exactly-once only.
    #[serde(default = "default_transaction_timeout", with = "crate::units::duration")]
    pub transaction_timeout: Duration,
    /// The topic of the marker, `lockgate-JOB-marker` if none is named. Exactly-once only.
    #[serde(default)]
    pub marker_topic: Option<String>,
    /// What the producer may hold of records that aren't acknowledged.
    #[serde(default = "default_buffer", with = "crate::units::size")]
    pub buffer: u64,
    #[serde(default)]
    pub properties: Properties,
    #[serde(default)]
    pub properties_file: Option<PathBuf>,
}

/// Which partition of the topic a record goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// By the murmur2 hash of its key, as Java's producer does; a record without a key to any.
    #[default]
    Key,
    /// To one after the other.
    RoundRobin,
    /// All to this one.
    Number(i32),
}

/// The brokers look for transactions to be aborted every 10 s; shorter ones make no sense, and librdkafka takes none.
const TRANSACTION_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Kafka counts it in milliseconds that fit 31 bits.
const TRANSACTION_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 24 * 60 * 60);
/// A queue that doesn't hold a record of the usual largest size would never take it.
const BUFFER_BYTES_MIN: u64 = 4 << 20;
/// librdkafka counts it in KiB that fit 31 bits.
const BUFFER_BYTES_MAX: u64 = 1 << 40;

fn default_transaction_timeout() -> Duration {
    Duration::from_secs(300)
}

fn default_buffer() -> u64 {
    32 << 20
}

impl KafkaSinkOptions {
    pub(in crate::connector) fn validate(&self) -> Result<(), BadOption> {
        self.cluster().validate()?;
        const TOPIC: &str = "a topic is named by 1 to 249 letters, digits, '.', '_' and '-'";
        if !is_topic_name(&self.topic) {
            return Err(BadOption::new("topic", format!("'{}'", self.topic), TOPIC));
        }
        if let Some(marker) = self.marker_topic.as_ref().filter(|marker| !is_topic_name(marker)) {
            return Err(BadOption::new("marker_topic", format!("'{marker}'"), TOPIC));
        }
        for (key, topic) in [("topic", Some(&self.topic)), ("marker_topic", self.marker_topic.as_ref())] {
            if let Some(topic) = topic.filter(|topic| is_internal_topic(topic)) {
                let reason = "it is a topic of the brokers' own, to which nobody else writes: name another one";
                return Err(BadOption::new(key, format!("'{topic}'"), reason));
            }
        }
        if self.marker_topic.as_ref() == Some(&self.topic) {
            let reason = "the marker must not be among the records of the output: name another topic";
            return Err(BadOption::new("marker_topic", format!("'{}'", self.topic), reason));
        }
        if !(TRANSACTION_TIMEOUT_MIN..=TRANSACTION_TIMEOUT_MAX).contains(&self.transaction_timeout) {
            let shown = crate::units::duration::format(self.transaction_timeout);
            return Err(BadOption::new("transaction_timeout", shown, "it is 1s to 24d"));
        }
        if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&self.buffer) {
            return Err(BadOption::new("buffer", crate::units::size::format(self.buffer), "it is 4MiB to 1TiB"));
        }
        match self.partition {
            Partition::Number(number) if number < 0 => {
                Err(BadOption::new("partition", number, "partitions are numbered from 0"))
            }
            Partition::Key | Partition::RoundRobin | Partition::Number(_) => Ok(()),
        }
    }

    pub(in crate::connector) fn resolve(&mut self, base: &Path) {
        resolve_properties_file(&mut self.properties_file, base);
    }

    pub fn cluster(&self) -> Cluster {
        Cluster {
            brokers: self.brokers.clone(),
            properties: self.properties.clone(),
            properties_file: self.properties_file.clone(),
        }
    }

    /// The marker's topic in this job.
    pub fn marker_topic(&self, job: &Name) -> String {
        self.marker_topic.clone().unwrap_or_else(|| format!("lockgate-{job}-marker"))
    }

    /// Its brokers, the same text for the same ones.
    pub fn sorted_brokers(&self) -> String {
        sorted(&self.brokers).join(",")
    }

    /// The largest record that `properties` allow, in bytes, if they say.
    pub fn record_bytes_max(&self) -> Option<u64> {
        let named = self.properties.iter().find(|(name, _)| *name == "message.max.bytes");
        named.and_then(|(_, bytes)| bytes.trim().parse().ok())
    }

    /// The first key by which two sinks of a job can't share a transaction.
    pub fn differs_from(&self, other: &KafkaSinkOptions) -> Option<&'static str> {
        if !same_brokers(&self.brokers, &other.brokers) {
            Some("brokers")
        } else if self.properties != other.properties {
            Some("properties")
        } else if self.properties_file != other.properties_file {
            Some("properties_file")
        } else if self.transaction_timeout != other.transaction_timeout {
            Some("transaction_timeout")
        } else if self.marker_topic != other.marker_topic {
            Some("marker_topic")
        } else {
            None
        }
    }
}

/// Whether two lists name the same brokers.
pub fn same_brokers(a: &str, b: &str) -> bool {
    sorted(a) == sorted(b)
}

fn sorted(brokers: &str) -> Vec<&str> {
    let mut all = brokers.split(',').map(str::trim).collect::<Vec<_>>();
    all.sort_unstable();
    all
}

impl<'de> Deserialize<'de> for Partition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Partition, D::Error> {
        from.deserialize_any(PartitionVisitor)
    }
}

struct PartitionVisitor;

impl Visitor<'_> for PartitionVisitor {
    type Value = Partition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"key\", \"round-robin\" or the number of a partition")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Partition, E> {
        match text {
            "key" => Ok(Partition::Key),
            "round-robin" => Ok(Partition::RoundRobin),
            other => Err(E::unknown_variant(other, &["key", "round-robin"])),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Partition, E> {
        let number = i32::try_from(number);
        number.map(Partition::Number).map_err(|_| E::custom("a partition has a smaller number"))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Partition, E> {
        let number = i32::try_from(number);
        number.map(Partition::Number).map_err(|_| E::custom("a partition has a smaller number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "brokers = 'localhost:9092'\ntopic = 'out'\n";

    fn options(more: &str) -> Result<KafkaSinkOptions, toml::de::Error> {
        toml::from_str(&format!("{LEAST}{more}"))
    }

    #[test]
    fn brokers_and_topic_are_enough() {
        let options = options("").expect("all others have defaults");
        options.validate().expect("valid");
        assert_eq!((options.partition, options.transaction_timeout.as_secs()), (Partition::Key, 300));
        let job = Name::new("copy").expect("a name");
        assert_eq!((options.marker_topic(&job), options.buffer), ("lockgate-copy-marker".to_owned(), 32 << 20));
    }

    #[test]
    fn a_partition_is_a_way_or_a_number() {
        for (text, partition) in
            [("'key'", Partition::Key), ("'round-robin'", Partition::RoundRobin), ("7", Partition::Number(7))]
        {
            assert_eq!(options(&format!("partition = {text}")).expect(text).partition, partition);
        }
        let error = options("partition = 'roundrobin'").expect_err("no way").to_string();
        assert!(error.contains("roundrobin") && error.contains("round-robin"), "{error}");
        options("partition = 99999999999").expect_err("too large a number");
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_key() {
        let long = format!("marker_topic = '{}'", "x".repeat(250));
        for (text, key) in [
            ("partition = -1", "partition"),
            ("transaction_timeout = '999ms'", "transaction_timeout"),
            ("transaction_timeout = '25d'", "transaction_timeout"),
            ("buffer = '1MiB'", "buffer"),
            ("marker_topic = ''", "marker_topic"),
            ("marker_topic = 'a/b'", "marker_topic"),
            ("marker_topic = 'out'", "marker_topic"),
            ("marker_topic = '__transaction_state'", "marker_topic"),
            (long.as_str(), "marker_topic"),
        ] {
            assert_eq!(options(text).expect("parses").validate().expect_err(text).key, key);
        }
        for topic in ["..", "__consumer_offsets"] {
            let error = KafkaSinkOptions { topic: topic.to_owned(), ..options("").expect("valid") }.validate();
            assert_eq!(error.expect_err("a bad topic").key, "topic");
        }
        options("acks = 1").expect_err("an unknown key");
    }

    #[test]
    fn sinks_share_a_transaction_if_they_speak_to_the_same_brokers_in_the_same_way() {
        let first = options("").expect("valid");
        let brokers = |brokers: &str| KafkaSinkOptions { brokers: brokers.to_owned(), ..first.clone() };
        assert_eq!(
            first.differs_from(&KafkaSinkOptions { topic: "other".to_owned(), buffer: 5 << 20, ..first.clone() }),
            None
        );
        assert_eq!(brokers("a:1,b:2").differs_from(&brokers("b:2, a:1")), None);
        assert_eq!(brokers("a:1").differs_from(&brokers("a:1,b:2")), Some("brokers"));
        for (text, key) in [
            ("transaction_timeout = '1m'", "transaction_timeout"),
            ("marker_topic = 'm'", "marker_topic"),
            ("properties = { 'client.id' = 'x' }", "properties"),
            ("properties_file = 'f'", "properties_file"),
        ] {
            assert_eq!(first.differs_from(&options(text).expect("parses")), Some(key));
        }
    }
}
