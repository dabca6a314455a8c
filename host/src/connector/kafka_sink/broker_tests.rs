//! The sinks against a real broker: the one at `LOCKGATE_TEST_KAFKA` (host:port). Without it these tests say that they are skipped.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::json;

use super::*;
use crate::connector::{Prepare, SplitState, said};
use crate::element::{Batch, Row};
use crate::id::{Attempt, JobUid};
use crate::protocol::PublishReceipt;
use crate::protocol::decision::{Digest, Marker};

const PATIENCE: Duration = Duration::from_secs(60);

/// The broker, if there is one.
fn broker() -> Option<String> {
    let broker = std::env::var("LOCKGATE_TEST_KAFKA").ok().filter(|broker| !broker.is_empty());
    if broker.is_none() {
        // Past the test harness's capture; `tests/run.sh` lists these lines.
        let _ = writeln!(std::io::stderr(), "SKIPPED the Kafka sink against a broker: LOCKGATE_TEST_KAFKA names none");
    }
    broker
}

/// One job with one Kafka sink.
struct Job {
    brokers: String,
    name: Name,
    uid: String,
    topic: String,
    parallelism: u32,
    more: String,
    sources: BTreeMap<Name, SourceGroup>,
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

impl Job {
    /// With a topic of its own.
    fn new(brokers: &str, partitions: i32) -> Job {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("sink-{}-{number}", std::process::id());
        let topic = format!("{id}-out");
        marker_topic::tests_make(brokers, &topic, partitions, &[]);
        Job {
            brokers: brokers.to_owned(),
            name: name(&id),
            uid: format!("uid-{id}"),
            topic,
            parallelism: 1,
            more: String::new(),
            sources: BTreeMap::new(),
        }
    }

    fn options(&self) -> KafkaSinkOptions {
        toml::from_str(&format!("brokers = '{}'\ntopic = '{}'\n{}", self.brokers, self.topic, self.more))
            .expect("options")
    }

    fn open(&self, guarantee: Guarantee, attempt: u64) -> Result<KafkaSinks, ConnectorError> {
        let (sink, options) = (name("out"), self.options());
        let ctx = ConnectorContext {
            job: self.name.clone(),
            job_uid: JobUid(self.uid.clone()),
            attempt: Attempt(attempt),
            name: sink.clone(),
            parallelism: self.parallelism,
        };
        KafkaSinks::open(&BTreeMap::from([(&sink, (&options, &ctx))]), self.sources.clone(), guarantee)
    }

    /// Exactly-once, taken over.
    fn deciding(&self, attempt: u64) -> (KafkaSinks, Arc<dyn Decider>, Option<Marker>) {
        let sinks = self.open(Guarantee::ExactlyOnce, attempt).expect("opens");
        let decider = Arc::clone(sinks.decider().expect("it decides"));
        let marker = decider.take_over().expect("taken over");
        (sinks, decider, marker)
    }

    fn writer(&self, sinks: &KafkaSinks, subtask: u32) -> Box<dyn SinkWriter> {
        sinks.writer(&name("out"), subtask)
    }

    /// All values in the topic, of one partition after the other, to its end as readers with this isolation see it.
    fn values(&self, isolation: &str) -> Vec<String> {
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap_or(b"-").to_owned()).expect("text");
        self.read(isolation, |message| text(message.payload()))
    }

    fn read<T>(&self, isolation: &str, mut each: impl FnMut(&rdkafka::message::BorrowedMessage<'_>) -> T) -> Vec<T> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", "reader")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", isolation)
            .create()
            .expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(&self.topic), PATIENCE).expect("metadata");
        let mut all = Vec::new();
        for partition in 0..i32::try_from(metadata.topics()[0].partitions().len()).expect("few") {
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&self.topic, partition, Offset::Beginning).expect("added");
            consumer.assign(&list).expect("assigned");
            let end = Instant::now() + PATIENCE;
            loop {
                assert!(Instant::now() < end, "the end of the partition comes");
                match consumer.poll(Duration::from_millis(100)) {
                    Some(Ok(message)) => all.push(each(&message)),
                    Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => break,
                    Some(Err(error)) => panic!("{error}"),
                    None => {}
                }
            }
        }
        all
    }
}

