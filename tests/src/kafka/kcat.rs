//! `kcat` as a second reader and a fast producer, in processes of its own.
//!
//! Invariant: it uses librdkafka, as the host does, so what it reads is compared with the verifier's reading, never taken alone.

use std::io::Write;
use std::process::{Command, Stdio};

use super::record::Record;

/// All records of `topic` but their headers, as `kcat` with that isolation level reads them to the end. Partition by partition, in
/// order of offset.
///
/// # Panics
/// If it fails.
pub fn kcat_read(address: &str, topic: &str, read_committed: bool) -> Vec<Record> {
    let level = if read_committed { "read_committed" } else { "read_uncommitted" };
    let mut command = Command::new("kcat");
    command.args(["-C", "-q", "-b", address, "-t", topic, "-o", "beginning", "-e", "-X", "check.crcs=true"]);
    command.args(["-X", &format!("isolation.level={level}")]);
    // Lengths first, -1 for none, so that any bytes may follow.
    command.args(["-f", "%p %o %T %K %S\n%k%s"]);
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("cannot start kcat: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut rest = output.stdout.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(take_record(&mut rest));
    }
    records.sort_unstable_by_key(|record| (record.partition, record.offset));
    records
}

fn take_record(rest: &mut &[u8]) -> Record {
    let end = rest.iter().position(|byte| *byte == b'\n').expect("a line before each record");
    let line = std::str::from_utf8(&rest[..end]).expect("numbers are ASCII");
    *rest = &rest[end + 1..];
    let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [partition, offset, timestamp, key, value] = numbers[..] else {
        panic!("five numbers before each record, not '{line}'");
    };
    let mut take = |length: i64| {
        let (data, after) = rest.split_at(usize::try_from(length).ok()?);
        *rest = after;
        Some(data.to_vec())
    };
    let (key, value) = (take(key), take(value));
    let partition = i32::try_from(partition).expect("a partition's number is small");
    Record { partition, offset, timestamp, key, value, headers: Vec::new() }
}

/// Produces `KEY TAB VALUE` lines, a million in seconds, partitioned by murmur2 of the key. Returns when all are acknowledged.
///
/// # Panics
/// If it fails.
pub fn kcat_produce(address: &str, topic: &str, lines: &[u8]) {
    let mut command = Command::new("kcat");
    command.args(["-P", "-b", address, "-t", topic, "-K", "\t", "-X", "topic.partitioner=murmur2_random"]);
    command.args(["-X", "acks=all", "-X", "enable.idempotence=true", "-X", "linger.ms=20"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("cannot start kcat: {error}"));
    let mut input = child.stdin.take().expect("it is piped");
    let written = input.write_all(lines);
    drop(input);
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success() && written.is_ok(), "{command:?}: {status}, {written:?}");
}
