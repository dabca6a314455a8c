//! Topics that aren't there, go away, grow, or have lost what the job wants to read.

use lockgate_tests::kafka::{Client, NewRecord};
use lockgate_tests::{Copied, Feed, Finished, KafkaJob, Running, assert_exactly_once, number_of, numbered};

use crate::brokers::{assert_nothing_left, shared, values};
use crate::lag::{lag_and_read, start};
use crate::{FAILED, UNUSABLE};

fn copy(brokers: &str) -> KafkaJob {
    KafkaJob::copy("topics", brokers).with("source.in", "discover_interval", "'200ms'")
}

/// Waits for the end of a process that must not end well.
fn ended(running: Running) -> Finished {
    let finished = running.wait();
    assert_eq!(finished.status.code(), Some(FAILED), "{}", finished.stderr);
    finished
}

fn start_caught_up(job: &KafkaJob, client: &Client) -> Running {
    let mut running = job.folder.start();
    job.wait_until_caught_up(&mut running, client);
    running
}

#[test]
fn a_topic_that_is_missing_is_told_by_name_and_found_once_it_is_there() {
    let Some((broker, client)) = shared("missing topics") else { return };
    for missing in ["in", "out"] {
        let job = copy(broker.address());
        let (missing, there) = (job.topic(missing), job.topic(if missing == "in" { "out" } else { "in" }));
        client.create_topic(&there, 2);
        job.folder.run().assert_refused(UNUSABLE, &[&missing]);
        assert!(!client.topics().contains(&missing), "nobody has made it");
        assert_nothing_left(&job, &client);
        client.create_topic(&missing, 2);
        client.produce(&job.input(), &numbered(0..500));
        job.catch_up(&client);
        assert_exactly_once(500, &client.read(&job.output(), true));
    }
}

#[test]
fn a_source_topic_that_is_deleted_ends_the_job_and_its_successor_is_not_taken_for_it() {
    let Some((broker, client)) = shared("deleted source topics") else { return };
    let job = copy(broker.address()).with("restart", "strategy", "'none'");
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    let running = start_caught_up(&job, &client);
    client.delete_topic(&job.input());
    let finished = ended(running);
    finished
        .assert_refused(FAILED, &[&job.input(), "deleted", "while the job was running", "another topic", "new name"]);
    assert!(!finished.stderr.contains("--create"), "another one would be refused: {}", finished.stderr);
    let says = [job.input().as_str(), "any more", "another topic", "new name"].map(str::to_owned);
    let checked = job.check_connected();
    assert_eq!(checked.status.code(), Some(UNUSABLE), "{checked:?}");
    assert!(says.iter().all(|said| checked.stdout.contains(said)), "{checked:?}");
    job.folder.run().assert_refused(UNUSABLE, &[&job.input(), "after the job had read from it", "new name"]);
    assert_exactly_once(1_000, &client.read(&job.output(), true));
    // The records of another topic of that name have the offsets of those that were read.
    client.create_topic(&job.input(), 2);
    client.produce(&job.input(), &numbered(0..100));
    let checked = job.check_connected();
    assert_eq!(checked.status.code(), Some(UNUSABLE), "{checked:?}");
    assert!(checked.stdout.contains("was deleted and created again"), "{checked:?}");
    for _ in 0..2 {
        job.folder.run().assert_refused(UNUSABLE, &[&job.input(), "created again"]);
    }
    assert_exactly_once(1_000, &client.read(&job.output(), true));
    // What the words say is enough.
    let afresh = format!("'{}'", job.topic("afresh"));
    let job = job.with("job", "name", &afresh);
    let mut running = job.folder.start();
    running.wait_until("the records of the new topic", || client.read(&job.output(), true).len() >= 1_100);
    running.terminate();
    running.wait().assert_success();
    let output = client.read(&job.output(), true);
    assert_eq!(Copied::of(1_000, &output).doubled(), 100, "each of the new ones once");
    assert_eq!(output.len(), 1_100);
}

#[test]
fn a_source_topic_that_was_created_again_and_has_more_records_is_not_read_from_the_old_offsets() {
    let Some((broker, client)) = shared("successors of source topics") else { return };
    for is_running in [false, true] {
        let job = copy(broker.address()).with("restart", "strategy", "'none'");
        job.create_topics(&client, 2);
        client.produce(&job.input(), &numbered(0..1_000));
        let running = match is_running {
            true => Some(start_caught_up(&job, &client)),
            false => {
                job.catch_up(&client);
                None
            }
        };
        client.delete_topic(&job.input());
        client.create_topic(&job.input(), 2);
        client.produce(&job.input(), &numbered(0..5_000));
        match running {
            // It may see that there is no topic, or that it is another one.
            Some(running) => {
                ended(running).assert_refused(FAILED, &[&job.input()]);
            }
            None => assert_exactly_once(1_000, &client.read(&job.output(), true)),
        }
        let before = client.read(&job.output(), true).len();
        for _ in 0..2 {
            job.folder.run().assert_refused(UNUSABLE, &[&job.input(), "created again", "the id", "new name"]);
        }
        assert_eq!(client.read(&job.output(), true).len(), before, "nothing more was read");
    }
}