fn batch(values: impl IntoIterator<Item = String>) -> Batch {
    let mut batch = Batch::with_capacity(0, 0);
    for value in values {
        batch.push(Row { key: Some(b"k"), value: Some(value.as_bytes()), timestamp: 1_700_000_000_000 });
    }
    batch
}

fn permit(epoch: u64) -> CommitPermit {
    CommitPermit::new(PublishReceipt::for_published(Epoch(epoch), Digest(epoch * 7)))
}

fn decided(epoch: u64) -> Option<(Epoch, Digest)> {
    Some((Epoch(epoch), Digest(epoch * 7)))
}

/// Waits until the sink takes a batch.
fn rest(writer: &mut dyn SinkWriter) {
    let end = Instant::now() + PATIENCE;
    while !writer.busy_for().is_zero() {
        assert!(Instant::now() < end, "the sink is busy for ever");
        std::thread::sleep(writer.busy_for());
    }
}

fn write(writer: &mut dyn SinkWriter, values: &[&str]) {
    rest(writer);
    writer.write(&batch(values.iter().map(|value| (*value).to_owned()))).expect("written");
}

fn cut(writer: &mut dyn SinkWriter, epoch: u64) -> Prepare {
    writer.prepare(Epoch(epoch)).expect("a cut")
}

#[test]
fn epochs_are_seen_when_they_are_decided_and_not_before() {
    let Some(brokers) = broker() else { return };
    let job = Job::new(&brokers, 1);
    let (sinks, decider, marker) = job.deciding(1);
    assert_eq!(marker, None);
    decider.adopt(None).expect("adopted");
    let mut writer = job.writer(&sinks, 0);
    write(&mut *writer, &["1a", "1b"]);
    let first = cut(&mut *writer, 1);
    first().expect("prepared");
    // The other transaction takes the next epoch while this one waits.
    write(&mut *writer, &["2a"]);
    assert_eq!(job.values("read_uncommitted")[..2], ["1a", "1b"], "acknowledged, and 2a perhaps");
    assert!(job.values("read_committed").is_empty(), "not decided");
    decider.decide(&permit(1), &BTreeMap::new()).expect("decided");
    assert_eq!(job.values("read_committed"), ["1a", "1b"]);
    let second = cut(&mut *writer, 2);
    second().expect("prepared");
    decider.decide(&permit(2), &BTreeMap::new()).expect("decided");
    // Nothing is written in these; one is published all the same.
    cut(&mut *writer, 3)().expect("prepared");
    decider.discarded(Epoch(3));
    cut(&mut *writer, 4)().expect("prepared");
    decider.decide(&permit(4), &BTreeMap::new()).expect("decided");
    write(&mut *writer, &["5a"]);
    cut(&mut *writer, 5)().expect("prepared");
    decider.decide(&permit(5), &BTreeMap::new()).expect("decided");
    assert_eq!(job.values("read_committed"), ["1a", "1b", "2a", "5a"]);
    decider.close();
    let (_sinks, _decider, marker) = job.deciding(2);
    let expected = Marker { job_uid: JobUid(job.uid.clone()), attempt: Attempt(1), decided: decided(5) };
    assert_eq!(marker, Some(expected));
}

