//! Copies a topic to another exactly once while the host is killed again and again at random moments, and the broker too.
//!
//! Invariant: two readers that share no code find each record of the input once, and those of a key in their order.

use std::thread;
use std::time::{Duration, Instant};

use crate::kafka::{Broker, kcat_produce, kcat_read};
use crate::kafka_job::KafkaJob;
use crate::kafka_numbers::{assert_exactly_once, numbered_lines};
use crate::process::Running;
use crate::text::Words;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct KafkaCampaign {
    /// Decides the moments.
    pub seed: u64,
    pub records: u64,
    /// SIGKILLs that must each hit a running host.
    pub kills: u32,
    /// SIGKILLs of the broker, which is then started again.
    pub bounces: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct KafkaReport {
    pub kills: u32,
    pub bounces: u32,
    /// Runs that were killed, or ended with an error that names the broker, while that was down.
    pub runs_while_down: u32,
    pub took: Duration,
}

const PARTITIONS: i32 = 4;
const RECORD_BYTES: usize = 100;
/// Longer than a start, a recovery and a few checkpoints take, so that all phases of a run are met.
const LONGEST_RUN_MS: u64 = 2_500;

impl KafkaCampaign {
    /// Runs it with a broker of its own, saying how it goes on standard error.
    ///
    /// # Panics
    /// If the output isn't exact, or a run fails otherwise than by its kill or the broker's.
    pub fn run(&self) -> KafkaReport {
        let start = Instant::now();
        let broker = Broker::start();
        let job = KafkaJob::copy("campaign", broker.address()).with("job", "parallelism", "2");
        job.create_topics(&broker.client(), PARTITIONS);
        let mut copy = Copy { broker, job, moments: Words::new(self.seed) };
        let mut report = KafkaReport { kills: 0, bounces: 0, runs_while_down: 0, took: Duration::ZERO };
        while report.kills < self.kills {
            let lines = self.lines(report.kills + report.bounces);
            // Evenly among the kills.
            if report.bounces < self.bounces && report.kills * (self.bounces + 1) >= (report.bounces + 1) * self.kills {
                report.runs_while_down += copy.bounce(&lines);
                report.bounces += 1;
            } else {
                copy.kill(&lines);
                report.kills += 1;
            }
            eprint!("\r{} of {} kills, {} of {} bounces", report.kills, self.kills, report.bounces, self.bounces);
        }
        eprintln!();
        let Copy { broker, job, .. } = copy;
        let client = broker.client();
        job.catch_up(&client);
        assert_exactly_once(self.records, &client.read(&job.output(), true));
        assert_exactly_once(self.records, &kcat_read(broker.address(), &job.output(), true));
        KafkaReport { took: start.elapsed(), ..report }
    }

    /// The records that one kill, or one bounce, is for.
    fn lines(&self, number: u32) -> Vec<u8> {
        let first = |number: u32| self.records * u64::from(number) / u64::from(self.kills + self.bounces);
        numbered_lines(first(number)..first(number + 1), RECORD_BYTES)
    }
}

/// The job under its broker.
struct Copy {
    broker: Broker,
    job: KafkaJob,
    moments: Words,
}

impl Copy {
    /// Adds records while the host runs, and kills it at some moment.
    fn kill(&mut self, lines: &[u8]) {
        let age_ms = self.moments.below(LONGEST_RUN_MS);
        let Copy { broker, job, .. } = self;
        let mut running = job.folder.start();
        thread::scope(|scope| {
            scope.spawn(|| kcat_produce(broker.address(), &job.input(), lines));
            assert!(is_killed(&mut running, age_ms), "it ended on its own:\n{}", running.stderr());
        });
    }

    /// Kills the broker under a running host, and starts it again while the host is killed and started. Tells how often that was.
    fn bounce(&mut self, lines: &[u8]) -> u32 {
        let Copy { broker, job, moments } = self;
        let mut running = job.folder.start();
        let (epoch, mut runs) = (job.newest_epoch(), 0);
        kcat_produce(broker.address(), &job.input(), lines);
        running.wait_until("a new checkpoint", || job.newest_epoch() > epoch);
        broker.kill();
        thread::scope(|scope| {
            let back = scope.spawn(|| broker.restart());
            while !back.is_finished() {
                if !is_killed(&mut running, moments.below(LONGEST_RUN_MS)) {
                    let messages = running.stderr();
                    assert!(messages.contains(broker.address()), "nothing names the broker:\n{messages}");
                }
                runs += 1;
                running = job.folder.start();
            }
        });
        running.kill();
        runs
    }
}

/// Kills a process when it is that old; `false` if it ended before.
fn is_killed(running: &mut Running, age_ms: u64) -> bool {
    while running.is_alive() && running.age() < Duration::from_millis(age_ms) {
        thread::sleep(Duration::from_millis(1));
    }
    let was_alive = running.is_alive();
    running.kill();
    crate::wait_until("the process ends", || !running.is_alive());
    was_alive
}
