//! A broker that is down, comes back or stands still costs time and nothing else.

use std::net::TcpListener;
use std::time::Duration;

use lockgate_tests::kafka::{Broker, kafka_missing, kcat_produce, kcat_read};
use lockgate_tests::{KafkaJob, assert_exactly_once, numbered, numbered_lines};

use crate::FAILED;
use crate::brokers::{breakable, shared};

/// How long a fault lasts. Nothing waits for it to be over; it only has to be long enough to be felt.
fn last(fault: Duration) {
    std::thread::sleep(fault);
}

#[test]
fn a_broker_that_is_down_at_the_start_is_told_by_its_address() {
    let Some((broker, client)) = shared("a broker that is down at the start") else { return };
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nobody = free.local_addr().expect("bound").to_string();
    drop(free);
    let mut job = KafkaJob::copy("down", &nobody);
    job.create_topics(&client, 1);
    client.produce(&job.input(), &numbered(0..100));
    job.folder.run().assert_refused(FAILED, &[&nobody]);
    for table in ["source.in", "sink.out"] {
        job.change(table, "brokers", &format!("'{}'", broker.address()));
    }
    job.catch_up(&client);
    assert_exactly_once(100, &client.read(&job.output(), true));
}

/// A running job that has copied 1,000 records has the broker go down under it, and copies more when it is back.
fn survives(what: &str, go_down: impl FnOnce(&Broker)) {
    let Some(broker) = breakable(what) else { return };
    let job = KafkaJob::copy("outage", broker.address()).with("job", "parallelism", "2");
    goes_on(&job, &broker, go_down);
}

fn goes_on(job: &KafkaJob, broker: &Broker, go_down: impl FnOnce(&Broker)) {
    let client = broker.client();
    job.create_topics(&client, 4);
    client.produce(&job.input(), &numbered(0..1_000));
    let mut running = job.folder.start();
    job.wait_until_caught_up(&mut running, &client);
    // More work for it, so that it is in the middle of something.
    client.produce(&job.input(), &numbered(1_000..3_000));
    go_down(broker);
    broker.restart();
    let client = broker.client();
    client.produce(&job.input(), &numbered(3_000..4_000));
    job.wait_until_caught_up(&mut running, &client);
    running.terminate();
    running.wait().assert_success();
    assert_exactly_once(4_000, &client.read(&job.output(), true));
}

#[test]
fn a_broker_that_is_killed_and_stays_down_for_a_while_stops_nothing() {
    survives("a broker that is killed", |broker| {
        broker.kill();
        last(Duration::from_secs(4));
    });
}

#[test]
fn a_broker_that_is_down_for_a_minute_stops_nothing() {
    if kafka_missing("a broker that is down for a minute") {
        return;
    }
    // Its own: others would have to wait so long for it. Its transactions don't last a minute: a broker that aborts one while it starts
    // may forget to say so to a partition, and holds back what is written there.
    let broker = Broker::start();
    let job = KafkaJob::copy("minute", broker.address()).with("job", "parallelism", "2").with(
        "sink.out",
        "transaction_timeout",
        "'10s'",
    );
    goes_on(&job, &broker, |broker| {
        broker.kill();
        last(Duration::from_secs(60));
    });
}

#[test]
fn a_broker_that_is_stopped_in_an_orderly_way_stops_nothing() {
    survives("a broker that is stopped", Broker::stop);
}

#[test]
fn a_broker_that_is_restarted_between_prepare_and_commit_keeps_or_aborts_what_was_prepared() {
    let Some(broker) = breakable("a broker that is restarted between prepare and commit") else { return };
    let job = KafkaJob::copy("prepared", broker.address());
    let client = broker.client();
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    assert!(job.folder.run_to_crash_point("runtime.commit.before").was_killed());
    broker.kill();
    broker.restart();
    let client = broker.client();
    job.catch_up(&client);
    assert_exactly_once(1_000, &client.read(&job.output(), true));
}

/// What flows through the job while the broker stands still now and then, and what the host may need for it.
const BACKLOG_RECORDS: u64 = 50_000;
const RECORD_BYTES: usize = 4_000;
const MEMORY_BYTES: u64 = 192 * 1024 * 1024;

#[test]
fn a_broker_that_stands_still_slows_the_job_down_and_fills_no_memory() {
    let Some(broker) = breakable("a broker that stands still") else { return };
    let job = KafkaJob::copy("slow", broker.address())
        .with("source.in", "buffer", "'4MiB'")
        .with("sink.out", "buffer", "'4MiB'");
    let client = broker.client();
    job.create_topics(&client, 4);
    kcat_produce(broker.address(), &job.input(), &numbered_lines(0..BACKLOG_RECORDS, RECORD_BYTES));
    let mut running = job.folder.start();
    for _ in 0..3 {
        let before = client.end_offsets(&job.output(), false);
        running.wait_until("more output, or all of it", || {
            client.end_offsets(&job.output(), false) != before || job.has_caught_up(&client, &job.input())
        });
        broker.pause();
        last(Duration::from_secs(2));
        broker.resume();
    }
    job.wait_until_caught_up(&mut running, &client);
    let memory = running.peak_memory_bytes();
    running.terminate();
    running.wait().assert_success();
    assert_exactly_once(BACKLOG_RECORDS, &kcat_read(broker.address(), &job.output(), true));
    assert!(
        memory < MEMORY_BYTES,
        "{} MB for a backlog of {} MB",
        memory >> 20,
        (BACKLOG_RECORDS as usize * RECORD_BYTES) >> 20
    );
}
