//! `examples/kafka/run.sh`, as a user runs it: with a broker of its own.

use std::process::Command;

use lockgate_tests::kafka::kafka_missing;
use lockgate_tests::{repository, target_dir};

#[test]
fn the_kafka_example_is_killed_in_the_middle_and_ends_exactly_once() {
    if kafka_missing("the Kafka example") {
        return;
    }
    let output = Command::new(repository().join("examples/kafka/run.sh"))
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .expect("bash starts");
    let (printed, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{messages}");
    for step in ["kill -9", "belong to a transaction that was never", "each is there once, in order"] {
        assert!(printed.contains(step), "{step}: {printed}\n{messages}");
    }
}

#[test]
fn more_than_one_broker_is_refused() {
    let output = Command::new(repository().join("examples/kafka/run.sh"))
        .args(["one:1", "two:2"])
        .output()
        .expect("bash starts");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("more than one broker") && messages.contains("help: "), "{messages}");
}
