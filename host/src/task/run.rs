//! The loop of a task: take an element, let it through the chain, pass barriers on.
//!
//! Invariant: rows never wait in an outlet longer than [`LINGER`] while nothing else comes.

use std::time::Duration;

use tokio::sync::mpsc::error::TryRecvError;

use super::{Chain, Counters, PendingPart, TaskError, TaskEvent, Wires};
use crate::channel::{Inputs, Received};
use crate::connector::{Polled, SourceReader};
use crate::element::{Barrier, Element, Purpose, WATERMARK_END};
use crate::id::{SubtaskId, TaskId};
use crate::protocol::{Aligner, Alignment, Input, Progress, Watermarks};

/// How long buffered rows may wait for more of their kind.
const LINGER: Duration = Duration::from_millis(5);

/// Where a task gets its elements from.
pub enum Head {
    Source {
        subtask: SubtaskId,
        reader: Box<dyn SourceReader>,
        counters: Counters,
    },
    /// Channels, and for each the input port of the first operator that it feeds.
    Inputs {
        inputs: Inputs,
        ports: Vec<u32>,
    },
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
            Head::Source { subtask, reader, counters } => {
                SourceTask { id, subtask, reader, counters, chain, wires, changed: false }.run().await
            }
            Head::Inputs { inputs, ports } => {
                let aligner = Aligner::new(inputs.len());
                let watermarks = Watermarks::new(inputs.len());
                InputTask { id, inputs, ports, aligner, watermarks, chain, wires }.run().await
            }
        }
    }
}

/// Whether a task goes on.
enum Flow {
    Continue,
    Done,
}

struct SourceTask {
    id: TaskId,
    subtask: SubtaskId,
    reader: Box<dyn SourceReader>,
    counters: Counters,
    chain: Chain,
    wires: Wires,
    changed: bool,
}

impl SourceTask {
    async fn run(mut self) -> Result<(), TaskError> {
        let mut ended = false;
        loop {
            match self.wires.barriers.try_recv() {
                Ok(barrier) => match self.barrier(barrier).await? {
                    Flow::Continue => continue,
                    Flow::Done => return Ok(()),
                },
                Err(TryRecvError::Disconnected) => return Err(TaskError::Cancelled),
                Err(TryRecvError::Empty) => {}
            }
            let wait = match self.reader.poll()? {
                Polled::Batch(batch) => {
                    self.counters.gave(&batch);
                    self.changed = true;
                    self.chain.batch(0, batch.into()).await?;
                    continue;
                }
                Polled::Idle(wait) => wait,
                Polled::Ended => {
                    if !ended {
                        ended = true;
                        self.chain.watermark(WATERMARK_END).await?;
                        self.tell(TaskEvent::SourceEnded(self.id))?;
                    }
                    Duration::MAX
                }
            };
            match self.wait(wait).await? {
                Flow::Continue => {}
                Flow::Done => return Ok(()),
            }
        }
    }

    /// Nothing to read: waits for a barrier or for `wait` to pass.
    async fn wait(&mut self, wait: Duration) -> Result<Flow, TaskError> {
        self.chain.flush().await?;
        match tokio::time::timeout(wait, self.wires.barriers.recv()).await {
            Err(_elapsed) => Ok(Flow::Continue),
            Ok(Some(barrier)) => self.barrier(barrier).await,
            Ok(None) => Err(TaskError::Cancelled),
        }
    }

    async fn barrier(&mut self, barrier: Barrier) -> Result<Flow, TaskError> {
        let (mut parts, mut changed) = self.chain.snapshot(barrier.epoch)?;
        changed |= std::mem::take(&mut self.changed);
        let (subtask, splits) = (self.subtask.clone(), self.reader.snapshot());
        parts.push(PendingPart { subtask, splits, operator_state: Vec::new(), keyed: None, prepare: None });
        self.tell(TaskEvent::Snapshot { task: self.id, epoch: barrier.epoch, changed, parts })?;
        pass_on(&mut self.chain, barrier).await
    }

    fn tell(&self, event: TaskEvent) -> Result<(), TaskError> {
        self.wires.events.send(event).map_err(|_| TaskError::Cancelled)
    }
}

