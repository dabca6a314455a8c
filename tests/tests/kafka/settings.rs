//! Settings of librdkafka: any that is harmless is passed on, and one that would break a promise is refused with the reason.

use std::fs;

use lockgate_tests::{Finished, KafkaJob, Running, assert_exactly_once, numbered};

use crate::brokers::shared;
use crate::{FAILED, UNUSABLE};

/// A job file that says what is wrong with it needs no more help.
#[track_caller]
fn assert_unusable(finished: &Finished, things: &[&str]) {
    assert_eq!(finished.status.code(), Some(UNUSABLE), "{}", finished.stderr);
    for thing in things {
        assert!(finished.stderr.contains(thing), "nothing names '{thing}':\n{}", finished.stderr);
    }
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
        for verb in ["check", "run"] {
            assert_unusable(&Running::start(job.folder.command(verb)).wait(), &[property, table]);
        }
        assert!(!job.folder.path("state").exists(), "{property}: nothing is done");
    }
}

#[test]
fn settings_that_there_are_not_or_with_impossible_values_are_refused_by_name() {
    for (property, value) in [("linger.sm", "5"), ("compression.type", "shrink"), ("linger.ms", "soon")] {
        assert_unusable(&job("sink.out", property, value).folder.run(), &[property]);
    }
}

#[test]
fn settings_from_a_file_beside_the_job_file_take_effect() {
    let Some((broker, client)) = shared("a file with settings") else { return };
    let job = KafkaJob::copy("settings", broker.address());
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..200));
    let job = job.with("sink.out", "properties_file", "'kafka.properties'");
    job.folder.run().assert_refused(FAILED, &["kafka.properties"]);
    job.folder.write("kafka.properties", "# made by a test\ncompression.type = gzip\n\nlinger.ms=2\n");
    job.catch_up(&client);
    assert_exactly_once(200, &client.read(&job.output(), true));
    job.folder.write("kafka.properties", "compression.type = gzip\nacks = 0\n");
    job.folder.run().assert_refused(FAILED, &["acks", "kafka.properties"]);
    // A secret in the file isn't repeated anywhere.
    job.folder.write("kafka.properties", "sasl.password = open-sesame\nlinger.ms = never\n");
    let refused = job.folder.run();
    refused.assert_refused(FAILED, &["linger.ms"]);
    assert!(!refused.stderr.contains("open-sesame"), "{}", refused.stderr);
    let job_file = fs::read_to_string(job.folder.path("job.toml")).expect("it was written");
    assert!(!job_file.contains("gzip"), "it is only in the file");
}
