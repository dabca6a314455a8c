//! The scenarios that Flink tests its Kafka sink with (`KafkaSinkITCase`), by their names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockgate_tests::kafka::{Client, NewRecord};
use lockgate_tests::{Feed, KafkaJob, assert_exactly_once, faulty, numbered, wait_long_until};

use crate::brokers::{shared, values};

fn copy(client: &Client, brokers: &str) -> KafkaJob {
    let job = KafkaJob::copy("scenario", brokers);
    job.create_topics(client, 4);
    job
}

/// Whether readers of the output wait for a transaction.
fn holds_readers_up(job: &KafkaJob, client: &Client) -> bool {
    client.end_offsets(&job.output(), true) != client.end_offsets(&job.output(), false)
}

/// For how long the operator fails at first. Where the record comes to it later than that, there is another with twice the time.
const FAILS_FOR: Duration = Duration::from_millis(1_500);

/// A job whose operator fails for a while, and then no more; the process goes on all the while.
fn recovers_by_itself(checkpoint: &[(&str, &str)]) {
    let Some((broker, client)) = shared("recovery within a process") else { return };
    let mut job = copy(&client, broker.address()).with("job", "parallelism", "2");
    job.change("operator.op", "wasm", &format!("'{}'", faulty().display()));
    checkpoint.iter().for_each(|(key, value)| job.change("checkpoint", key, value));
    client.produce(&job.input(), &numbered(0..3_000));
    let mut running = job.folder.start();
    job.wait_until_caught_up(&mut running, &client);
    client.produce(&job.input(), &numbered(3_000..6_000));
    let mut passing = Vec::new();
    let mut fails_for = FAILS_FOR;
    while !running.stderr().contains("restart 1 of") {
        passing.push(later_than(fails_for));
        client.produce(&job.input(), &[NewRecord::keyed("key-0", passing.last().expect("one").clone())]);
        wait_long_until("the operator to fail at the record or to let it through", || {
            assert!(running.is_alive(), "{}", running.stderr());
            running.stderr().contains("restart 1 of") || job.has_caught_up(&client, &job.input())
        });
        fails_for *= 2;
    }
    client.produce(&job.input(), &numbered(6_000..9_000));
    job.wait_until_caught_up(&mut running, &client);
    running.terminate();
    running.wait().assert_success();
    let (failed, output) = client
        .read(&job.output(), true)
        .into_iter()
        .partition::<Vec<_>, _>(|record| passing.contains(&record.text().to_owned()));
    assert_eq!(values(&failed), passing, "each record that failed is there once");
    assert_exactly_once(9_000, &output);
}

/// The value of a record at which the operator fails for so long.
fn later_than(time: Duration) -> String {
    let until = SystemTime::now() + time;
    format!("later than {}", until.duration_since(UNIX_EPOCH).expect("after 1970").as_millis())
}

#[test]
fn recovery_with_exactly_once() {
    recovers_by_itself(&[]);
}

#[test]
fn recovery_with_concurrent_checkpoints() {
    recovers_by_itself(&[("max_concurrent", "2"), ("interval", "'20ms'")]);
}

#[test]
fn recovery_with_concurrent_checkpoints_after_kills() {
    let Some((broker, client)) = shared("concurrent checkpoints") else { return };
    let job = copy(&client, broker.address())
        .with("job", "parallelism", "2")
        .with("checkpoint", "max_concurrent", "2")
        .with("checkpoint", "interval", "'10ms'");
    let points = ["kafka.commit.before:2", "kafka.commit.after:3", "runtime.published:2", "kafka.flush.after:2"];
    let mut feed = Feed::new(&client, &job);
    for point in points {
        feed.add(1_000);
        assert!(feed.crash(&job, point), "{point}");
    }
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}

#[test]
fn abort_of_pending_transactions_after_failure() {
    let Some((broker, client)) = shared("pending transactions") else { return };
    let job = copy(&client, broker.address());
    client.produce(&job.input(), &numbered(0..1_000));
    assert!(job.folder.run_to_crash_point("kafka.read_back.after").was_killed());
    client.produce(&job.input(), &numbered(1_000..2_000));
    assert!(job.folder.run_to_crash_point("kafka.commit.before").was_killed());
    assert!(holds_readers_up(&job, &client), "the transaction is pending");
    let committed = client.read(&job.output(), true).len();
    assert!(job.folder.run_to_crash_point("recover.committed").was_killed());
    assert!(!holds_readers_up(&job, &client), "the next attempt has aborted it");
    assert_eq!(client.read(&job.output(), true).len(), committed, "and nothing of it is seen");
    job.catch_up(&client);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

#[test]
fn abort_after_scale_in_before_the_first_checkpoint() {
    let Some((broker, client)) = shared("scale-in before the first checkpoint") else { return };
    let job = copy(&client, broker.address()).with("job", "parallelism", "4");
    client.produce(&job.input(), &numbered(0..1_000));
    assert!(job.folder.run_to_crash_point("runtime.publish.before").was_killed());
    assert_eq!(job.newest_epoch(), 0, "there is no checkpoint yet");
    let job = job.with("job", "parallelism", "1");
    assert!(job.folder.run_to_crash_point("recover.committed").was_killed());
    assert!(!holds_readers_up(&job, &client), "all transactions of the wider job are aborted");
    assert_eq!(client.read(&job.output(), true), []);
    job.catch_up(&client);
    assert_exactly_once(1_000, &client.read(&job.output(), true));
}

#[test]
fn rescaling() {
    let Some((broker, client)) = shared("rescaling") else { return };
    let mut job = copy(&client, broker.address());
    let turns =
        [(1, "kafka.commit.before:2"), (3, "kafka.commit.after:2"), (2, "runtime.published"), (4, "kafka.flush.after")];
    let mut feed = Feed::new(&client, &job);
    for (parallelism, point) in turns {
        job.change("job", "parallelism", &format!("{parallelism}"));
        feed.add(1_000);
        assert!(feed.crash(&job, point), "{point}");
    }
    job.change("job", "parallelism", "1");
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}
