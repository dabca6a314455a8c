//! The null sink: takes everything, keeps nothing. For benchmarks and dry runs.
//!
//! Invariant: it never has anything to commit.

use serde::Deserialize;

use super::{ConnectorError, Prepare, SinkCommitter, SinkWriter};
use crate::element::Batch;
use crate::id::Epoch;
use crate::protocol::CommitPermit;

/// `type = "null"`: no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullSinkOptions {}

/// Counts what it is given.
#[derive(Debug, Default)]
pub struct NullSinkWriter {
    rows: u64,
    bytes: u64,
}

impl NullSinkWriter {
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
        Ok(())
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
    }
}
