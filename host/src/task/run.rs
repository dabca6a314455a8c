//! A task that is ready to run, and what source tasks and input tasks have in common.
//!
//! Invariant: behind the last barrier nothing follows but the end.

use std::sync::Arc;
use std::time::Duration;

use super::input::InputTask;
use super::source::SourceTask;
use super::{Chain, Counters, SourceTime, TaskError, Wires};
use crate::channel::Inputs;
use crate::connector::SourceReader;
use crate::element::{Barrier, Element, Purpose};
use crate::id::{SubtaskId, TaskId};
use crate::protocol::Aligner;

/// How long buffered rows may wait for more of their kind while nothing else comes.
pub(super) const LINGER: Duration = Duration::from_millis(5);

/// Where a task gets its elements from.
pub enum Head {
    Source {
        subtask: SubtaskId,
        reader: Box<dyn SourceReader>,
        time: SourceTime,
        counters: Counters,
    },
    /// Channels, and for each what it is.
    Inputs {
        inputs: Inputs,
        labels: Vec<Arc<InputLabel>>,
        aligner: Aligner,
    },
}

/// What one channel into an operator or sink is.
#[derive(Clone, Debug)]
pub struct InputLabel {
    /// The input that it feeds, by its number
    pub port: u32,
    /// and as the operator calls it.
    pub name: String,
    pub from: SubtaskId,
    /// The output of `from` that feeds it; empty for a source.
    pub output: String,
    pub exchange: crate::graph::Exchange,
}

/// A task that is ready to run.
pub struct Task {
    pub id: TaskId,
    pub head: Head,
    pub chain: Chain,
    pub wires: Wires,
}

impl Task {
    /// Runs until the stream ends, behind the last barrier.
    ///
    /// # Errors
    /// Whatever ended it early; then the attempt is over.
    pub async fn run(self) -> Result<(), TaskError> {
        let Task { id, head, chain, wires } = self;
        match head {
            Head::Source { subtask, reader, time, counters } => {
                SourceTask::new(id, subtask, reader, time, counters, chain, wires).run().await
            }
            Head::Inputs { inputs, labels, aligner } => {
                InputTask::new(id, inputs, labels, aligner, chain, wires).run().await
            }
        }
    }
}

/// Whether a task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Done,
}

/// Sends a barrier on; behind the last one, the end. Behind any other, operators are swapped: what follows it is for the new one, and
/// nobody who waits for the barrier waits for that.
pub(super) fn pass_on(chain: &mut Chain, barrier: Barrier) -> Result<Flow, TaskError> {
    chain.broadcast(&Element::Barrier(barrier))?;
    match barrier.purpose {
        Purpose::Continue => {
            chain.swap(barrier.epoch)?;
            Ok(Flow::Continue)
        }
        Purpose::Last => {
            chain.broadcast(&Element::End)?;
            chain.close();
            Ok(Flow::Done)
        }
    }
}
