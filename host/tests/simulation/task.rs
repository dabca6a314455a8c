//! One task: a source, or a counter or sink behind inputs that are aligned; a counter may have its sink chained to it.
//!
//! Invariant: a task acts only on what its channels bring, and tells the world outside of a snapshot only by a [`Signal`].

use std::collections::VecDeque;
use std::time::Duration;

use lockgate_host::element::{Barrier, Purpose, WATERMARK_END};
use lockgate_host::id::{Attempt, Epoch, TaskId};
use lockgate_host::protocol::in_flight::Dealing;
use lockgate_host::protocol::transactions::Turn;
use lockgate_host::protocol::{Aligner, Input, MaxParallelism, Progress, Verdict, Watermarks};

use crate::channel::{Channel, From, Item};
use crate::log_sink::LogSink;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::parts::{Counter, Sink, Source};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::upgrade::Component;
use crate::world::{Content, InFlight, Record, Row, TaskSnapshot, World};

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
    pub files: Vec<(String, Content)>,
    /// The part that is to be completed.
    pub part: Option<String>,
    /// What the deciding sink has to be rid of first.
    pub turn: Option<(usize, Turn)>,
}

/// Where a task stands.
pub struct Surroundings<'a> {
    pub scenario: &'a Scenario,
    pub attempt: Attempt,
    pub now: Duration,
    pub rng: &'a mut Rng,
    pub world: &'a mut World,
    /// The deciding sink, if there is one.
    pub log: Option<&'a mut LogSink>,
    pub channels: &'a mut [Channel],
    /// That the counters are to be swapped, and where.
    pub swap: Option<(Epoch, Component)>,
    pub signals: &'a mut Vec<Signal>,
}

pub struct Task {
    pub id: TaskId,
    /// Places in the attempt's list of channels.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    pub aligner: Option<Aligner>,
    pub watermarks: Watermarks,
    /// What was in flight and isn't taken up yet.
    pub restored: VecDeque<(From, Item)>,
    /// A snapshot whose barrier has overtaken what isn't all recorded yet.
    pub overtaken: Option<Upload>,
    /// The newest epoch of which it has taken a snapshot.
    pub snapshotted: Option<Epoch>,
    /// The last barrier is through, and what still comes is dropped.
    pub is_done: bool,
    pub source: Option<Source>,
    pub counter: Option<Counter>,
    pub sink: Option<Sink>,
}

impl Task {
    pub fn has_room(&self, channels: &[Channel], items_max: usize) -> bool {
        self.outputs.iter().all(|&output| channels[output].items.len() < items_max)
    }

    /// Whether its sink can't take anything now.
    fn is_busy(&self, log: Option<&LogSink>) -> bool {
        let writer = self.sink.as_ref().and_then(|sink| sink.log);
        writer.zip(log).is_some_and(|(writer, log)| log.is_busy(writer))
    }

    /// Whether the next item of an input may be taken.
    pub fn may_take(&self, input: usize, channels: &[Channel], log: Option<&LogSink>, scenario: &Scenario) -> bool {
        let channel = &channels[self.inputs[input]];
        let Some(item) = channel.items.front() else { return false };
        if self.is_done {
            return true;
        }
        let held = self.aligner.as_ref().is_some_and(|aligner| aligner.is_held(Input(input)));
        let ignores = scenario.mutation == Some(Mutation::HoldsNoInput);
        let waits = !self.restored.is_empty() && scenario.mutation != Some(Mutation::RestoresLate);
        (!held || (ignores && item.is_data()))
            && channel.announced.is_none()
            && !channel.waits(scenario.channel_items_max)
            && !waits
            && !self.is_busy(log)
            && self.has_room(channels, scenario.channel_items_max)
    }

    pub fn may_take_up(&self, channels: &[Channel], log: Option<&LogSink>, scenario: &Scenario) -> bool {
        !self.restored.is_empty() && !self.is_busy(log) && self.has_room(channels, scenario.channel_items_max)
    }

