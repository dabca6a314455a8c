//! A job that reads from or writes to Kafka: its job file, table by table, and its topics.
//!
//! Invariant: its names are used by no other test, so that tests can share a broker.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::binary::operator;
use crate::folder::JobFolder;
use crate::kafka::{Client, unique};
use crate::process::{Finished, Running};

/// How many records each partition has, or how far they were read.
pub type Offsets = BTreeMap<i32, i64>;

const BETWEEN_QUESTIONS: Duration = Duration::from_millis(50);

/// A job in a folder of its own: `job.toml`, `state`, and what the test adds.
pub struct KafkaJob {
    pub folder: JobFolder,
    name: String,
    /// Keys with their values in TOML, by table.
    tables: BTreeMap<String, BTreeMap<String, String>>,
}

impl KafkaJob {
    /// A job without sources, operators and sinks: a checkpoint every 100 ms, and quick restarts.
    pub fn new(name: &str) -> KafkaJob {
        let name = unique(name);
        let mut job = KafkaJob { folder: JobFolder::new(), tables: BTreeMap::new(), name };
        let own = format!("'{}'", job.name);
        for (table, key, value) in [
            ("job", "name", own.as_str()),
            ("job", "state_dir", "'state'"),
            ("checkpoint", "interval", "'100ms'"),
            ("restart", "strategy", "'fixed-delay'"),
            ("restart", "delay", "'100ms'"),
            ("restart", "attempts", "1000"),
        ] {
            job.change(table, key, value);
        }
        job
    }

    /// From the topic [`input`](KafkaJob::input) by an operator that changes nothing to the topic [`output`](KafkaJob::output),
    /// without end.
    pub fn copy(name: &str, brokers: &str) -> KafkaJob {
        KafkaJob::through(name, brokers, "identity")
    }

    /// As [`copy`](KafkaJob::copy), with this example as the operator.
    pub fn through(name: &str, brokers: &str, example: &str) -> KafkaJob {
        KafkaJob::new(name)
            .with_kafka_source(brokers)
            .with_operator("op", example, "in")
            .with_kafka_sink("out", brokers, "op")
    }

    /// Adds the source `in`, from the earliest record of the topic [`input`](KafkaJob::input) on.
    pub fn with_kafka_source(self, brokers: &str) -> KafkaJob {
        let topics = format!("['{}']", self.input());
        self.with("source.in", "type", "'kafka'")
            .with("source.in", "brokers", &format!("'{brokers}'"))
            .with("source.in", "topics", &topics)
            .with("source.in", "start", "'earliest'")
            .with("source.in", "mode", "'continuous'")
    }

    /// Adds an example as an operator.
    pub fn with_operator(self, name: &str, example: &str, input: &str) -> KafkaJob {
        let wasm = operator(example);
        self.with(&format!("operator.{name}"), "wasm", &format!("'{}'", wasm.display())).with(
            &format!("operator.{name}"),
            "input",
            &format!("'{input}'"),
        )
    }

    /// Adds a sink into the topic [`topic`](KafkaJob::topic) of the sink's name.
    pub fn with_kafka_sink(self, name: &str, brokers: &str, input: &str) -> KafkaJob {
        let (table, topic) = (format!("sink.{name}"), format!("'{}'", self.topic(name)));
        self.with(&table, "type", "'kafka'")
            .with(&table, "brokers", &format!("'{brokers}'"))
            .with(&table, "topic", &topic)
            .with(&table, "input", &format!("'{input}'"))
    }

    /// Adds a sink into the folder of the sink's name.
    pub fn with_file_sink(self, name: &str, input: &str) -> KafkaJob {
        let table = format!("sink.{name}");
        self.with(&table, "type", "'file'").with(&table, "path", &format!("'{name}'")).with(
            &table,
            "input",
            &format!("'{input}'"),
        )
    }

    /// With this setting, its value as it is written in TOML.
    pub fn with(mut self, table: &str, key: &str, value: &str) -> KafkaJob {
        self.change(table, key, value);
        self
    }

