//! The reader against the cluster that librdkafka plays in this process: all but transactions and retention, which it doesn't have.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;

use super::*;
use crate::connector::kafka::rdkafka_headers;
use crate::connector::{
    ConnectorError, Polled, ProgressReporter, SourceReader, SplitChange, SplitState, said, test_ctx,
};
use crate::element::{NO_TIMESTAMP, Row};
use crate::id::SplitId;

/// So long a record is waited for that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
}

impl Broker {
    fn with(topics: &[(&str, i32)]) -> Broker {
        let cluster = MockCluster::new(1).expect("a cluster");
        let producer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create();
        let broker = Broker { cluster, producer: producer.expect("a producer") };
        topics.iter().for_each(|(topic, partitions)| broker.create(topic, *partitions));
        broker
    }

    fn create(&self, topic: &str, partitions: i32) {
        self.cluster.create_topic(topic, partitions, 1).expect("created");
    }

    fn send(&self, record: BaseRecord<'_, [u8], [u8]>) {
        self.producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        self.producer.flush(PATIENCE).expect("written");
    }

    /// Writes texts, in order.
    fn write<const N: usize>(&self, topic: &str, partition: i32, values: [&str; N]) {
        for value in values {
            self.send(BaseRecord::to(topic).partition(partition).payload(value.as_bytes()));
        }
    }

    fn options(&self, more: &str) -> KafkaSourceOptions {
        let brokers = self.cluster.bootstrap_servers();
        let options: KafkaSourceOptions = toml::from_str(&format!("brokers = '{brokers}'\n{more}")).expect("options");
        options.validate().expect("good options");
        options
    }
}

fn open(options: &KafkaSourceOptions, subtask: u32, parallelism: u32) -> KafkaReader {
    KafkaReader::open(options, &test_ctx("orders", parallelism), subtask).expect("opened")
}

fn restored(options: &KafkaSourceOptions, splits: &[SplitState]) -> KafkaReader {
    let mut reader = open(options, 0, 1);
    reader.restore(splits).expect("positions");
    reader
}

/// Polls until `done` says so of all that was read.
fn read_until(reader: &mut KafkaReader, mut done: impl FnMut(&KafkaReader, &[String]) -> bool) -> Vec<String> {
    let (mut values, began) = (Vec::new(), Instant::now());
    loop {
        match reader.poll().expect("readable") {
            Polled::Batch { batch, .. } => {
                batch.check().expect("well formed");
                let text = |row: Row<'_>| String::from_utf8_lossy(row.value.unwrap_or(b"-")).into_owned();
                values.extend(batch.iter().map(text));
            }
            Polled::Idle(_) => thread::yield_now(),
            Polled::Ended => return values,
        }
        if done(reader, &values) {
            return values;
        }
        assert!(began.elapsed() < PATIENCE, "still waiting after {values:?}");
    }
}

fn read(reader: &mut KafkaReader, records: usize) -> Vec<String> {
    read_until(reader, |_, values| values.len() >= records)
}

/// Everything of a bounded source.
fn read_all(reader: &mut KafkaReader) -> Vec<String> {
    let mut values = read_until(reader, |_, _| false);
    values.sort_unstable();
    values
}

fn started(mut reader: KafkaReader) -> KafkaReader {
    let values = read_until(&mut reader, |reader, _| !reader.is_ahead());
    assert!(values.is_empty(), "nothing is given before it is certain where to begin: {values:?}");
    reader
}