    /// When a barrier is to overtake.
    pub fn deadline(&self) -> Option<Duration> {
        self.aligner.as_ref().and_then(Aligner::deadline)
    }

    /// Takes up what was in flight.
    pub fn take_up(&mut self, at: &mut Surroundings<'_>) -> Result<(), Violation> {
        let (_, item) = self.restored.pop_front().expect("it was seen to have one");
        self.take_data(at, item)
    }

    /// Hears of a barrier that has come into an input's queue.
    pub fn announced(&mut self, at: &mut Surroundings<'_>, input: usize) -> Result<(), Violation> {
        let mut barrier = at.channels[self.inputs[input]].announced.take().expect("it was seen to have one");
        if self.is_done {
            return Ok(());
        }
        if at.scenario.mutation == Some(Mutation::OvertakesLast) {
            // The aligner is told that the stream goes on.
            barrier.purpose = Purpose::Continue;
        }
        let verdicts = self.aligner.as_mut().expect("it has inputs").announced(Input(input), barrier, at.now);
        self.act(at, verdicts)
    }

    /// The time of an alignment is over.
    pub fn tick(&mut self, at: &mut Surroundings<'_>) -> Result<(), Violation> {
        let verdicts = self.aligner.as_mut().expect("it has inputs").tick(at.now);
        self.act(at, verdicts)
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
        let upload = self.snapshot(at, barrier);
        at.signals.push(Signal::Snapshot(upload));
        self.send(at, Item::Barrier(barrier));
        let source = self.source.as_mut().expect("only sources are injected into");
        if barrier.purpose == Purpose::Last && !std::mem::replace(&mut source.is_closed, true) {
            self.send(at, Item::End);
        }
    }