#[test]
fn who_takes_over_aborts_what_was_open_and_shuts_out_the_other() {
    let Some(brokers) = broker() else { return };
    let job = Job::new(&brokers, 1);
    let (sinks, decider, _) = job.deciding(1);
    decider.adopt(None).expect("adopted");
    let mut writer = job.writer(&sinks, 0);
    write(&mut *writer, &["lost"]);
    cut(&mut *writer, 1)().expect("prepared");
    let (new_sinks, new_decider, marker) = job.deciding(2);
    assert_eq!(marker.map(|marker| marker.decided), Some(None), "nothing was decided");
    let error = decider.decide(&permit(1), &BTreeMap::new()).expect_err("shut out");
    assert!(said(&error).contains("another process has taken over"), "{}", said(&error));
    let ConnectorError::Kafka { may_pass, .. } = error else { panic!("{error}") };
    assert!(!may_pass);
    let mut writer = job.writer(&new_sinks, 0);
    write(&mut *writer, &["again"]);
    cut(&mut *writer, 1)().expect("prepared");
    new_decider.decide(&permit(1), &BTreeMap::new()).expect("decided");
    assert_eq!(job.values("read_committed"), ["again"]);
}

#[test]
fn a_transaction_that_is_open_too_long_is_told_as_such() {
    let Some(brokers) = broker() else { return };
    let job = Job { more: "transaction_timeout = '1s'".to_owned(), ..Job::new(&brokers, 1) };
    let (sinks, decider, _) = job.deciding(1);
    decider.adopt(None).expect("adopted");
    let mut writer = job.writer(&sinks, 0);
    write(&mut *writer, &["late"]);
    cut(&mut *writer, 1)().expect("prepared");
    let Line::Transactions(pair) = &*sinks.sinks[&name("out")].line else { panic!("exactly-once") };
    let end = Instant::now() + PATIENCE;
    while pair.age() == failure::Age::Young {
        assert!(Instant::now() < end, "the transaction gets too old");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = decider.decide(&permit(1), &BTreeMap::new()).expect_err("too old");
    assert!(said(&error).contains("transaction_timeout"), "{}", said(&error));
    let ConnectorError::Kafka { may_pass, .. } = error else { panic!("{error}") };
    assert!(may_pass);
    let (.., marker) = job.deciding(2);
    assert_eq!(marker.map(|marker| marker.decided), Some(None));
    assert!(job.values("read_committed").is_empty());
}

#[test]
fn the_marker_of_another_job_is_refused_before_anybody_is_shut_out() {
    let Some(brokers) = broker() else { return };
    let job = Job::new(&brokers, 1);
    let (sinks, decider, _) = job.deciding(1);
    decider.adopt(None).expect("adopted");
    let mut writer = job.writer(&sinks, 0);
    write(&mut *writer, &["mine"]);
    let other =
        Job { uid: "another".to_owned(), topic: job.topic.clone(), name: job.name.clone(), ..Job::new(&brokers, 1) };
    let others = other.open(Guarantee::ExactlyOnce, 1).expect("opens");
    let error = others.decider().expect("it decides").take_over().expect_err("not its marker");
    assert!(said(&error).contains("another job of this name"), "{}", said(&error));
    cut(&mut *writer, 1)().expect("prepared");
    decider.decide(&permit(1), &BTreeMap::new()).expect("nobody was shut out");
    assert_eq!(job.values("read_committed"), ["mine"]);
}

#[test]
fn a_record_that_is_no_marker_counts_only_until_a_marker_follows() {
    let Some(brokers) = broker() else { return };
    let job = Job::new(&brokers, 1);
    let (_sinks, decider, _) = job.deciding(1);
    decider.adopt(None).expect("adopted");
    let topic = job.options().marker_topic(&job.name);
    let peek = || super::peek_marker(&job.options().cluster(), &name("out"), &job.name, &topic);
    let marker = peek().expect("readable").expect("a marker");
    let (key, value) = (super::marker::key(&job.name), super::marker::encode(&job.name, &marker));
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", &brokers).create().expect("a producer");
    let put = |value: &[u8]| {
        producer.send(BaseRecord::to(&topic).key(&key).payload(value)).expect("room");
        producer.flush(Duration::from_secs(60)).expect("written");
    };
    put(b"rubbish");
    let error = peek().expect_err("no marker");
    assert!(said(&error).contains("can't be believed") && error.help().contains("once more"), "{}", said(&error));
    put(&value);
    assert_eq!(peek().expect("readable"), Some(marker));
}

#[test]
fn offsets_of_covered_sources_are_committed_with_the_output() {
    let Some(brokers) = broker() else { return };
    let mut job = Job::new(&brokers, 1);
    let group = format!("lockgate-{}", job.name);
    let source = |brokers: &str| SourceGroup { brokers: brokers.to_owned(), group: group.clone() };
    job.sources = BTreeMap::from([(name("in"), source(&brokers)), (name("far"), source("elsewhere:1"))]);
    let (sinks, decider, _) = job.deciding(1);
    assert!(decider.covers(&name("in")) && !decider.covers(&name("far")));
    decider.adopt(None).expect("adopted");
    let mut writer = job.writer(&sinks, 0);
    write(&mut *writer, &["x"]);
    cut(&mut *writer, 1)().expect("prepared");
    let split = SplitState { split: format!("{}/0", job.topic), position: json!({"next": 17}) };
    decider.decide(&permit(1), &BTreeMap::from([(name("in"), vec![split])])).expect("decided");
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &brokers).set("group.id", &group).create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition(&job.topic, 0);
    let committed = consumer.committed_offsets(list, PATIENCE).expect("asked");
    assert_eq!(committed.find_partition(&job.topic, 0).expect("it").offset(), Offset::Offset(17));
}

