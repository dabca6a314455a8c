//! To which partition a record goes.

use std::collections::BTreeMap;

use lockgate_tests::kafka::{Client, NewRecord, Record};
use lockgate_tests::{Feed, KafkaJob, assert_exactly_once};

use crate::brokers::shared;

const PARTITIONS: i32 = 7;

/// Keys with their murmur2 hash, from the tests of Kafka's Java client (`UtilsTest.testMurmur2`).
const HASHES: [(&str, i32); 6] = [
    ("21", -973_932_308),
    ("foobar", -790_332_482),
    ("a-little-bit-long-string", -985_981_536),
    ("a-little-bit-longer-string", -1_486_304_829),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
    ("abc", 479_470_107),
];

/// What a job makes of these records with a `partition` setting.
fn copy(client: &Client, brokers: &str, partition: &str, records: &[NewRecord]) -> Vec<Record> {
    let job = KafkaJob::copy("partition", brokers).with("source.in", "mode", "'bounded'").with(
        "sink.out",
        "partition",
        partition,
    );
    client.create_topic(&job.input(), 1);
    client.create_topic(&job.output(), PARTITIONS);
    client.produce(&job.input(), records);
    job.folder.run().assert_success();
    let copied = client.read(&job.output(), true);
    assert_eq!(copied.len(), records.len());
    copied
}

fn by_partition(records: &[Record]) -> BTreeMap<i32, usize> {
    let mut counts = BTreeMap::new();
    records.iter().for_each(|record| *counts.entry(record.partition).or_default() += 1);
    counts
}

#[test]
fn a_key_goes_to_the_partition_that_the_java_client_chooses() {
    let Some((broker, client)) = shared("partitions by key") else { return };
    let records = HASHES.map(|(key, _)| NewRecord::keyed(key, "x"));
    for record in copy(&client, broker.address(), "'key'", &records) {
        let (key, hash) = HASHES.into_iter().find(|(key, _)| *key == record.key_text()).expect("a key of ours");
        assert_eq!(record.partition, (hash & i32::MAX) % PARTITIONS, "{key}");
    }
}

#[test]
fn the_order_within_a_key_is_kept_between_unequal_parallelisms_through_crashes() {
    let Some((broker, client)) = shared("order between unequal parallelisms") else { return };
    let job = KafkaJob::copy("unequal", broker.address())
        .with("source.in", "parallelism", "2")
        .with("operator.op", "parallelism", "3")
        .with("sink.out", "parallelism", "2");
    job.create_topics(&client, 4);
    let mut feed = Feed::new(&client, &job);
    for point in ["kafka.commit.after:2", "kafka.flush.after:2"] {
        feed.add(5_000);
        assert!(feed.crash(&job, point), "{point}");
    }
    feed.add(5_000);
    // Without a key there is no order, and each is there all the same.
    client.produce(&job.input(), &vec![NewRecord::value("no key"); 50]);
    job.catch_up(&client);
    let (keyed, rest) =
        client.read(&job.output(), true).into_iter().partition::<Vec<_>, _>(|record| record.key.is_some());
    assert_exactly_once(feed.count(), &keyed);
    assert_eq!(rest.len(), 50);
}

#[test]
fn records_without_a_key_are_spread_a_few_at_a_time() {
    let Some((broker, client)) = shared("records without a key") else { return };
    let job = KafkaJob::copy("no-key", broker.address());
    client.create_topic(&job.input(), 1);
    client.create_topic(&job.output(), PARTITIONS);
    let mut running = job.folder.start();
    // Those that come together may go to the same partition, to fill a batch.
    for _ in 0..8 {
        client.produce(&job.input(), &vec![NewRecord::value("x"); 10]);
        job.wait_until_caught_up(&mut running, &client);
    }
    running.terminate();
    running.wait().assert_success();
    let counts = by_partition(&client.read(&job.output(), true));
    assert!(counts.len() > 1, "{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), 80);
}

#[test]
fn round_robin_gives_each_partition_as_many_records_whatever_their_keys() {
    let Some((broker, client)) = shared("round-robin") else { return };
    let records = vec![NewRecord::keyed("the same", "x"); 700];
    let counts = by_partition(&copy(&client, broker.address(), "'round-robin'", &records));
    assert_eq!(counts, (0..PARTITIONS).map(|partition| (partition, 100)).collect());
}

#[test]
fn a_partition_that_is_named_gets_all() {
    let Some((broker, client)) = shared("a named partition") else { return };
    let records = (0..50).map(|number| NewRecord::keyed(format!("{number}"), "x")).collect::<Vec<_>>();
    assert_eq!(by_partition(&copy(&client, broker.address(), "5", &records)), BTreeMap::from([(5, 50)]));
}
