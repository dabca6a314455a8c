//! The broker and the verifiers that the tests with Kafka rely on.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use lockgate_tests::kafka::{Broker, Client, NewRecord, Record, kafka_missing, kcat_produce, kcat_read, unique};
use lockgate_tests::wait_until;

fn texts(records: &[Record]) -> Vec<&str> {
    records.iter().map(Record::text).collect()
}

fn without_headers(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|record| record.headers.clear());
    records
}

/// Leaves a transaction open between records of three others.
fn produce_in_transactions(client: &Client, topic: &str) {
    let value = |text: &str| [NewRecord::value(text).to_partition(0)];
    client.begin_transaction("committed", 60_000, topic, &value("committed"));
    client.commit_transaction("committed").expect("nobody fenced it");
    client.begin_transaction("aborted", 60_000, topic, &value("aborted"));
    client.abort_transaction("aborted").expect("nobody fenced it");
    client.produce(topic, &value("plain"));
    client.begin_transaction("open", 600_000, topic, &value("open"));
    client.produce(topic, &value("behind the open one"));
}

#[test]
fn what_is_committed_is_read_and_outlives_a_killed_broker() {
    if kafka_missing("the broker of the tests") {
        return;
    }
    let broker = Broker::start();
    let client = broker.client();
    client.create_topic("t", 2);
    produce_in_transactions(&client, "t");
    client.commit_group_offset("g", "t", 0, 3);

    let all = ["committed", "aborted", "plain", "open", "behind the open one"];
    let check = |committed: &[&str]| {
        let (visible, written) = (client.read("t", true), client.read("t", false));
        assert_eq!(texts(&visible), committed);
        assert_eq!(texts(&written), all);
        assert_eq!(kcat_read(broker.address(), "t", true), visible);
        assert_eq!(kcat_read(broker.address(), "t", false), written);
        assert_eq!(client.group_offsets("g")[&("t".to_owned(), 0)].offset, 3);
    };
    check(&["committed", "plain"]);
    assert_eq!(
        client.end_offsets("t", true)[&0],
        client.read("t", false)[3].offset,
        "it ends where a transaction is open"
    );
    let cluster = client.cluster_id();

    broker.kill();
    assert!(!broker.is_running() && TcpStream::connect(broker.address()).is_err());
    broker.restart();
    check(&["committed", "plain"]);
    assert_eq!(client.cluster_id(), cluster);
    let states: Vec<_> = client.transactions("").into_iter().map(|known| (known.id, known.state)).collect();
    let expected = [("aborted", "CompleteAbort"), ("committed", "CompleteCommit"), ("open", "Ongoing")];
    assert_eq!(states, expected.map(|(id, state)| (id.to_owned(), state.to_owned())));

    // Another program with the same id ends it, and shuts out the first.
    let other = broker.client();
    other.begin_transaction("open", 60_000, "t", &[NewRecord::value("other").to_partition(1)]);
    other.commit_transaction("open").expect("it is the last one");
    let refusal = client.commit_transaction("open").expect_err("it is fenced");
    assert!(refusal.contains("Fenced") || refusal.contains("ProducerEpoch"), "{refusal}");
    assert_eq!(texts(&client.read("t", true)), ["committed", "plain", "behind the open one", "other"]);
}

#[test]
fn records_are_read_as_they_were_written() {
    if kafka_missing("the verifier of the tests") {
        return;
    }
    let (broker, topic) = (Broker::shared(), unique("kinds"));
    let client = broker.client();
    client.create_topic_with(&topic, 2, &[("cleanup.policy", "compact")]);
    assert_eq!(client.topic_configs(&topic)["cleanup.policy"], "compact");
    let records = [
        NewRecord::keyed("key", [0, 10, 255]).to_partition(1).at(1_600_000_000_000),
        NewRecord::tombstone("key").to_partition(1).with_header("none", None).with_header("ä", Some(b"")),
        NewRecord::keyed("", "").to_partition(0),
        NewRecord::keyed("large", vec![7; 600_000]).to_partition(0),
        NewRecord::keyed("large", vec![8; 600_000]).to_partition(0),
    ];
    let places = client.produce(&topic, &records);
    assert_eq!(places, [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]);
    let found = client.read(&topic, true);
    for (record, place) in records.iter().zip(places) {
        let read = found.iter().find(|read| (read.partition, read.offset) == place).expect("it was acknowledged");
        assert_eq!((&read.key, &read.value, &read.headers), (&record.key, &record.value, &record.headers));
        assert!(record.timestamp.is_none_or(|timestamp| timestamp == read.timestamp));
    }
    assert_eq!(found.len(), records.len());
    assert_eq!(kcat_read(broker.address(), &topic, true), without_headers(found.clone()));
    assert_eq!(client.read_from(&topic, 0, 1), found[1..3]);

    client.add_partitions(&topic, 3);
    assert_eq!(client.partition_count(&topic), 3);
    client.delete_topic(&topic);
    assert!(!client.topics().contains(&topic));
}

#[test]
fn both_producers_choose_the_same_partition_for_a_key() {
    if kafka_missing("the producers of the tests") {
        return;
    }
    let (broker, ours, kcats) = (Broker::shared(), unique("ours"), unique("kcats"));
    let client = broker.client();
    let keys: Vec<String> = (0..1000).map(|n| format!("key {n}")).collect();
    for topic in [&ours, &kcats] {
        client.create_topic(topic, 7);
    }
    client.produce(&ours, &keys.iter().map(|key| NewRecord::keyed(key.as_str(), "v")).collect::<Vec<_>>());
    kcat_produce(broker.address(), &kcats, keys.iter().map(|key| format!("{key}\tv\n")).collect::<String>().as_bytes());
    let of =
        |topic: &str| client.read(topic, true).into_iter().map(|r| (r.partition, r.offset, r.key)).collect::<Vec<_>>();
    assert_eq!(of(&ours).len(), keys.len());
    assert_eq!(of(&ours), of(&kcats));
}

/// In the environment of the test program that is killed in the next test.
const IS_CHILD: &str = "LOCKGATE_TEST_IS_CHILD";

#[test]
fn a_broker_ends_with_its_test_program_however_that_ends() {
    if kafka_missing("the broker of the tests") {
        return;
    }
    if std::env::var_os(IS_CHILD).is_some() {
        let broker = Broker::start();
        println!("\nbroker={} {}", broker.address(), broker.folder().display());
        // Only its end ends this.
        std::io::stdin().lines().for_each(drop);
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("a program knows its path"))
        .args(["--exact", "a_broker_ends_with_its_test_program_however_that_ends", "--nocapture"])
        .env(IS_CHILD, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map(|line| line.expect("UTF-8"));
    let line = lines.into_iter().find_map(|line| line.strip_prefix("broker=").map(str::to_owned));
    let line = line.expect("it starts a broker");
    let (address, folder) = line.split_once(' ').expect("an address and a folder");
    assert!(TcpStream::connect(address).is_ok() && Path::new(folder).exists());
    child.kill().expect("it is running");
    child.wait().expect("it can be waited for");
    wait_until("the end of the broker", || TcpStream::connect(address).is_err() && !Path::new(folder).exists());
}
