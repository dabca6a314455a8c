//! `tests/kafka/broker.sh`, as people use it.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use lockgate_tests::kafka::{Broker, kafka_missing};
use lockgate_tests::{repository, target_dir};

fn broker(arguments: &[&str]) -> Output {
    let mut command = Command::new(repository().join("tests/kafka/broker.sh"));
    command.args(arguments).env("CARGO_TARGET_DIR", target_dir());
    command.output().expect("bash starts")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, things: &[&str]) {
    let output = broker(arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{messages}");
    assert!(messages.contains("error: ") && messages.contains("help: "), "{messages}");
    for thing in things {
        assert!(messages.contains(thing), "nothing names '{thing}': {messages}");
    }
}

/// Stops the broker of a folder, also when the test fails.
struct Stop<'a>(&'a Path);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        broker(&["stop", self.0.to_str().expect("UTF-8")]);
    }
}

#[test]
fn a_broker_is_started_used_stopped_and_continued() {
    if kafka_missing("broker.sh") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().to_str().expect("UTF-8");
    let address = stdout(&broker(&["start", place, "num.partitions=3"]));
    let _stop = Stop(folder.path());
    assert!(TcpStream::connect(&address).is_ok());
    assert_refused(&["start", place], 1, &[place, "broker.sh stop"]);

    let topics = |arguments: &[&str]| {
        let output = broker(&[["tool", "topics", "--bootstrap-server", &address].as_slice(), arguments].concat());
        stdout(&output)
    };
    topics(&["--create", "--topic", "t"]);
    assert!(topics(&["--describe", "--topic", "t"]).contains("PartitionCount: 3"));

    stdout(&broker(&["stop", place]));
    assert!(TcpStream::connect(&address).is_err());
    assert_refused(&["stop", place], 1, &[place]);
    assert_eq!(stdout(&broker(&["start", place])), address);
    assert_eq!(topics(&["--list"]), "t");
}

#[test]
fn the_script_says_what_is_wrong() {
    if kafka_missing("broker.sh") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [place, other_place] = ["new", "other"].map(|name| folder.path().join(name).display().to_string());
    let (place, other_place) = (place.as_str(), other_place.as_str());
    assert_refused(&["begin"], 2, &["begin", "start stop"]);
    assert_refused(&["start"], 2, &["no folder"]);
    assert_refused(&["start", place, "many"], 2, &["'many' is no port"]);
    assert_refused(&["start", place, "20000", "many"], 2, &["'many' is no broker setting"]);
    assert_refused(&["stop", place], 1, &[place]);
    assert_refused(&["tool", "hammer"], 2, &["hammer", "console-consumer"]);
    let other = Broker::start();
    let port = other.address().split(':').next_back().expect("it has a port");
    assert_refused(&["start", other_place, port], 1, &[port, "in use"]);
    assert_refused(&["start", place, "message.max.bytes=many"], 1, &[place, "message.max.bytes", "broker.log"]);
}
