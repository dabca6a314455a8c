//! The operators of a task and what is behind them: a batch goes in, all that follows from it comes out.
//!
//! Nothing here waits: what leaves is queued, whether there is room or not. The task asks for room before it begins anything, and
//! what may become much is done in steps, between which it asks again.
//!
//! Invariant: rows leave an operator in the order in which it emitted them. What was in flight at the checkpoint that the task was
//! restored from is taken up before anything else, the farthest first; what isn't when a barrier passes is in the snapshot again, and
//! so are the rows of a batch that the first operator hasn't been given yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::{Counters, InFlight, InputLabel, Outlet, Pace, PendingPart, Swaps, TaskError};
use crate::channel::Closed;
use crate::connector::{Queued, SinkWriter};
use crate::element::{Batch, Element};
use crate::guest::{Clock, Emitted, OperatorInstance};
use crate::id::{Epoch, Name, SubtaskId};

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
    pub swaps: Swaps,
    pub pace: Pace,
}

/// Where a chain ends.
pub enum Tail {
    Sink { subtask: SubtaskId, writer: Box<dyn SinkWriter>, counters: Counters },
    Outlets(Vec<Outlet>),
}

/// A batch that was in flight to an operator or sink of a chain.
pub struct Restored {
    /// The place of the operator; that behind the last one is the sink.
    pub place: usize,
    pub label: Arc<InputLabel>,
    pub batch: Arc<Batch>,
}

/// Rows that the first operator is still to be given.
struct Rows {
    port: u32,
    /// Where they come from; `None` if that is a source of the same task.
    label: Option<Arc<InputLabel>>,
    batch: Arc<Batch>,
    /// From here on.
    next: u32,
}

/// Event time on its way through a chain.
struct Advancing {
    timestamp: i64,
    /// The operator that is told next.
    next: usize,
    then: Then,
}

/// What is passed on behind a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    /// That nothing comes for now.
    Idle,
}

/// The operators of a task, in order, and their tail.
pub struct Chain {
    operators: Vec<OperatorSlot>,
    tail: Tail,
    /// Come before all that isn't taken up yet.
    rows: Option<Rows>,
    /// Not taken up yet.
    restored: VecDeque<Restored>,
    advancing: Option<Advancing>,
    /// The sink takes nothing before.
    sink_rests_until: Option<Instant>,
    /// Whether anything has passed since the last barrier.
    changed: bool,
    /// When the last barrier came.
    cut_at: Instant,
}

impl Chain {
    /// `restored`: in the order in which each operator is to take it up.
    pub fn new(operators: Vec<OperatorSlot>, tail: Tail, mut restored: Vec<Restored>) -> Chain {
        // What is farther on was sent earlier.
        restored.sort_by_key(|restored| std::cmp::Reverse(restored.place));
        let (restored, cut_at) = (restored.into(), Instant::now());
        let (rows, advancing, sink_rests_until) = (None, None, None);
        Chain { operators, tail, rows, restored, advancing, sink_rests_until, changed: false, cut_at }
    }

    /// Whether something was in flight, or was begun with, whose rows aren't all taken up yet.
    #[inline]
    pub fn has_rows(&self) -> bool {
        self.rows.is_some() || !self.restored.is_empty()
    }