fn fails(mut reader: KafkaReader) -> ConnectorError {
    let began = Instant::now();
    loop {
        match reader.poll() {
            Err(error) => return error,
            Ok(Polled::Idle(_)) => thread::yield_now(),
            Ok(other) => panic!("{other:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "no error");
    }
}

fn state(split: &str, position: serde_json::Value) -> SplitState {
    SplitState { split: split.to_owned(), position }
}

#[test]
fn keys_values_tombstones_headers_and_timestamps_arrive_as_they_were_written() {
    let broker = Broker::with(&[("orders", 1)]);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "trace", value: Some("7") })
        .insert(Header { key: "trace", value: None::<&str> })
        .insert(Header { key: "empty", value: Some("") });
    broker.send(BaseRecord::to("orders").key(&b"k"[..]).payload(&b"v"[..]).timestamp(5_000).headers(headers));
    broker.send(BaseRecord::to("orders").key(&b"k"[..]).timestamp(6_000));
    broker.send(BaseRecord::to("orders").key(&b""[..]).payload(&b""[..]).timestamp(7_000));
    broker.send(BaseRecord::to("orders").payload(&b"\xff\x00"[..]).timestamp(8_000));
    let mut reader = open(&broker.options("topics = ['orders']\nmode = 'bounded'"), 0, 1);
    let mut rows = Vec::new();
    loop {
        match reader.poll().expect("readable") {
            Polled::Batch { split, first_offset, batch } => {
                assert_eq!((split, first_offset), (SplitId::new("orders/0"), rows.len() as u64));
                for (index, row) in batch.iter().enumerate() {
                    use rdkafka::message::Headers;
                    let headers = rdkafka_headers(&batch, index);
                    let headers = headers.iter().flat_map(Headers::iter);
                    let headers = headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_owned)));
                    let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_owned);
                    rows.push((bytes(row.key), bytes(row.value), row.timestamp, headers.collect::<Vec<_>>()));
                }
            }
            Polled::Idle(_) => thread::yield_now(),
            Polled::Ended => break,
        }
    }
    let some = |bytes: &[u8]| Some(bytes.to_owned());
    let header = |name: &str, value| (name.to_owned(), value);
    let headers = vec![header("trace", some(b"7")), header("trace", None), header("empty", some(b""))];
    let wanted = [
        (some(b"k"), some(b"v"), 5_000, headers),
        (some(b"k"), None, 6_000, vec![]),
        (some(b""), some(b""), 7_000, vec![]),
        (None, some(b"\xff\x00"), 8_000, vec![]),
    ];
    assert_eq!(rows, wanted);
    assert!(rows.iter().all(|row| row.2 != NO_TIMESTAMP));
}

#[test]
fn the_positions_after_every_batch_give_the_rest_at_any_parallelism() {
    let broker = Broker::with(&[("a", 3), ("b", 2)]);
    let partitions = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)];
    for (topic, partition) in partitions {
        for number in 0..2_500 {
            let value = format!("{topic}{partition}-{number}");
            let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(value.as_bytes());
            broker.producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        }
        broker.producer.flush(PATIENCE).expect("written");
    }
    let options = broker.options("topics = ['a', 'b']\nmode = 'bounded'");
    let mut reader = started(open(&options, 0, 1));
    let (mut seen, mut tried) = (Vec::new(), 0);
    while seen.len() < 12_500 {
        seen.extend(read(&mut reader, 1));
        if tried < 3 {
            let splits = reader.snapshot();
            let mut total = seen.clone();
            for subtask in 0..2 {
                let mut other = open(&options, subtask, 2);
                other.restore(&splits).expect("positions");
                total.extend(read_all(&mut other));
            }
            assert_eq!(total.len(), 12_500, "nothing twice");
            total.sort_unstable();
            total.dedup();
            assert_eq!(total.len(), 12_500, "nothing lost");
            tried += 1;
        }
    }
    assert_eq!((seen.len(), tried), (12_500, 3));
    for (topic, partition) in partitions {
        let own = seen.iter().filter_map(|value| value.strip_prefix(&format!("{topic}{partition}-")));
        assert!(own.eq((0..2_500).map(|number| number.to_string())), "the order of {topic}/{partition} is kept");
    }
}

#[test]
fn a_bounded_source_ends_at_the_offsets_of_its_first_start() {
    let broker = Broker::with(&[("orders", 2)]);
    broker.write("orders", 0, ["1", "2"]);
    let options = broker.options("topics = ['orders']\nmode = 'bounded'");
    let mut reader = started(open(&options, 0, 1));
    let begun = reader.snapshot();
    assert_eq!(
        begun,
        [state("orders/0", json!({"next": 0, "end": 2})), state("orders/1", json!({"next": 0, "end": 0}))]
    );
    assert_eq!(
        reader.split_changes(),
        [(SplitId::new("orders/0"), SplitChange::Begins), (SplitId::new("orders/1"), SplitChange::Ended),]
    );
    assert_eq!(reader.lag(), Some(2));
    broker.write("orders", 0, ["3"]);
    broker.write("orders", 1, ["4"]);
    assert_eq!(read_all(&mut reader), ["1", "2"]);
    assert!(reader.split_changes().contains(&(SplitId::new("orders/0"), SplitChange::Ended)));
    assert_eq!(
        (reader.lag(), reader.snapshot()[0].clone()),
        (Some(0), state("orders/0", json!({"next": 2, "end": 2})))
    );
    assert_eq!(read_all(&mut restored(&options, &begun)), ["1", "2"]);
    assert_eq!(read_all(&mut restored(&options, &reader.snapshot())), [""; 0]);
    // The same positions in a source that never ends.
    let mut endless = restored(&broker.options("topics = ['orders']"), &reader.snapshot());
    assert_eq!(endless.begun_splits().len(), 2);
    let mut rest = read(&mut endless, 2);
    rest.sort_unstable();
    assert_eq!(rest, ["3", "4"]);
}

