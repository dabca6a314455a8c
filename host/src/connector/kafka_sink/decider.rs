//! The decision: the commit of the transaction that holds an epoch's output, its marker, and the offsets of its sources.
//!
//! Invariant: nobody is shut out by a job that a marker, as far as one can be seen, doesn't belong to. A marker is written only in the transaction of the
//! epoch that it names, or in one without output. An epoch is decided when its marker was read back, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::delivery::{LedgerId, Undelivered, ledger_in};
use super::failure;
use super::marker;
use super::marker_reader::MarkerReader;
use super::marker_topic::{self, PARTITION};
use super::offsets::{self, Group, SEND_TIMEOUT, SourceGroup};
use super::pair::Pair;
use super::same_topics::SameTopics;
use super::vigil::{self, Vigil};
use crate::connector::kafka::{Cluster, Doing};
use crate::connector::kafka_source::NoPosition;
use crate::connector::{ConnectorContext, ConnectorError, Decider, SplitState};
use crate::crash;
use crate::id::{Epoch, Name};
use crate::protocol::CommitPermit;
use crate::protocol::decision::{DecisionPlace, Digest, Marker};
use crate::protocol::transactions::Transaction;

/// For the brokers to take the marker.
const MARKER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is looked whether the transaction has become too old meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// Decides for all Kafka sinks of a process.
pub struct KafkaDecider {
    /// One of the sinks, which is named in errors.
    ctx: ConnectorContext,
    cluster: Cluster,
    place: DecisionPlace,
    pair: Arc<Pair>,
    reader: MarkerReader,
    sources: BTreeMap<Name, SourceGroup>,
    groups: BTreeMap<String, Group>,
    /// The place behind all subtasks, which the marker has among the ledgers.
    subtask: usize,
    same_topics: SameTopics,
}

/// What it is made from.
pub struct DeciderParts<'a> {
    pub ctx: &'a ConnectorContext,
    pub cluster: &'a Cluster,
    /// The cluster's own.
    pub cluster_id: String,
    /// Of markers.
    pub topic: &'a str,
    pub pair: &'a Arc<Pair>,
    /// One behind all those of the sinks.
    pub subtask: usize,
    /// Those of the same cluster.
    pub sources: BTreeMap<Name, SourceGroup>,
    /// What the sinks write to.
    pub same_topics: SameTopics,
}

impl KafkaDecider {
    /// # Errors
    /// If the settings can't be used.
    pub fn open(parts: DeciderParts<'_>) -> Result<KafkaDecider, ConnectorError> {
        let DeciderParts { ctx, cluster, cluster_id, topic, pair, subtask, sources, same_topics } = parts;
        let mut groups = BTreeMap::new();
        for SourceGroup { group, .. } in sources.values() {
            if !groups.contains_key(group) {
                groups.insert(group.clone(), Group::open(cluster, &ctx.name, group)?);
            }
        }
        let place = super::marker_place(&ctx.job, &cluster_id, topic);
        Ok(KafkaDecider {
            ctx: ctx.clone(),
            cluster: cluster.clone(),
            reader: MarkerReader::open(cluster, &ctx.name, &ctx.job, topic)?,
            place,
            pair: Arc::clone(pair),
            sources,
            groups,
            subtask,
            same_topics,
        })
    }

    fn marker(&self, decided: Option<(Epoch, Digest)>) -> Marker {
        Marker { job_uid: self.ctx.job_uid.clone(), attempt: self.ctx.attempt, decided }
    }

    fn marker_ledger(&self, transaction: Transaction) -> LedgerId {
        ledger_in(self.subtask, transaction)
    }

