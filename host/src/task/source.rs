//! The loop of a source's task: read, let it through the chain, take the barriers that are injected.
//!
//! Invariant: nothing is read while what follows has no room; barriers are taken nevertheless, but for those that come in the middle of a
//! batch that operators of this task process in parts: its rows have no place in a snapshot.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::error::TryRecvError;

use super::meter::Meter;
use super::meter::now_ms;
use super::run::{Flow, pass_on};
use super::{Chain, Counters, PendingPart, SourceTime, TaskError, TaskEvent, Then, Wires};
use crate::connector::{Polled, Queued, SourceReader, SplitState};
use crate::element::{Barrier, Element, Purpose, WATERMARK_END};
use crate::id::{SubtaskId, TaskId};
use crate::protocol::Change;

pub struct SourceTask {
    id: TaskId,
    subtask: SubtaskId,
    reader: Box<dyn SourceReader>,
    time: SourceTime,
    counters: Counters,
    chain: Chain,
    wires: Wires,
    meter: Meter,
    /// Whether anything was read since the last barrier.
    changed: bool,
    /// The positions of the last snapshot, or those that were taken up. They move without a record, too.
    positions: Vec<SplitState>,
    ended: End,
    /// Barriers that wait until the chain is through with the batch at hand; the last one, until all that was in flight is taken up.
    held: VecDeque<Barrier>,
}

/// Whether the source has anything left to give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Not,
    /// Its last watermark is on its way.
    Ending,
    Told,
}

/// What a source waits for, beside barriers.
#[derive(Clone, Copy)]
enum Wait {
    Room,
    Input(Duration),
}

impl SourceTask {
    pub fn new(
        id: TaskId,
        subtask: SubtaskId,
        reader: Box<dyn SourceReader>,
        time: SourceTime,
        counters: Counters,
        chain: Chain,
        wires: Wires,
    ) -> SourceTask {
        let meter = Meter::new(chain.counters().chain([&counters]), &wires.status);
        let positions = reader.snapshot();
        let (changed, ended, held) = (false, End::Not, VecDeque::new());
        SourceTask { id, subtask, reader, time, counters, chain, wires, meter, changed, positions, ended, held }
    }

    /// Runs until behind the last barrier.
    ///
    /// # Errors
    /// Whatever ended it early; then the attempt is over.
    pub async fn run(mut self) -> Result<(), TaskError> {
        loop {
            if let Some(barrier) = self.held.pop_front_if(|barrier| !is_held(&self.chain, *barrier)) {
                match self.cut(barrier)? {
                    Flow::Continue => continue,
                    Flow::Done => return Ok(()),
                }
            }
            let flow = match self.wires.barriers.try_recv() {
                Ok(barrier) => self.barrier(barrier)?,
                Err(TryRecvError::Disconnected) => return Err(TaskError::Cancelled),
                Err(TryRecvError::Empty) if !self.chain.has_room() => self.wait(Wait::Room).await?,
                Err(TryRecvError::Empty) if self.chain.has_work() => {
                    self.chain.work()?;
                    Flow::Continue
                }
                Err(TryRecvError::Empty) => match self.read()? {
                    Some(wait) => self.wait(Wait::Input(wait)).await?,
                    None => Flow::Continue,
                },
            };
            match flow {
                Flow::Continue => self.meter.worked(),
                Flow::Done => return Ok(()),
            }
        }
    }

    /// Lets what there is to read through the chain, or says how long to wait if there is nothing.
    fn read(&mut self) -> Result<Option<Duration>, TaskError> {
        if let Some(change) = self.time.next_change() {
            self.tell_time(change)?;
            return Ok(None);
        }
        self.chain.set_now(now_ms());
        let polled = self.reader.poll()?;
        self.tell_backlog();
        match polled {
            Polled::Batch { split, batch, .. } => {
                self.counters.gave(&batch);
                self.changed = true;
                if let Some(change) = self.time.batch(&split, &batch) {
                    self.tell_time(change)?;
                }
                self.chain.batch(0, None, batch.into())?;
                self.time.changed(&self.reader.split_changes());
                Ok(None)
            }
            Polled::Idle(wait) => {
                // No wait at all says that there is more to read, only not at once.
                if !wait.is_zero() {
                    self.time.rests();
                }
                self.time.changed(&self.reader.split_changes());
                if let Some(change) = self.time.next_change() {
                    self.tell_time(change)?;
                    return Ok(None);
                }
                Ok(Some(self.time.due_in().map_or(wait, |due| wait.min(due))))
            }
            Polled::Ended => {
                self.ended = match self.ended {
                    End::Not => {
                        self.tell_time(Change::Watermark(WATERMARK_END))?;
                        End::Ending
                    }
                    End::Ending => {
                        self.tell(TaskEvent::SourceEnded(self.id))?;
                        End::Told
                    }
                    End::Told => return Ok(Some(Duration::MAX)),
                };
                Ok(None)
            }
        }
    }