    /// The next run has this setting.
    pub fn change(&mut self, table: &str, key: &str, value: &str) {
        self.tables.entry(table.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
        self.write();
    }

    /// The next run doesn't have this setting.
    pub fn without(&mut self, table: &str, key: &str) {
        self.tables.get_mut(table).expect("a table of the job").remove(key);
        self.write();
    }

    /// The next run doesn't have this source, operator or sink.
    pub fn without_table(&mut self, table: &str) {
        self.tables.remove(table).expect("a table of the job");
        self.write();
    }

    /// The same job, by name and topics, in another folder: without its state.
    pub fn twin(&self) -> KafkaJob {
        let twin = KafkaJob { folder: JobFolder::new(), name: self.name.clone(), tables: self.tables.clone() };
        twin.write();
        twin
    }

    fn write(&self) {
        self.folder.write("job.toml", self.job_file());
    }

    /// The text of the job file.
    pub fn job_file(&self) -> String {
        let mut text = String::new();
        for (table, keys) in &self.tables {
            writeln!(text, "[{table}]").expect("text grows");
            keys.iter().for_each(|(key, value)| writeln!(text, "{key} = {value}").expect("text grows"));
        }
        text
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A topic of this job.
    pub fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    pub fn input(&self) -> String {
        self.topic("in")
    }

    pub fn output(&self) -> String {
        self.topic("out")
    }

    /// The topic of its markers, by default.
    pub fn marker_topic(&self) -> String {
        format!("lockgate-{}-marker", self.name)
    }

    /// The consumer group of its sources, by default.
    pub fn group(&self) -> String {
        format!("lockgate-{}", self.name)
    }

    /// Creates the topics `in` and `out`. Their records may be as old as they like.
    pub fn create_topics(&self, client: &Client, partitions: i32) {
        for topic in [self.input(), self.output()] {
            client.create_topic_with(&topic, partitions, &[("retention.ms", "-1")]);
        }
    }

    /// The folder with the manifests of its checkpoints.
    pub fn manifests(&self) -> PathBuf {
        self.folder.path(format!("state/checkpoints/{}/0/manifests", self.name))
    }

    /// The number of the newest published checkpoint; 0 if there is none.
    pub fn newest_epoch(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.manifests()) else { return 0 };
        let numbers = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
        });
        numbers.max().unwrap_or_default()
    }

    /// How far the newest published checkpoint has read a topic.
    fn published(&self, topic: &str) -> Offsets {
        let Ok(entries) = fs::read_dir(self.manifests()) else { return Offsets::new() };
        let newest = entries.filter_map(|entry| Some(entry.ok()?.path())).max();
        // It may be gone again.
        let Some(text) = newest.and_then(|path| fs::read_to_string(path).ok()) else { return Offsets::new() };
        let manifest =
            text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
        let operators = manifest["operators"].as_object().into_iter().flat_map(|operators| operators.values());
        let subtasks = operators.filter_map(|operator| operator["subtasks"].as_array()).flatten();
        let splits = subtasks.filter_map(|subtask| subtask["splits"].as_array()).flatten();
        let position = |split: &Value| {
            let (of, partition) = split["split"].as_str()?.rsplit_once('/')?;
            (of == topic).then_some((partition.parse().ok()?, split["position"]["next"].as_i64()?))
        };
        splits.filter_map(position).collect()
    }

    /// What the group has committed of a topic, in the transactions of the job's epochs.
    pub fn committed(&self, client: &Client, topic: &str) -> Offsets {
        let offsets = client.group_offsets(&self.group());
        let of_topic = offsets.into_iter().filter(|((of, _), _)| of == topic);
        of_topic.map(|((_, partition), committed)| (partition, committed.offset)).collect()
    }

    /// Whether all that is in a topic has gone through the job and is committed.
    pub fn has_caught_up(&self, client: &Client, topic: &str) -> bool {
        self.has_committed(client, topic, &client.end_offsets(topic, false))
    }

    fn has_committed(&self, client: &Client, topic: &str, end: &Offsets) -> bool {
        // Without transactions the group's offsets are a courtesy; the checkpoint counts.
        let has_transactions =
            self.tables["job"].get("guarantee").is_none_or(|guarantee| guarantee == "'exactly-once'");
        let committed = if has_transactions { self.committed(client, topic) } else { self.published(topic) };
        end.iter().all(|(partition, offset)| *offset == 0 || committed.get(partition) == Some(offset))
    }

    /// `lockgate check --connect`.
    pub fn check_connected(&self) -> Finished {
        let mut command = self.folder.command("check");
        command.arg("--connect");
        Running::start(command).wait()
    }

    /// Runs it until all of the topic `in` has gone through, and stops it with a last checkpoint.
    ///
    /// # Panics
    /// If it ends before, or with an error.
    pub fn catch_up(&self, client: &Client) -> Finished {
        let mut running = self.folder.start();
        self.wait_until_caught_up(&mut running, client);
        running.terminate();
        let finished = running.wait();
        finished.assert_success();
        finished
    }

    /// Returns when all that is in the topic `in` now has gone through and is committed.
    ///
    /// # Panics
    /// If the process ends before, or that doesn't come in time.
    pub fn wait_until_caught_up(&self, running: &mut Running, client: &Client) {
        let (input, mut asked) = (self.input(), None::<Instant>);
        let end = client.end_offsets(&input, false);
        running.wait_until("all of the input has gone through", || {
            // Asking takes the processor from the job.
            asked.is_none_or(|asked| asked.elapsed() >= BETWEEN_QUESTIONS) && {
                asked = Some(Instant::now());
                self.has_committed(client, &input, &end)
            }
        });
    }
}
