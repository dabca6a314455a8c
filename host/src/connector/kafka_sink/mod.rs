//! The Kafka sink, in the mode that the job's guarantee asks for.
//!
//! *Exactly-once*: all Kafka sinks of the job share two transactional producers, `JOB/0/A` and `JOB/0/B`, which take epochs in turn;
//! the commit of a transaction, with a marker in it, is the decision over its checkpoint. *At-least-once*: an idempotent
//! producer, and an epoch isn't prepared before all of its records are acknowledged. *At-most-once*: the same without sending
//! anything again; what isn't delivered is counted and logged.
//!
//! Once a process has died, whoever takes over the transactional ids has the brokers abort what wasn't committed: nothing of a
//! transaction is ever taken up again, so that it doesn't matter how long nobody does.
//!
//! Invariant: with exactly-once, readers that read committed see an epoch's records of all sinks and its marker at once, or nothing
//! of it.

mod backlog;
#[cfg(test)]
mod broker_tests;
mod client;
mod decider;
mod delivery;
mod failure;
mod hanging;
mod line;
mod lookout;
mod marker;
mod marker_reader;
mod marker_topic;
#[cfg(test)]
mod mock_tests;
mod offsets;
mod options;
mod pair;
mod same_topics;
mod sent_turns;
mod vigil;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use self::backlog::Destination;
use self::client::{Producer, Purpose, partitions_for_certain};
use self::decider::{DeciderParts, KafkaDecider};
use self::delivery::{Deliveries, Ledgers};
use self::line::{Direct, Line};
use self::marker_reader::MarkerReader;
use self::pair::{Pair, PairOptions};
use self::same_topics::SameTopics;
use self::writer::KafkaSinkWriter;
use super::kafka::{Cluster, Doing, Listener, greet, offline};
use super::{ConnectorContext, ConnectorError, Decider, SinkCommitter, SinkWriter};
use crate::id::{Epoch, Name};
use crate::protocol::decision::{DecisionPlace, Marker};
use crate::protocol::transactions::Transaction;
use crate::protocol::{CommitPermit, Guarantee};

pub use offsets::SourceGroup;
pub use options::{KafkaSinkOptions, Partition, same_brokers};

/// For the cluster to say which it is.
const CLUSTER_ID_TIMEOUT: Duration = Duration::from_secs(30);

/// The Kafka sinks of one attempt.
pub struct KafkaSinks {
    sinks: BTreeMap<Name, OpenSink>,
    decider: Option<Arc<dyn Decider>>,
}

struct OpenSink {
    line: Arc<Line>,
    /// Its first subtask among all that share the line.
    first: usize,
    destination: Destination,
}

/// A sink that is to be opened.
pub type ToOpen<'a> = BTreeMap<&'a Name, (&'a KafkaSinkOptions, &'a ConnectorContext)>;

impl KafkaSinks {
    /// Opens them all. With exactly-once nothing can be written before the decider has taken over. `sources`: those whose
    /// positions are to be committed with the output, if they are of the same cluster.
    ///
    /// # Errors
    /// If options can't be used, alone or together, or a topic isn't there.
    pub fn open(
        sinks: &ToOpen<'_>,
        sources: BTreeMap<Name, SourceGroup>,
        guarantee: Guarantee,
    ) -> Result<KafkaSinks, ConnectorError> {
        for (options, ctx) in sinks.values() {
            options.validate().map_err(|bad| bad.refused(ctx))?;
        }
        match guarantee {
            Guarantee::ExactlyOnce => together(sinks, sources),
            Guarantee::AtLeastOnce => direct(sinks, Purpose::Idempotent),
            Guarantee::AtMostOnce => direct(sinks, Purpose::Once),
        }
    }

    pub fn decider(&self) -> Option<&Arc<dyn Decider>> {
        self.decider.as_ref()
    }

    /// One subtask of a sink.
    ///
    /// # Panics
    /// If there is no such sink.
    pub fn writer(&self, name: &Name, subtask: u32) -> Box<dyn SinkWriter> {
        let OpenSink { line, first, destination } = &self.sinks[name];
        // Subtasks don't all begin with the same partition.
        let next = i32::try_from(subtask).map_or(0, |subtask| subtask % destination.partitions);
        let destination = Destination { next, ..destination.clone() };
        Box::new(KafkaSinkWriter::new(name, first + subtask as usize, line, destination))
    }