    /// Whether it is in the middle of a batch of a source of the same task: then it can't be cut.
    #[inline]
    pub fn is_in_own_batch(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.label.is_none())
    }

    /// Whether there is work to be gone on with, before anything else is begun.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.advancing.is_some() || self.has_rows()
    }

    /// Goes on with it by one step.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn work(&mut self) -> Result<(), TaskError> {
        if let Some(rows) = self.rows.take() {
            return self.take_rows(rows);
        }
        match self.restored.pop_front() {
            Some(restored) => self.take_up(restored),
            None => self.advance(),
        }
    }

    fn take_up(&mut self, restored: Restored) -> Result<(), TaskError> {
        let Restored { place, label, batch } = restored;
        self.changed = true;
        if place == 0 && !self.operators.is_empty() {
            return self.take_rows(Rows { port: label.port, label: Some(label), batch, next: 0 });
        }
        if place < self.operators.len() {
            let mut leaving = Emitted::new();
            self.process(place, label.port, &batch, &mut leaving)?;
            return self.leave_all(leaving);
        }
        self.write(&batch)
    }

    /// Writes to the sink that the chain ends in.
    fn write(&mut self, batch: &Batch) -> Result<(), TaskError> {
        let Tail::Sink { writer, counters, .. } = &mut self.tail else { panic!("the chain ends in a sink") };
        writer.write(batch)?;
        counters.took(batch);
        self.ask_sink();
        Ok(())
    }

    /// Sends a batch through all operators and on: as many of its rows as the first operator is to be given at once, and the others
    /// with the next [`work`](Self::work). `label`: where it comes from; `None` if that is a source of the same task.
    ///
    /// # Errors
    /// If an operator or the tail fails.
    pub fn batch(&mut self, port: u32, label: Option<&Arc<InputLabel>>, batch: Arc<Batch>) -> Result<(), TaskError> {
        self.changed = true;
        if self.operators.is_empty() {
            return self.leave(port, batch);
        }
        self.take_rows(Rows { port, label: label.cloned(), batch, next: 0 })
    }

    /// Gives the first operator some rows, and keeps the others.
    fn take_rows(&mut self, rows: Rows) -> Result<(), TaskError> {
        let Rows { port, label, batch, next } = rows;
        self.changed = true;
        let slot = &self.operators[0];
        if next == 0 {
            slot.counters.took(&batch);
        }
        let mut leaving = Emitted::new();
        let end = next.saturating_add(slot.pace.rows()).min(batch.rows);
        if next == 0 && end == batch.rows {
            self.call(0, port, &batch, &mut leaving)?;
        } else {
            let part = batch.part(next..end);
            self.rows = (end < batch.rows).then_some(Rows { port, label, batch, next: end });
            self.call(0, port, &part, &mut leaving)?;
        }
        self.leave_all(leaving)
    }

    /// Begins to tell all operators that event time has come to `timestamp`, and to pass it on, with what follows it: what there
    /// is to do is [`work`](Self::work).
    ///
    /// # Panics
    /// If the watermark before isn't through.
    pub fn begin_watermark(&mut self, timestamp: i64, then: Then) {
        assert!(self.advancing.is_none(), "one watermark after the other");
        self.advancing = Some(Advancing { timestamp, next: 0, then });
    }

    /// Fires some of the timers of the next operator that are due, or tells it how far event time has come if none is, or passes
    /// that on behind the last operator.
    fn advance(&mut self) -> Result<(), TaskError> {
        let Some(Advancing { timestamp, next, then }) = &mut self.advancing else { return Ok(()) };
        let (timestamp, index, then) = (*timestamp, *next, *then);
        let Some(slot) = self.operators.get_mut(index) else {
            self.advancing = None;
            self.broadcast(&Element::Watermark(timestamp))?;
            return match then {
                Then::Nothing => Ok(()),
                Then::Idle => self.broadcast(&Element::Idle),
            };
        };
        let mut emitted = Emitted::new();
        // Those that fire may set others that are due as well.
        let fired = slot.instance.fire_timers(Clock::EventTime, timestamp, &mut emitted)?;
        assert!(fired.rejections.is_empty(), "rejections aren't allowed");
        if fired.rows == 0 {
            *next += 1;
            slot.instance.watermark(timestamp, &mut emitted)?;
        }
        self.changed |= fired.rows > 0 || !emitted.is_empty();
        let mut leaving = Emitted::new();
        self.continue_with(index, emitted, &mut leaving)?;
        self.leave_all(leaving)
    }

    /// The time of day at which the earliest timer fires, in milliseconds since the Unix epoch.
    #[inline]
    pub fn next_timer_ms(&self) -> Option<i64> {
        self.operators.iter().filter_map(|slot| slot.instance.next_timer(Clock::ProcessingTime)).min()
    }

    /// Tells the operators what time it is.
    pub fn set_now(&mut self, now_ms: i64) {
        self.operators.iter_mut().for_each(|slot| slot.instance.set_now(now_ms));
    }

    /// Fires some of the timers that are due at this time of day.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn fire_timers(&mut self, now_ms: i64) -> Result<(), TaskError> {
        let is_due =
            |slot: &OperatorSlot| slot.instance.next_timer(Clock::ProcessingTime).is_some_and(|due| due <= now_ms);
        let Some(index) = self.operators.iter().position(is_due) else { return Ok(()) };
        let (mut emitted, mut leaving) = (Emitted::new(), Emitted::new());
        let fired = self.operators[index].instance.fire_timers(Clock::ProcessingTime, now_ms, &mut emitted)?;
        assert!(fired.rejections.is_empty(), "rejections aren't allowed");
        self.changed |= fired.rows > 0;
        self.continue_with(index, emitted, &mut leaving)?;
        self.leave_all(leaving)
    }

    /// Runs an operator behind the first, and those behind it; what leaves the last one is added to `leaving`.
    fn process(&mut self, index: usize, port: u32, batch: &Batch, leaving: &mut Emitted) -> Result<(), TaskError> {
        self.operators[index].counters.took(batch);
        let mut next = 0;
        while next < batch.rows {
            let end = next.saturating_add(self.operators[index].pace.rows()).min(batch.rows);
            if end - next == batch.rows {
                self.call(index, port, batch, leaving)?;
            } else {
                self.call(index, port, &batch.part(next..end), leaving)?;
            }
            next = end;
        }
        Ok(())
    }

    /// Has an operator process rows in one call, and those behind it what comes of them.
    fn call(&mut self, index: usize, port: u32, rows: &Batch, leaving: &mut Emitted) -> Result<(), TaskError> {
        let slot = &mut self.operators[index];
        let mut emitted = Emitted::new();
        let began = Instant::now();
        let rejections = slot.instance.process(port, rows, &mut emitted)?;
        let bytes = emitted.iter().map(|(_, batch)| batch.bytes()).sum();
        slot.pace.took(rows.rows, bytes, began.elapsed());
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

    fn leave_all(&mut self, leaving: Emitted) -> Result<(), TaskError> {
        for (port, batch) in leaving {
            self.leave(port, Arc::new(batch))?;
        }
        Ok(())
    }

    fn leave(&mut self, port: u32, batch: Arc<Batch>) -> Result<(), TaskError> {
        if batch.is_empty() {
            return Ok(());
        }
        match &mut self.tail {
            Tail::Sink { .. } => {
                let chained_port = self.operators.last().map_or(port, |slot| slot.chained_port);
                if port == chained_port {
                    self.write(&batch)?;
                }
            }
            Tail::Outlets(outlets) => {
                for outlet in outlets.iter_mut().filter(|outlet| outlet.takes(port)) {
                    outlet.send(Arc::clone(&batch))?;
                }
            }
        }
        Ok(())
    }

    /// Passes on what isn't a batch.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub fn broadcast(&mut self, element: &Element) -> Result<(), TaskError> {
        match &mut self.tail {
            Tail::Sink { .. } => {}
            Tail::Outlets(outlets) => {
                for outlet in outlets {
                    outlet.broadcast(element)?;
                }
            }
        }
        Ok(())
    }

    /// Those of its subtasks.
    pub fn counters(&self) -> impl Iterator<Item = &Counters> {
        let tail = match &self.tail {
            Tail::Sink { counters, .. } => Some(counters),
            Tail::Outlets(_) => None,
        };
        self.operators.iter().map(|slot| &slot.counters).chain(tail)
    }

    fn outlets(&self) -> &[Outlet] {
        match &self.tail {
            Tail::Sink { .. } => &[],
            Tail::Outlets(outlets) => outlets,
        }
    }

    /// Whether all that follows has room.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.outlets().iter().all(Outlet::has_room) && self.is_sink_ready()
    }

    /// A sink that needed a rest is asked again when that is over.
    fn is_sink_ready(&mut self) -> bool {
        match self.sink_rests_until {
            None => true,
            Some(until) if until > Instant::now() => false,
            Some(_) => {
                self.ask_sink();
                self.sink_rests_until.is_none()
            }
        }
    }

    fn ask_sink(&mut self) {
        if let Tail::Sink { writer, counters, .. } = &mut self.tail {
            if let Some(Queued { records, bytes }) = writer.queued() {
                counters.backlog().queued(records, bytes);
            }
            let rests = writer.busy_for();
            self.sink_rests_until = (!rests.is_zero()).then(|| Instant::now() + rests);
        }
    }

    /// When a sink that needs a rest goes on. Nothing but time tells.
    pub fn sink_rests_until(&self) -> Option<Instant> {
        self.sink_rests_until
    }

    /// Waits until all that follows has room.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        if self.sink_rests_until.is_some_and(|until| until > Instant::now()) {
            return Poll::Pending;
        }
        for outlet in self.outlets() {
            match outlet.poll_room(context) {
                Poll::Ready(Ok(())) => {}
                waits => return waits,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The first reader whose channel has no room.
    pub fn blocked_by(&self) -> Option<&Name> {
        self.outlets().iter().find(|outlet| !outlet.has_room()).map(Outlet::to)
    }

    /// Whether rows wait in an outlet for more of their kind.
    pub fn has_buffered(&self) -> bool {
        self.outlets().iter().any(Outlet::has_buffered)
    }

    /// # Errors
    /// If a receiver is gone.
    pub fn flush(&mut self) -> Result<(), TaskError> {
        match &mut self.tail {
            Tail::Sink { .. } => {}
            Tail::Outlets(outlets) => {
                for outlet in outlets {
                    outlet.flush()?;
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
        self.cut_at = Instant::now();
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
            parts.push(PendingPart { operator_state, keyed, ..PendingPart::new(subtask) });
        }
        match &mut self.tail {
            Tail::Sink { subtask, writer, .. } => {
                let (subtask, prepare) = (subtask.clone(), Some(writer.prepare(epoch)?));
                parts.push(PendingPart { prepare, ..PendingPart::new(subtask) });
            }
            Tail::Outlets(_) => {}
        }
        self.ask_sink();
        if let Some(Rows { label, batch, next, .. }) = &self.rows {
            let label = Arc::clone(label.as_ref().expect("a source's own batch is processed before a barrier"));
            parts[0].in_flight.push(InFlight { label, batches: vec![batch.part(*next..batch.rows).into()] });
        }
        for Restored { place, label, batch } in &self.restored {
            let in_flight = &mut parts[*place].in_flight;
            match in_flight.last_mut().filter(|last: &&mut InFlight| Arc::ptr_eq(&last.label, label)) {
                Some(last) => last.batches.push(Arc::clone(batch)),
                None => in_flight.push(InFlight { label: Arc::clone(label), batches: vec![Arc::clone(batch)] }),
            }
        }
        Ok((parts, std::mem::take(&mut self.changed)))
    }

    /// Swaps the operators for which that is ordered at the barrier that has just been passed on.
    ///
    /// # Errors
    /// If the new component can't take the operator's place.
    pub fn swap(&mut self, epoch: Epoch) -> Result<(), TaskError> {
        for place in 0..self.operators.len() {
            let slot = &self.operators[place];
            let Some(factory) = slot.swaps.board.ordered(epoch, &slot.subtask.operator) else { continue };
            let swapped = self.operators.remove(place).swapped(&*factory, self.cut_at)?;
            self.operators.insert(place, swapped);
            self.changed = true;
        }
        Ok(())
    }

    /// Tells every operator that the job is over. Nothing depends on what they do then, so that one which fails at it is
    /// reported, and the last checkpoint is taken all the same.
    pub fn close(&mut self) {
        for slot in &mut self.operators {
            if let Err(error) = slot.instance.close() {
                tracing::warn!(operator = %slot.subtask, "it failed when it was closed: {}", error.failure);
            }
        }
    }
}
