//! Settings of librdkafka: any that is harmless is passed on, and one that would break a promise is refused with the reason.

use std::fs;

use lockgate_tests::{Finished, KafkaJob, Running, assert_exactly_once, numbered};

use crate::UNUSABLE;
use crate::brokers::shared;

/// What both verbs refuse, before anything is done.
#[track_caller]
fn assert_unusable(job: &KafkaJob, things: &[&str]) -> Finished {
    let [checked, run] = ["check", "run"].map(|verb| Running::start(job.folder.command(verb)).wait());
    for refused in [&checked, &run] {
        refused.assert_refused(UNUSABLE, things);
    }
    assert_eq!(checked.stderr, run.stderr, "they say the same");
    run
}

/// A job file that can be checked without any broker.
fn job(table: &str, property: &str, value: &str) -> KafkaJob {
    KafkaJob::copy("settings", "localhost:1").with(table, "properties", &format!("{{ '{property}' = '{value}' }}"))
}

#[test]
fn settings_that_would_break_a_promise_are_refused_by_name() {
    let dangerous = [
        ("source.in", "enable.auto.commit", "true"),
        ("source.in", "group.id", "another"),
        ("source.in", "isolation.level", "read_uncommitted"),
        ("sink.out", "transactional.id", "mine"),
        ("sink.out", "enable.idempotence", "false"),
        ("sink.out", "acks", "1"),
        ("sink.out", "bootstrap.servers", "elsewhere:9092"),
    ];
    for (table, property, value) in dangerous {
        let job = job(table, property, value);
        assert_unusable(&job, &[property, table]);
        assert!(!job.folder.path("state").exists(), "{property}: nothing is done");
    }
}

#[test]
fn settings_that_there_are_not_or_with_impossible_values_are_refused_by_name() {
    for (property, value) in [("linger.sm", "5"), ("compression.type", "shrink"), ("linger.ms", "soon")] {
        assert_unusable(&job("sink.out", property, value), &[property]);
    }
}

#[test]
fn settings_from_a_file_beside_the_job_file_take_effect() {
    let Some((broker, client)) = shared("a file with settings") else { return };
    let job = KafkaJob::copy("settings", broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..200));
    let job = job.with("sink.out", "properties_file", "'kafka.properties'");
    job.folder.write("kafka.properties", "# made by a test\ncompression.type = gzip\n\nlinger.ms=2\n");
    job.catch_up(&client);
    assert_exactly_once(200, &client.read(&job.output(), true));
    let job_file = fs::read_to_string(job.folder.path("job.toml")).expect("it was written");
    assert!(!job_file.contains("gzip"), "it is only in the file");
}

#[test]
fn a_file_with_settings_that_cannot_be_used_is_told_before_anything_runs() {
    for table in ["source.in", "sink.out"] {
        let job = KafkaJob::copy("settings", "localhost:1").with(table, "properties_file", "'kafka.properties'");
        let name = table.split_once('.').expect("a kind and a name").1;
        assert_unusable(&job, &["kafka.properties", name]);
        job.folder.create_dir("kafka.properties");
        assert_unusable(&job, &["kafka.properties", name]);
        fs::remove_dir(job.folder.path("kafka.properties")).expect("the folder is ours");
        job.folder.write("kafka.properties", b"client.id = \xff\n");
        assert_unusable(&job, &["kafka.properties", "UTF-8"]);
        job.folder.write("kafka.properties", "client.id\n");
        assert_unusable(&job, &["kafka.properties", "line 1"]);
        job.folder.write("kafka.properties", "client.id = me\nbootstrap.servers = elsewhere:9092\n");
        assert_unusable(&job, &["bootstrap.servers", "kafka.properties"]);
        // A secret in the file isn't repeated anywhere.
        job.folder.write("kafka.properties", "sasl.password = open-sesame\nsocket.timeout.ms = never\n");
        let refused = assert_unusable(&job, &["socket.timeout.ms"]);
        assert!(!refused.stderr.contains("open-sesame"), "{}", refused.stderr);
        assert!(!job.folder.path("state").exists(), "nothing is done");
    }
}