#[test]
fn start_is_for_a_source_that_no_checkpoint_knows() {
    let broker = Broker::with(&[("orders", 2)]);
    broker.write("orders", 0, ["1", "2", "3"]);
    broker.write("orders", 1, ["4"]);
    let bounded = |start: &str| broker.options(&format!("topics = ['orders']\nmode = 'bounded'\nstart = {start}"));
    assert_eq!(read_all(&mut open(&bounded("'earliest'"), 0, 1)), ["1", "2", "3", "4"]);
    assert_eq!(read_all(&mut open(&bounded("'latest'"), 0, 1)), [""; 0]);
    let offsets = bounded("{ offsets = { orders = { '0' = 2 } } }");
    assert_eq!(read_all(&mut open(&offsets, 0, 1)), ["3", "4"]);
    assert_eq!(read_all(&mut restored(&offsets, &[state("orders/0", json!({"next": 1, "end": 3}))])), ["2", "3"]);
    let error = said(&fails(open(&bounded("{ offsets = { orders = { '0' = 4 } } }"), 0, 1)));
    assert!(error.contains("start begins at offset 4 of orders/0, and it ends at 3"), "{error}");
    // Also by a subtask that wouldn't read the partition.
    for subtask in 0..2 {
        let refused = fails(open(&bounded("{ offsets = { orders = { '7' = 0 } } }"), subtask, 2));
        assert!(matches!(refused, ConnectorError::Unfit { .. }), "{refused:?}");
        assert!(said(&refused).contains("partition 7 of topic 'orders', which has 2 partitions"), "{refused}");
    }
    // A partition that the checkpoint doesn't have has come since.
    let latest = broker.options("topics = ['orders']\nstart = 'latest'");
    assert_eq!(read(&mut restored(&latest, &[state("orders/0", json!({"next": 3}))]), 1), ["4"]);
    let mut behind = started(open(&latest, 0, 1));
    broker.write("orders", 1, ["5"]);
    assert_eq!(read(&mut behind, 1), ["5"]);
}

#[test]
fn offsets_are_committed_to_the_group_and_can_be_started_from() {
    let broker = Broker::with(&[("orders", 2)]);
    broker.write("orders", 0, ["1", "2", "3"]);
    broker.write("orders", 1, ["4"]);
    let options = broker.options("topics = ['orders']\nmode = 'bounded'\nstart = 'committed'\ngroup = 'readers'");
    let reporter = KafkaReporter::open(&options, &test_ctx("orders", 1)).expect("opened");
    reporter.committed(&[state("orders/0", json!({"next": 2, "end": 3}))]).expect("on its way");
    drop(reporter);
    assert_eq!(read_all(&mut open(&options, 0, 1)), ["3", "4"]);
}

#[test]
fn topics_that_a_pattern_matches_later_are_read_from_their_first_record() {
    let broker = Broker::with(&[("orders-eu", 1), ("others", 1)]);
    broker.write("orders-eu", 0, ["1"]);
    broker.write("others", 0, ["no"]);
    let options = broker.options("topic_pattern = 'orders-.*'\nstart = 'latest'\ndiscover_interval = '100ms'");
    let mut reader = started(open(&options, 0, 1));
    broker.create("orders-us", 1);
    broker.write("orders-us", 0, ["2", "3"]);
    broker.write("orders-eu", 0, ["4"]);
    let mut values = read(&mut reader, 3);
    values.sort_unstable();
    assert_eq!(values, ["2", "3", "4"]);
    assert_eq!(reader.snapshot(), [state("orders-eu/0", json!({"next": 2})), state("orders-us/0", json!({"next": 2}))]);
    assert!(reader.split_changes().contains(&(SplitId::new("orders-us/0"), SplitChange::Begins)));
}

#[test]
fn a_split_that_has_nothing_more_rests_and_is_not_behind() {
    let broker = Broker::with(&[("orders", 1)]);
    broker.write("orders", 0, ["1"]);
    let mut reader = started(open(&broker.options("topics = ['orders']"), 0, 1));
    let began = Instant::now();
    let mut changes = Vec::new();
    while !changes.contains(&(SplitId::new("orders/0"), SplitChange::Rests)) {
        reader.poll().expect("readable");
        changes.extend(reader.split_changes());
        assert!(began.elapsed() < PATIENCE, "{changes:?}");
    }
    assert_eq!(reader.lag(), Some(0));
}

