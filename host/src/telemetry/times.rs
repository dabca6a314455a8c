//! What a subtask's time goes into, and how far event time has come in it.
//!
//! Invariant: busy, idle and backpressured time add up to the time that the subtask's task has run.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::element::WATERMARK_END;

/// The times of one subtask. Those of a chain share a thread, and so have the same.
#[derive(Debug)]
pub struct SubtaskTimes {
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    backpressured_ns: AtomicU64,
    aligning_ns: AtomicU64,
    watermark: AtomicI64,
}

/// A reading of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Times {
    /// At work.
    pub busy_ns: u64,
    /// Waiting for something to do.
    pub idle_ns: u64,
    /// Waiting for room in a channel that leads on.
    pub backpressured_ns: u64,
    /// From the first barrier of an epoch to the last one.
    pub aligning_ns: u64,
    /// In milliseconds since the Unix epoch; `None` before the first.
    pub watermark: Option<i64>,
}

impl Times {
    /// How far event time is behind the time of day; `None` before the first watermark and after the last one.
    pub fn lag(&self, now: SystemTime) -> Option<Duration> {
        let watermark_ms = self.watermark.filter(|watermark| *watermark < WATERMARK_END)?;
        let now_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        Some(Duration::from_millis(now_ms.saturating_sub(watermark_ms).max(0) as u64))
    }
}

impl Default for SubtaskTimes {
    fn default() -> SubtaskTimes {
        let zero = || AtomicU64::new(0);
        SubtaskTimes {
            busy_ns: zero(),
            idle_ns: zero(),
            backpressured_ns: zero(),
            aligning_ns: zero(),
            watermark: AtomicI64::new(i64::MIN),
        }
    }
}

fn add(to: &AtomicU64, spent: Duration) {
    to.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
}

impl SubtaskTimes {
    pub fn busy(&self, spent: Duration) {
        add(&self.busy_ns, spent);
    }

    pub fn idle(&self, spent: Duration) {
        add(&self.idle_ns, spent);
    }

    pub fn backpressured(&self, spent: Duration) {
        add(&self.backpressured_ns, spent);
    }

    pub fn aligning(&self, spent: Duration) {
        add(&self.aligning_ns, spent);
    }

    /// Event time has come to this.
    pub fn watermark(&self, timestamp: i64) {
        self.watermark.store(timestamp, Ordering::Relaxed);
    }

    pub fn read(&self) -> Times {
        let watermark = self.watermark.load(Ordering::Relaxed);
        Times {
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            idle_ns: self.idle_ns.load(Ordering::Relaxed),
            backpressured_ns: self.backpressured_ns.load(Ordering::Relaxed),
            aligning_ns: self.aligning_ns.load(Ordering::Relaxed),
            watermark: (watermark > i64::MIN).then_some(watermark),
        }
    }
}
