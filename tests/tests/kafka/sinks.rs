//! Several sinks of a job: those into Kafka share one transaction, and what can't be in one transaction is refused.

use lockgate_tests::{Feed, KafkaJob, assert_exactly_once, numbered};

use crate::UNUSABLE;
use crate::brokers::shared;

#[test]
fn two_sinks_into_kafka_are_committed_together_or_not_at_all() {
    let Some((broker, client)) = shared("two sinks into Kafka") else { return };
    let job = KafkaJob::copy("two-sinks", broker.address()).with("sink.out", "parallelism", "2").with_kafka_sink(
        "copy",
        broker.address(),
        "in",
    );
    job.create_topics(&client, 2);
    client.create_topic(&job.topic("copy"), 3);
    let points = ["kafka.flush.before", "kafka.commit.before", "kafka.commit.after", "kafka.commit.before:2"];
    let mut feed = Feed::new(&client, &job);
    for point in points {
        feed.add(500);
        assert!(feed.crash(&job, point), "{point}");
        assert!(job.folder.run_to_crash_point("recover.committed").was_killed());
        let [one, other] = [job.output(), job.topic("copy")].map(|topic| client.read(&topic, true).len());
        assert_eq!(one, other, "after {point}");
    }
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
    assert_exactly_once(feed.count(), &client.read(&job.topic("copy"), true));
    let ids = client.transactions(&format!("{}/", job.name())).len();
    assert_eq!(ids, 2, "all sinks share two transactional ids");
}

#[test]
fn the_offsets_of_two_sources_are_in_the_transaction() {
    let Some((broker, client)) = shared("two sources") else { return };
    let mut job = KafkaJob::copy("two-sources", broker.address());
    job.create_topics(&client, 2);
    let more = job.topic("more");
    client.create_topic(&more, 2);
    for (key, value) in [
        ("type", "'kafka'".to_owned()),
        ("brokers", format!("'{}'", broker.address())),
        ("topics", format!("['{more}']")),
        ("mode", "'continuous'".to_owned()),
        ("start", "'earliest'".to_owned()),
    ] {
        job.change("source.more", key, &value);
    }
    job.without("sink.out", "input");
    job.change("sink.out", "inputs", "[['op', 'more']]");
    client.produce(&job.input(), &numbered(0..500));
    client.produce(&more, &numbered(0..700));
    let mut running = job.folder.start();
    running.wait_until("both are read", || {
        [job.input(), more.clone()].iter().all(|topic| job.has_caught_up(&client, topic))
    });
    running.kill();
    running.wait();
    assert_eq!(client.read(&job.output(), true).len(), 1_200);
    job.catch_up(&client);
    assert_eq!(client.read(&job.output(), true).len(), 1_200);
}

#[test]
fn sinks_that_cannot_share_a_transaction_are_refused() {
    let job = || KafkaJob::copy("apart", "localhost:1").with_kafka_sink("other", "localhost:1", "in");
    let differences = [
        ("brokers", "'localhost:2'"),
        ("transaction_timeout", "'30s'"),
        ("marker_topic", "'elsewhere'"),
        ("properties", "{ 'linger.ms' = '50' }"),
    ];
    for (key, value) in differences {
        let job = job().with("sink.other", key, value);
        let refused = job.folder.run();
        refused.assert_refused(UNUSABLE, &["out", "other", key]);
        assert!(!job.folder.path("state").exists(), "{key}: nothing is done");
    }
}
