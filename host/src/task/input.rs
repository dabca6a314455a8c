//! The loop of a task behind channels: take an element, let it through the chain, align barriers.
//!
//! Invariant: no element is taken while what follows has no room; barriers that overtake are taken nevertheless. Rows never wait in
//! an outlet longer than [`LINGER`] while nothing else comes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;

use super::meter::{Meter, now_ms};
use super::run::{Flow, LINGER, pass_on};
use super::{Chain, InFlight, InputLabel, PendingPart, TaskError, TaskEvent, Then, Wires};
use crate::channel::{Inputs, Received};
use crate::element::{Barrier, Element};
use crate::id::{Epoch, TaskId};
use crate::protocol::{Aligner, Input, Progress, Verdict, Watermarks};

/// A timer that is farther away is looked at again after this time: an hour.
const FAR_MS: i64 = 3_600_000;

pub struct InputTask {
    id: TaskId,
    inputs: Inputs,
    labels: Vec<Arc<InputLabel>>,
    aligner: Aligner,
    watermarks: Watermarks,
    chain: Chain,
    wires: Wires,
    meter: Meter,
    /// A snapshot that was taken ahead of what its barrier has overtaken, all of which has not come yet.
    overtaken: Option<Snapshot>,
    aligning_since: Option<Instant>,
    /// An input that has ended, which counts when its last watermark is through.
    ended: Option<Input>,
}

struct Snapshot {
    epoch: Epoch,
    parts: Vec<PendingPart>,
    changed: bool,
}

/// What the task has waited for.
enum Next {
    Received(Received),
    Room,
    Time,
}

impl InputTask {
    pub fn new(
        id: TaskId,
        inputs: Inputs,
        labels: Vec<Arc<InputLabel>>,
        aligner: Aligner,
        chain: Chain,
        wires: Wires,
    ) -> InputTask {
        let meter = Meter::new(chain.counters(), &wires.status);
        let watermarks = Watermarks::new(inputs.len());
        let (overtaken, aligning_since, ended) = (None, None, None);
        InputTask { id, inputs, labels, aligner, watermarks, chain, wires, meter, overtaken, aligning_since, ended }
    }

    /// Runs until behind the last barrier.
    ///
    /// # Errors
    /// Whatever ended it early; then the attempt is over.
    pub async fn run(mut self) -> Result<(), TaskError> {
        loop {
            // A chain of timers may go on without an end, and a sink that is slow may wait for long.
            if let Err(TryRecvError::Disconnected) = self.wires.barriers.try_recv() {
                return Err(TaskError::Cancelled);
            }
            let ended = self.ended.take_if(|_| !self.chain.has_work());
            if let Some(input) = ended {
                let verdicts = self.aligner.end(input);
                if self.perform(verdicts)? == Flow::Done {
                    return self.done().await;
                }
            }
            self.fire_timers()?;
            let flow = match self.next().await? {
                Next::Received(Received::Element(input, element)) => self.element(input, element)?,
                Next::Received(Received::Announced(input, barrier)) => {
                    let verdicts = self.aligner.announced(Input(input), barrier, self.meter.elapsed());
                    self.perform(verdicts)?
                }
                Next::Received(Received::Lost(_)) => return Err(TaskError::Cancelled),
                Next::Room | Next::Time => Flow::Continue,
            };
            if flow == Flow::Done {
                return self.done().await;
            }
            self.meter.worked();
            if self.aligner.deadline().is_some_and(|deadline| deadline <= self.meter.elapsed()) {
                let verdicts = self.aligner.tick(self.meter.elapsed());
                // The last barrier doesn't overtake, so the task goes on.
                self.perform(verdicts)?;
            }
        }
    }

    async fn done(mut self) -> Result<(), TaskError> {
        // The ends behind the barrier: no sender shall find its receiver gone.
        self.inputs.drain().await;
        Ok(())
    }

    /// When the earliest timer fires.
    fn next_timer(&self) -> Option<Instant> {
        let due_ms = self.chain.next_timer_ms()?;
        let left_ms = due_ms.saturating_sub(now_ms()).clamp(0, FAR_MS);
        Some(Instant::now() + Duration::from_millis(left_ms as u64))
    }

    /// Fires some of the timers that are due by now, between two elements.
    fn fire_timers(&mut self) -> Result<(), TaskError> {
        let now_ms = now_ms();
        self.chain.set_now(now_ms);
        let is_due = self.chain.next_timer_ms().is_some_and(|due| due <= now_ms);
        if is_due && !self.chain.has_work() && self.chain.has_room() {
            self.chain.fire_timers(now_ms)?;
        }
        Ok(())
    }

