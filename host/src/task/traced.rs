//! A source whose batches tell where they were read, for jobs with dead letters.
//!
//! Invariant: but for that, it is the source that it is made of.

use std::sync::Arc;

use crate::connector::{ConnectorError, Polled, Queued, SourceReader, SplitChange, SplitState};
use crate::element::Provenance;
use crate::id::SplitId;

pub struct Traced(pub Box<dyn SourceReader>);

impl SourceReader for Traced {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.0.restore(splits)
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        let mut polled = self.0.poll()?;
        if let Polled::Batch { split, first_offset, batch } = &mut polled {
            batch.provenance = Some(Arc::new(Provenance::of_source(split.clone(), *first_offset)));
        }
        Ok(polled)
    }

    fn snapshot(&self) -> Vec<SplitState> {
        self.0.snapshot()
    }

    fn is_ahead(&self) -> bool {
        self.0.is_ahead()
    }

    fn begun_splits(&self) -> Vec<SplitId> {
        self.0.begun_splits()
    }

    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        self.0.split_changes()
    }

    fn merges_splits(&self) -> bool {
        self.0.merges_splits()
    }

    fn lag(&self) -> Option<u64> {
        self.0.lag()
    }

    fn queued(&self) -> Option<Queued> {
        self.0.queued()
    }
}
