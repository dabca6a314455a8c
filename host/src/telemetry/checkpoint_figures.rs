//! What is known of the checkpoints that a process has taken.
//!
//! Invariant: the figures of the newest checkpoint are those of one and the same.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::id::Epoch;

/// Upper bounds of the histogram's buckets, in seconds.
pub const BUCKETS_S: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// Kept by the runtime, read by whoever shows them.
#[derive(Debug, Default)]
pub struct CheckpointFigures(Mutex<Reading>);

/// The figures at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    pub newest: Option<Newest>,
    pub failures: u64,
    pub count: u64,
    pub took: Duration,
    /// How many took at most so long, by [`BUCKETS_S`].
    pub at_most: [u64; BUCKETS_S.len()],
}

/// The newest checkpoint that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    pub epoch: Epoch,
    pub took: Duration,
    /// All files that it consists of.
    pub size_bytes: u64,
    pub committed: Instant,
}

impl CheckpointFigures {
    pub fn committed(&self, newest: Newest) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.newest = Some(newest);
        reading.count += 1;
        reading.took += newest.took;
        for (count, bound_s) in reading.at_most.iter_mut().zip(BUCKETS_S) {
            *count += u64::from(newest.took.as_secs_f64() <= bound_s);
        }
    }

    /// A checkpoint failed or took too long, and with it the attempt.
    pub fn failed(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failures += 1;
    }

    pub fn read(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_counted_into_every_bucket_that_holds_them() {
        let figures = CheckpointFigures::default();
        for (epoch, took_ms) in [(1, 5), (2, 300), (3, 1_000_000)] {
            let (took, committed) = (Duration::from_millis(took_ms), Instant::now());
            figures.committed(Newest { epoch: Epoch(epoch), took, size_bytes: epoch, committed });
        }
        figures.failed();
        let reading = figures.read();
        assert_eq!((reading.count, reading.failures, reading.took.as_millis()), (3, 1, 1_000_305));
        assert_eq!(reading.at_most, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(reading.newest.map(|newest| (newest.epoch, newest.size_bytes)), Some((Epoch(3), 3)));
    }
}
