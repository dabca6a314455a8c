//! How far a job is behind its input, as its metrics say it while it runs.

use lockgate_tests::kafka::{NewRecord, kcat_produce};
use lockgate_tests::{KafkaJob, Metrics, Running, ask, numbered_lines, wait_until};

use crate::brokers::shared;

/// More than channels and clients hold between the source and a sink that is slow.
const RECORDS: u64 = 200_000;

/// Starts a job that serves its metrics at the address that is given back.
pub fn start(job: &KafkaJob) -> (Running, String) {
    let mut command = job.folder.command("run");
    command.args(["--metrics", "127.0.0.1:0"]);
    let mut running = Running::start(command);
    running.wait_for_message("/metrics\n");
    let said = running.stderr();
    let address = said.lines().find_map(|line| line.strip_prefix("metrics: http://")?.strip_suffix("/metrics"));
    (running, address.expect("it was said").to_owned())
}

fn scrape(address: &str) -> Metrics {
    let answer = ask(address, "GET", "/metrics").expect("somebody answers");
    Metrics::parse(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body))
}

/// What the source has left to read, and what it has read.
pub fn lag_and_read(address: &str) -> (u64, u64) {
    let metrics = scrape(address);
    let of = |metric: &str| metrics.sum(metric, ("operator", "in")) as u64;
    (of("lockgate_source_lag_records"), of("lockgate_records_out_total"))
}

#[test]
fn the_lag_is_what_is_in_the_topic_and_was_not_read() {
    let Some((broker, client)) = shared("lag while a job is behind") else { return };
    let job = KafkaJob::new("lag")
        .with("job", "parallelism", "2")
        .with_kafka_source(broker.address())
        .with("sink.slow", "type", "'null'")
        .with("sink.slow", "rate", "1000")
        .with("sink.slow", "input", "'in'");
    client.create_topic(&job.input(), 4);
    kcat_produce(broker.address(), &job.input(), &numbered_lines(0..RECORDS, 100));
    let (mut running, address) = start(&job);
    let mut seen = (0, 0);
    // The two are told one after the other, so that they fit at a moment at which nothing is read.
    wait_until("a lag that fits what was read", || {
        assert!(running.is_alive(), "{}", running.stderr());
        seen = lag_and_read(&address);
        let (lag, read) = seen;
        lag > 0 && read > 0 && lag + read == RECORDS
    });
    running.kill();
}

#[test]
fn a_job_that_has_caught_up_has_no_lag_though_the_last_offsets_are_no_records() {
    let Some((broker, client)) = shared("lag of a job that has caught up") else { return };
    let job = KafkaJob::copy("lag", broker.address());
    job.create_topics(&client, 1);
    let foreign = format!("foreign-{}", job.name());
    client.begin_transaction(&foreign, 60_000, &job.input(), &[NewRecord::keyed("key", "value")]);
    client.commit_transaction(&foreign).expect("nobody fences it");
    let (mut running, address) = start(&job);
    job.wait_until_caught_up(&mut running, &client);
    running.wait_until("no lag", || lag_and_read(&address) == (0, 1));
    running.terminate();
    running.wait().assert_success();
}
