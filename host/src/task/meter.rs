//! What a task's time goes into: work, waiting for input, waiting for room.
//!
//! The clock is read once per element and once per wait, never per record. All subtasks of a chain share a thread, so each of
//! them is told the same.
//!
//! Invariant: every moment since the meter was made counts for exactly one of the three.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Counters, TaskStatus};

/// The time of day in milliseconds since the Unix epoch, as operators see it.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub struct Meter {
    counters: Vec<Counters>,
    status: Arc<TaskStatus>,
    since: Instant,
    started: Instant,
}

impl Meter {
    pub fn new<'a>(counters: impl Iterator<Item = &'a Counters>, status: &Arc<TaskStatus>) -> Meter {
        let now = Instant::now();
        Meter { counters: counters.cloned().collect(), status: Arc::clone(status), since: now, started: now }
    }

    /// The task has worked until now.
    pub fn worked(&mut self) {
        let spent = self.lap();
        self.counters.iter().for_each(|counters| counters.times().busy(spent));
        self.status.begins_work(self.since);
    }

    /// The task is about to wait, and has worked until now.
    pub fn waits(&mut self) {
        self.worked();
        self.status.waits();
    }

    /// The task has waited for something to do.
    pub fn was_idle(&mut self) {
        let spent = self.lap();
        self.counters.iter().for_each(|counters| counters.times().idle(spent));
        self.status.begins_work(self.since);
    }

    /// The task has waited for room in what follows.
    pub fn was_blocked(&mut self) {
        let spent = self.lap();
        self.counters.iter().for_each(|counters| counters.times().backpressured(spent));
        self.status.begins_work(self.since);
    }

    /// An alignment took so long.
    pub fn aligned(&self, took: Duration) {
        self.counters.iter().for_each(|counters| counters.times().aligning(took));
    }

    /// Event time has come so far.
    pub fn watermark(&self, timestamp: i64) {
        self.counters.iter().for_each(|counters| counters.times().watermark(timestamp));
    }

    /// When the clock was read last.
    pub fn now(&self) -> Instant {
        self.since
    }

    /// The same, since the task began.
    pub fn elapsed(&self) -> Duration {
        self.since - self.started
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let spent = now - self.since;
        self.since = now;
        spent
    }
}