    /// Takes the next item of an input.
    pub fn take(&mut self, at: &mut Surroundings<'_>, input: usize) -> Result<(), Violation> {
        let item = at.channels[self.inputs[input]].items.pop_front().expect("it was seen to have one");
        if self.is_done {
            return Ok(());
        }
        let of = Input(input);
        match item {
            Item::Record { record, time } => {
                if !at.scenario.idles && time <= self.watermarks.current() {
                    return Err(Violation(format!("record {} comes after its watermark", record.id)));
                }
                self.take_data(at, item)?;
            }
            Item::Row(_) => self.take_data(at, item)?,
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
                let mut verdicts = aligner.barrier(of, barrier, at.now);
                if at.scenario.mutation == Some(Mutation::SnapshotsAtFirstBarrier) {
                    verdicts = self.first_instead_of_last(barrier, &verdicts);
                }
                return self.act(at, verdicts);
            }
            Item::End => {
                if !at.channels[self.inputs[input]].is_read_out {
                    return Err(Violation(format!("task {} takes a stop of input {input} for its end", self.id.0)));
                }
                let progress = self.watermarks.end(of);
                self.pass_progress(at, progress);
                if at.scenario.mutation != Some(Mutation::HidesEnd) {
                    let verdicts = self.aligner.as_mut().expect("it has inputs").end(of);
                    return self.act(at, verdicts);
                }
            }
        }
        Ok(())
    }

    fn take_data(&mut self, at: &mut Surroundings<'_>, item: Item) -> Result<(), Violation> {
        let row = match item {
            Item::Record { record, .. } => {
                self.counter.as_mut().expect("records go to counters").count(record, self.id, at)?
            }
            Item::Row(row) => Some(row),
            Item::Watermark(_) | Item::Barrier(_) | Item::Idle | Item::Active | Item::End => {
                unreachable!("that is no data")
            }
        };
        if let Some(row) = row {
            self.put_out(at, row);
        }
        Ok(())
    }

    /// Takes the snapshot of an epoch when the first of its barriers comes, and not when the last does.
    fn first_instead_of_last(&mut self, barrier: Barrier, verdicts: &[Verdict]) -> Vec<Verdict> {
        let is_over = self.snapshotted >= Some(barrier.epoch);
        let ends = verdicts.iter().filter(|verdict| !matches!(verdict, Verdict::Aligned(_))).copied();
        let mut mutated = if is_over { Vec::new() } else { vec![Verdict::Aligned(barrier)] };
        mutated.extend(ends);
        mutated
    }

    fn act(&mut self, at: &mut Surroundings<'_>, verdicts: Vec<Verdict>) -> Result<(), Violation> {
        let mutation = at.scenario.mutation;
        for verdict in verdicts {
            match verdict {
                Verdict::Waiting(_) => {}
                Verdict::Stale(_) if at.scenario.alignment.overtakes() => {}
                Verdict::Aligned(barrier) => {
                    let upload = self.snapshot(at, barrier);
                    at.signals.push(Signal::Snapshot(upload));
                    self.send(at, Item::Barrier(barrier));
                    if barrier.purpose == Purpose::Last && mutation != Some(Mutation::GoesOnBehindLast) {
                        self.send(at, Item::End);
                        self.is_done = true;
                        return Ok(());
                    }
                    self.swap(at, barrier.epoch);
                }
                Verdict::Overtaken(barrier) => {
                    let upload = self.snapshot(at, barrier);
                    for &input in &self.inputs {
                        at.channels[input].record(barrier.epoch, mutation);
                    }
                    self.overtaken = Some(upload);
                    if mutation == Some(Mutation::EndsRecordingEarly) {
                        self.complete(at);
                    }
                    self.send(at, Item::Barrier(barrier));
                    self.swap(at, barrier.epoch);
                }
                Verdict::Captured(epoch) => {
                    if mutation == Some(Mutation::SnapshotsAfterRecording)
                        && let Some(upload) = &mut self.overtaken
                        && let Some(counter) = &mut self.counter
                    {
                        counter.snapshot(upload, at.scenario, at.attempt);
                    }
                    let of = self.overtaken.as_ref().map(|upload| upload.epoch);
                    if of.is_some_and(|of| of != epoch) {
                        return Err(Violation(format!("epoch {epoch} is recorded and {of:?} was overtaken")));
                    }
                    self.complete(at);
                }
                Verdict::Finished => self.send(at, Item::End),
                // A mutated job goes on, so that its output shows what has gone wrong.
                Verdict::Stale(_) | Verdict::Abandoned(_) if mutation.is_some() => {
                    let of = |upload: &mut Upload| verdict == Verdict::Abandoned(upload.epoch);
                    if self.overtaken.take_if(of).is_some() {
                        self.inputs.iter().for_each(|&input| drop(at.channels[input].recorded()));
                    }
                }
                Verdict::Stale(_) | Verdict::Abandoned(_) => {
                    return Err(Violation(format!(
                        "too many checkpoints at a time in task {}: {verdict:?}",
                        self.id.0
                    )));
                }
            }
        }
        Ok(())
    }

    /// Hands over the snapshot of an epoch that has overtaken, with what was recorded.
    fn complete(&mut self, at: &mut Surroundings<'_>) {
        let Some(mut upload) = self.overtaken.take() else { return };
        let mut in_flight = Vec::new();
        for &input in &self.inputs {
            let items = at.channels[input].recorded();
            if !items.is_empty() {
                in_flight.push(InFlight { from: at.channels[input].from, items });
            }
        }
        self.add_in_flight(&mut upload, in_flight, at.attempt);
        at.world.oracle.overtaken += u64::from(upload.snapshot.in_flight.is_some());
        at.signals.push(Signal::Snapshot(upload));
    }

    /// Behind what was there already.
    fn add_in_flight(&self, upload: &mut Upload, added: Vec<InFlight>, attempt: Attempt) {
        if added.is_empty() {
            return;
        }
        let name = format!("{attempt}-{}-in-flight-{}", self.id.0, upload.epoch);
        let before = upload.files.iter_mut().find_map(|(of, content)| match content {
            Content::InFlight(in_flight) if *of == name => Some(in_flight),
            Content::InFlight(_) | Content::State(_) => None,
        });
        match before {
            Some(before) => before.extend(added),
            None => {
                upload.files.push((name.clone(), Content::InFlight(added)));
                upload.snapshot.in_flight = Some(name);
            }
        }
    }

    fn pass_progress(&mut self, at: &mut Surroundings<'_>, progress: Progress) {
        match progress {
            Progress::Unchanged => return,
            Progress::Idle => return self.send(at, Item::Idle),
            Progress::Advanced(_) | Progress::AdvancedThenIdle(_) => {}
            Progress::Active(_) => self.send(at, Item::Active),
        }
        let watermark = self.watermarks.current();
        if let Some(counter) = self.counter.as_mut().filter(|_| watermark == WATERMARK_END) {
            let totals = counter.totals(self.id, at.world);
            totals.into_iter().for_each(|total| self.put_out(at, total));
        }
        self.send(at, Item::Watermark(watermark));
        if let Progress::AdvancedThenIdle(_) = progress {
            self.send(at, Item::Idle);
        }
    }

    /// Takes the snapshot of an epoch.
    fn snapshot(&mut self, at: &mut Surroundings<'_>, barrier: Barrier) -> Upload {
        self.snapshotted = Some(barrier.epoch);
        let mut upload = Upload {
            task: self.id,
            epoch: barrier.epoch,
            snapshot: TaskSnapshot::default(),
            changed: false,
            files: Vec::new(),
            part: None,
            turn: None,
        };
        if let Some(source) = &mut self.source {
            source.snapshot(&mut upload, at.scenario, &at.world.input);
        }
        let late = at.scenario.mutation == Some(Mutation::SnapshotsAfterRecording)
            && at.scenario.alignment.overtakes()
            && barrier.purpose == Purpose::Continue;
        if let Some(counter) = self.counter.as_mut().filter(|_| !late) {
            counter.snapshot(&mut upload, at.scenario, at.attempt);
        }
        if let Some(sink) = &mut self.sink {
            sink.prepare(&mut upload, at);
        }
        if at.scenario.mutation != Some(Mutation::ForgetsRestored) {
            let restored = self.restored.iter().map(|(from, item)| InFlight { from: *from, items: vec![item.clone()] });
            let restored = restored.collect();
            self.add_in_flight(&mut upload, restored, at.attempt);
        }
        if at.scenario.mutation == Some(Mutation::HidesChange) && barrier.epoch.0.is_multiple_of(3) {
            upload.changed = false;
        }
        upload
    }

    fn put_out(&mut self, at: &mut Surroundings<'_>, row: Row) {
        match &mut self.sink {
            Some(sink) => sink.write(row, self.id, at),
            None => self.send(at, Item::Row(row)),
        }
    }

    /// Sends records as their edge deals them, rows by their number, and everything else to all.
    fn send(&self, at: &mut Surroundings<'_>, item: Item) {
        if self.source.as_ref().is_some_and(|source| source.is_closed) && !matches!(item, Item::End) {
            return;
        }
        let outputs = self.outputs.len() as u64;
        let to = match item {
            Item::Record { record, .. } if at.scenario.dealing[record.side] == Dealing::ToAll => 0..outputs,
            Item::Record { record, .. } => {
                let groups = MaxParallelism::new(Scenario::KEY_GROUPS).expect("in range");
                let to = groups.subtask(groups.key_group(&record.key.to_le_bytes()), outputs as u32);
                u64::from(to)..u64::from(to) + 1
            }
            Item::Row(row) => {
                let id = match row {
                    Row::Counted { record: Record { id, .. }, .. } | Row::Total { key: id, .. } => id,
                    Row::Seen { counter, .. } => u64::from(counter),
                };
                id % outputs..id % outputs + 1
            }
            Item::Watermark(_) | Item::Barrier(_) | Item::Idle | Item::Active | Item::End => 0..outputs,
        };
        let announces = at.scenario.alignment.overtakes();
        for index in to {
            at.channels[self.outputs[index as usize]].push(item.clone(), announces, at.scenario.mutation);
        }
    }
}
