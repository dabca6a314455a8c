//! Jobs that promise less than exactly-once keep what they promise, and lag tools see how far a job is under each guarantee.

use lockgate_tests::kafka::Client;
use lockgate_tests::{Copied, Feed, KafkaJob, assert_exactly_once, numbered, numbered_lines};

use crate::UNUSABLE;
use crate::brokers::shared;

const RECORDS: u64 = 4_000;

fn job(guarantee: &str, client: &Client, brokers: &str) -> KafkaJob {
    let job = KafkaJob::copy(guarantee, brokers).with("job", "guarantee", &format!("'{guarantee}'")).with(
        "job",
        "parallelism",
        "2",
    );
    job.create_topics(client, 4);
    job
}

/// Crashes at each of these points in turn, while more and more records come, and runs the job to the end of its input. Gives
/// how many records there were.
fn crash_in_turn(job: &KafkaJob, client: &Client, points: &[&str]) -> u64 {
    let mut feed = Feed::new(client, job);
    for point in points {
        feed.add(500);
        assert!(feed.crash(job, point), "no run comes by {point}");
    }
    job.catch_up(client);
    feed.count()
}

#[test]
fn at_least_once_never_loses_a_record() {
    let Some((broker, client)) = shared("at-least-once") else { return };
    let job = job("at-least-once", &client, broker.address());
    let points = [
        "runtime.publish.before",
        "store.publish.after",
        "runtime.published",
        "runtime.committed",
        "runtime.published:2",
    ];
    let count = crash_in_turn(&job, &client, &points);
    let copied = Copied::of(count, &client.read(&job.output(), false));
    println!("at-least-once: {} doubled of {count}", copied.doubled());
    assert_eq!(copied.missing(), 0);
    assert_eq!(client.transactions(&format!("{}/", job.name())), [], "it has no use for transactions");
}

#[test]
fn at_most_once_never_puts_a_record_out_twice() {
    let Some((broker, client)) = shared("at-most-once") else { return };
    let job = job("at-most-once", &client, broker.address());
    let points = ["store.progress.before", "store.progress.after", "runtime.published", "store.progress.after:2"];
    let count = crash_in_turn(&job, &client, &points);
    let copied = Copied::of(count, &client.read(&job.output(), false));
    println!("at-most-once: {} lost of {count}", copied.missing());
    assert_eq!(copied.doubled(), 0);
}

#[test]
fn without_a_failure_every_guarantee_gives_each_record_once_and_in_order() {
    let Some((broker, client)) = shared("guarantees without failures") else { return };
    for guarantee in ["exactly-once", "at-least-once", "at-most-once"] {
        let job = job(guarantee, &client, broker.address());
        client.produce(&job.input(), &numbered(0..RECORDS));
        job.catch_up(&client);
        assert_exactly_once(RECORDS, &client.read(&job.output(), false));
        let end = client.end_offsets(&job.input(), false);
        assert_eq!(job.committed(&client, &job.input()), end, "{guarantee}: a lag tool sees no lag");
    }
}

#[test]
fn a_group_of_the_users_choice_has_the_offsets() {
    let Some((broker, client)) = shared("a group by name") else { return };
    let job = job("exactly-once", &client, broker.address());
    let group = lockgate_tests::kafka::unique("my-group");
    let job = job.with("source.in", "group", &format!("'{group}'"));
    client.produce(&job.input(), &numbered(0..100));
    let mut running = job.folder.start();
    running.wait_until("committed output", || client.read(&job.output(), true).len() == 100);
    running.terminate();
    running.wait().assert_success();
    let read = client.group_offsets(&group).values().map(|committed| committed.offset).sum::<i64>();
    assert_eq!(read, 100);
    assert!(client.group_offsets(&job.group()).is_empty());
}

#[test]
fn lines_of_files_reach_kafka_once_whenever_the_process_is_killed() {
    let Some((broker, client)) = shared("files into Kafka") else { return };
    let job = KafkaJob::new("files-to-kafka")
        .with("checkpoint", "interval", "'20ms'")
        .with("source.text", "type", "'file'")
        .with("source.text", "path", "'input'")
        .with_operator("op", "identity", "text")
        .with_kafka_sink("out", broker.address(), "op");
    client.create_topic(&job.output(), 3);
    let mut wanted = Vec::new();
    let points =
        ["kafka.flush.after", "runtime.published", "kafka.commit.before:2", "kafka.commit.after", "kafka.fence.after"];
    for (turn, point) in (0..).zip(points) {
        let lines = numbered_lines(turn * 10_000..(turn + 1) * 10_000, 40);
        job.folder.write(format!("input/{turn}.txt"), &lines);
        wanted.extend(lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
        assert!(job.folder.run_to_crash_point(point).was_killed(), "{point}");
    }
    job.folder.run().assert_success();
    let mut copied = client.read(&job.output(), true).into_iter().filter_map(|record| record.value).collect::<Vec<_>>();
    copied.sort();
    wanted.sort();
    assert!(copied == wanted, "{} lines instead of {}", copied.len(), wanted.len());
}

#[test]
fn a_job_that_becomes_exactly_once_goes_on_from_its_last_checkpoint_and_stays_so() {
    let Some((broker, client)) = shared("a guarantee that changes") else { return };
    let mut job = job("at-least-once", &client, broker.address());
    let mut feed = Feed::new(&client, &job);
    feed.add(1_000);
    job.catch_up(&client);
    job.change("job", "guarantee", "'exactly-once'");
    for point in ["kafka.adopt.before", "kafka.adopt.after", "kafka.commit.before", "kafka.commit.after"] {
        feed.add(500);
        assert!(feed.crash(&job, point), "{point}");
    }
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
    // Now only the marker says what is committed.
    job.change("job", "guarantee", "'at-least-once'");
    let decided = format!("checkpoint {}", job.newest_epoch());
    job.folder.run().assert_refused(UNUSABLE, &[&decided, &job.marker_topic()]);
    job.change("job", "guarantee", "'exactly-once'");
    feed.add(500);
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}
