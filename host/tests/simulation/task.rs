//! One task: a source, or a counter or sink behind inputs that are aligned; a counter may have its sink chained to it.
//!
//! Invariant: a task acts only on what its channels bring, and tells the world outside of a snapshot only by a [`Signal`].

use std::collections::VecDeque;

use lockgate_host::element::{Barrier, Purpose, WATERMARK_END};
use lockgate_host::id::{Attempt, Epoch, TaskId};
use lockgate_host::protocol::{Aligner, Alignment, Input, MaxParallelism, Progress, Watermarks};

use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::parts::{Counter, Sink, Source};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::{Record, Row, State, TaskSnapshot, World};

/// What a channel carries, a record at a time.
#[derive(Clone, Debug)]
pub enum Item {
    Record { record: Record, time: i64 },
    Row(Row),
    Watermark(i64),
    Barrier(Barrier),
    Idle,
    Active,
    End,
}

pub type Channel = VecDeque<Item>;

/// What a task tells the runtime.
pub enum Signal {
    SourceEnded(TaskId),
    Snapshot(Upload),
}

/// A snapshot that isn't durable yet.
#[derive(Clone, Debug)]
pub struct Upload {
    pub task: TaskId,
    pub epoch: Epoch,
    pub snapshot: TaskSnapshot,
    pub changed: bool,
    pub file: Option<(String, State)>,
    /// The part that is to be completed.
    pub part: Option<String>,
}

/// Where a task stands.
pub struct Surroundings<'a> {
    pub scenario: &'a Scenario,
    pub attempt: Attempt,
    pub rng: &'a mut Rng,
    pub world: &'a mut World,
    pub channels: &'a mut [Channel],
    pub signals: &'a mut Vec<Signal>,
}

pub struct Task {
    pub id: TaskId,
    /// Places in the attempt's list of channels.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    pub aligner: Option<Aligner>,
    pub watermarks: Watermarks,
    pub source: Option<Source>,
    pub counter: Option<Counter>,
    pub sink: Option<Sink>,
}

impl Task {
    pub fn has_room(&self, channels: &[Channel], items_max: usize) -> bool {
        self.outputs.iter().all(|&output| channels[output].len() < items_max)
    }

    /// Whether the next item of an input may be taken.
    pub fn may_take(&self, input: usize, channels: &[Channel], scenario: &Scenario) -> bool {
        let Some(item) = channels[self.inputs[input]].front() else { return false };
        let held = self.aligner.as_ref().is_some_and(|aligner| aligner.is_held(Input(input)));
        let ignores = scenario.mutation == Some(Mutation::HoldsNoInput);
        let data = matches!(item, Item::Record { .. } | Item::Row(_));
        (!held || (ignores && data)) && self.has_room(channels, scenario.channel_items_max)
    }

    /// A source reads on.
    pub fn poll(&mut self, at: &mut Surroundings<'_>) {
        let source = self.source.as_mut().expect("only sources are polled");
        let items = source.poll(at.scenario, at.rng, &at.world.input);
        if source.has_ended {
            at.signals.push(Signal::SourceEnded(self.id));
        }
        for item in items {
            self.send(at, item);
        }
        if let Some(source) = self.source.as_mut().filter(|source| source.has_ended && source.closes_early) {
            source.is_closed = true;
        }
    }

    /// A source gets a barrier.
    pub fn inject(&mut self, at: &mut Surroundings<'_>, barrier: Barrier) {
        self.pass_barrier(at, barrier);
        let source = self.source.as_mut().expect("only sources are injected into");
        if barrier.purpose == Purpose::Last && !std::mem::replace(&mut source.is_closed, true) {
            self.send(at, Item::End);
        }
    }

    /// Takes the next item of an input.
    pub fn take(&mut self, at: &mut Surroundings<'_>, input: usize) -> Result<(), Violation> {
        let item = at.channels[self.inputs[input]].pop_front().expect("it was seen to have one");
        let of = Input(input);
        match item {
            Item::Record { record, time } => {
                if !at.scenario.idles && time <= self.watermarks.current() {
                    return Err(Violation(format!("record {} comes after its watermark", record.id)));
                }
                let row = self.counter.as_mut().expect("records go to counters").count(record, self.id, at.world);
                self.put_out(at, row);
            }
            Item::Row(row) => self.put_out(at, row),
            Item::Watermark(watermark) => {
                if at.scenario.mutation == Some(Mutation::TrustsFastestInput) {
                    for other in 0..self.inputs.len() {
                        self.watermarks.advance(Input(other), watermark);
                    }
                    self.pass_progress(at, Progress::Advanced(self.watermarks.current()));
                } else {
                    let progress = self.watermarks.advance(of, watermark);
                    self.pass_progress(at, progress);
                }
            }
            Item::Idle => {
                let progress = self.watermarks.idle(of);
                self.pass_progress(at, progress);
            }
            Item::Active => {
                let progress = self.watermarks.active(of);
                self.pass_progress(at, progress);
            }
            Item::Barrier(barrier) => {
                let aligner = self.aligner.as_mut().expect("it has inputs");
                let alignment = aligner.barrier(of, barrier);
                return self.pass_alignment(at, alignment);
            }
            Item::End => {
                let progress = self.watermarks.end(of);
                self.pass_progress(at, progress);
                if at.scenario.mutation != Some(Mutation::HidesEnd) {
                    let alignment = self.aligner.as_mut().expect("it has inputs").end(of);
                    return self.pass_alignment(at, alignment);
                }
            }
        }
        Ok(())
    }

