//! The null sink: takes everything, keeps nothing, as fast as it comes or as slowly as it is told to. For benchmarks, dry runs
//! and demonstrations of backpressure.
//!
//! Invariant: it never has anything to commit.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::numbered::validate_rate;
use super::{BadOption, ConnectorContext, ConnectorError, Prepare, SinkCommitter, SinkWriter};
use crate::element::Batch;
use crate::id::Epoch;
use crate::protocol::CommitPermit;

/// `type = "null"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullSinkOptions {
    /// Records a second that it takes in all. Without it, as many as there are.
    #[serde(default)]
    pub rate: Option<f64>,
}

impl NullSinkOptions {
    pub(super) fn validate(&self) -> Result<(), BadOption> {
        validate_rate(self.rate)
    }
}

/// Counts what it is given.
#[derive(Debug, Default)]
pub struct NullSinkWriter {
    rows: u64,
    bytes: u64,
    /// How long one record takes.
    pace: Duration,
    /// When what it was given is done.
    busy_until: Option<Instant>,
}

impl NullSinkWriter {
    pub(super) fn open(options: &NullSinkOptions, ctx: &ConnectorContext) -> NullSinkWriter {
        // Each subtask has its share of the rate.
        let pace = options.rate.map_or(0.0, |rate| f64::from(ctx.parallelism) / rate);
        NullSinkWriter { pace: Duration::from_secs_f64(pace), ..NullSinkWriter::default() }
    }

    /// Records taken.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes taken, as channels count them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl SinkWriter for NullSinkWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.rows += u64::from(batch.rows);
        self.bytes += batch.bytes() as u64;
        if !self.pace.is_zero() {
            let now = Instant::now();
            let start = self.busy_until.map_or(now, |done| done.max(now));
            self.busy_until = Some(start + self.pace.saturating_mul(batch.rows));
        }
        Ok(())
    }

    fn busy_for(&mut self) -> Duration {
        self.busy_until.map_or(Duration::ZERO, |done| done.saturating_duration_since(Instant::now()))
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare, ConnectorError> {
        tracing::debug!(epoch = epoch.0, rows = self.rows, bytes = self.bytes, "null sink reached a barrier");
        Ok(Box::new(|| Ok(Vec::new())))
    }
}

/// Commits nothing.
#[derive(Debug)]
pub struct NullCommitter;

impl SinkCommitter for NullCommitter {
    fn committed(&self) -> Option<Epoch> {
        None
    }

    fn commit(&self, _permit: &CommitPermit, _committables: &[Vec<u8>]) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn discard_leftovers(&self) -> Result<(), ConnectorError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_ctx;
    use super::*;
    use crate::element::Row;

    #[test]
    fn rows_and_bytes_are_counted_and_nothing_is_to_be_committed() {
        let mut batch = Batch::with_capacity(0, 0);
        batch.push(Row { key: Some(b"k"), value: Some(b"value"), timestamp: 1 });
        batch.push(Row { key: Some(b"k"), value: Some(b""), timestamp: 2 });
        let mut sink = NullSinkWriter::default();
        sink.write(&batch).expect("takes everything");
        sink.write(&batch).expect("takes everything");
        assert_eq!((sink.rows(), sink.bytes()), (4, 2 * batch.bytes() as u64));
        assert_eq!(sink.prepare(Epoch(1)).expect("a cut")().expect("work"), Vec::<u8>::new());
        assert_eq!(sink.busy_for(), Duration::ZERO);
    }

    #[test]
    fn a_rate_is_shared_by_the_subtasks_and_kept_by_being_busy() {
        let options = NullSinkOptions { rate: Some(100.0) };
        let mut sink = NullSinkWriter::open(&options, &test_ctx("slow", 2));
        let mut batch = Batch::with_capacity(0, 0);
        (0..500).for_each(|_| batch.push(Row { key: None, value: None, timestamp: 0 }));
        let before = Instant::now();
        sink.write(&batch).expect("takes everything");
        sink.write(&batch).expect("takes everything");
        let busy = sink.busy_for() + before.elapsed();
        assert!((19.9..21.0).contains(&busy.as_secs_f64()), "{busy:?}");
    }
}
