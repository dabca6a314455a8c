//! The pair of producers against the cluster that librdkafka plays in this process, which fails when it is told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext};
use rdkafka::types::{RDKafkaApiKey, RDKafkaErrorCode as Code, RDKafkaRespErr};

use super::delivery::{Ledgers, ledger_in};
use super::marker_reader::MarkerReader;
use super::pair::{Pair, PairOptions};
use crate::connector::kafka::Cluster;
use crate::connector::{ConnectorError, said};
use crate::id::Name;
use crate::protocol::transactions::Transaction;

const PATIENCE: Duration = Duration::from_secs(60);
const SUBTASK: usize = 0;

fn of(cluster: &MockCluster<'_, DefaultProducerContext>) -> Cluster {
    Cluster { brokers: cluster.bootstrap_servers(), properties: Default::default(), properties_file: None }
}

fn name() -> Name {
    Name::new("out").expect("a name")
}

/// A pair that has taken over and begun a transaction.
fn sending(cluster: &MockCluster<'_, DefaultProducerContext>) -> Pair {
    cluster.create_topic("out", 1, 1).expect("created");
    let job = Name::new("copy").expect("a name");
    let of = of(cluster);
    let ledgers = Arc::new(Ledgers::new(1, false));
    let (name, timeout) = (name(), Duration::from_secs(300));
    let topics = ["out".to_owned()].into();
    let options =
        PairOptions { job: &job, name: &name, cluster: &of, topics, timeout, buffer_bytes: 8 << 20, subtasks: 1 };
    let pair = Pair::open(&options, &ledgers).expect("opened");
    pair.fence().expect("taken over");
    pair.begin(Transaction::A).expect("begun");
    pair
}

fn send(pair: &Pair) {
    let ledger = ledger_in(SUBTASK, Transaction::A);
    let record = BaseRecord::<[u8], [u8], _>::with_opaque_to("out", ledger).payload(b"v").key(b"k");
    pair.producer(Transaction::A).send(record).map_err(|(error, _)| error).expect("taken");
    pair.ledgers().sent(ledger, 1);
}

fn first_failure(pair: &Pair) -> Code {
    let end = Instant::now() + PATIENCE;
    loop {
        match pair.ledgers().failure() {
            Some(undelivered) => return undelivered.code,
            None => assert!(Instant::now() < end, "no record has failed"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_shut_out(error: &ConnectorError) {
    let text = said(error);
    assert!(text.contains("another process has taken over its transactional id"), "{text}");
    assert!(matches!(error, ConnectorError::Kafka { may_pass: false, .. }), "{error:?}");
}

#[test]
fn a_producer_that_was_shut_out_is_told_as_such_by_a_record_that_was_given_up() {
    let cluster = MockCluster::new(1).expect("a cluster");
    let pair = sending(&cluster);
    cluster
        .request_errors(RDKafkaApiKey::AddPartitionsToTxn, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH]);
    send(&pair);
    assert_eq!(first_failure(&pair), Code::PurgeQueue);
    assert_shut_out(&pair.check(&name()).expect_err("shut out"));
    let begun = pair.begin(Transaction::A).expect_err("the producer is good for nothing more");
    assert_shut_out(&begun);
}

#[test]
fn a_transaction_that_failed_for_another_reason_is_told_by_it() {
    let cluster = MockCluster::new(1).expect("a cluster");
    let pair = sending(&cluster);
    cluster.request_errors(
        RDKafkaApiKey::AddPartitionsToTxn,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    send(&pair);
    assert_eq!(first_failure(&pair), Code::PurgeQueue);
    let error = pair.check(&name()).expect_err("it can't be written");
    assert!(said(&error).contains("no permission"), "{}", said(&error));
    assert!(!said(&error).contains("another process"), "{}", said(&error));
}

#[test]
fn an_election_is_waited_for_before_the_marker_is_read() {
    let cluster = MockCluster::new(1).expect("a cluster");
    cluster.create_topic("marker", 1, 1).expect("created");
    // More than the client itself tries again.
    let electing = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 20];
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &electing);
    let job = Name::new("copy").expect("a name");
    let reader = MarkerReader::open(&of(&cluster), &name(), &job, "marker").expect("opened");
    assert_eq!(reader.peek().expect("readable in the end"), None);
}