    fn pass_alignment(&mut self, at: &mut Surroundings<'_>, alignment: Alignment) -> Result<(), Violation> {
        match alignment {
            Alignment::Aligned(barrier) => self.pass_barrier(at, barrier),
            Alignment::Finished => self.send(at, Item::End),
            Alignment::Waiting(_) | Alignment::Ended => {}
            Alignment::Superseded { .. } | Alignment::Stale(_) => {
                return Err(Violation(format!("two checkpoints at a time in task {}: {alignment:?}", self.id.0)));
            }
        }
        Ok(())
    }

    fn pass_progress(&mut self, at: &mut Surroundings<'_>, progress: Progress) {
        match progress {
            Progress::Unchanged => return,
            Progress::Idle => return self.send(at, Item::Idle),
            Progress::Advanced(_) => {}
            Progress::Active(_) => self.send(at, Item::Active),
        }
        let watermark = self.watermarks.current();
        if let Some(counter) = self.counter.as_mut().filter(|_| watermark == WATERMARK_END) {
            let totals = counter.totals(self.id, at.world);
            totals.into_iter().for_each(|total| self.put_out(at, total));
        }
        self.send(at, Item::Watermark(watermark));
    }

    /// Takes the snapshot of an epoch and passes its barrier on.
    fn pass_barrier(&mut self, at: &mut Surroundings<'_>, barrier: Barrier) {
        let mut upload = Upload {
            task: self.id,
            epoch: barrier.epoch,
            snapshot: TaskSnapshot::default(),
            changed: false,
            file: None,
            part: None,
        };
        if let Some(source) = &mut self.source {
            source.snapshot(&mut upload, at.scenario, &at.world.input);
        }
        if let Some(counter) = &mut self.counter {
            counter.snapshot(&mut upload, at.scenario, at.attempt);
        }
        if let Some(sink) = &mut self.sink {
            sink.prepare(&mut upload);
        }
        if at.scenario.mutation == Some(Mutation::HidesChange) && barrier.epoch.0.is_multiple_of(3) {
            upload.changed = false;
        }
        at.signals.push(Signal::Snapshot(upload));
        self.send(at, Item::Barrier(barrier));
    }

    fn put_out(&mut self, at: &mut Surroundings<'_>, row: Row) {
        match &mut self.sink {
            Some(sink) => sink.write(row, self.id, at.attempt, at.world),
            None => self.send(at, Item::Row(row)),
        }
    }

    /// Sends records by key group, rows by their number, and everything else to all.
    fn send(&self, at: &mut Surroundings<'_>, item: Item) {
        if self.source.as_ref().is_some_and(|source| source.is_closed) && !matches!(item, Item::End) {
            return;
        }
        let outputs = self.outputs.len() as u64;
        let to = match item {
            Item::Record { record, .. } => {
                let groups = MaxParallelism::new(Scenario::KEY_GROUPS).expect("in range");
                let to = groups.subtask(groups.key_group(&record.key.to_le_bytes()), outputs as u32);
                u64::from(to)..u64::from(to) + 1
            }
            Item::Row(Row::Counted { record: Record { id, .. }, .. } | Row::Total { key: id, .. }) => {
                id % outputs..id % outputs + 1
            }
            Item::Watermark(_) | Item::Barrier(_) | Item::Idle | Item::Active | Item::End => 0..outputs,
        };
        for index in to {
            let channel = &mut at.channels[self.outputs[index as usize]];
            let barrier = matches!(item, Item::Barrier(_));
            if barrier && at.scenario.mutation == Some(Mutation::BarrierOvertakes) {
                channel.push_front(item.clone());
            } else {
                channel.push_back(item.clone());
            }
        }
    }
}