/// Sends a barrier on; behind the last one, the end.
async fn pass_on(chain: &mut Chain, barrier: Barrier) -> Result<Flow, TaskError> {
    chain.broadcast(&Element::Barrier(barrier)).await?;
    match barrier.purpose {
        Purpose::Continue => Ok(Flow::Continue),
        Purpose::Last => {
            chain.broadcast(&Element::End).await?;
            chain.close()?;
            Ok(Flow::Done)
        }
    }
}

struct InputTask {
    id: TaskId,
    inputs: Inputs,
    ports: Vec<u32>,
    aligner: Aligner,
    watermarks: Watermarks,
    chain: Chain,
    wires: Wires,
}

impl InputTask {
    async fn run(mut self) -> Result<(), TaskError> {
        loop {
            let received = if self.chain.has_buffered() {
                match tokio::time::timeout(LINGER, self.inputs.recv()).await {
                    Ok(received) => received,
                    Err(_elapsed) => {
                        self.chain.flush().await?;
                        continue;
                    }
                }
            } else {
                self.inputs.recv().await
            };
            let (input, element) = match received {
                Received::Element(input, element) => (input, element),
                Received::Lost(_) => return Err(TaskError::Cancelled),
            };
            match self.element(input, element).await? {
                Flow::Continue => {}
                Flow::Done => return Ok(()),
            }
        }
    }

    async fn element(&mut self, input: usize, element: Element) -> Result<Flow, TaskError> {
        let from = Input(input);
        match element {
            Element::Batch(batch) => self.chain.batch(self.ports[input], batch).await?,
            Element::Watermark(timestamp) => {
                let progress = self.watermarks.advance(from, timestamp);
                self.progressed(progress).await?;
            }
            Element::Idle => {
                let progress = self.watermarks.idle(from);
                self.progressed(progress).await?;
            }
            Element::Active => {
                let progress = self.watermarks.active(from);
                self.progressed(progress).await?;
            }
            Element::Barrier(barrier) => {
                let alignment = self.aligner.barrier(from, barrier);
                return self.aligned(alignment).await;
            }
            Element::End => {
                let progress = self.watermarks.end(from);
                self.progressed(progress).await?;
                let alignment = self.aligner.end(from);
                return self.aligned(alignment).await;
            }
        }
        Ok(Flow::Continue)
    }

    async fn progressed(&mut self, progress: Progress) -> Result<(), TaskError> {
        match progress {
            Progress::Unchanged => Ok(()),
            Progress::Advanced(timestamp) => self.chain.watermark(timestamp).await,
            Progress::Idle => self.chain.broadcast(&Element::Idle).await,
            Progress::Active(timestamp) => {
                self.chain.broadcast(&Element::Active).await?;
                self.chain.watermark(timestamp).await
            }
        }
    }

    /// Holds the inputs that have delivered the barrier, or cuts here when all of them have.
    async fn aligned(&mut self, alignment: Alignment) -> Result<Flow, TaskError> {
        match alignment {
            Alignment::Waiting(_) | Alignment::Superseded { .. } | Alignment::Stale(_) | Alignment::Ended => {
                self.inputs.release_all();
                for input in (0..self.inputs.len()).filter(|&input| self.aligner.is_held(Input(input))) {
                    self.inputs.hold(input);
                }
                Ok(Flow::Continue)
            }
            Alignment::Aligned(barrier) => {
                self.inputs.release_all();
                let (parts, changed) = self.chain.snapshot(barrier.epoch)?;
                let event = TaskEvent::Snapshot { task: self.id, epoch: barrier.epoch, changed, parts };
                self.wires.events.send(event).map_err(|_| TaskError::Cancelled)?;
                let flow = pass_on(&mut self.chain, barrier).await?;
                if matches!(flow, Flow::Done) {
                    // The ends behind the barrier: no sender shall find its receiver gone.
                    self.inputs.drain().await;
                }
                Ok(flow)
            }
            // The inputs ended without a last barrier.
            Alignment::Finished => {
                self.chain.broadcast(&Element::End).await?;
                self.chain.close()?;
                Ok(Flow::Done)
            }
        }
    }
}
