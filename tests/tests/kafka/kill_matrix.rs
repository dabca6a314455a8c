//! The output is exact wherever the process is killed, and what is committed to Kafka and to files is of the same epochs
//! whenever another process has taken over.

use std::fs;

use lockgate_tests::kafka::Client;
use lockgate_tests::{Feed, KafkaJob, assert_exactly_once, crash_points, number_of, part_files};

use crate::brokers::{lanes, shared, side_by_side, values};

/// So many records before each run; more come while it runs.
const RECORDS: u64 = 200;

/// The points of the protocol; those of other rooms have matrices of their own.
pub fn points(rooms: &[&str]) -> Vec<String> {
    let is_of = |point: &String| rooms.iter().any(|room| point.starts_with(room));
    let points = crash_points().into_iter().filter(is_of).collect::<Vec<_>>();
    assert!(!points.is_empty(), "no crash point in {rooms:?}");
    points
}

/// A copy into a topic and into files.
pub struct Copy<'a> {
    pub job: KafkaJob,
    client: &'a Client,
    feed: Feed<'a>,
}

impl<'a> Copy<'a> {
    pub fn new(client: &'a Client, brokers: &str) -> Copy<'a> {
        let job = KafkaJob::copy("matrix", brokers).with_file_sink("files", "op");
        job.create_topics(client, 2);
        let feed = Feed::new(client, &job);
        Copy { job, client, feed }
    }

    /// Adds records to each partition while the job is down.
    pub fn add_records(&mut self) {
        self.feed.add(RECORDS);
    }

    /// Tells whether a run came by the crash point.
    pub fn crash(&mut self, at: &str) -> bool {
        self.add_records();
        self.feed.crash(&self.job, at)
    }

    /// Leaves a checkpoint behind that was committed, and one that is published and not decided.
    pub fn crash_undecided(&mut self) {
        assert!(self.crash("kafka.commit.before:2"), "it decides what it publishes");
    }

    /// Lets another attempt take over, and compares what is committed to both sinks then.
    fn assert_sinks_agree(&self, after: &str) {
        assert!(self.job.folder.run_to_crash_point("recover.committed").was_killed(), "after {after}");
        let topic = values(&self.client.read(&self.job.output(), true));
        let files = self.lines();
        assert!(topic == files, "after {after}: {} records in the topic, {} in files", topic.len(), files.len());
    }

    /// The lines of the committed files, sorted.
    fn lines(&self) -> Vec<String> {
        let files = part_files(&self.job.folder.path("files")).expect("the output can be listed");
        let texts = files.iter().map(|file| fs::read_to_string(file).expect("output is text"));
        let mut lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>();
        lines.sort();
        lines
    }

    pub fn finish(&self, after: &str) {
        println!("to the end after {after}");
        self.job.catch_up(self.client);
        assert_exactly_once(self.feed.count(), &self.client.read(&self.job.output(), true));
        let numbers = self.lines().iter().filter_map(|line| number_of(line)).collect::<Vec<_>>();
        assert_eq!(numbers, (0..self.feed.count()).collect::<Vec<_>>(), "the files after {after}");
    }
}

/// Kills a job that has done nothing yet at a point, and then one that has left an undecided checkpoint behind.
fn kill_at(point: &str, client: &Client, brokers: &str) {
    let mut copy = Copy::new(client, brokers);
    let at_first = copy.crash(point);
    copy.crash_undecided();
    let later = copy.crash(point);
    assert!(at_first || later, "no run ever comes by the crash point {point}");
    copy.assert_sinks_agree(point);
    copy.finish(point);
}

#[test]
fn the_output_is_exact_after_a_kill_at_each_step_of_a_transaction() {
    let Some((broker, _)) = shared("kills at each step of a transaction") else { return };
    side_by_side(&lanes(broker), points(&["kafka."]), |point, client| kill_at(&point, client, broker.address()));
}

#[test]
fn the_output_is_exact_after_a_kill_at_each_step_of_a_checkpoint_and_of_a_recovery() {
    let Some((broker, _)) = shared("kills at each step of a checkpoint") else { return };
    let rooms = ["runtime.", "recover.", "store.publish.", "store.note-decided.", "store.withdraw."];
    side_by_side(&lanes(broker), points(&rooms), |point, client| kill_at(&point, client, broker.address()));
}
