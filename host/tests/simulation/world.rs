//! What outlives a crash: the input, the checkpoint store, the two-phase sink's folder and the deciding sink's cluster.
//!
//! Invariant: every change of the store and of the folder is one atomic step, and the oracle looks at each.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::{Attempt, Epoch, JobUid, TaskId};
use lockgate_host::protocol::decision::{DecisionPlace, Digest};
use lockgate_host::protocol::{Alignment, CommitPermit, KeyGroupRange, PublishReceipt};

use crate::broker::Broker;
use crate::channel::{From, Item};
use crate::decision::Decision;
use crate::oracle::{Oracle, Violation};
use crate::scenario::Scenario;
use crate::upgrade::{Component, Noted};

pub type Key = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Grows within a split.
    pub id: u64,
    pub key: Key,
    /// Which of the two streams it is of.
    pub side: usize,
    pub split: u32,
}

/// What the counters put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// For each record, how many of its key and side there were, and who has counted.
    Counted { record: Record, count: u64, component: Component },
    /// When the input ends: how many of a key there were on each side.
    Total { key: Key, counts: [u64; 2] },
    /// When the input ends: how many records one counter has seen of a stream that goes to all of them.
    Seen { counter: u32, count: u64 },
}

/// The state of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    pub counts: [u64; 2],
    /// There were records since its last total.
    pub total_due: bool,
    /// By split: its newest record, since those of one key and split must come in order.
    pub newest: BTreeMap<u32, u64>,
}

/// The keyed state of one counter.
pub type State = BTreeMap<Key, KeyState>;

/// How many subtasks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of the source of each side; 0 if there is no such side.
    pub sources: [u32; 2],
    pub counters: u32,
    /// 0: each counter has its sink chained to it.
    pub sinks: u32,
}

impl Shape {
    fn first(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Source(0) => 0,
            Kind::Source(_) => self.sources[0],
            Kind::Counter => self.sources[0] + self.sources[1],
            Kind::Sink => self.sources[0] + self.sources[1] + self.counters,
        }
    }

    pub fn parallelism(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Source(side) => self.sources[side],
            Kind::Counter => self.counters,
            Kind::Sink => self.sinks,
        }
    }

    pub fn task(&self, kind: Kind, index: u32) -> TaskId {
        TaskId(self.first(kind) + index)
    }
}

/// What a task does. A sink that is chained to a counter is part of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Source(usize),
    Counter,
    Sink,
}

/// A file of which only these key groups count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    pub name: String,
    pub groups: KeyGroupRange,
}

/// One task's part of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSnapshot {
    /// By split: how many records were read.
    pub positions: BTreeMap<u32, u64>,
    /// A base and what has changed since, oldest first.
    pub files: Vec<StateFile>,
    /// How many records of a stream that goes to all were seen, and whether that has still to be told.
    pub seen: (u64, bool),
    /// The file of what was in flight.
    pub in_flight: Option<String>,
    /// The committable: the names of prepared parts.
    pub parts: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Manifest {
    pub attempt: Attempt,
    pub ended: bool,
    pub digest: Digest,
    /// Where it is decided; `None`: by being published.
    pub decision: Option<DecisionPlace>,
    pub shape: Shape,
    /// Of the counters.
    pub component: Component,
    pub tasks: BTreeMap<TaskId, TaskSnapshot>,
}

impl TaskSnapshot {
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.files.iter().map(|file| &file.name).chain(&self.in_flight)
    }
}

impl Manifest {
    /// No two attempts publish the same bytes.
    pub fn digest(attempt: Attempt, epoch: Epoch) -> Digest {
        Digest(attempt.0 << 32 | epoch.0)
    }

    /// The snapshots of all subtasks of a kind, in order.
    pub fn of(&self, kind: Kind) -> Vec<&TaskSnapshot> {
        (0..self.shape.parallelism(kind)).filter_map(|index| self.tasks.get(&self.shape.task(kind, index))).collect()
    }

    pub fn files(&self) -> BTreeSet<String> {
        self.tasks.values().flat_map(TaskSnapshot::files).cloned().collect()
    }

    pub fn parts(&self) -> Vec<String> {
        self.tasks.values().flat_map(|task| &task.parts).cloned().collect()
    }
}

/// What was queued in one channel.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub from: From,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub enum Content {
    State(State),
    InFlight(Vec<InFlight>),
}

#[derive(Debug)]
pub struct StoredFile {
    pub attempt: Attempt,
    pub content: Content,
}

/// A part file of the sink. Until it is complete it may be cut anywhere.
#[derive(Clone, Debug)]
pub struct Part {
    pub attempt: Attempt,
    pub rows: Vec<Row>,
    pub complete: bool,
}

#[derive(Debug)]
pub struct World {
    /// Of the newest attempt.
    pub shape: Shape,
    /// By split.
    pub input: Vec<Vec<Record>>,
    pub uid: JobUid,
    pub attempts: BTreeSet<Attempt>,
    pub manifests: BTreeMap<Epoch, Manifest>,
    pub files: BTreeMap<String, StoredFile>,
    /// Written or prepared, invisible.
    pub parts: BTreeMap<String, Part>,
    /// The working state of the attempt that ran last, which nobody must ever read.
    pub live_state: BTreeMap<TaskId, State>,
    /// The newest manifest that was decided by being published.
    pub decided_by_publish: Option<Epoch>,
    /// What the two-phase sink's folder says was committed.
    pub files_committed: Option<Epoch>,
    /// Of a job with a deciding sink.
    pub has_log: bool,
    pub broker: Broker,
    /// Decisions of processes that are gone, which may still reach the cluster.
    pub zombies: Vec<Decision>,
    /// The cluster before each commit, if it is to be put back.
    pub history: Option<Vec<Broker>>,
    pub noted: Noted,
    /// How many requests may still come.
    pub requests_left: u64,
    /// Something was lost that the job can't do without.
    pub has_lost: bool,
    /// The job has said that it can't go on.
    pub refused: Option<String>,
    pub oracle: Oracle,
}

