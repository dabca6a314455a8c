//! Takes up the records that were in flight at a checkpoint.
//!
//! Invariant: every record in flight is given to the subtasks that [`in_flight::take_up`] says, before they get anything else.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::graph::Exchange;
use crate::id::SubtaskId;
use crate::protocol::MaxParallelism;
use crate::protocol::in_flight::{self, Dealing, Place};
use crate::store::in_flight::{ChannelContent, decode};
use crate::store::{CheckpointStore, EdgeRef, InFlightSnapshot};
use crate::task::{InputLabel, Restored, TaskError};

/// What one task has to take up.
pub struct TakingUp {
    pub store: CheckpointStore,
    pub max_parallelism: MaxParallelism,
    pub place: Place,
    /// The operators of the task's chain, and its sink.
    pub readers: Vec<Reader>,
}

/// An operator or sink of a task.
pub struct Reader {
    pub subtask: SubtaskId,
    /// One for each edge that leads to it.
    pub labels: Vec<InputLabel>,
    /// What was in flight to each subtask that it had.
    pub in_flight: Vec<Option<InFlightSnapshot>>,
}

impl TakingUp {
    /// Reads what was in flight. Blocks: for the task's own thread.
    ///
    /// # Errors
    /// If a file of the checkpoint can't be read.
    pub fn run(self) -> Result<Vec<Restored>, TaskError> {
        let mut restored = Vec::new();
        for (place, reader) in self.readers.iter().enumerate() {
            let old_parallelism = reader.in_flight.len() as u32;
            for (index, snapshot) in (0..).zip(&reader.in_flight) {
                let Some(snapshot) = snapshot else { continue };
                let old = Place { index, parallelism: old_parallelism };
                for content in self.read(reader, snapshot)? {
                    self.take_up(place, reader, old, &snapshot.edges[content.edge as usize], content, &mut restored);
                }
            }
        }
        Ok(restored)
    }

    fn read(&self, reader: &Reader, snapshot: &InFlightSnapshot) -> Result<Vec<ChannelContent>, TaskError> {
        let subtask = || reader.subtask.clone();
        let bytes = Handle::current().block_on(self.store.read(&snapshot.file));
        let bytes = bytes.map_err(|source| TaskError::Restore { subtask: subtask(), source })?;
        decode(&bytes, snapshot.edges.len()).map_err(|source| TaskError::InFlight { subtask: subtask(), source })
    }

    fn take_up(
        &self,
        place: usize,
        reader: &Reader,
        old: Place,
        edge: &EdgeRef,
        content: ChannelContent,
        restored: &mut Vec<Restored>,
    ) {
        let of_edge = |label: &&InputLabel| {
            label.from.operator == edge.from && label.output == edge.output && label.port == edge.input
        };
        let label = reader.labels.iter().find(of_edge).expect("recovery refuses a job that lacks the edge");
        let from = SubtaskId { index: content.sender, ..label.from.clone() };
        let label = Arc::new(InputLabel { from, ..label.clone() });
        let (was, is) = (dealing(edge.exchange), dealing(label.exchange));
        for batch in &content.batches {
            if let Some(batch) = in_flight::take_up(batch, (was, old), (is, self.place), self.max_parallelism) {
                restored.push(Restored { place, label: Arc::clone(&label), batch });
            }
        }
    }
}

fn dealing(exchange: Exchange) -> Dealing {
    match exchange {
        Exchange::Hash => Dealing::ByKey,
        Exchange::Forward | Exchange::Rebalance => Dealing::ToOne,
        Exchange::Broadcast => Dealing::ToAll,
    }
}
