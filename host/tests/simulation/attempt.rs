//! One attempt: tasks, channels, the coordinator, and the shell around it that does what it asks.
//!
//! Invariant: each call of [`Attempt::step`] does one thing that a crash could come before or after.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lockgate_host::element::Barrier;
use lockgate_host::id::{Attempt as AttemptNumber, Epoch, TaskId};
use lockgate_host::protocol::{Action, Coordinator, Event};

use crate::broker::Denied;
use crate::channel::Channel;
use crate::cluster::place;
use crate::commit::{Commit, early_commit};
use crate::log_sink::LogSink;
use crate::mutation::Mutation;
use crate::operation::Operation;
use crate::oracle::Violation;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::task::{Signal, Surroundings, Task, Upload};
use crate::upgrade::Component;
use crate::world::{Manifest, Shape, TaskSnapshot, World};

/// What has become of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Failed,
    Finished { ended: bool },
}

pub struct Attempt {
    pub number: AttemptNumber,
    pub shape: Shape,
    pub now_ms: u64,
    pub tasks: Vec<Task>,
    pub channels: Vec<Channel>,
    /// By source: barriers that it hasn't got yet.
    pub injected: BTreeMap<TaskId, VecDeque<Barrier>>,
    pub coordinator: Coordinator<TaskSnapshot>,
    /// The deciding sink, if there is one.
    pub log: Option<LogSink>,
    /// What is on its way to the coordinator, which may arrive in any order.
    pub mailbox: Vec<Event<TaskSnapshot>>,
    pub uploads: Vec<Upload>,
    pub operations: Vec<Operation>,
    pub end: Option<End>,
    /// The newest snapshot of each task that the coordinator has seen.
    pub newest: BTreeMap<TaskId, TaskSnapshot>,
    /// By epoch: the acks that came, for a shell that doesn't ask the coordinator.
    pub acks: BTreeMap<Epoch, BTreeMap<TaskId, TaskSnapshot>>,
    /// Of the counters.
    pub component: Component,
    /// The order to swap them: behind the snapshot of which epoch, and for what.
    pub swap: Option<(Epoch, Component)>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Poll(usize),
    Inject(usize),
    Take(usize, usize),
    TakeUp(usize),
    Announce(usize, usize),
    /// A barrier has waited for long enough.
    Overtake(usize),
    Upload(usize),
    Deliver(usize),
    /// What a producer has sent to a partition gets there.
    Write(usize, usize),
    Operate(usize),
    Tick,
}

/// What an attempt shares with the ones before and after it.
pub struct Shared<'a> {
    pub scenario: &'a Scenario,
    pub rng: &'a mut Rng,
    pub world: &'a mut World,
    pub faults_left: &'a mut u64,
    pub trace: &'a mut dyn FnMut(&dyn Fn() -> String),
}

impl Shared<'_> {
    /// Whether a fault comes here.
    pub fn fault(&mut self, one_in: u64) -> bool {
        let comes = *self.faults_left > 0 && self.rng.one_in(one_in);
        *self.faults_left -= u64::from(comes);
        comes
    }
}

impl Attempt {
    /// Does one thing. `Some` when the attempt is over and nothing of it runs any more.
    pub fn step(&mut self, shared: &mut Shared<'_>) -> Result<Option<End>, Violation> {
        self.now_ms += 1;
        if self.end.is_none() {
            let faults = &shared.scenario.faults;
            if shared.fault(faults.stop) {
                self.mailbox.push(Event::StopRequested);
            }
            if shared.fault(faults.task_failure) {
                let task = shared.rng.pick(&self.tasks).id;
                self.mailbox.push(Event::TaskFailed { task, reason: "it was told to".to_owned() });
            }
            self.request(shared);
        }
        let choices = self.choices(shared.scenario);
        let Some(choice) = pick(&choices, shared.rng) else {
            if let Some(end) = self.end {
                return Ok(Some(end));
            }
            let deadlines = self.tasks.iter().filter_map(Task::deadline).chain(self.coordinator.next_deadline());
            let deadline = deadlines.min().expect("it isn't over");
            self.now_ms = self.now_ms.max(deadline.as_millis() as u64);
            return Ok(None);
        };
        (shared.trace)(&|| format!("{:>6} {choice:?}", self.now_ms));
        self.perform(choice, shared)?;
        Ok(None)
    }