#[test]
fn a_full_queue_makes_the_sink_busy_and_loses_and_doubles_nothing() {
    let Some(brokers) = broker() else { return };
    let job = Job { parallelism: 2, more: "buffer = '4MiB'".to_owned(), ..Job::new(&brokers, 3) };
    let (sinks, decider, _) = job.deciding(1);
    decider.adopt(None).expect("adopted");
    let mut writers = [job.writer(&sinks, 0), job.writer(&sinks, 1)];
    let value = |subtask: usize, number: usize| format!("{subtask}:{number:06}:{}", "x".repeat(1000));
    let (mut was_busy, mut next) = (0, [0; 2]);
    for epoch in 1..=3 {
        for _ in 0..10 {
            for (subtask, writer) in writers.iter_mut().enumerate() {
                was_busy += u32::from(!writer.busy_for().is_zero());
                rest(&mut **writer);
                // More than the queue holds, in one batch.
                writer
                    .write(&batch((next[subtask]..next[subtask] + 500).map(|number| value(subtask, number))))
                    .expect("written");
                next[subtask] += 500;
            }
        }
        let prepares = writers.iter_mut().map(|writer| cut(&mut **writer, epoch)).collect::<Vec<_>>();
        prepares.into_iter().for_each(|prepare| drop(prepare().expect("prepared")));
        decider.decide(&permit(epoch), &BTreeMap::new()).expect("decided");
    }
    assert!(was_busy > 0, "the queue was full");
    let values = job.values("read_committed");
    assert_eq!(values.len(), next[0] + next[1]);
    for (subtask, next) in next.into_iter().enumerate() {
        let mine = values.iter().filter(|value| value.starts_with(&format!("{subtask}:")));
        assert!(mine.cloned().eq((0..next).map(|number| value(subtask, number))), "each once, in order");
    }
}

