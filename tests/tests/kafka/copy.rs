//! A copy by a job is the copy that a person would expect: nothing of a record changes, and the job ends or stops when it should.

use lockgate_tests::KafkaJob;
use lockgate_tests::kafka::{NewRecord, Record};
use lockgate_tests::{Copied, assert_exactly_once, numbered};

use crate::brokers::{shared, values};

/// Records of every shape that Kafka has.
fn shapes() -> Vec<NewRecord> {
    let bytes = (0..=255).collect::<Vec<u8>>();
    let plain = [
        NewRecord::keyed("key", "value"),
        NewRecord::value("no key"),
        NewRecord::keyed("", "an empty key"),
        NewRecord::keyed("an empty value", ""),
        NewRecord::tombstone("a tombstone"),
        NewRecord::tombstone("a tombstone with headers").with_header("why", Some(b"gone")),
        NewRecord::default().with_header("neither key nor value", None),
        NewRecord::keyed(bytes.clone(), bytes.clone()).with_header("bytes", Some(&bytes)),
    ];
    let headers = [
        NewRecord::keyed("h1", "one header").with_header("trace", Some(b"0af7651916cd43dd")),
        NewRecord::keyed("h2", "a name twice, in order").with_header("a", Some(b"2")).with_header("a", Some(b"1")),
        NewRecord::keyed("h3", "empty and missing").with_header("empty", Some(b"")).with_header("missing", None),
        NewRecord::keyed("h4", "a name without letters").with_header("", Some(b"x")),
        NewRecord::keyed("h5", "not only ASCII").with_header("gr\u{f6}\u{df}e", Some("\u{1f6a2}".as_bytes())),
    ];
    let shapes = plain.into_iter().chain(headers).enumerate();
    // Times that no clock of a test would give.
    shapes.map(|(place, record)| record.at(1_000_000_000_123 + place as i64 * 86_400_000)).collect()
}

type Shape = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>, i64);

fn produced(records: &[NewRecord]) -> Vec<Shape> {
    let mut shapes = (records.iter().cloned())
        .map(|NewRecord { key, value, headers, timestamp, .. }| (key, value, headers, timestamp.expect("given")))
        .collect::<Vec<_>>();
    shapes.sort();
    shapes
}

fn read(records: Vec<Record>) -> Vec<Shape> {
    let mut shapes = (records.into_iter())
        .map(|Record { key, value, headers, timestamp, .. }| (key, value, headers, timestamp))
        .collect::<Vec<_>>();
    shapes.sort();
    shapes
}

#[test]
fn keys_values_tombstones_headers_and_timestamps_are_kept() {
    let Some((broker, client)) = shared("what a copy keeps") else { return };
    // Straight from source to sink, through an operator in the same thread, and through one behind an exchange.
    for route in ["straight", "chained", "exchanged"] {
        let mut job = KafkaJob::copy("shapes", broker.address()).with("source.in", "mode", "'bounded'");
        match route {
            "straight" => {
                job.without_table("operator.op");
                job.change("sink.out", "input", "'in'");
            }
            "exchanged" => job.change("operator.op", "exchange", "'rebalance'"),
            _ => {}
        }
        job.create_topics(&client, 3);
        client.produce(&job.input(), &shapes());
        job.folder.run().assert_success();
        assert_eq!(read(client.read(&job.output(), true)), produced(&shapes()), "{route}");
    }
}

#[test]
fn a_time_that_kafkas_client_takes_for_none_becomes_the_first_that_it_does_not() {
    let Some((broker, client)) = shared("records of 1970") else { return };
    let job = KafkaJob::copy("epoch", broker.address()).with("source.in", "mode", "'bounded'");
    job.create_topics(&client, 1);
    client.produce(&job.input(), &[0, 1, 2].map(|time_ms| NewRecord::value(time_ms.to_string()).at(time_ms)));
    let times = |topic: &str| client.read(topic, true).iter().map(|record| record.timestamp).collect::<Vec<_>>();
    assert_eq!(times(&job.input()), [0, 1, 2]);
    job.folder.run().assert_success();
    assert_eq!(times(&job.output()), [1, 1, 2]);
}