    /// Whatever a Kafka sink commits is committed by the decider.
    ///
    /// # Panics
    /// If there is no such sink.
    pub fn committer(&self, name: &Name) -> Arc<dyn SinkCommitter> {
        Arc::new(NothingToCommit { line: Arc::clone(&self.sinks[name].line) })
    }
}

/// All sinks in the transactions of one pair of producers.
fn together(sinks: &ToOpen<'_>, sources: BTreeMap<Name, SourceGroup>) -> Result<KafkaSinks, ConnectorError> {
    let Some((name, (options, ctx))) = sinks.first_key_value() else {
        return Ok(KafkaSinks { sinks: BTreeMap::new(), decider: None });
    };
    for (other, (their, ctx)) in sinks {
        if let Some(key) = options.differs_from(their) {
            return Err(ConnectorError::Refused {
                name: (*other).clone(),
                problem: format!("its {key} isn't that of Kafka sink '{name}', and the two share a transaction"),
                advice: format!(
                    "give both the same {key}, or make two jobs of '{}', or set guarantee = \"at-least-once\" in [job]",
                    ctx.job
                ),
            });
        }
    }
    let subtasks = sinks.values().map(|(_, ctx)| ctx.parallelism as usize).sum::<usize>();
    let buffer_bytes = sinks.values().map(|(options, _)| options.buffer).sum();
    let cluster = options.cluster();
    let marker_topic = options.marker_topic(&ctx.job);
    let topics = sinks.values().map(|(options, _)| options.topic.clone()).chain([marker_topic.clone()]).collect();
    let timeout = options.transaction_timeout;
    let pair_options = PairOptions { job: &ctx.job, name, cluster: &cluster, topics, timeout, buffer_bytes, subtasks };
    // The marker counts as one subtask more.
    let ledgers = Arc::new(Ledgers::new(subtasks + 1, false));
    let pair = Arc::new(Pair::open(&pair_options, &ledgers)?);
    let line = Arc::new(Line::Transactions(Arc::clone(&pair)));
    let mut opened = BTreeMap::new();
    let mut first = 0;
    for (name, (options, ctx)) in sinks {
        let destination = destination(pair.producer(Transaction::A), name, options)?;
        opened.insert((*name).clone(), OpenSink { line: Arc::clone(&line), first, destination });
        first += ctx.parallelism as usize;
    }
    let cluster_id = cluster_id(pair.producer(Transaction::A), name, options)?;
    let sources = sources.into_iter().filter(|(_, source)| same_brokers(&source.brokers, &options.brokers));
    let by_topic = sinks.iter().map(|(name, (options, _))| (options.topic.clone(), (*name).clone())).collect();
    let decider = KafkaDecider::open(DeciderParts {
        ctx,
        cluster: &cluster,
        cluster_id,
        topic: &marker_topic,
        pair: &pair,
        subtask: subtasks,
        sources: sources.collect(),
        same_topics: SameTopics::note(&cluster, name, by_topic)?,
    })?;
    Ok(KafkaSinks { sinks: opened, decider: Some(Arc::new(decider)) })
}

/// Each sink with a producer of its own.
fn direct(sinks: &ToOpen<'_>, purpose: Purpose<'_>) -> Result<KafkaSinks, ConnectorError> {
    let mut opened = BTreeMap::new();
    for (name, (options, ctx)) in sinks {
        let config = client::config(&options.cluster(), name, purpose, options.buffer)?;
        let ledgers = Arc::new(Ledgers::new(ctx.parallelism as usize, purpose == Purpose::Once));
        let deliveries = Deliveries { ledgers: Arc::clone(&ledgers), listener: Listener::new(name) };
        let producer = client::open(&config, deliveries, name)?;
        let destination = destination(&producer, name, options)?;
        let by_topic = || BTreeMap::from([(options.topic.clone(), (*name).clone())]);
        let note = || SameTopics::note(&options.cluster(), name, by_topic());
        let same_topics = (purpose != Purpose::Once).then(note).transpose()?;
        let (name, brokers) = ((*name).clone(), options.brokers.clone());
        let line =
            Arc::new(Line::Direct(Box::new(Direct { name: name.clone(), brokers, producer, ledgers, same_topics })));
        opened.insert(name, OpenSink { line, first: 0, destination });
    }
    Ok(KafkaSinks { sinks: opened, decider: None })
}

