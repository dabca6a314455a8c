//! Builds an attempt from a checkpoint, or from nothing, in whatever shape the job has now.
//!
//! Invariant: whatever an attempt starts with comes from one manifest and the files that it names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockgate_host::element::{Batch, Row as BatchRow};
use lockgate_host::id::TaskId;
use lockgate_host::protocol::in_flight::{self, Dealing, Place};
use lockgate_host::protocol::{Aligner, Alignment, Coordinator, KeyGroupRange, MaxParallelism, Watermarks};

use crate::attempt::{Attempt, Shared};
use crate::channel::{Channel, From, Item};
use crate::log_sink::LogSink;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::parts::{Counter, Sink, Source};
use crate::recovery::Start;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::world::{Content, Kind, Manifest, Shape, State, StateFile, TaskSnapshot, World};

impl Attempt {
    pub fn start(start: Start, shared: &mut Shared<'_>) -> Result<Attempt, Violation> {
        let Start { number, from, newest, handles, .. } = start;
        if from != shared.world.decided() {
            let decided = shared.world.decided();
            return Err(Violation(format!("attempt {number} starts from {from:?}, and {decided:?} was decided last")));
        }
        let scenario = shared.scenario;
        shared.world.check_in_force(from)?;
        let shape = scenario.next_shape(shared.rng, shared.world.shape);
        let manifest = from.map(|epoch| shared.world.manifests[&epoch].clone());
        let is_rescaled = manifest.as_ref().is_some_and(|manifest| manifest.shape != shape);
        shared.world.shape = shape;
        let mut wiring =
            Wiring { scenario, shape, world: shared.world, manifest, tasks: Vec::new(), channels: Vec::new() };
        wiring.sources();
        wiring.counters()?;
        wiring.sinks()?;
        let Wiring { tasks, channels, manifest, .. } = wiring;
        let writers = tasks.iter().filter(|task| task.sink.is_some()).count();
        let identity = (number, shared.world.uid.clone());
        let log = handles.map(|handles| LogSink::new(identity, from, handles, writers, scenario.mutation));
        let takes_up = tasks.iter().any(|task| !task.restored.is_empty());
        shared.world.oracle.rescaled += u64::from(is_rescaled);
        shared.world.oracle.rescaled_in_flight += u64::from(is_rescaled && takes_up);
        let ids = tasks.iter().map(|task| task.id).collect();
        let sources = (0..shape.task(Kind::Counter, 0).0).map(TaskId).collect::<Vec<_>>();
        let last_published = newest.filter(|_| scenario.mutation != Some(Mutation::ReusesEpochs));
        let injected = sources.iter().map(|&source| (source, VecDeque::new())).collect();
        let mut options = scenario.options;
        if *shared.faults_left == 0 {
            // A timeout that is too short for the job is a fault as well, which must stop at some time.
            options.timeout = Duration::from_secs(60);
        }
        let old = |task: &TaskId| manifest.as_ref().and_then(|manifest| manifest.tasks.get(task)).cloned();
        Ok(Attempt {
            number,
            shape,
            now_ms: 0,
            newest: tasks.iter().map(|task| (task.id, old(&task.id).unwrap_or_default())).collect(),
            tasks,
            channels,
            injected,
            log,
            coordinator: Coordinator::new(options, ids, sources.into_iter().collect(), last_published, Duration::ZERO),
            mailbox: Vec::new(),
            uploads: Vec::new(),
            operations: Vec::new(),
            end: None,
            acks: BTreeMap::new(),
            component: shared.world.noted.in_force,
            swap: None,
        })
    }
}

struct Wiring<'a> {
    scenario: &'a Scenario,
    shape: Shape,
    world: &'a mut World,
    manifest: Option<Manifest>,
    tasks: Vec<Task>,
    channels: Vec<Channel>,
}