#[test]
fn keys_values_times_and_headers_arrive_as_they_were() {
    let Some(brokers) = broker() else { return };
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        let job = Job { more: "partition = 1".to_owned(), ..Job::new(&brokers, 2) };
        let sinks = job.open(guarantee, 1).expect("opens");
        assert!(sinks.decider().is_none());
        let mut writer = job.writer(&sinks, 0);
        let mut batch = Batch::with_capacity(0, 0);
        batch.push(Row { key: Some(b""), value: None, timestamp: 1_700_000_000_001 });
        batch.push(Row { key: None, value: Some(b""), timestamp: 1_700_000_000_002 });
        writer.write(&batch).expect("written");
        cut(&mut *writer, 1)().expect("prepared");
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_owned);
        let found = job.read("read_committed", |message| {
            let headers = message.headers().map_or(0, Headers::count);
            let time = message.timestamp().to_millis();
            (message.partition(), owned(message.key()), owned(message.payload()), time, headers)
        });
        let expected =
            [(1, Some(vec![]), None, Some(1_700_000_000_001), 0), (1, None, Some(vec![]), Some(1_700_000_000_002), 0)];
        assert_eq!(found, expected, "{guarantee}");
    }
}

#[test]
fn a_record_that_is_too_large_fails_the_attempt_and_says_how_large() {
    let Some(brokers) = broker() else { return };
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        // The client's limit, then the topic's.
        for (more, size) in [("", 1_100_000), ("properties = { 'message.max.bytes' = 9000000 }", 2_000_000)] {
            let job = Job { more: more.to_owned(), ..Job::new(&brokers, 1) };
            let sinks = job.open(guarantee, 1).expect("opens");
            if let Some(decider) = sinks.decider() {
                decider.take_over().expect("taken over");
                decider.adopt(None).expect("adopted");
            }
            let mut writer = job.writer(&sinks, 0);
            // librdkafka compresses nothing by default, so that the topic's limit is met.
            let written = writer.write(&batch([noise(size)]));
            let failed = written.and_then(|()| writer.prepare(Epoch(1))).and_then(|prepare| prepare().map(drop));
            let text = said(&failed.expect_err("too large"));
            for part in [job.topic.as_str(), &(size + 1).to_string(), "max.message.bytes", "message.max.bytes"] {
                assert!(text.contains(part), "{guarantee}: {text}");
            }
        }
    }
}

/// A text of so many bytes.
fn noise(bytes: usize) -> String {
    "0123456789".chars().cycle().take(bytes).collect()
}

#[test]
fn what_a_cluster_does_not_have_or_allow_is_refused_with_a_reason() {
    let Some(brokers) = broker() else { return };
    let text = |refused: Result<(), ConnectorError>| {
        let error = refused.expect_err("refused");
        assert!(!matches!(error, ConnectorError::Kafka { may_pass: true, .. }), "{error}");
        said(&error)
    };
    let missing = Job { topic: "no-such-topic".to_owned(), ..Job::new(&brokers, 1) };
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        let told = text(missing.open(guarantee, 1).map(drop));
        assert!(told.contains("no-such-topic") && told.contains("create it"), "{told}");
    }
    let far = Job { more: "partition = 2".to_owned(), ..Job::new(&brokers, 2) };
    let told = text(far.open(Guarantee::AtLeastOnce, 1).map(drop));
    assert!(told.contains("it has 2 partitions"), "{told}");
    let slow = Job { more: "transaction_timeout = '1d'".to_owned(), ..Job::new(&brokers, 1) };
    let sinks = slow.open(Guarantee::ExactlyOnce, 1).expect("the brokers aren't asked yet");
    let told = text(sinks.decider().expect("it decides").take_over().map(drop));
    assert!(told.contains("transaction_timeout = 1d") && told.contains("transaction.max.timeout.ms"), "{told}");
    let job = Job::new(&brokers, 1);
    let marker = format!("{}-deleted", job.name);
    marker_topic::tests_make(&brokers, &marker, 1, &[("cleanup.policy", "delete")]);
    let job = Job { more: format!("marker_topic = '{marker}'"), ..job };
    let sinks = job.open(Guarantee::ExactlyOnce, 1).expect("opens");
    let told = text(sinks.decider().expect("it decides").take_over().map(drop));
    assert!(told.contains("cleanup.policy") && told.contains(&marker), "{told}");
}