#[test]
fn positions_of_topics_that_are_no_longer_selected_are_dropped_and_those_of_something_else_refused() {
    let broker = Broker::with(&[("orders", 1), ("others", 1)]);
    broker.write("orders", 0, ["1", "2"]);
    let options = broker.options("topics = ['orders']");
    let splits = [state("orders/0", json!({"next": 1})), state("others/0", json!({"next": 9}))];
    let mut reader = restored(&options, &splits);
    assert_eq!(read(&mut reader, 1), ["2"]);
    assert_eq!(reader.snapshot(), [state("orders/0", json!({"next": 2}))]);
    for (split, position) in
        [("input.txt", json!({"next": 1})), ("orders/0", json!("1 2 done")), ("orders/x", json!({"next": 1}))]
    {
        let error = said(&open(&options, 0, 1).restore(&[state(split, position)]).expect_err("no position"));
        assert!(error.contains(split), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_told_with_the_choices() {
    let broker = Broker::with(&[("orders", 1)]);
    broker.write("orders", 0, ["1", "2"]);
    let options = broker.options("topics = ['orders']");
    let ended = fails(restored(&options, &[state("orders/0", json!({"next": 3}))]));
    let text = said(&ended);
    assert!(text.contains("orders/0") && text.contains("it ends at 2") && text.contains("new name"), "{text}");
    assert!(matches!(ended, ConnectorError::Unfit { .. }));
    let fewer = said(&fails(restored(&options, &[state("orders/1", json!({"next": 0}))])));
    assert!(fewer.contains("has only 1 partitions"), "{fewer}");
    let missing = said(&fails(open(&broker.options("topics = ['order']"), 0, 1)));
    assert!(missing.contains("topic 'order'") && missing.contains("no such topic"), "{missing}");
    let both = broker.options("topics = ['orders', 'gone']");
    let gone =
        said(&fails(restored(&both, &[state("gone/0", json!({"next": 7})), state("orders/0", json!({"next": 1}))])));
    assert!(
        gone.contains("topic 'gone': it isn't there any more") && gone.contains("after the job had read from it"),
        "{gone}"
    );
}

#[test]
fn an_election_at_the_start_is_waited_for() {
    let broker = Broker::with(&[("orders", 1)]);
    broker.write("orders", 0, ["1", "2"]);
    // More than the client itself tries again.
    let electing = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 20];
    broker.cluster.request_errors(RDKafkaApiKey::ListOffsets, &electing);
    assert_eq!(read_all(&mut open(&broker.options("topics = ['orders']\nmode = 'bounded'"), 0, 1)), ["1", "2"]);
}

#[test]
fn a_cluster_that_does_not_answer_is_named_and_may_come_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let options: KafkaSourceOptions =
        toml::from_str(&format!("brokers = '{address}'\ntopics = ['orders']")).expect("options");
    let error = fails(open(&options, 0, 1).with_timeout(Duration::from_secs(1)));
    let text = said(&error);
    let has_cause = text.contains("Connection refused") && text.contains("brokers is an address");
    assert!(text.contains(&format!("no answer from {address}")) && has_cause, "{text}");
    assert!(matches!(error, ConnectorError::Silent { .. }));
}

#[test]
fn every_partition_is_read_by_exactly_one_subtask_and_one_without_any_ends() {
    let broker = Broker::with(&[("orders", 3)]);
    broker.write("orders", 0, ["0"]);
    broker.write("orders", 1, ["1"]);
    broker.write("orders", 2, ["2"]);
    let options = broker.options("topics = ['orders']\nmode = 'bounded'");
    let mut of_subtasks = (0..4).map(|subtask| read_all(&mut open(&options, subtask, 4))).collect::<Vec<_>>();
    of_subtasks.sort();
    assert_eq!(of_subtasks, [vec![], vec!["0".to_owned()], vec!["1".to_owned()], vec!["2".to_owned()]]);
}

#[test]
fn splits_are_served_in_turn() {
    let broker = Broker::with(&[("orders", 2)]);
    let value = vec![b'x'; 1024];
    for partition in 0..2 {
        for _ in 0..1_000 {
            let record = BaseRecord::<[u8], [u8]>::to("orders").partition(partition).payload(&value);
            broker.producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        }
    }
    broker.producer.flush(PATIENCE).expect("written");
    let mut reader = open(&broker.options("topics = ['orders']"), 0, 1);
    let (mut rows, began) = (BTreeMap::<SplitId, u32>::new(), Instant::now());
    while rows.values().sum::<u32>() < 2_000 {
        if let Polled::Batch { split, batch, .. } = reader.poll().expect("readable") {
            assert!(batch.rows <= 258, "a batch ends at 256 KiB: {} rows", batch.rows);
            *rows.entry(split).or_default() += batch.rows;
        }
        assert!(began.elapsed() < PATIENCE, "{rows:?}");
    }
    assert_eq!(rows.into_values().collect::<Vec<_>>(), [1_000, 1_000]);
}