/// Looks up the topic.
fn destination(producer: &Producer, name: &Name, options: &KafkaSinkOptions) -> Result<Destination, ConnectorError> {
    let what = format!("topic '{}'", options.topic);
    let listener = Some(&producer.context().listener);
    let doing = Doing { name, brokers: &options.brokers, action: "write to", what: &what, listener };
    greet(producer.client(), &options.cluster(), &doing)?;
    let found = partitions_for_certain(producer.client(), &doing, &options.topic);
    let Some(partitions) = found.map_err(|error| doing.at_first(error))? else {
        return Err(doing.unfit(
            format!("there is no such topic at {}", options.brokers),
            format!(
                "create it (kafka-topics.sh --create --topic {}), or correct topic of [sink.{name}]",
                options.topic
            ),
        ));
    };
    match options.partition {
        Partition::Number(number) if number >= partitions => Err(doing.unfit(
            format!("it has {partitions} partitions, which are numbered from 0, and partition = {number}"),
            format!("correct partition of [sink.{name}], or give the topic more partitions"),
        )),
        partition => Ok(Destination { topic: options.topic.clone(), partition, partitions, next: 0 }),
    }
}

/// Finds out whether a sink's settings can be used, without the network.
///
/// # Errors
/// If they can't, or their file can't be read.
pub fn preview(
    options: &KafkaSinkOptions,
    job: &Name,
    name: &Name,
    guarantee: Guarantee,
) -> Result<(), ConnectorError> {
    let purpose = match guarantee {
        Guarantee::ExactlyOnce => {
            MarkerReader::preview(&options.cluster(), name, job)?;
            Purpose::Transactions { id: "preview", timeout: options.transaction_timeout }
        }
        Guarantee::AtLeastOnce => Purpose::Idempotent,
        Guarantee::AtMostOnce => Purpose::Once,
    };
    let config = offline(client::config(&options.cluster(), name, purpose, options.buffer)?);
    let deliveries = Deliveries { ledgers: Arc::new(Ledgers::new(1, false)), listener: Listener::new(name) };
    client::open(&config, deliveries, name).map(drop)
}

/// Finds out whether the topic of a sink is there, without opening the sink.
///
/// # Errors
/// What the sink would say.
pub fn check_topic(options: &KafkaSinkOptions, name: &Name) -> Result<(), ConnectorError> {
    let config = client::config(&options.cluster(), name, Purpose::Idempotent, options.buffer)?;
    let deliveries = Deliveries { ledgers: Arc::new(Ledgers::new(1, false)), listener: Listener::new(name) };
    destination(&client::open(&config, deliveries, name)?, name, options).map(drop)
}

fn cluster_id(producer: &Producer, name: &Name, options: &KafkaSinkOptions) -> Result<String, ConnectorError> {
    let listener = Some(&producer.context().listener);
    let doing = Doing { name, brokers: &options.brokers, action: "look up", what: "the id of the cluster", listener };
    // Brokers that are too old to have one don't have transactions as they are needed either.
    let id = producer.client().fetch_cluster_id(CLUSTER_ID_TIMEOUT);
    id.ok_or_else(|| doing.failed_with(Code::OperationTimedOut, None))
}

/// The marker of the job that can be read at the moment, without shutting anybody out. For tools.
///
/// # Errors
/// If the topic can't be read, or has something else under the marker's key.
pub fn peek_marker(cluster: &Cluster, name: &Name, job: &Name, topic: &str) -> Result<Option<Marker>, ConnectorError> {
    MarkerReader::open(cluster, name, job, topic)?.peek()
}

/// Where the marker of a job is.
pub fn marker_place(job: &Name, cluster_id: &str, topic: &str) -> DecisionPlace {
    DecisionPlace {
        kind: "kafka".to_owned(),
        cluster: cluster_id.to_owned(),
        topic: topic.to_owned(),
        key: marker::key(job),
    }
}

/// There is nothing that is left to be committed when an epoch is decided.
struct NothingToCommit {
    line: Arc<Line>,
}

impl SinkCommitter for NothingToCommit {
    fn committed(&self) -> Option<Epoch> {
        None
    }

    fn commit(&self, _permit: &CommitPermit, _committables: &[Vec<u8>]) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn discard_leftovers(&self) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn give_up(&self) {
        self.line.ledgers().close();
    }
}
