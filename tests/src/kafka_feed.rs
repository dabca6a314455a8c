//! Records that go on coming while a job runs, so that each of its checkpoints has some, until it crashes.
//!
//! Invariant: how many there were is known exactly, whatever became of the process that read them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::kafka::{Client, NewRecord};
use crate::kafka_job::KafkaJob;
use crate::kafka_numbers::numbered;
use crate::process::Running;

/// A topic and how many records of a row are in it.
pub struct Feed<'a> {
    client: &'a Client,
    topic: String,
    make: fn(Range<u64>) -> Vec<NewRecord>,
    count: u64,
}

/// A run that has published so many checkpoints has come by all that it comes by.
const EPOCHS_WITHOUT_CRASH: usize = 5;
/// Every so often so many records come.
const PACE: Duration = Duration::from_millis(40);
const RECORDS: u64 = 40;

impl<'a> Feed<'a> {
    /// Numbered records into the topic `in` of a job.
    pub fn new(client: &'a Client, job: &KafkaJob) -> Feed<'a> {
        Feed::of(client, job, numbered)
    }

    /// As [`new`](Feed::new), with the records that `make` makes of their numbers.
    pub fn of(client: &'a Client, job: &KafkaJob, make: fn(Range<u64>) -> Vec<NewRecord>) -> Feed<'a> {
        Feed { client, topic: job.input(), make, count: 0 }
    }

    /// Goes on behind the first `count`, which are there.
    pub fn resume(&mut self, count: u64) {
        self.count = count;
    }

    /// Adds so many.
    pub fn add(&mut self, records: u64) {
        self.client.produce(&self.topic, &(self.make)(self.count..self.count + records));
        self.count += records;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Feeds a run of the job until it dies at the crash point `at`, or, if it doesn't come by there, through a few checkpoints
    /// and to an orderly stop. Tells whether it was killed.
    ///
    /// # Panics
    /// If it ends with an error.
    pub fn crash(&mut self, job: &KafkaJob, at: &str) -> bool {
        let before = job.newest_epoch();
        let mut published = BTreeSet::new();
        let mut command = job.folder.command("run");
        command.env("LOCKGATE_CRASH_AT", at);
        let mut running = Running::start(command);
        let mut fed: Option<Instant> = None;
        crate::wait_until("a crash, or checkpoints without one", || {
            if fed.is_none_or(|fed| fed.elapsed() >= PACE) {
                self.add(RECORDS);
                fed = Some(Instant::now());
            }
            published.extend(Some(job.newest_epoch()).filter(|epoch| *epoch > before));
            !running.is_alive() || published.len() >= EPOCHS_WITHOUT_CRASH
        });
        if running.is_alive() {
            running.terminate();
        }
        let finished = running.wait();
        if !finished.was_killed() {
            finished.assert_success();
            println!("a run didn't come by {at}; its messages:\n{}", finished.stderr);
        }
        finished.was_killed()
    }
}