#[test]
fn a_bounded_job_ends_at_the_offsets_that_the_topics_had_when_it_first_started() {
    let Some((broker, client)) = shared("bounded jobs") else { return };
    let job = KafkaJob::copy("bounded", broker.address()).with("source.in", "mode", "'bounded'");
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    assert!(job.folder.run_to_crash_point("kafka.commit.after").was_killed());
    // Too late: the first run has seen where the topics ended.
    client.produce(&job.input(), &numbered(1_000..1_500));
    for _ in 0..2 {
        job.folder.run().assert_success();
        assert_exactly_once(1_000, &client.read(&job.output(), true));
    }
}

#[test]
fn a_bounded_job_over_an_empty_topic_ends() {
    let Some((broker, client)) = shared("empty topics") else { return };
    let job = KafkaJob::copy("empty", broker.address()).with("source.in", "mode", "'bounded'");
    job.create_topics(&client, 3);
    job.folder.run().assert_success();
    assert_eq!(client.read(&job.output(), false), []);
}

#[test]
fn records_of_aborted_transactions_are_read_only_if_asked_for_and_hold_up_no_end() {
    let Some((broker, client)) = shared("aborted transactions in the input") else { return };
    for (isolation, wanted) in [("read_committed", &["a", "b"][..]), ("read_uncommitted", &["a", "aborted", "b"][..])] {
        let job = KafkaJob::copy("isolation", broker.address()).with("source.in", "mode", "'bounded'").with(
            "source.in",
            "isolation",
            &format!("'{isolation}'"),
        );
        job.create_topics(&client, 1);
        let (input, foreign) = (job.input(), format!("foreign-{}", job.name()));
        for (value, commits) in [("a", true), ("aborted", false), ("b", true), ("aborted", false)] {
            client.begin_transaction(&foreign, 60_000, &input, &[NewRecord::keyed("key", value)]);
            match commits {
                true => client.commit_transaction(&foreign).expect("nobody fences it"),
                false => client.abort_transaction(&foreign).expect("nobody fences it"),
            }
        }
        // The last offset of the input is no record, and with read_committed neither is the one before.
        job.folder.run().assert_success();
        let mut read = values(&client.read(&job.output(), true));
        read.dedup();
        assert_eq!(read, wanted, "{isolation}");
    }
}

#[test]
fn a_continuous_job_stops_with_a_checkpoint_and_continues_there() {
    let Some((broker, client)) = shared("stopping and continuing") else { return };
    let job = KafkaJob::copy("continuous", broker.address()).with("job", "parallelism", "2");
    job.create_topics(&client, 4);
    for round in 0..3 {
        client.produce(&job.input(), &numbered(round * 2_000..(round + 1) * 2_000));
        let mut running = job.folder.start();
        let seen = |count| client.read(&job.output(), true).len() >= count;
        // In the middle of them or after, as it comes.
        running.wait_until("committed output", || seen(round as usize * 2_000 + 1));
        running.terminate();
        running.wait().assert_success();
        let copied = Copied::of((round + 1) * 2_000, &client.read(&job.output(), true));
        assert_eq!(copied.doubled(), 0, "round {round}");
    }
    job.catch_up(&client);
    assert_exactly_once(6_000, &client.read(&job.output(), true));
    assert_exactly_once(6_000, &client.read(&job.output(), false));
}

#[test]
fn an_orderly_end_leaves_no_transaction_open() {
    let Some((broker, client)) = shared("open transactions") else { return };
    let job = KafkaJob::copy("closed", broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..500));
    job.catch_up(&client);
    assert_eq!(client.end_offsets(&job.output(), true), client.end_offsets(&job.output(), false));
    let transactions = client.transactions(&format!("{}/", job.name()));
    let ids = transactions.iter().map(|transaction| transaction.id.as_str()).collect::<Vec<_>>();
    assert_eq!(ids, [format!("{}/0/A", job.name()), format!("{}/0/B", job.name())]);
    for transaction in &transactions {
        assert!(["Empty", "CompleteCommit", "CompleteAbort"].contains(&&*transaction.state), "{transaction:?}");
    }
}
