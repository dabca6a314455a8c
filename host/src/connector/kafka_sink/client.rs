//! The producers of a Kafka sink, as librdkafka is to be configured for each guarantee.
//!
//! Invariant: what producers hold is bounded in bytes and in records, all producers of a sink together; no topic is made by
//! writing to it.

use std::thread;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::ThreadedProducer;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, ClientContext};

use super::delivery::Deliveries;
use crate::connector::ConnectorError;
use crate::connector::kafka::{Client, Cluster, Doing, ELECTION_MAX, through_elections};
use crate::id::Name;

/// A producer whose own thread hears what became of the records.
pub type Producer = ThreadedProducer<Deliveries>;

/// librdkafka has this much for each record that it holds beside the record's bytes, about. Small records count by it.
const RECORD_OVERHEAD_BYTES: u64 = 256;

/// What a producer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Exactly-once.
    Transactions { id: &'a str, timeout: Duration },
    /// At-least-once: each record is written once by one attempt, whatever is sent again.
    Idempotent,
    /// At-most-once: nothing is sent again.
    Once,
}

/// Its configuration. `buffer_bytes`: what it may hold.
///
/// # Errors
/// If the user's settings can't be used.
pub fn config(
    cluster: &Cluster,
    name: &Name,
    purpose: Purpose<'_>,
    buffer_bytes: u64,
) -> Result<ClientConfig, ConnectorError> {
    let (kib, records) = ((buffer_bytes >> 10).to_string(), (buffer_bytes / RECORD_OVERHEAD_BYTES).to_string());
    let mut own = vec![
        ("allow.auto.create.topics", "false"),
        ("partitioner", "murmur2_random"),
        ("queue.buffering.max.kbytes", kib.as_str()),
        ("queue.buffering.max.messages", records.as_str()),
    ];
    let timeout_ms;
    match purpose {
        Purpose::Transactions { id, timeout } => {
            timeout_ms = timeout.as_millis().to_string();
            // Idempotence and acknowledgement by all replicas come with it.
            own.extend([("transactional.id", id), ("transaction.timeout.ms", timeout_ms.as_str())]);
        }
        Purpose::Idempotent => own.push(("enable.idempotence", "true")),
        Purpose::Once => own.extend([("enable.idempotence", "false"), ("message.send.max.retries", "0")]),
    }
    let config = cluster.config(name, Client::Producer, &own)?;
    match config.get("message.max.bytes").and_then(|bytes| bytes.parse::<u64>().ok()) {
        // librdkafka would call a queue full that is empty, and the job would wait for ever.
        Some(record) if record > buffer_bytes => Err(ConnectorError::Refused {
            name: name.clone(),
            problem: format!(
                "a record of \"message.max.bytes\" = {record} doesn't fit into librdkafka's queue, which holds {buffer_bytes} bytes of \
                 buffer (each of two transactions has half of it)"
            ),
            advice: format!(
                "raise buffer of '{name}' to more than twice that, or lower message.max.bytes in its properties"
            ),
        }),
        Some(_) | None => Ok(config),
    }
}

/// Makes a producer. It connects by itself, later.
///
/// # Errors
/// If librdkafka can't take the settings together.
pub fn open(config: &ClientConfig, deliveries: Deliveries, name: &Name) -> Result<Producer, ConnectorError> {
    Producer::from_config_and_context(config, deliveries).map_err(|error| ConnectorError::Refused {
        name: name.clone(),
        problem: format!("cannot make a producer: {error}"),
        advice: format!("correct properties of '{name}' in the job file"),
    })
}

/// For the answer of a broker.
const METADATA_TIMEOUT: Duration = Duration::from_secs(30);

/// For so long a topic that is missing may only be too new for a broker to know, or a broker too new to know it.
const NEWS_TAKES: Duration = Duration::from_secs(2);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How many partitions a topic has; `None` if it isn't there.
///
/// # Errors
/// If nobody says.
pub fn partitions<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    doing: &Doing<'_>,
    topic: &str,
) -> Result<Option<i32>, ConnectorError> {
    let end = Instant::now() + ELECTION_MAX;
    through_elections(doing, end, || look(client, topic, METADATA_TIMEOUT)).map_err(|error| doing.failed(&error))
}

/// As [`partitions`], where a topic that is missing would end the job: it is asked for once more before it is believed.
///
/// # Errors
/// As [`partitions`].
pub fn partitions_for_certain<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    doing: &Doing<'_>,
    topic: &str,
) -> Result<Option<i32>, ConnectorError> {
    let asked = Instant::now();
    loop {
        match partitions(client, doing, topic)? {
            None if asked.elapsed() < NEWS_TAKES => thread::sleep(ASK_AGAIN_AFTER),
            found => return Ok(found),
        }
    }
}

/// As [`partitions`], for those who can't wait so long.
///
/// # Errors
/// As [`partitions`].
pub fn partitions_within<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    doing: &Doing<'_>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<i32>, ConnectorError> {
    look(client, topic, timeout).map_err(|error| doing.failed(&error))
}

fn look<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<i32>, KafkaError> {
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
    let count = i32::try_from(found.partitions().len()).ok().filter(|count| *count > 0);
    match found.error().map(Code::from) {
        // Its partitions may be known before their leaders are.
        None | Some(Code::LeaderNotAvailable) if count.is_some() => Ok(count),
        None | Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(None),
        Some(code) => Err(KafkaError::MetadataFetch(code)),
    }
}
