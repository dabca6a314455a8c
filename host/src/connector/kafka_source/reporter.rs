//! Commits the offsets of a source to its consumer group after a checkpoint, so that others can see how far it is.
//!
//! Nothing reads them back but `start = "committed"` of a job that begins. Kafka is told in the background: what it answers is
//! known when the next offsets come.
//!
//! Invariant: few commits are on their way at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};

use super::KafkaSourceOptions;
use super::position::{Partition, next_offsets};
use crate::connector::kafka::{Client, Doing, Listener};
use crate::connector::{ConnectorContext, ConnectorError, ProgressReporter, SplitState};
use crate::id::Name;

/// Events of the client that are taken at once.
const EVENTS_MAX: usize = 64;
/// So many commits may be on their way: more only pile up while Kafka doesn't answer, and the next one makes up for them.
const UNDER_WAY_MAX: usize = 16;
/// How long the last commit is waited for when the job ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

pub struct KafkaReporter {
    name: Name,
    brokers: String,
    group: String,
    /// Taken when it is closed.
    consumer: Option<BaseConsumer<Outcome>>,
}

impl KafkaReporter {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// If the settings can't be used.
    pub fn open(options: &KafkaSourceOptions, ctx: &ConnectorContext) -> Result<KafkaReporter, ConnectorError> {
        let (name, group) = (&ctx.name, options.group(&ctx.job));
        let own =
            [("group.id", group.as_str()), ("enable.auto.commit", "false"), ("enable.auto.offset.store", "false")];
        let config = options.cluster().config(name, Client::Consumer, &own)?;
        let context =
            Outcome { listener: Listener::new(name), under_way: AtomicUsize::new(0), failed: Mutex::new(None) };
        let consumer = BaseConsumer::from_config_and_context(&config, context);
        let brokers = options.brokers.clone();
        let doing = Doing { name, brokers: &brokers, action: "open a client for", what: &brokers, listener: None };
        let consumer = consumer.map_err(|error| doing.failed(&error))?;
        Ok(KafkaReporter { name: name.clone(), brokers, group, consumer: Some(consumer) })
    }

    fn commit(&self, consumer: &BaseConsumer<Outcome>, splits: &[SplitState]) -> Result<(), KafkaError> {
        // Those of another source, after the job file has changed, are none of its business.
        let offsets = next_offsets(splits).unwrap_or_default();
        if offsets.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (Partition { topic, index }, offset) in offsets {
            list.add_partition_offset(&topic, index, Offset::Offset(offset))?;
        }
        consumer.commit(&list, CommitMode::Async)?;
        consumer.context().under_way.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl ProgressReporter for KafkaReporter {
    fn committed(&self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        let consumer = self.consumer.as_ref().expect("it isn't closed while it is asked");
        for _ in 0..EVENTS_MAX {
            if consumer.poll(Duration::ZERO).is_none() {
                break;
            }
        }
        let outcome = consumer.context();
        let last = outcome.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let has_many = outcome.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX;
        let sent = if has_many { Ok(()) } else { self.commit(consumer, splits) };
        let what = format!("group '{}'", self.group);
        let (name, listener) = (&self.name, Some(&outcome.listener));
        let doing = Doing { name, brokers: &self.brokers, action: "commit the offsets of", what: &what, listener };
        last.map_or(sent, Err).map_err(|error| doing.failed(&error))
    }
}

impl Drop for KafkaReporter {
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        let (closed, wait) = channel::<()>();
        // It waits for the commit that is under way, for longer than anybody else would if Kafka can't be reached.
        let close = move || {
            drop(consumer);
            drop(closed);
        };
        if thread::Builder::new().name(format!("{}-close", self.name)).spawn(close).is_ok() {
            let _ = wait.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

/// What has become of the last commit.
struct Outcome {
    listener: Listener,
    /// Answers come while the consumer is polled, by the one thread that commits.
    under_way: AtomicUsize,
    failed: Mutex<Option<KafkaError>>,
}

impl ClientContext for Outcome {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.listener.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.listener.error(error, reason);
    }
}

impl ConsumerContext for Outcome {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    }
}