    /// Writes a marker into a transaction that is open, and waits until the brokers have it.
    fn write_marker(&self, transaction: Transaction, marker: &Marker) -> Result<(), ConnectorError> {
        crash::point("kafka.marker.before");
        let what = format!("marker topic '{}'", self.place.topic);
        let doing = || self.pair.doing("write to", &what, transaction);
        let value = marker::encode(&self.ctx.job, marker);
        let (ledgers, ledger) = (self.pair.ledgers(), self.marker_ledger(transaction));
        let producer = self.pair.producer(transaction);
        let record = || BaseRecord {
            topic: &self.place.topic,
            partition: Some(PARTITION),
            payload: Some(&value[..]),
            key: Some(self.place.key.as_bytes()),
            timestamp: None,
            headers: None,
            delivery_opaque: ledger,
        };
        // All that was in the queue is acknowledged, so there is room.
        producer.send(record()).map_err(|(error, _)| doing().failed(&error))?;
        ledgers.sent(ledger, 1);
        let mut waited = Duration::ZERO;
        let mut vigil = Vigil::begin(ledgers.done_count(ledger), Instant::now());
        while !ledgers.is_even(ledger) {
            self.check(&doing())?;
            if ledgers.is_closed() || waited >= MARKER_TIMEOUT {
                return Err(failure::unknown_outcome(&doing(), waited, "the marker isn't acknowledged"));
            }
            if vigil.is_due(ledgers.done_count(ledger), Instant::now()) {
                vigil.ask(producer, &doing(), &self.place.topic, || self.without_marker())?;
                self.pair.look(transaction)?;
            }
            ledgers.wait_even(ledger, LOOK);
            waited += LOOK;
        }
        self.check(&doing())?;
        crash::point("kafka.marker.after");
        Ok(())
    }

    /// As [`Pair::check`]. What there is to do about an output topic that is gone is no advice for the marker's.
    fn check(&self, doing: &Doing<'_>) -> Result<(), ConnectorError> {
        let is_gone = |undelivered: &Undelivered| {
            let no_topic =
                [Code::UnknownTopicOrPartition, Code::UnknownTopic, Code::UnknownPartition, Code::UnknownTopicId];
            undelivered.topic == self.place.topic && no_topic.contains(&undelivered.code)
        };
        match self.pair.ledgers().failure() {
            Some(undelivered) if is_gone(undelivered) => Err(vigil::deleted(doing, self.without_marker())),
            Some(_) | None => self.pair.check(&self.ctx.name),
        }
    }

    fn go_on(&self) -> Result<(), ConnectorError> {
        self.pair.check(&self.ctx.name)?;
        if self.pair.ledgers().is_closed() { Err(failure::over(&self.ctx.name)) } else { Ok(()) }
    }

    /// What is left to be done when the marker topic was deleted.
    fn without_marker(&self) -> String {
        format!(
            "nothing that wasn't committed before is. Put topic '{}' back with its records, from a backup, and run the job again; if there \
             is none, compare the output with 'lockgate checkpoint list' and start the job under a new name",
            self.place.topic
        )
    }

    /// Adds the offsets of the sources to a transaction that is open.
    fn send_offsets(
        &self,
        transaction: Transaction,
        positions: &BTreeMap<Name, Vec<SplitState>>,
    ) -> Result<(), ConnectorError> {
        crash::point("kafka.offsets.before");
        let groups = offsets::by_group(&self.sources, positions).map_err(|bad| self.no_offsets(&bad))?;
        for (group, offsets) in groups {
            let what = format!("group '{group}'");
            let doing = || self.pair.doing("commit the offsets of", &what, transaction);
            let list = offsets::list_of(&offsets).map_err(|error| doing().failed(&error))?;
            let metadata = self.groups[&group].metadata().ok_or_else(|| {
                let advice = "run the job again; nothing is lost".to_owned();
                doing().because("librdkafka knows nothing of the group".to_owned(), advice, true)
            })?;
            let producer = self.pair.producer(transaction);
            let sent =
                self.pair.until(SEND_TIMEOUT, |time| producer.send_offsets_to_transaction(&list, &metadata, time));
            sent.map_err(|error| failure::transaction(doing(), &error, self.pair.age(), self.pair.timeout()))?;
        }
        crash::point("kafka.offsets.after");
        Ok(())
    }

    fn commit(&self, transaction: Transaction) -> Result<(), ConnectorError> {
        crash::point("kafka.commit.before");
        self.pair.commit(transaction)?;
        crash::point("kafka.commit.after");
        Ok(())
    }

