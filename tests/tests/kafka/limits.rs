//! What is too large or too slow for a limit is told with the setting that holds it, and goes through once that is raised.

use lockgate_tests::kafka::{Client, NewRecord};
use lockgate_tests::{Feed, Finished, KafkaJob, Running, assert_exactly_once, numbered, wait_until};

use crate::brokers::{assert_nothing_left, shared};
use crate::{FAILED, UNUSABLE};

/// A record with so many bytes.
fn large(bytes: usize) -> NewRecord {
    NewRecord::keyed("large", vec![b'x'; bytes])
}

#[test]
fn a_record_that_is_too_large_for_the_topic_is_told_with_the_topics_limit() {
    let Some((broker, client)) = shared("records that are too large for a topic") else { return };
    let job = KafkaJob::copy("large", broker.address());
    client.create_topic(&job.input(), 1);
    client.create_topic_with(&job.output(), 1, &[("max.message.bytes", "2000")]);
    client.produce(&job.input(), &[large(100), large(5_000), large(200)]);
    job.folder.run().assert_refused(FAILED, &[&job.output(), "max.message.bytes"]);
    assert_eq!(client.read(&job.output(), true), [], "nothing was committed");
    client.delete_topic(&job.output());
    client.create_topic(&job.output(), 1);
    job.catch_up(&client);
    let sizes = client.read(&job.output(), true).iter().map(|record| record.text().len()).collect::<Vec<_>>();
    assert_eq!(sizes, [100, 5_000, 200]);
}

#[test]
fn a_record_that_is_too_large_for_the_client_is_told_with_the_clients_limit() {
    let Some((broker, client)) = shared("records that are too large for the client") else { return };
    let mut job = KafkaJob::copy("large", broker.address());
    job.create_topics(&client, 1);
    job.change("sink.out", "properties", "{ 'message.max.bytes' = '20000' }");
    client.produce(&job.input(), &[large(1_000), large(50_000), large(2_000)]);
    job.folder.run().assert_refused(FAILED, &["message.max.bytes"]);
    job.without("sink.out", "properties");
    job.catch_up(&client);
    let sizes = client.read(&job.output(), true).iter().map(|record| record.text().len()).collect::<Vec<_>>();
    assert_eq!(sizes, [1_000, 50_000, 2_000]);
}

#[test]
fn records_that_a_buffer_could_never_hold_are_told_with_both_settings() {
    let Some((broker, client)) = shared("records that are larger than the buffers") else { return };
    let mut job = KafkaJob::copy("large", broker.address())
        .with("source.in", "buffer", "'4MiB'")
        .with("sink.out", "buffer", "'4MiB'")
        .with("sink.out", "properties", "{ 'message.max.bytes' = '8000000' }");
    for topic in [job.input(), job.output()] {
        client.create_topic_with(&topic, 1, &[("max.message.bytes", "8000000")]);
    }
    let sizes = [10, 5_000_000, 20, 6_000_000];
    client.produce(&job.input(), &sizes.map(large));
    job.folder.run().assert_refused(UNUSABLE, &["message.max.bytes", "buffer", "sink.out.buffer"]);
    // What a source holds is bounded by the same, but a record that is larger goes through.
    job.change("sink.out", "buffer", "'20MiB'");
    job.catch_up(&client);
    assert_eq!(client.read(&job.output(), true).iter().map(|record| record.text().len()).collect::<Vec<_>>(), sizes);
}

#[test]
fn a_transaction_timeout_above_the_brokers_limit_is_told_with_the_brokers_setting() {
    let Some((broker, client)) = shared("transaction timeouts above the limit") else { return };
    let mut job = KafkaJob::copy("timeout", broker.address());
    job.create_topics(&client, 1);
    job.change("sink.out", "transaction_timeout", "'2h'");
    client.produce(&job.input(), &numbered(0..100));
    let refused = job.folder.run();
    refused.assert_refused(UNUSABLE, &["transaction_timeout", "transaction.max.timeout.ms"]);
    for raw in ["librdkafka", "transactional PID"] {
        assert!(!refused.stderr.contains(raw), "it is said once, in our words: {}", refused.stderr);
    }
    assert_nothing_left(&job, &client);
    assert_eq!(client.read(&job.output(), false), []);
    job.without("sink.out", "transaction_timeout");
    job.catch_up(&client);
    assert_exactly_once(100, &client.read(&job.output(), true));
}

#[test]
fn a_transaction_timeout_that_no_checkpoint_is_shorter_than_is_refused_before_anything_runs() {
    let job = KafkaJob::copy("outlast", "localhost:1").with("sink.out", "transaction_timeout", "'2s'").with(
        "checkpoint",
        "interval",
        "'2s'",
    );
    for verb in ["check", "run"] {
        let refused = Running::start(job.folder.command(verb)).wait();
        refused.assert_refused(UNUSABLE, &["sink.out.transaction_timeout", "checkpoint.interval"]);
    }
    assert!(!job.folder.path("state").exists(), "nothing is done");
}

/// A job whose checkpoints come so late that a transaction which began with the checkpoint before is too old for them, by a little.
fn outlasting(client: &Client, brokers: &str) -> KafkaJob {
    let job = KafkaJob::copy("outlast", brokers).with("sink.out", "transaction_timeout", "'2s'").with(
        "checkpoint",
        "interval",
        "'1900ms'",
    );
    job.create_topics(client, 1);
    job
}

/// Runs the job while records come all the time, so that each transaction begins at once.
fn fed_to_its_end(job: &KafkaJob, feed: &mut Feed<'_>) -> Finished {
    let mut running = job.folder.start();
    wait_until("the end of the job", || {
        feed.add(1);
        !running.is_alive()
    });
    running.wait()
}

#[test]
fn a_checkpoint_that_takes_longer_than_the_transaction_timeout_is_told_with_both_settings() {
    let Some((broker, client)) = shared("checkpoints that outlast the transaction timeout") else { return };
    let mut job = outlasting(&client, broker.address()).with("restart", "strategy", "'none'");
    let mut feed = Feed::new(&client, &job);
    let refused = fed_to_its_end(&job, &mut feed);
    refused.assert_refused(FAILED, &["transaction_timeout", "checkpoint.interval"]);
    job.change("checkpoint", "interval", "'100ms'");
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}

#[test]
fn checkpoints_that_outlast_the_transaction_timeout_are_tried_again_and_then_given_up() {
    let Some((broker, client)) = shared("checkpoints that outlast the timeout again and again") else { return };
    let job = outlasting(&client, broker.address()).with("restart", "attempts", "2");
    let mut feed = Feed::new(&client, &job);
    let refused = fed_to_its_end(&job, &mut feed);
    refused.assert_refused(FAILED, &["attempts made: 3", "transaction_timeout"]);
    let job = job.with("checkpoint", "interval", "'100ms'");
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}