    /// What there is to do next, waiting for it if need be.
    async fn next(&mut self) -> Result<Next, TaskError> {
        let has_room = self.chain.has_room();
        let has_work = self.chain.has_work();
        if has_room && let Some(received) = self.inputs.try_recv(!has_work) {
            return Ok(Next::Received(received));
        }
        if has_room && has_work {
            self.chain.work()?;
            return Ok(Next::Room);
        }
        let timer = self.next_timer().filter(|_| has_room);
        self.meter.waits();
        if !has_room {
            self.wires.status.blocked(self.chain.blocked_by());
        }
        let lingers = has_room && self.chain.has_buffered();
        let linger = lingers.then(|| self.meter.now() + LINGER);
        let align = self.aligner.deadline().map(|deadline| self.meter.started() + deadline);
        let rest = self.chain.sink_rests_until().filter(|_| !has_room);
        let until = [linger, align, timer, rest].into_iter().flatten().min();
        let (inputs, chain, barriers) = (&mut self.inputs, &mut self.chain, &mut self.wires.barriers);
        let something = poll_fn(move |context| {
            if barriers.poll_recv(context).is_ready() {
                return Poll::Ready(Ok(Next::Time));
            }
            if let Poll::Ready(received) = inputs.poll_recv(context, has_room) {
                return Poll::Ready(Ok(Next::Received(received)));
            }
            if has_room { Poll::Pending } else { chain.poll_room(context).map(|room| room.map(|()| Next::Room)) }
        });
        let next = match until {
            None => something.await,
            Some(until) => tokio::time::timeout_at(until.into(), something).await.unwrap_or(Ok(Next::Time)),
        };
        if has_room {
            self.meter.was_idle();
        } else {
            self.wires.status.blocked(None);
            self.meter.was_blocked();
        }
        if lingers && matches!(next, Ok(Next::Time)) {
            self.chain.flush()?;
        }
        Ok(next?)
    }

    fn element(&mut self, input: usize, element: Element) -> Result<Flow, TaskError> {
        let from = Input(input);
        match element {
            Element::Batch(batch) => {
                let label = &self.labels[input];
                self.chain.batch(label.port, Some(label), batch)?;
            }
            Element::Watermark(timestamp) => {
                let progress = self.watermarks.advance(from, timestamp);
                self.progressed(progress)?;
            }
            Element::Idle => {
                let progress = self.watermarks.idle(from);
                self.progressed(progress)?;
            }
            Element::Active => {
                let progress = self.watermarks.active(from);
                self.progressed(progress)?;
            }
            Element::Barrier(barrier) => {
                let verdicts = self.aligner.barrier(from, barrier, self.meter.elapsed());
                return self.perform(verdicts);
            }
            Element::End => {
                let progress = self.watermarks.end(from);
                self.progressed(progress)?;
                self.ended = Some(from);
            }
        }
        Ok(Flow::Continue)
    }

    fn progressed(&mut self, progress: Progress) -> Result<(), TaskError> {
        let then = match progress {
            Progress::Unchanged => return Ok(()),
            Progress::Idle => return self.chain.broadcast(&Element::Idle),
            Progress::Advanced(_) => Then::Nothing,
            Progress::AdvancedThenIdle(_) => Then::Idle,
            Progress::Active(_) => {
                self.chain.broadcast(&Element::Active)?;
                Then::Nothing
            }
        };
        let timestamp = self.watermarks.current();
        self.meter.watermark(timestamp);
        self.chain.begin_watermark(timestamp, then);
        Ok(())
    }

    /// Does what the aligner says, and holds the inputs that it says are held.
    fn perform(&mut self, verdicts: Vec<Verdict>) -> Result<Flow, TaskError> {
        for verdict in verdicts {
            if self.perform_one(verdict)? == Flow::Done {
                return Ok(Flow::Done);
            }
        }
        self.inputs.release_all();
        for input in (0..self.inputs.len()).filter(|&input| self.aligner.is_held(Input(input))) {
            self.inputs.hold(input);
        }
        let owing = self.aligner.owing();
        match (&owing, self.aligning_since) {
            (Some(_), None) => self.aligning_since = Some(self.meter.now()),
            (None, Some(since)) => {
                self.meter.aligned(since.elapsed());
                self.aligning_since = None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.wires.status.owes(owing);
        Ok(Flow::Continue)
    }

    fn perform_one(&mut self, verdict: Verdict) -> Result<Flow, TaskError> {
        match verdict {
            Verdict::Waiting(_) | Verdict::Stale(_) => {}
            Verdict::Aligned(barrier) => {
                let snapshot = self.snapshot(barrier)?;
                self.tell(snapshot)?;
                return pass_on(&mut self.chain, barrier);
            }
            Verdict::Overtaken(barrier) => {
                self.overtaken = Some(self.snapshot(barrier)?);
                self.inputs.record(barrier.epoch);
                return pass_on(&mut self.chain, barrier);
            }
            Verdict::Captured(epoch) => {
                let mut snapshot = self.overtaken.take().expect("what is captured was overtaken");
                assert_eq!(snapshot.epoch, epoch, "the capture is of the epoch that was overtaken last");
                let recorded = self.inputs.recorded().into_iter();
                let in_flight = recorded.map(|(input, batches)| {
                    let label = Arc::clone(&self.labels[input]);
                    InFlight { label, batches }
                });
                // A chain behind channels has an operator or a sink, and its first part is what they lead to.
                snapshot.parts[0].in_flight.extend(in_flight);
                self.tell(snapshot)?;
            }
            Verdict::Abandoned(epoch) => {
                if self.overtaken.take_if(|snapshot| snapshot.epoch == epoch).is_some() {
                    drop(self.inputs.recorded());
                }
            }
            // The inputs ended without a last barrier.
            Verdict::Finished => {
                self.chain.broadcast(&Element::End)?;
                self.chain.close();
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, barrier: Barrier) -> Result<Snapshot, TaskError> {
        let (parts, changed) = self.chain.snapshot(barrier.epoch)?;
        Ok(Snapshot { epoch: barrier.epoch, parts, changed })
    }

    fn tell(&self, snapshot: Snapshot) -> Result<(), TaskError> {
        let Snapshot { epoch, parts, changed } = snapshot;
        let event = TaskEvent::Snapshot { task: self.id, epoch, changed, parts };
        self.wires.events.send(event).map_err(|_| TaskError::Cancelled)?;
        self.wires.status.took(epoch);
        Ok(())
    }
}
