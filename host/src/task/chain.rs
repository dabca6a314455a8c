//! The operators of a task and what is behind them: a batch goes in, all that follows from it comes out.
//!
//! Invariant: rows leave an operator in the order in which it emitted them.

use std::sync::Arc;

use super::{Counters, Outlet, PendingPart, TaskError};
use crate::connector::SinkWriter;
use crate::element::{Batch, Element};
use crate::guest::{Clock, Emitted, OperatorInstance};
use crate::id::{Epoch, SubtaskId};

/// One operator of a chain.
pub struct OperatorSlot {
    pub subtask: SubtaskId,
    pub instance: Box<dyn OperatorInstance>,
    /// The input at which the operator before it in the chain feeds it; of no meaning to the first.
    pub chained_input: u32,
    /// The output that the operator or sink behind it in the chain takes; of no meaning where outlets choose by themselves.
    pub chained_port: u32,
    /// What it gave at the last snapshot, or was restored from.
    pub operator_state: Vec<u8>,
    pub counters: Counters,
}

/// Where a chain ends.
pub enum Tail {
    Sink { subtask: SubtaskId, writer: Box<dyn SinkWriter>, counters: Counters },
    Outlets(Vec<Outlet>),
}

/// The operators of a task, in order, and their tail.
pub struct Chain {
    pub operators: Vec<OperatorSlot>,
    pub tail: Tail,
    /// Whether anything has passed since the last barrier.
    changed: bool,
}

impl Chain {
    pub fn new(operators: Vec<OperatorSlot>, tail: Tail) -> Chain {
        Chain { operators, tail, changed: false }
    }

    /// Sends a batch through all operators and on.
    ///
    /// # Errors
    /// If an operator or the tail fails.
    pub async fn batch(&mut self, port: u32, batch: Arc<Batch>) -> Result<(), TaskError> {
        self.changed = true;
        if self.operators.is_empty() {
            return self.leave(port, batch).await;
        }
        let mut leaving = Emitted::new();
        self.process(0, port, &batch, &mut leaving)?;
        self.leave_all(leaving).await
    }