impl Wiring<'_> {
    fn of(&self, kind: Kind) -> Vec<TaskSnapshot> {
        let all = self.manifest.iter().flat_map(|manifest| manifest.of(kind));
        all.cloned().collect()
    }

    fn sources(&mut self) {
        for side in 0..self.scenario.sides() {
            let old = self.of(Kind::Source(side)).into_iter().flat_map(|snapshot| snapshot.positions);
            let old = old.collect::<BTreeMap<_, _>>();
            for index in 0..self.shape.sources[side] {
                let own = |split: &u32| {
                    let of_side = *split / self.scenario.sides() as u32;
                    self.scenario.side_of(*split) == side && of_side % self.shape.sources[side] == index
                };
                let splits = (0..self.world.input.len() as u32).filter(own);
                let positions = splits.map(|split| (split, old.get(&split).copied().unwrap_or(0))).collect();
                let id = self.shape.task(Kind::Source(side), index);
                // One source stays open, or else no barrier would get past the sources any more.
                let source = Source::new(positions, self.scenario.closes_early && id != TaskId(0));
                let task = self.task(id, 0);
                self.tasks.push(Task { source: Some(source), ..task });
            }
        }
    }

    fn counters(&mut self) -> Result<(), Violation> {
        let old_state = std::mem::take(&mut self.world.live_state);
        let old = self.of(Kind::Counter);
        for index in 0..self.shape.counters {
            let senders = (0..self.scenario.sides()).map(|side| (Kind::Source(side), From::Source(side)));
            let inputs = self.join(senders.collect());
            let id = self.shape.task(Kind::Counter, index);
            let own = groups().range(index, self.shape.counters);
            let (mut state, files) = self.state(own, &old)?;
            if self.scenario.mutation == Some(Mutation::ResumesLiveState) {
                state = old_state.get(&id).cloned().unwrap_or(state);
            }
            self.world.live_state.insert(id, state.clone());
            let from = match self.scenario.mutation {
                Some(Mutation::TakesStateOfFirst) => 0,
                Some(_) | None => index as usize % old.len().max(1),
            };
            let seen = old.get(from).map(|snapshot| snapshot.seen).unwrap_or_default();
            let restored = self.in_flight(Kind::Counter, index)?;
            let task = self.task(id, inputs.len());
            self.tasks.push(Task {
                inputs,
                restored,
                counter: Some(Counter::new((index, self.world.noted.in_force), own, state, seen, files)),
                sink: (self.shape.sinks == 0).then(|| self.sink(index)),
                ..task
            });
        }
        Ok(())
    }

    fn sinks(&mut self) -> Result<(), Violation> {
        for index in 0..self.shape.sinks {
            let inputs = self.join(vec![(Kind::Counter, From::Counter)]);
            let restored = self.in_flight(Kind::Sink, index)?;
            let task = self.task(self.shape.task(Kind::Sink, index), inputs.len());
            self.tasks.push(Task { inputs, restored, sink: Some(self.sink(index)), ..task });
        }
        Ok(())
    }

    fn sink(&self, index: u32) -> Sink {
        Sink::new(self.scenario.has_files, self.world.has_log.then_some(index as usize))
    }

    fn task(&self, id: TaskId, inputs: usize) -> Task {
        let alignment = match self.scenario.mutation {
            Some(Mutation::AlignsAtLeastOnce) => Alignment::AtLeastOnce,
            Some(_) | None => self.scenario.alignment,
        };
        let concurrent_max = self.scenario.options.concurrent_max.get() as usize;
        Task {
            id,
            inputs: Vec::new(),
            outputs: Vec::new(),
            aligner: (inputs > 0).then(|| Aligner::new(alignment, inputs, concurrent_max)),
            watermarks: Watermarks::new(inputs.max(1)),
            restored: VecDeque::new(),
            overtaken: None,
            snapshotted: None,
            is_done: false,
            source: None,
            counter: None,
            sink: None,
        }
    }

    /// A channel from each of the senders to the next task.
    fn join(&mut self, senders: Vec<(Kind, From)>) -> Vec<usize> {
        let mut inputs = Vec::new();
        for (kind, from) in senders {
            for sender in 0..self.shape.parallelism(kind) {
                let place = self.channels.len();
                self.tasks[self.shape.task(kind, sender).0 as usize].outputs.push(place);
                self.channels.push(Channel::new(from));
                inputs.push(place);
            }
        }
        inputs
    }

    /// The state of the counter that has these key groups, and the files that hold it.
    fn state(&self, own: KeyGroupRange, old: &[TaskSnapshot]) -> Result<(State, Vec<StateFile>), Violation> {
        let (mut state, mut files) = (State::new(), Vec::new());
        for StateFile { name, groups: of } in old.iter().flat_map(|snapshot| &snapshot.files) {
            let shared = KeyGroupRange { first: own.first.max(of.first), last: own.last.min(of.last) };
            if shared.first > shared.last {
                continue;
            }
            let Content::State(content) = self.file(name)? else {
                return Err(Violation(format!("{name} is no state")));
            };
            let mine = |key: &u64| shared.contains(groups().key_group(&key.to_le_bytes()));
            state.extend(content.iter().filter(|(key, _)| mine(key)).map(|(key, of_key)| (*key, of_key.clone())));
            files.push(StateFile { name: name.clone(), groups: shared });
        }
        Ok((state, files))
    }

    fn file(&self, name: &str) -> Result<&Content, Violation> {
        let file = self.world.files.get(name).ok_or_else(|| Violation(format!("{name} is needed and isn't there")))?;
        Ok(&file.content)
    }

    /// What a counter or sink has to take up.
    fn in_flight(&self, kind: Kind, index: u32) -> Result<VecDeque<(From, Item)>, Violation> {
        let old = self.of(kind);
        let new = Place { index, parallelism: self.shape.parallelism(kind) };
        let mut taken = VecDeque::new();
        for (old_index, snapshot) in (0..).zip(&old) {
            let Some(name) = &snapshot.in_flight else { continue };
            let file = self.file(name)?;
            let Content::InFlight(channels) = file else { return Err(Violation(format!("{name} isn't in flight"))) };
            let old = Place { index: old_index, parallelism: old.len() as u32 };
            let items = channels.iter().flat_map(|channel| channel.items.iter().map(|item| (channel.from, item)));
            taken.extend(
                items.filter(|(_, item)| self.takes_up(item, old, new)).map(|(from, item)| (from, item.clone())),
            );
        }
        Ok(taken)
    }

    fn takes_up(&self, item: &Item, old: Place, new: Place) -> bool {
        let mut batch = Batch::default();
        let dealing = match item {
            Item::Record { record, .. } => {
                let key = record.key.to_le_bytes();
                batch.push(BatchRow { key: Some(&key), value: None, timestamp: 0 });
                self.scenario.dealing[record.side]
            }
            Item::Row(_) => {
                batch.push(BatchRow { key: None, value: None, timestamp: 0 });
                Dealing::ToOne
            }
            Item::Watermark(_) | Item::Barrier(_) | Item::Idle | Item::Active | Item::End => return false,
        };
        let was = match (self.scenario.mutation, dealing) {
            (Some(Mutation::DropsInFlightOnRescale), _) if old.parallelism != new.parallelism => return false,
            (Some(Mutation::MovesInFlightByNumber), Dealing::ByKey) => Dealing::ToOne,
            (Some(Mutation::TakesAllCopies), Dealing::ToAll) => return true,
            (_, dealing) => dealing,
        };
        in_flight::take_up(&Arc::new(batch), (was, old), (was, new), groups()).is_some()
    }
}

fn groups() -> MaxParallelism {
    MaxParallelism::new(Scenario::KEY_GROUPS).expect("in range")
}
