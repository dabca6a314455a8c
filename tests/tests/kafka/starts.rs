//! Where a job starts that has no checkpoint yet, and that afterwards its checkpoint is all that counts.

use lockgate_tests::KafkaJob;
use lockgate_tests::kafka::{Client, NewRecord};

use crate::UNUSABLE;
use crate::brokers::{assert_nothing_left, shared, values};

/// Milliseconds of the first record, 2026-01-01T00:00:00Z; each is a second later than the one before.
const FIRST_MS: i64 = 1_767_225_600_000;

fn records(numbers: std::ops::Range<i64>) -> Vec<NewRecord> {
    let record = |number: i64| NewRecord::value(format!("{number:03}")).at(FIRST_MS + number * 1_000);
    numbers.map(record).collect()
}

fn wanted(numbers: std::ops::Range<i64>) -> Vec<String> {
    numbers.map(|number| format!("{number:03}")).collect()
}

/// A job over a topic with the records 0 to 99 in one partition.
fn job(client: &Client, brokers: &str) -> KafkaJob {
    let job = KafkaJob::copy("start", brokers).with("source.in", "mode", "'bounded'");
    job.create_topics(client, 1);
    client.produce(&job.input(), &records(0..100));
    job
}

/// Runs the job, and another time to see that the checkpoint counts and not the start.
fn assert_starts_at(client: &Client, job: &KafkaJob, first: i64) {
    for _ in 0..2 {
        job.folder.run().assert_success();
        assert_eq!(values(&client.read(&job.output(), true)), wanted(first..100));
    }
}

#[test]
fn earliest_starts_at_the_first_record_that_is_left() {
    let Some((broker, client)) = shared("start = earliest") else { return };
    let job = job(&client, broker.address());
    client.delete_records(&job.input(), 0, 20);
    assert_starts_at(&client, &job, 20);
}

#[test]
fn latest_starts_behind_what_is_there_and_misses_nothing_after_that() {
    let Some((broker, client)) = shared("start = latest") else { return };
    let job =
        job(&client, broker.address()).with("source.in", "start", "'latest'").with("source.in", "mode", "'continuous'");
    let mut running = job.folder.start();
    // Somewhere among these it begins to listen; one of them that is put out is in a checkpoint, and so is the start.
    let mut next = 100;
    running.wait_until("the first output", || {
        client.produce(&job.input(), &records(next..next + 1));
        next += 1;
        !client.read(&job.output(), true).is_empty()
    });
    running.kill();
    running.wait();
    client.produce(&job.input(), &records(next..next + 50));
    job.catch_up(&client);
    let output = values(&client.read(&job.output(), true));
    let first = output[0].parse::<i64>().expect("a number");
    assert!(first >= 100, "record {first} was there before the job");
    assert_eq!(output, wanted(first..next + 50));
}

#[test]
fn committed_starts_at_the_offsets_of_the_group() {
    let Some((broker, client)) = shared("start = committed") else { return };
    let job = job(&client, broker.address()).with("source.in", "start", "'committed'");
    client.commit_group_offset(&job.group(), &job.input(), 0, 40);
    assert_starts_at(&client, &job, 40);
}

#[test]
fn a_timestamp_starts_at_the_first_record_that_is_not_older() {
    let Some((broker, client)) = shared("start = a timestamp") else { return };
    // Record 70 is of 00:01:10.
    for (time, first) in [("00:01:10Z", 70), ("00:01:09.500Z", 70), ("01:01:10+01:00", 70)] {
        let start = format!("{{ timestamp = '2026-01-01T{time}' }}");
        let job = job(&client, broker.address()).with("source.in", "start", &start);
        assert_starts_at(&client, &job, first);
    }
}

#[test]
fn a_timestamp_after_the_last_record_starts_behind_it() {
    let Some((broker, client)) = shared("start = a late timestamp") else { return };
    let start = "{ timestamp = '2026-02-01T00:00:00Z' }";
    let job = job(&client, broker.address()).with("source.in", "start", start);
    assert_starts_at(&client, &job, 100);
}

#[test]
fn offsets_start_there() {
    let Some((broker, client)) = shared("start = offsets") else { return };
    let job = job(&client, broker.address());
    let start = format!("{{ offsets = {{ '{}' = {{ '0' = 30 }} }} }}", job.input());
    assert_starts_at(&client, &job.with("source.in", "start", &start), 30);
}

#[test]
fn offsets_that_are_not_there_are_refused_by_the_check_and_by_the_run() {
    let Some((broker, client)) = shared("start = offsets that aren't there") else { return };
    let mut job = job(&client, broker.address());
    client.delete_records(&job.input(), 0, 20);
    let start = |partition: i32, offset: u64| {
        format!("{{ offsets = {{ '{}' = {{ '{partition}' = {offset} }} }} }}", job.input())
    };
    let of_partition =
        format!("start gives an offset for partition 7 of topic '{}', which has 1 partitions", job.input());
    let beyond = format!("start begins at offset 101 of {}/0, and it ends at 100", job.input());
    let before = format!("start begins at offset 5 of {}/0, and its first record is at 20", job.input());
    let (last, refused) =
        (start(0, 100), [(start(7, 0), of_partition), (start(0, 101), beyond), (start(0, 5), before)]);
    for (start, says) in refused {
        job.change("source.in", "start", &start);
        let checked = job.check_connected();
        assert_eq!(checked.status.code(), Some(UNUSABLE), "{checked:?}");
        assert!(checked.stdout.contains(&says), "'{says}' in: {checked:?}");
        assert!(!checked.stdout.contains("source in: in: "), "its name is said once: {checked:?}");
        job.folder.run().assert_refused(UNUSABLE, &[&says]);
        assert_nothing_left(&job, &client);
        assert_eq!(client.read(&job.output(), false), []);
    }
    job.change("source.in", "start", &last);
    assert!(job.check_connected().status.success());
    assert_starts_at(&client, &job, 100);
}