#[test]
fn topics_keep_their_ids_through_new_partitions_and_another_parallelism() {
    let Some((broker, client)) = shared("ids of topics") else { return };
    let mut job = copy(broker.address());
    job.without("source.in", "topics");
    job.change("source.in", "topic_pattern", &format!("'{}'", job.input().replace('.', "[.]")));
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    let mut running = start_caught_up(&job, &client);
    client.add_partitions(&job.input(), 5);
    client.produce(&job.input(), &in_new_partitions(1_000..2_000));
    job.wait_until_caught_up(&mut running, &client);
    running.kill();
    running.wait();
    let job = job.with("job", "parallelism", "2");
    client.produce(&job.input(), &in_new_partitions(2_000..3_000));
    job.catch_up(&client);
    assert_exactly_once(3_000, &client.read(&job.output(), true));
    client.delete_topic(&job.input());
    client.create_topic(&job.input(), 5);
    client.produce(&job.input(), &numbered(0..20_000));
    job.folder.run().assert_refused(UNUSABLE, &[&job.input(), "created again"]);
}

#[test]
fn a_sink_topic_that_is_deleted_ends_the_job_by_name_and_what_was_not_committed_goes_into_its_successor() {
    let Some((broker, client)) = shared("deleted sink topics") else { return };
    for is_stopped in [false, true] {
        // Longer than the test waits for the end: it isn't by its age that the transaction fails.
        let job = copy(broker.address()).with("sink.out", "transaction_timeout", "'15m'");
        job.create_topics(&client, 2);
        client.produce(&job.input(), &numbered(0..1_000));
        let (mut running, metrics) = start(&job);
        job.wait_until_caught_up(&mut running, &client);
        client.delete_topic(&job.output());
        client.produce(&job.input(), &numbered(1_000..2_000));
        if is_stopped {
            // The last checkpoint has something that can't be delivered.
            running.wait_until("records for the topic that is gone", || lag_and_read(&metrics).1 == 2_000);
            running.terminate();
        }
        ended(running).assert_refused(FAILED, &[&job.output(), "deleted", "--create"]);
        client.create_topic(&job.output(), 2);
        job.catch_up(&client);
        let numbers =
            values(&client.read(&job.output(), true)).iter().filter_map(|value| number_of(value)).collect::<Vec<_>>();
        assert_eq!(numbers, (1_000..2_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_sink_topic_that_is_deleted_ends_a_job_without_transactions_as_well() {
    let Some((broker, client)) = shared("deleted sink topics without transactions") else { return };
    let job = copy(broker.address()).with("job", "guarantee", "'at-least-once'");
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..100));
    let running = start_caught_up(&job, &client);
    client.delete_topic(&job.output());
    client.produce(&job.input(), &numbered(100..200));
    ended(running).assert_refused(FAILED, &[&job.output()]);
}

#[test]
fn a_sink_topic_that_is_created_again_at_once_ends_the_job_and_nothing_of_the_checkpoint_is_passed_over() {
    let Some((broker, client)) = shared("successors of sink topics") else { return };
    for guarantee in ["'exactly-once'", "'at-least-once'"] {
        let job = copy(broker.address()).with("job", "guarantee", guarantee);
        let mut job = job.with("sink.out", "transaction_timeout", "'15m'");
        job.create_topics(&client, 2);
        client.produce(&job.input(), &numbered(0..1_000));
        job.catch_up(&client);
        // The next checkpoint is taken when the job is told to stop.
        job.change("checkpoint", "interval", "'10m'");
        client.produce(&job.input(), &numbered(1_000..2_000));
        let mut running = job.folder.start();
        running.wait_until("records that aren't of a checkpoint", || client.read(&job.output(), false).len() >= 2_000);
        client.delete_topic(&job.output());
        client.create_topic(&job.output(), 2);
        client.produce(&job.input(), &numbered(2_000..3_000));
        running.wait_until("records in the new topic", || client.read(&job.output(), false).len() >= 1_000);
        running.terminate();
        ended(running).assert_refused(FAILED, &[&job.output(), "created again", "the id", "run the job again"]);
        job.change("checkpoint", "interval", "'100ms'");
        job.catch_up(&client);
        let mut numbers =
            values(&client.read(&job.output(), true)).iter().filter_map(|value| number_of(value)).collect::<Vec<_>>();
        numbers.sort_unstable();
        if guarantee == "'at-least-once'" {
            numbers.dedup();
        }
        assert_eq!(numbers, (1_000..3_000).collect::<Vec<_>>(), "{guarantee}");
    }
}

/// Records in partition 2 or later, by key.
fn in_new_partitions(numbers: std::ops::Range<u64>) -> Vec<NewRecord> {
    let of_key = |record: NewRecord| {
        let last = record.key.as_ref().and_then(|key| key.last().copied()).expect("a key");
        record.to_partition(2 + i32::from(last) % 3)
    };
    numbered(numbers).into_iter().map(of_key).collect()
}

#[test]
fn partitions_that_are_added_are_read_from_their_first_record_on() {
    let Some((broker, client)) = shared("more partitions") else { return };
    // A new partition is read from its beginning, wherever the others were begun.
    let committed = copy(broker.address()).with("source.in", "start", "'committed'");
    let job = committed.with("job", "parallelism", "2");
    job.create_topics(&client, 2);
    for partition in 0..2 {
        client.produce(&job.input(), &[NewRecord::value("before the start").to_partition(partition)]);
        client.commit_group_offset(&job.group(), &job.input(), partition, 1);
    }
    client.produce(&job.input(), &numbered(0..1_000));
    let mut running = start_caught_up(&job, &client);
    client.add_partitions(&job.input(), 5);
    client.produce(&job.input(), &in_new_partitions(1_000..2_000));
    job.wait_until_caught_up(&mut running, &client);
    running.kill();
    running.wait();
    client.produce(&job.input(), &in_new_partitions(2_000..3_000));
    job.catch_up(&client);
    assert_exactly_once(3_000, &client.read(&job.output(), true));
}

#[test]
fn a_sink_topic_that_gets_more_partitions_while_the_job_runs_goes_on_to_get_each_record_once() {
    let Some((broker, client)) = shared("more partitions of a sink topic") else { return };
    let job = copy(broker.address()).with("sink.out", "properties", "{ 'topic.metadata.refresh.interval.ms' = 1000 }");
    job.create_topics(&client, 2);
    let mut running = job.folder.start();
    let mut feed = Feed::new(&client, &job);
    feed.add(1_000);
    client.add_partitions(&job.output(), 5);
    // It hears of them when it asks the next time.
    running.wait_until("records in the new partitions", || {
        feed.add(100);
        client.end_offsets(&job.output(), true).into_iter().any(|(partition, end)| partition >= 2 && end > 0)
    });
    job.wait_until_caught_up(&mut running, &client);
    running.terminate();
    running.wait().assert_success();
    // The keys of the new partitions were in others before.
    let copied = Copied::of(feed.count(), &client.read(&job.output(), true));
    assert_eq!((copied.missing(), copied.doubled()), (0, 0));
}

#[test]
fn partitions_that_were_added_while_the_job_was_down_are_read_from_their_first_record_on() {
    let Some((broker, client)) = shared("more partitions while down") else { return };
    let job = copy(broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    job.catch_up(&client);
    let job = job.with("source.in", "start", "'latest'");
    client.add_partitions(&job.input(), 5);
    client.produce(&job.input(), &in_new_partitions(1_000..2_000));
    job.catch_up(&client);
    assert_exactly_once(2_000, &client.read(&job.output(), true));
}

#[test]
fn topics_of_a_pattern_are_found_while_the_job_runs_and_others_are_left_alone() {
    let Some((broker, client)) = shared("topic patterns") else { return };
    let mut job = copy(broker.address());
    job.without("source.in", "topics");
    job.change("source.in", "topic_pattern", &format!("'{}-[ab]'", job.name()));
    client.create_topic(&job.output(), 2);
    let [a, b, whole, other] = ["a", "b", "a-too", "c"].map(|name| job.topic(name));
    for topic in [&a, &whole, &other] {
        client.create_topic(topic, 1);
        client.produce(topic, &[NewRecord::value(topic.as_str())]);
    }
    let read = |wanted: &[&String]| values(&client.read(&job.output(), true)).iter().eq(wanted.iter().copied());
    let mut running = job.folder.start();
    running.wait_until("the topic that is there", || read(&[&a]));
    client.create_topic(&b, 2);
    client.produce(&b, &[NewRecord::value(b.as_str())]);
    running.wait_until("the topic that has come", || read(&[&a, &b]));
    running.kill();
    running.wait();
    client.produce(&b, &[NewRecord::value(b.as_str())]);
    let mut running = job.folder.start();
    running.wait_until("its next record", || read(&[&a, &b, &b]));
    running.terminate();
    running.wait().assert_success();
    assert!(read(&[&a, &b, &b]), "and no other topic's");
}

#[test]
fn records_that_retention_deleted_before_they_were_read_are_told_and_not_passed_over() {
    let Some((broker, client)) = shared("deleted records") else { return };
    let job = copy(broker.address());
    job.create_topics(&client, 1);
    client.produce(&job.input(), &numbered(0..1_000));
    job.catch_up(&client);
    client.produce(&job.input(), &numbered(1_000..2_000));
    client.delete_records(&job.input(), 0, 1_500);
    for _ in 0..2 {
        job.folder.run().assert_refused(UNUSABLE, &[&job.input(), "1000", "1500"]);
    }
    assert_exactly_once(1_000, &client.read(&job.output(), true));
}