    /// Counts what is left to read, and what the source's client holds.
    fn tell_backlog(&self) {
        let backlog = self.counters.backlog();
        if let Some(records) = self.reader.lag() {
            backlog.lag(Some(records));
        }
        if let Some(Queued { records, bytes }) = self.reader.queued() {
            backlog.queued(records, bytes);
        }
    }

    /// Tells what the event time of the splits has come to.
    fn tell_time(&mut self, change: Change) -> Result<(), TaskError> {
        match change {
            Change::Watermark(timestamp) => {
                self.meter.watermark(timestamp);
                self.chain.begin_watermark(timestamp, Then::Nothing);
                Ok(())
            }
            Change::Idle => self.chain.broadcast(&Element::Idle),
            Change::Active => self.chain.broadcast(&Element::Active),
        }
    }

    /// Waits for a barrier, or for what else there is to wait for.
    async fn wait(&mut self, wait: Wait) -> Result<Flow, TaskError> {
        self.meter.waits();
        let barrier = match wait {
            Wait::Room => {
                self.wires.status.blocked(self.chain.blocked_by());
                let until = self.chain.sink_rests_until();
                let (chain, barriers) = (&mut self.chain, &mut self.wires.barriers);
                let rests = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until.into()).await,
                        None => std::future::pending().await,
                    }
                };
                let barrier = tokio::select! {
                    biased;
                    barrier = barriers.recv() => Some(barrier),
                    room = poll_fn(move |context| chain.poll_room(context)) => room.map(|()| None)?,
                    () = rests => None,
                };
                self.wires.status.blocked(None);
                self.meter.was_blocked();
                barrier
            }
            Wait::Input(wait) => {
                self.chain.flush()?;
                let barrier = tokio::time::timeout(wait, self.wires.barriers.recv()).await.ok();
                self.meter.was_idle();
                barrier
            }
        };
        match barrier {
            None => Ok(Flow::Continue),
            Some(Some(barrier)) => self.barrier(barrier),
            Some(None) => Err(TaskError::Cancelled),
        }
    }

    fn barrier(&mut self, barrier: Barrier) -> Result<Flow, TaskError> {
        if !self.held.is_empty() || is_held(&self.chain, barrier) {
            self.held.push_back(barrier);
            return Ok(Flow::Continue);
        }
        self.cut(barrier)
    }

    /// Takes the snapshot of a barrier, and passes it on.
    fn cut(&mut self, barrier: Barrier) -> Result<Flow, TaskError> {
        while self.reader.is_ahead() {
            while self.chain.has_work() {
                self.chain.work()?;
            }
            self.read()?;
        }
        while self.chain.is_in_own_batch() {
            self.chain.work()?;
        }
        let (mut parts, mut changed) = self.chain.snapshot(barrier.epoch)?;
        let splits = self.reader.snapshot();
        changed |= std::mem::take(&mut self.changed) || splits != self.positions;
        self.positions.clone_from(&splits);
        parts.push(PendingPart { splits, ..PendingPart::new(self.subtask.clone()) });
        self.tell(TaskEvent::Snapshot { task: self.id, epoch: barrier.epoch, changed, parts })?;
        self.wires.status.took(barrier.epoch);
        pass_on(&mut self.chain, barrier)
    }

    fn tell(&self, event: TaskEvent) -> Result<(), TaskError> {
        self.wires.events.send(event).map_err(|_| TaskError::Cancelled)
    }
}

/// Whether a barrier has to wait for what the chain is at.
fn is_held(chain: &Chain, barrier: Barrier) -> bool {
    chain.is_in_own_batch() || (barrier.purpose == Purpose::Last && chain.has_rows())
}