    fn read_back(&self, marker: &Marker) -> Result<(), ConnectorError> {
        crash::point("kafka.read_back.before");
        self.reader.read_back(marker)?;
        crash::point("kafka.read_back.after");
        Ok(())
    }

    fn no_offsets(&self, bad: &NoPosition) -> ConnectorError {
        ConnectorError::Refused {
            name: self.ctx.name.clone(),
            problem: format!("cannot commit the offsets of the sources: {bad}"),
            advice: "start the job under a new name if a source of another type had this name before".to_owned(),
        }
    }

    /// Sees that the topic is there, and has no marker of another job.
    fn ensure_topic(&self) -> Result<(), ConnectorError> {
        marker_topic::ensure(&self.cluster, &self.ctx.name, &self.place.topic)?;
        match self.reader.peek()?.filter(|found| found.job_uid != self.ctx.job_uid) {
            Some(found) => Err(self.other_job(&found)),
            None => Ok(()),
        }
    }

    fn other_job(&self, found: &Marker) -> ConnectorError {
        let what = format!("job '{}'", self.ctx.job);
        let doing = Doing {
            name: &self.ctx.name,
            brokers: &self.cluster.brokers,
            action: "decide for",
            what: &what,
            listener: None,
        };
        let DecisionPlace { topic, key, .. } = &self.place;
        doing.unfit(
            format!(
                "the marker with key '{key}' in topic '{topic}' is of another job of this name ({}, and this one is {})",
                found.job_uid, self.ctx.job_uid
            ),
            "give this job another name: two jobs of one name on one cluster would shut each other out. If its state_dir or \
             checkpoint.store was moved or lost, put it back"
                .to_owned(),
        )
    }
}

impl Decider for KafkaDecider {
    fn place(&self) -> &DecisionPlace {
        &self.place
    }

    fn has_marker_topic(&self) -> Result<bool, ConnectorError> {
        marker_topic::is_there(&self.cluster, &self.ctx.name, &self.place.topic)
    }

    fn peek(&self) -> Result<Option<Marker>, ConnectorError> {
        match marker_topic::is_seen(&self.cluster, &self.ctx.name, &self.place.topic)? {
            true => self.reader.peek(),
            false => Ok(None),
        }
    }

    fn take_over(&self) -> Result<Option<Marker>, ConnectorError> {
        // A cluster that doesn't allow the transactions gets no topic for them.
        let is_there = marker_topic::is_seen(&self.cluster, &self.ctx.name, &self.place.topic)?;
        if is_there {
            self.ensure_topic()?;
        }
        self.pair.fence()?;
        if !is_there {
            self.ensure_topic()?;
        }
        crash::point("kafka.ask.before");
        let marker = self.reader.ask()?;
        crash::point("kafka.ask.after");
        Ok(marker)
    }

    fn adopt(&self, decided: Option<(Epoch, Digest)>) -> Result<(), ConnectorError> {
        crash::point("kafka.adopt.before");
        let marker = self.marker(decided);
        self.pair.begin(Transaction::A)?;
        self.write_marker(Transaction::A, &marker)?;
        self.pair.commit(Transaction::A)?;
        self.reader.read_back(&marker)?;
        crash::point("kafka.adopt.after");
        Ok(())
    }

    fn decide(&self, permit: &CommitPermit, positions: &BTreeMap<Name, Vec<SplitState>>) -> Result<(), ConnectorError> {
        let epoch = permit.epoch();
        let marker = self.marker(Some((epoch, permit.digest())));
        let transaction = self.pair.decide(epoch)?;
        self.write_marker(transaction, &marker)?;
        self.send_offsets(transaction, positions)?;
        self.same_topics.check(|| self.go_on())?;
        self.pair.check(&self.ctx.name)?;
        self.commit(transaction)?;
        self.pair.decided(epoch);
        self.read_back(&marker)
    }

    fn discarded(&self, epoch: Epoch) {
        self.pair.discarded(epoch);
    }

    fn covers(&self, source: &Name) -> bool {
        self.sources.contains_key(source)
    }

    fn close(&self) {
        self.pair.close();
    }
}