    /// Tells all operators that event time has come to `timestamp`, and passes it on.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub async fn watermark(&mut self, timestamp: i64) -> Result<(), TaskError> {
        let mut leaving = Emitted::new();
        for index in 0..self.operators.len() {
            while self.fire_timers(index, timestamp, &mut leaving)? > 0 {}
            let mut emitted = Emitted::new();
            self.operators[index].instance.watermark(timestamp, &mut emitted)?;
            self.changed |= !emitted.is_empty();
            self.continue_with(index, emitted, &mut leaving)?;
        }
        self.leave_all(leaving).await?;
        self.broadcast(&Element::Watermark(timestamp)).await
    }

    /// Fires some of the event-time timers of operator `index` that are due at a watermark; says how many.
    fn fire_timers(&mut self, index: usize, timestamp: i64, leaving: &mut Emitted) -> Result<u32, TaskError> {
        let mut emitted = Emitted::new();
        let fired = self.operators[index].instance.fire_timers(Clock::EventTime, timestamp, &mut emitted)?;
        assert!(fired.rejections.is_empty(), "rejections aren't allowed");
        self.changed |= fired.rows > 0;
        self.continue_with(index, emitted, leaving)?;
        Ok(fired.rows)
    }

    /// Runs operator `index` and those behind it; what leaves the last one is added to `leaving`.
    fn process(&mut self, index: usize, port: u32, batch: &Batch, leaving: &mut Emitted) -> Result<(), TaskError> {
        let slot = &mut self.operators[index];
        let mut emitted = Emitted::new();
        slot.counters.took(batch);
        let rejections = slot.instance.process(port, batch, &mut emitted)?;
        assert!(rejections.is_empty(), "rejections aren't allowed");
        self.continue_with(index, emitted, leaving)
    }

    fn continue_with(&mut self, index: usize, emitted: Emitted, leaving: &mut Emitted) -> Result<(), TaskError> {
        let slot = &self.operators[index];
        for (_, batch) in &emitted {
            slot.counters.gave(batch);
        }
        if index + 1 == self.operators.len() {
            leaving.extend(emitted);
            return Ok(());
        }
        let chained_port = slot.chained_port;
        for (port, batch) in emitted {
            if port == chained_port {
                let input = self.operators[index + 1].chained_input;
                self.process(index + 1, input, &batch, leaving)?;
            }
        }
        Ok(())
    }

    async fn leave_all(&mut self, leaving: Emitted) -> Result<(), TaskError> {
        for (port, batch) in leaving {
            self.leave(port, Arc::new(batch)).await?;
        }
        Ok(())
    }

    async fn leave(&mut self, port: u32, batch: Arc<Batch>) -> Result<(), TaskError> {
        if batch.is_empty() {
            return Ok(());
        }
        match &mut self.tail {
            Tail::Sink { writer, counters, .. } => {
                let chained_port = self.operators.last().map_or(port, |slot| slot.chained_port);
                if port == chained_port {
                    writer.write(&batch)?;
                    counters.took(&batch);
                }
            }
            Tail::Outlets(outlets) => {
                for outlet in outlets.iter_mut().filter(|outlet| outlet.takes(port)) {
                    outlet.send(Arc::clone(&batch)).await?;
                }
            }
        }
        Ok(())
    }

    /// Passes on what isn't a batch.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub async fn broadcast(&mut self, element: &Element) -> Result<(), TaskError> {
        match &mut self.tail {
            Tail::Sink { .. } => {}
            Tail::Outlets(outlets) => {
                for outlet in outlets {
                    outlet.broadcast(element).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether rows wait in an outlet for more of their kind.
    pub fn has_buffered(&self) -> bool {
        match &self.tail {
            Tail::Sink { .. } => false,
            Tail::Outlets(outlets) => outlets.iter().any(Outlet::has_buffered),
        }
    }

    /// # Errors
    /// If a receiver is gone.
    pub async fn flush(&mut self) -> Result<(), TaskError> {
        match &mut self.tail {
            Tail::Sink { .. } => {}
            Tail::Outlets(outlets) => {
                for outlet in outlets {
                    outlet.flush().await?;
                }
            }
        }
        Ok(())
    }

    /// Cuts every operator and the sink at a barrier. Gives their parts and whether anything has passed since the last one.
    ///
    /// # Errors
    /// If one of them can't be cut.
    pub fn snapshot(&mut self, epoch: Epoch) -> Result<(Vec<PendingPart>, bool), TaskError> {
        let mut parts = Vec::with_capacity(self.operators.len() + 1);
        for slot in &mut self.operators {
            let operator_state = slot.instance.snapshot(epoch)?;
            let frozen = slot.instance.keyed_state().map(|state| state.freeze(epoch)).transpose();
            let keyed = frozen.map_err(|source| TaskError::State { subtask: slot.subtask.clone(), source })?;
            // A watermark may change state without anything being emitted.
            self.changed |= slot.operator_state != operator_state;
            self.changed |= keyed.as_ref().is_some_and(|keyed| keyed.has_writes_of(epoch));
            slot.operator_state.clone_from(&operator_state);
            let subtask = slot.subtask.clone();
            parts.push(PendingPart { subtask, splits: Vec::new(), operator_state, keyed, prepare: None });
        }
        match &mut self.tail {
            Tail::Sink { subtask, writer, .. } => {
                let (subtask, prepare) = (subtask.clone(), Some(writer.prepare(epoch)?));
                parts.push(PendingPart {
                    subtask,
                    splits: Vec::new(),
                    operator_state: Vec::new(),
                    keyed: None,
                    prepare,
                });
            }
            Tail::Outlets(_) => {}
        }
        Ok((parts, std::mem::take(&mut self.changed)))
    }

    /// Tells every operator that the job is over.
    ///
    /// # Errors
    /// If one of them fails at it.
    pub fn close(&mut self) -> Result<(), TaskError> {
        for slot in &mut self.operators {
            slot.instance.close()?;
        }
        Ok(())
    }
}
