//! What a partition was never told the end of: it ends as its coordinator says, and where that has forgotten, a person is asked.

use std::sync::LazyLock;

use lockgate_tests::kafka::{Broker, Client, kafka_missing};
use lockgate_tests::{Finished, KafkaJob, assert_exactly_once, number_of, numbered, wait_long_until};

use crate::FAILED;
use crate::brokers::values;
use crate::downtime::has_open_transaction;

const RECORDS: u64 = 100;

/// A broker that takes records of transactions that have ended, as those before Kafka 3.6 did, and looks often for transactions
/// that are too old.
fn gullible(what: &str) -> Option<&'static Broker> {
    static BROKER: LazyLock<Broker> = LazyLock::new(|| {
        Broker::start_with(&[
            ("transaction.partition.verification.enable", "false"),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
        ])
    });
    (!kafka_missing(what)).then(|| &*BROKER)
}

/// A copy that was killed at a crash point, and one record of a transaction of its own that hangs in the output: of an id that the
/// coordinator says this of.
fn hung(client: &Client, broker: &Broker, crash_point: &str, state: &str) -> (KafkaJob, String, i64) {
    let job = KafkaJob::copy("hanging", broker.address()).with("sink.out", "transaction_timeout", "'5s'");
    job.create_topics(client, 1);
    client.produce(&job.input(), &numbered(0..RECORDS));
    assert!(job.folder.run_to_crash_point(crash_point).was_killed());
    wait_long_until("the transactions of the job have ended", || !has_open_transaction(client, &job));
    let ids = client.transactions(&format!("{}/", job.name()));
    let id = ids.into_iter().find(|known| known.state == state).expect("an id in this state").id;
    let late = numbered(RECORDS..RECORDS + 1);
    let offset = client.leave_hanging(&id, &job.output(), 0, &late);
    assert_eq!(client.end_offsets(&job.output(), true)[&0], offset, "readers are held back");
    (job, id, offset)
}

fn assert_warns(finished: &Finished, words: &str) {
    assert!(finished.stderr.contains(words), "{words:?} is missing in:\n{}", finished.stderr);
}

fn assert_nothing_hangs(client: &Client, job: &KafkaJob) {
    for topic in [job.output(), job.marker_topic()] {
        assert_eq!(client.end_offsets(&topic, true), client.end_offsets(&topic, false), "{topic}");
    }
}

#[test]
fn what_hangs_of_a_transaction_that_was_committed_is_committed() {
    let Some(broker) = gullible("transactions that hang") else { return };
    let client = broker.client();
    let (job, ..) = hung(&client, broker, "kafka.commit.after", "CompleteCommit");
    assert_warns(&job.catch_up(&client), "a transaction that was committed hung in a partition");
    // The late one came before those that the job hadn't committed yet.
    let numbers =
        values(&client.read(&job.output(), true)).iter().filter_map(|value| number_of(value)).collect::<Vec<_>>();
    assert_eq!(numbers, (0..=RECORDS).collect::<Vec<_>>());
    assert_nothing_hangs(&client, &job);
}

#[test]
fn what_hangs_of_a_transaction_that_was_aborted_is_aborted() {
    let Some(broker) = gullible("transactions that hang") else { return };
    let client = broker.client();
    let (job, ..) = hung(&client, broker, "kafka.commit.before", "CompleteAbort");
    assert_warns(&job.catch_up(&client), "a transaction that was aborted hung in a partition");
    assert_exactly_once(RECORDS, &client.read(&job.output(), true));
    assert_nothing_hangs(&client, &job);
}

#[test]
fn what_hangs_of_a_transaction_that_nobody_remembers_is_left_to_the_user() {
    let Some(broker) = gullible("transactions that hang") else { return };
    let client = broker.client();
    let (job, id, offset) = hung(&client, broker, "kafka.fence.after", "Empty");
    let place = format!("--topic {} --partition 0 --start-offset {offset}", job.output());
    let words = ["hangs in partition", &id, "doesn't know any more whether it was committed", "abort", &place];
    job.folder.run().assert_refused(FAILED, &words);
    // Nothing was done to it.
    assert_eq!(client.end_offsets(&job.output(), true)[&0], offset);
    client.abort_hanging(&job.output(), 0);
    job.catch_up(&client);
    assert_exactly_once(RECORDS, &client.read(&job.output(), true));
    assert_nothing_hangs(&client, &job);
}