impl World {
    pub fn new(shape: Shape, alignment: Alignment) -> World {
        World {
            shape,
            input: Vec::new(),
            uid: JobUid("uid-1".to_owned()),
            attempts: BTreeSet::new(),
            manifests: BTreeMap::new(),
            files: BTreeMap::new(),
            parts: BTreeMap::new(),
            live_state: BTreeMap::new(),
            decided_by_publish: None,
            files_committed: None,
            has_log: false,
            broker: Broker::default(),
            zombies: Vec::new(),
            history: None,
            noted: Noted::default(),
            requests_left: 0,
            has_lost: false,
            refused: None,
            oracle: Oracle::new(alignment),
        }
    }

    /// Creates the manifest unless there is one.
    pub fn publish(
        &mut self,
        epoch: Epoch,
        manifest: Manifest,
        scenario: &Scenario,
    ) -> Result<Option<PublishReceipt>, Violation> {
        if self.manifests.contains_key(&epoch) {
            return Ok(None);
        }
        if let Some(file) = manifest.files().into_iter().find(|file| !self.files.contains_key(file)) {
            return Err(Violation(format!("manifest {epoch} names {file}, which isn't stored")));
        }
        let prepared = |part: &String| self.parts.get(part).is_some_and(|part| part.complete);
        if let Some(part) = manifest.parts().into_iter().find(|part| !prepared(part)) {
            return Err(Violation(format!("manifest {epoch} names part {part}, which isn't prepared")));
        }
        if self.manifests.last_key_value().is_some_and(|(&newest, _)| newest > epoch) {
            return Err(Violation(format!("epoch {epoch} is published after a newer one")));
        }
        let read = |split: usize| manifest.tasks.values().find_map(|task| task.positions.get(&(split as u32)).copied());
        let all_read = (0..self.input.len()).all(|split| read(split) == Some(self.input[split].len() as u64));
        if manifest.ended && !all_read {
            return Err(Violation(format!("manifest {epoch} says that the input has ended, which it hasn't")));
        }
        self.check_components(epoch, &manifest, scenario)?;
        self.oracle.published += 1;
        if manifest.decision.is_none() {
            self.decided_by_publish = Some(epoch);
        }
        let receipt = PublishReceipt::for_published(epoch, manifest.digest);
        self.manifests.insert(epoch, manifest);
        Ok(Some(receipt))
    }

    /// Makes a part visible, if it isn't yet.
    pub fn commit_part(&mut self, permit: &CommitPermit, name: &str) -> Result<(), Violation> {
        if Some(permit.epoch()) > self.decided() {
            return Err(Violation(format!("part {name} of epoch {} is committed and not decided", permit.epoch())));
        }
        if let Some(part) = self.parts.remove(name) {
            return self.oracle.part_became_visible(permit.epoch(), name, part);
        }
        if self.oracle.is_visible(name) {
            return Ok(());
        }
        Err(Violation(format!("part {name} of epoch {} is lost", permit.epoch())))
    }

    pub fn store_file(&mut self, name: String, attempt: Attempt, content: Content) -> Result<(), Violation> {
        if self.files.contains_key(&name) {
            return Err(Violation(format!("{name} is written again")));
        }
        self.files.insert(name, StoredFile { attempt, content });
        Ok(())
    }

    /// After a retention nothing of dead attempts is left but what a manifest names.
    pub fn check_no_garbage(&self, attempt: Attempt) -> Result<(), Violation> {
        let named = self.manifests.values().flat_map(Manifest::files).collect::<BTreeSet<_>>();
        let garbage = self.files.iter().find(|(name, file)| file.attempt < attempt && !named.contains(*name));
        garbage.map_or(Ok(()), |(name, _)| Err(Violation(format!("{name} is kept although nobody needs it"))))
    }

    pub fn delete_file(&mut self, name: &str) -> Result<(), Violation> {
        let needs = |manifest: &Manifest| manifest.tasks.values().any(|task| task.files().any(|file| file == name));
        if let Some((epoch, _)) = self.manifests.iter().find(|(_, manifest)| needs(manifest)) {
            return Err(Violation(format!("{name} is deleted although manifest {epoch} needs it")));
        }
        self.oracle.files_deleted += 1;
        self.files.remove(name);
        Ok(())
    }

    pub fn delete_manifest(&mut self, epoch: Epoch, keep: u32) -> Result<(), Violation> {
        if self.manifests.range(epoch.next()..).count() < keep as usize {
            return Err(Violation(format!("manifest {epoch} is deleted although it is among the newest {keep}")));
        }
        if self.decided() == Some(epoch) {
            return Err(Violation(format!("manifest {epoch} is deleted, and nothing newer is decided")));
        }
        self.manifests.remove(&epoch);
        Ok(())
    }
}
