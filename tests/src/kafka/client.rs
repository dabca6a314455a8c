//! The verifier of what is in Kafka: a Python program with `kafka-python` that does what it is asked.
//!
//! Invariant: the host's client library takes no part, and what is read is what a consumer of that isolation level gets, whole.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::codec::{decode, encode};
use super::pipe::Pipe;
use super::record::{GroupOffset, NewRecord, Record, Transaction};

/// A connection to a cluster. Methods may be called from several threads; they take turns. Each panics, with the words of the
/// verifier, if the broker refuses or isn't there.
pub struct Client {
    pipe: Mutex<Pipe>,
}

impl Client {
    /// A verifier of the cluster at `host:port`, which may be restarted in between.
    pub fn connect(address: &str) -> Client {
        Client { pipe: Mutex::new(Pipe::open(address)) }
    }

    /// The cluster's id, as in its metadata.
    pub fn cluster_id(&self) -> String {
        self.value(json!({"do": "cluster_id"}))
    }

    /// Names of all topics, without Kafka's own.
    pub fn topics(&self) -> Vec<String> {
        self.value(json!({"do": "topics"}))
    }

    /// Creates a topic with replication 1; returns when it can be used.
    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]);
    }

    /// As [`create_topic`](Client::create_topic), with topic settings (`cleanup.policy` …).
    pub fn create_topic_with(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs: BTreeMap<&str, &str> = configs.iter().copied().collect();
        self.done(json!({"do": "create_topic", "topic": name, "partitions": partitions, "configs": configs}));
    }

    /// Deletes it; returns when it is gone.
    pub fn delete_topic(&self, name: &str) {
        self.done(json!({"do": "delete_topic", "topic": name}));
    }

    /// Raises the number of partitions to `partitions`.
    pub fn add_partitions(&self, name: &str, partitions: i32) {
        self.done(json!({"do": "add_partitions", "topic": name, "partitions": partitions}));
    }

    pub fn partition_count(&self, topic: &str) -> i32 {
        self.value(json!({"do": "partition_count", "topic": topic}))
    }

    /// All settings of a topic with their values, also those by default.
    pub fn topic_configs(&self, topic: &str) -> BTreeMap<String, String> {
        self.value(json!({"do": "topic_configs", "topic": topic}))
    }

    /// Produces without a transaction; returns when all are acknowledged. Gives partition and offset of each.
    pub fn produce(&self, topic: &str, records: &[NewRecord]) -> Vec<(i32, i64)> {
        let (places, _) = self.ask(json!({"do": "produce", "topic": topic}), &encode(records));
        parse(places)
    }

    /// All records of a topic up to the last stable offset (`read_committed`, records of aborted transactions left out) or the
    /// high watermark (`!read_committed`), as they were when this was called. Partition by partition, in order of offset.
    pub fn read(&self, topic: &str, read_committed: bool) -> Vec<Record> {
        self.read_as(topic, read_committed, None, 0)
    }

    /// As [`read`](Client::read) with `read_committed`, of one partition from an offset on.
    pub fn read_from(&self, topic: &str, partition: i32, offset: i64) -> Vec<Record> {
        self.read_as(topic, true, Some(partition), offset)
    }

    fn read_as(&self, topic: &str, read_committed: bool, partition: Option<i32>, offset: i64) -> Vec<Record> {
        let (_, bytes) = self.ask(
            json!({
                "do": "read", "topic": topic, "read_committed": read_committed, "partition": partition, "offset": offset
            }),
            &[],
        );
        decode(&bytes)
    }

    /// Last stable offset (`read_committed`) or high watermark of each partition.
    pub fn end_offsets(&self, topic: &str, read_committed: bool) -> BTreeMap<i32, i64> {
        self.value(json!({"do": "end_offsets", "topic": topic, "read_committed": read_committed}))
    }

    /// The first offset of each partition.
    pub fn begin_offsets(&self, topic: &str) -> BTreeMap<i32, i64> {
        self.value(json!({"do": "begin_offsets", "topic": topic}))
    }

    /// Deletes the records of a partition before `offset`, as retention does.
    pub fn delete_records(&self, topic: &str, partition: i32, offset: i64) {
        self.done(json!({"do": "delete_records", "topic": topic, "partition": partition, "offset": offset}));
    }

    /// What the group has committed, by topic and partition. Empty: nothing, or no such group.
    pub fn group_offsets(&self, group: &str) -> BTreeMap<(String, i32), GroupOffset> {
        let found: Vec<(String, i32, i64, String)> = self.value(json!({"do": "group_offsets", "group": group}));
        let offset = |(topic, partition, offset, metadata)| ((topic, partition), GroupOffset { offset, metadata });
        found.into_iter().map(offset).collect()
    }

    /// Commits an offset for a group without members.
    pub fn commit_group_offset(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        self.done(json!({
            "do": "commit_group_offset", "group": group, "topic": topic, "partition": partition, "offset": offset
        }));
    }

    /// Deletes a group without members with all its offsets, as their expiry does.
    pub fn delete_group(&self, group: &str) {
        self.done(json!({"do": "delete_group", "group": group}));
    }

    /// Allows a user operations (`read` …) on a resource (`topic`, `group`, `transactional_id`). A name that ends in `*` stands for all
    /// names that begin so. The brokers hear of it soon.
    pub fn allow(&self, user: &str, resource: &str, name: &str, operations: &[&str]) {
        self.done(json!({
            "do": "allow", "user": user, "resource": resource, "name": name, "operations": operations
        }));
    }

    /// A foreign program with this transactional id: fences whoever has it, begins a transaction, and sends the records, each with
    /// a key or a value and no header without a value. Returns when they are acknowledged. The transaction stays open until one of
    /// the next two, or the timeout, ends it; not by the end of this client.
    pub fn begin_transaction(&self, id: &str, timeout_ms: i32, topic: &str, records: &[NewRecord]) {
        let request = json!({"do": "begin_transaction", "id": id, "timeout_ms": timeout_ms, "topic": topic});
        self.ask(request, &encode(records));
    }

    /// Commits the transaction that [`begin_transaction`](Client::begin_transaction) left open.
    ///
    /// # Errors
    /// The verifier's words if it was fenced or has timed out since.
    pub fn commit_transaction(&self, id: &str) -> Result<(), String> {
        self.end_transaction(id, true)
    }

    /// Aborts the transaction that [`begin_transaction`](Client::begin_transaction) left open.
    ///
    /// # Errors
    /// The verifier's words if it was fenced or has timed out since.
    pub fn abort_transaction(&self, id: &str) -> Result<(), String> {
        self.end_transaction(id, false)
    }

    fn end_transaction(&self, id: &str, commit: bool) -> Result<(), String> {
        self.try_ask(json!({"do": "end_transaction", "id": id, "commit": commit}), &[]).map(|_| ())
    }

    /// Puts records into a transaction of this id that has ended before: nothing will end them in that partition. Of a broker with
    /// `transaction.partition.verification.enable=false` only. Gives the offset of the first.
    pub fn leave_hanging(&self, id: &str, topic: &str, partition: i32, records: &[NewRecord]) -> i64 {
        let request = json!({"do": "leave_hanging", "id": id, "topic": topic, "partition": partition});
        let (offset, _) = self.ask(request, &encode(records));
        parse(offset)
    }

    /// Aborts all that is open on a partition, as `kafka-transactions.sh abort` does: hanging or not.
    pub fn abort_hanging(&self, topic: &str, partition: i32) {
        self.done(json!({"do": "abort_hanging", "topic": topic, "partition": partition}));
    }

    /// All transactional ids that the cluster knows and whose names begin with `prefix`, in order.
    pub fn transactions(&self, prefix: &str) -> Vec<Transaction> {
        let found: Vec<(String, i64, String)> = self.value(json!({"do": "transactions"}));
        let known = found.into_iter().map(|(id, producer_id, state)| Transaction { id, producer_id, state });
        let mut known: Vec<_> = known.filter(|transaction| transaction.id.starts_with(prefix)).collect();
        known.sort_by(|a, b| a.id.cmp(&b.id));
        known
    }

    fn done(&self, request: Value) {
        self.ask(request, &[]);
    }

    fn value<T: DeserializeOwned>(&self, request: Value) -> T {
        parse(self.ask(request, &[]).0)
    }

    fn ask(&self, request: Value, data: &[u8]) -> (Value, Vec<u8>) {
        let asked = request.to_string();
        self.try_ask(request, data).unwrap_or_else(|error| panic!("the verifier was asked for {asked}: {error}"))
    }

    fn try_ask(&self, request: Value, data: &[u8]) -> Result<(Value, Vec<u8>), String> {
        self.pipe.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).ask(request, data)
    }
}

fn parse<T: DeserializeOwned>(answer: Value) -> T {
    let shown = answer.to_string();
    serde_json::from_value(answer).unwrap_or_else(|error| panic!("the verifier answered {shown}: {error}"))
}