    /// Somebody asks for a checkpoint, or for another component.
    fn request(&mut self, shared: &mut Shared<'_>) {
        if shared.world.requests_left == 0 || !shared.rng.one_in(20) {
            return;
        }
        shared.world.requests_left -= 1;
        if shared.rng.one_in(4) || shared.world.noted.candidate.is_some() {
            self.mailbox.push(Event::CheckpointRequested);
            return;
        }
        shared.world.noted.request();
        self.mailbox.push(Event::UpgradeRequested { probation: shared.scenario.probation });
    }

    /// Everything that can happen now, with its weight.
    fn choices(&self, scenario: &Scenario) -> Vec<(u64, Choice)> {
        let weights = &scenario.weights;
        let mut choices = Vec::new();
        choices.extend((0..self.mailbox.len()).map(|index| (weights.deliver, Choice::Deliver(index))));
        for (index, operation) in self.operations.iter().enumerate() {
            // Retentions run one at a time. A failed attempt goes without: it waits only for what may change the outcome.
            let earlier = || self.operations[..index].iter().any(Operation::is_retention);
            let waits = operation.is_retention() && (self.end == Some(End::Failed) || earlier());
            if !waits {
                choices.push((weights.operation, Choice::Operate(index)));
            }
        }
        if self.end.is_some() {
            return choices;
        }
        let log = self.log.as_ref();
        let writes = log.into_iter().flat_map(LogSink::queues);
        choices.extend(writes.map(|(producer, partition)| (weights.write, Choice::Write(producer, partition))));
        let prepared = |upload: &Upload| {
            let turn = upload.turn.zip(log);
            turn.is_none_or(|((writer, turn), log)| log.is_prepared(writer, turn))
        };
        let uploads = (0..self.uploads.len()).filter(|&index| prepared(&self.uploads[index]));
        choices.extend(uploads.map(|index| (weights.upload, Choice::Upload(index))));
        for (index, task) in self.tasks.iter().enumerate() {
            if let Some(source) = &task.source {
                // It may read on before it sees a barrier, or frequent barriers would leave it no time to read.
                if !self.injected[&task.id].is_empty() {
                    choices.push((weights.source[index], Choice::Inject(index)));
                }
                if !source.has_ended && !source.is_closed && task.has_room(&self.channels, scenario.channel_items_max) {
                    choices.push((weights.source[index], Choice::Poll(index)));
                }
            }
            let inputs = (0..task.inputs.len()).filter(|&input| task.may_take(input, &self.channels, log, scenario));
            choices.extend(inputs.map(|input| (weights.take, Choice::Take(index, input))));
            if task.may_take_up(&self.channels, log, scenario) {
                choices.push((weights.take, Choice::TakeUp(index)));
            }
            let announced = |&input: &usize| self.channels[task.inputs[input]].announced.is_some();
            let inputs = (0..task.inputs.len()).filter(announced);
            choices.extend(inputs.map(|input| (weights.announce, Choice::Announce(index, input))));
            if task.deadline().is_some_and(|deadline| deadline <= self.now()) {
                choices.push((weights.tick, Choice::Overtake(index)));
            }
        }
        if self.coordinator.next_deadline() <= Some(self.now()) {
            choices.push((weights.tick, Choice::Tick));
        }
        choices
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    fn perform(&mut self, choice: Choice, shared: &mut Shared<'_>) -> Result<(), Violation> {
        match choice {
            Choice::Poll(_)
            | Choice::Inject(_)
            | Choice::Take(..)
            | Choice::TakeUp(_)
            | Choice::Announce(..)
            | Choice::Overtake(_) => self.run_task(choice, shared),
            Choice::Upload(index) => self.upload(index, shared),
            Choice::Write(producer, partition) => {
                self.write(producer, partition, shared);
                Ok(())
            }
            Choice::Tick => self.deliver(Event::Tick, shared),
            Choice::Deliver(index) => {
                let event = self.mailbox.swap_remove(index);
                if matches!(event, Event::Acked { .. }) && shared.fault(shared.scenario.faults.lost_ack) {
                    (shared.trace)(&|| format!("       lost: {event:?}"));
                    return Ok(());
                }
                self.deliver(event, shared)
            }
            Choice::Operate(index) => {
                let (number, now) = (self.number, self.now());
                let answer = self.operations[index].step(number, self.log.as_mut().map(|log| (log, now)), shared)?;
                if let Some(events) = answer {
                    self.operations.remove(index);
                    self.mailbox.extend(events);
                }
                Ok(())
            }
        }
    }

    fn run_task(&mut self, choice: Choice, shared: &mut Shared<'_>) -> Result<(), Violation> {
        let mut signals = Vec::new();
        let now = self.now();
        let mut at = Surroundings {
            now,
            scenario: shared.scenario,
            attempt: self.number,
            rng: shared.rng,
            world: shared.world,
            log: self.log.as_mut(),
            channels: &mut self.channels,
            swap: self.swap,
            signals: &mut signals,
        };
        match choice {
            Choice::Poll(task) => self.tasks[task].poll(&mut at),
            Choice::Inject(task) => {
                let task = &mut self.tasks[task];
                let barriers = self.injected.get_mut(&task.id).expect("sources get barriers");
                task.inject(&mut at, barriers.pop_front().expect("it was seen to be there"));
            }
            Choice::Take(task, input) => self.tasks[task].take(&mut at, input)?,
            Choice::TakeUp(task) => self.tasks[task].take_up(&mut at)?,
            Choice::Announce(task, input) => self.tasks[task].announced(&mut at, input)?,
            Choice::Overtake(task) => self.tasks[task].tick(&mut at)?,
            Choice::Upload(_) | Choice::Deliver(_) | Choice::Write(..) | Choice::Operate(_) | Choice::Tick => {
                unreachable!("not a task's")
            }
        }
        for signal in signals {
            match signal {
                Signal::SourceEnded(task) => self.mailbox.push(Event::SourceEnded(task)),
                Signal::Snapshot(upload) => {
                    if shared.scenario.mutation == Some(Mutation::AcksBeforeDurable) {
                        self.mailbox.push(ack(upload.clone()));
                    }
                    self.uploads.push(upload);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, producer: usize, partition: usize, shared: &mut Shared<'_>) {
        let (lane, now) = (self.number.0 << 8, self.now());
        let log = self.log.as_mut().expect("only a deciding sink has producers");
        match log.deliver((producer, partition), lane, now, &mut shared.world.broker) {
            Ok(()) | Err(Denied::Busy) => {}
            Err(Denied::Fenced) => {
                let (task, reason) = (self.tasks[0].id, "its producer was shut out".to_owned());
                self.mailbox.push(Event::TaskFailed { task, reason });
            }
        }
    }

    /// Takes an upload one step on: its file, its part, its ack.
    fn upload(&mut self, index: usize, shared: &mut Shared<'_>) -> Result<(), Violation> {
        let upload = &mut self.uploads[index];
        if shared.fault(shared.scenario.faults.upload_failure) {
            let Upload { task, epoch, .. } = self.uploads.swap_remove(index);
            self.mailbox.push(Event::SnapshotFailed { task, epoch, reason: "the store is away".to_owned() });
        } else if let Some((name, content)) = upload.files.pop() {
            shared.world.store_file(name, self.number, content)?;
        } else if let Some(part) = upload.part.take() {
            shared.world.parts.get_mut(&part).expect("parts are only taken away by a recovery").complete = true;
        } else {
            let upload = self.uploads.swap_remove(index);
            if shared.scenario.mutation != Some(Mutation::AcksBeforeDurable) {
                self.mailbox.push(ack(upload));
            }
        }
        Ok(())
    }

    fn deliver(&mut self, event: Event<TaskSnapshot>, shared: &mut Shared<'_>) -> Result<(), Violation> {
        let mut events = vec![event];
        if let Event::Acked { task, epoch, snapshot, .. } = &events[0] {
            self.newest.insert(*task, snapshot.clone());
            if shared.scenario.mutation == Some(Mutation::PublishesOutOfOrder) {
                self.publish_out_of_order(*task, *epoch, snapshot.clone());
            }
            if shared.scenario.mutation == Some(Mutation::PublishesBeforeAllAcks) {
                let epoch: Epoch = *epoch;
                let made_up = self.newest.iter().map(|(&task, snapshot)| Event::Acked {
                    task,
                    epoch,
                    snapshot: snapshot.clone(),
                    changed: false,
                });
                events.extend(made_up.collect::<Vec<_>>());
            }
        }
        for event in events {
            (shared.trace)(&|| format!("       {event:?}"));
            let actions = self.coordinator.step(event, self.now());
            if let Some(end) = self.end.filter(|_| !actions.is_empty()) {
                return Err(Violation(format!("{actions:?} after {end:?}")));
            }
            for action in actions {
                (shared.trace)(&|| format!("       -> {action:?}"));
                self.act(action, shared);
            }
        }
        Ok(())
    }

    /// Publishes an epoch when all its acks are there, whatever has become of the one before.
    fn publish_out_of_order(&mut self, task: TaskId, epoch: Epoch, snapshot: TaskSnapshot) {
        let acks = self.acks.entry(epoch).or_default();
        acks.insert(task, snapshot);
        if acks.len() == self.tasks.len() && self.acks.range(..epoch).any(|(_, acks)| acks.len() < self.tasks.len()) {
            let tasks = self.acks[&epoch].clone();
            let manifest = self.manifest(epoch, false, tasks, None);
            self.operations.push(Operation::Publish { epoch, manifest, answered: true });
        }
    }

    fn manifest(
        &self,
        epoch: Epoch,
        ended: bool,
        tasks: BTreeMap<TaskId, TaskSnapshot>,
        mutation: Option<Mutation>,
    ) -> Manifest {
        let (attempt, digest) = (self.number, Manifest::digest(self.number, epoch));
        let (decision, component) = (self.log.as_ref().map(|_| place()), self.component_at(epoch, mutation));
        Manifest { attempt, ended, digest, decision, shape: self.shape, component, tasks }
    }

    /// The process is gone, or the attempt is over. What it has asked the cluster for may still get there.
    pub fn leave(self, is_crash: bool, world: &mut World, rng: &mut Rng) {
        if !is_crash && rng.one_in(2) {
            self.log.iter().for_each(|log| log.close(&mut world.broker));
        }
        let decisions = self.operations.into_iter().filter_map(Operation::into_decision);
        world.zombies.extend(decisions.filter(|_| rng.one_in(2)));
        while rng.one_in(3) {
            world.time_out(rng);
        }
    }

    fn act(&mut self, action: Action<TaskSnapshot>, shared: &mut Shared<'_>) {
        match action {
            Action::Swap { epoch } => {
                let candidate = shared.world.noted.candidate.expect("an upgrade was asked for");
                self.swap = Some((epoch, candidate));
            }
            Action::Adopt(_) => {
                shared.world.noted.adopted();
                shared.world.oracle.upgraded += 1;
                self.component = shared.world.noted.in_force;
            }
            Action::InjectBarrier(barrier) => {
                self.injected.values_mut().for_each(|barriers| barriers.push_back(barrier));
            }
            Action::Publish { epoch, ended, snapshots } => {
                let manifest = self.manifest(epoch, ended, snapshots, shared.scenario.mutation);
                if shared.scenario.mutation == Some(Mutation::CommitsBeforePublish) {
                    self.operations.push(Operation::Commit(early_commit(epoch, manifest.parts())));
                }
                self.operations.push(Operation::Publish { epoch, manifest, answered: false });
            }
            Action::Discard { epoch } => {
                let now = self.now();
                self.log.iter_mut().for_each(|log| log.discarded(epoch, now));
            }
            Action::Commit(permit) => {
                let (manifest, now) = (&shared.world.manifests[&permit.epoch()], self.now());
                let decide = self.log.as_mut().map(|log| log.decide(&permit, manifest, now));
                let answered = shared.scenario.mutation == Some(Mutation::AnswersCommitEarly);
                if answered {
                    self.mailbox.push(Event::Committed(permit.epoch()));
                }
                if shared.scenario.mutation == Some(Mutation::RetainsBeforeDecided) {
                    self.operations.push(Operation::retention(permit.epoch()));
                }
                self.operations.push(Operation::Commit(Commit::new(permit, decide, manifest.parts(), answered)));
            }
            Action::Retain { committed } => self.operations.push(Operation::retention(committed)),
            Action::Fail(_) => self.end = Some(End::Failed),
            Action::Finish { ended } => self.end = Some(End::Finished { ended }),
        }
    }
}

fn ack(upload: Upload) -> Event<TaskSnapshot> {
    let Upload { task, epoch, snapshot, changed, .. } = upload;
    Event::Acked { task, epoch, snapshot, changed }
}

fn pick(choices: &[(u64, Choice)], rng: &mut Rng) -> Option<Choice> {
    let all = choices.iter().map(|(weight, _)| weight).sum::<u64>();
    if all == 0 {
        return None;
    }
    let mut at = rng.below(all);
    for &(weight, choice) in choices {
        if at < weight {
            return Some(choice);
        }
        at -= weight;
    }
    unreachable!("the weights add up")
}
