//! The consumers of a source: how they are configured.
//!
//! Invariant: no consumer joins a group, commits by itself, or moves to another offset than it was told.

use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::BaseConsumer;

use super::KafkaSourceOptions;
use super::memory::Memory;
use crate::connector::ConnectorError;
use crate::connector::kafka::{Client, Listener, offline};
use crate::id::Name;

pub type Consumer = BaseConsumer<Listener>;

/// How often the client says how far it is.
const STATISTICS_MS: &str = "1000";
/// How long a full queue waits before it looks whether there is room again.
const FULL_BACKOFF_MS: &str = "10";

/// Opens a consumer that will read so many partitions. It connects when it is first used.
///
/// # Errors
/// If the settings can't be used.
pub fn open(
    options: &KafkaSourceOptions,
    name: &Name,
    job: &Name,
    partitions: usize,
) -> Result<Arc<Consumer>, ConnectorError> {
    consumer(&config(options, name, &options.group(job), partitions)?, name).map(Arc::new)
}

fn consumer(config: &ClientConfig, name: &Name) -> Result<Consumer, ConnectorError> {
    Consumer::from_config_and_context(config, Listener::new(name)).map_err(|error| ConnectorError::Refused {
        name: name.clone(),
        problem: format!("cannot make a consumer: {error}"),
        advice: format!("correct properties of '{name}' in the job file"),
    })
}

fn config(
    options: &KafkaSourceOptions,
    name: &Name,
    group: &str,
    partitions: usize,
) -> Result<ClientConfig, ConnectorError> {
    let Memory { queue_kib, queue_records, fetch_bytes } = Memory::dealt(options.buffer, partitions);
    let (queue_kib, queue_records, fetch_bytes) =
        (queue_kib.to_string(), queue_records.to_string(), fetch_bytes.to_string());
    let own = [
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("enable.partition.eof", "true"),
        ("isolation.level", options.isolation.as_str()),
        ("check.crcs", "true"),
        ("allow.auto.create.topics", "false"),
        ("queued.max.messages.kbytes", &queue_kib),
        ("queued.min.messages", &queue_records),
        ("fetch.message.max.bytes", &fetch_bytes),
        ("fetch.queue.backoff.ms", FULL_BACKOFF_MS),
        ("statistics.interval.ms", STATISTICS_MS),
    ];
    options.cluster().config(name, Client::Consumer, &own)
}

/// Finds out whether a source's settings can be used, without the network.
///
/// # Errors
/// If they can't, or their file can't be read.
pub fn preview(options: &KafkaSourceOptions, name: &Name) -> Result<(), ConnectorError> {
    consumer(&offline(config(options, name, "preview", 1)?), name).map(drop)
}
