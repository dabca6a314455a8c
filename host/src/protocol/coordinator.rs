//! When a checkpoint begins, what becomes of it, and when the job is over: events and time in, actions out.
//!
//! **What becomes of a checkpoint.** Once its barrier is injected, sinks cut their output there and forget it: what they have
//! prepared lives on only in the snapshot. So a checkpoint ends in one of three ways, and there is no fourth:
//! 1. every task has acknowledged and at least one has changed, or it was asked for: it is published, then committed;
//! 2. every task has acknowledged and none has changed: it is discarded. Nothing was read since the last one, so no sink
//!    has prepared anything and no state differs: nothing can be lost;
//! 3. anything else (a snapshot, publish, commit or task fails, or takes too long): the attempt fails. The next one starts
//!    from the newest manifest, commits that again, discards what else the sinks prepared, and reads the input again.
//!
//! **Several at a time.** The barrier of the next checkpoint may be injected while the tasks still acknowledge the one before, up
//! to a number of checkpoints that are in flight. What becomes of them is decided strictly in their order, one after the other.
//!
//! **Why this is exactly once.** A publish waits for the commit before it, so all manifests but the newest are committed, and
//! committing the newest again (which is idempotent) makes the visible output that of the newest manifest, whose positions
//! are those from which the input is read. A request to publish or commit whose outcome is not known is never repeated or
//! assumed here: the attempt fails, and the next one reads what is true.
//!
//! **How the job ends.** When every source has ended or a stop was requested, and another checkpoint may be in flight, the next
//! one is [`Purpose::Last`]. It ends the job also if it is discarded.
//!
//! **Requests.** A checkpoint that is asked for is taken as soon as another one may be in flight, and counts as changed. So do the two
//! of an upgrade: that at whose barrier an operator is swapped, and the one after it, before which nothing is injected while the new
//! one is on probation (see [`Trial`]).
//!
//! Invariant: epochs grow, also over attempts; one that was injected is never injected again in the attempt. At most as many
//! checkpoints are in flight as the options say, and none is published before the one before it is committed or discarded.
//! After [`Action::Fail`] or [`Action::Finish`] there is no further action.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::commit::{CommitPermit, PublishReceipt};
use super::upgrade::{Adopted, NextBarrier, Role, Trial};
use crate::element::{Barrier, Purpose};
use crate::id::{Epoch, TaskId};

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// From one barrier to the next.
    pub interval: Duration,
    /// From the end of one checkpoint to the barrier of the next.
    pub min_pause: Duration,
    /// How long the snapshots, the publish and the commit of one checkpoint may each take. Not zero.
    pub timeout: Duration,
    /// How many checkpoints may be in flight.
    pub concurrent_max: NonZeroU32,
}

/// What has happened. `S` is the snapshot of a task.
#[derive(Debug)]
pub enum Event<S> {
    /// Nothing but that time has passed. Due at [`Coordinator::next_deadline`]; harmless at any other time.
    Tick,
    /// A source has sent all its records and its last watermark. It still takes barriers and passes them on: `End` comes only
    /// after that of the last checkpoint, or tasks behind sources that have all gone would never see it.
    SourceEnded(TaskId),
    /// The job is to stop with a checkpoint.
    StopRequested,
    /// A checkpoint is to be taken as soon as may be, also if nothing has changed.
    CheckpointRequested,
    /// An operator is to be swapped at the next barrier behind which the stream goes on. One at a time.
    UpgradeRequested {
        /// How long the new one is tried, from the commit of the checkpoint at whose barrier it came.
        probation: Duration,
    },
    /// A task's snapshot is durable. `changed` must be true if anything in it differs from the task's snapshot of the epoch
    /// before: a position of a split, any state, or output that was prepared.
    Acked {
        task: TaskId,
        epoch: Epoch,
        snapshot: S,
        changed: bool,
    },
    SnapshotFailed {
        task: TaskId,
        epoch: Epoch,
        reason: String,
    },
    /// The answer to [`Action::Publish`].
    Published(PublishReceipt),
    /// The answer to [`Action::Publish`] if it isn't certain that the manifest is durable.
    PublishFailed {
        epoch: Epoch,
        reason: String,
    },
    /// The answer to [`Action::Commit`]: every sink has committed.
    Committed(Epoch),
    /// The answer to [`Action::Commit`] if it isn't certain that every sink has committed.
    CommitFailed {
        epoch: Epoch,
        reason: String,
    },
    TaskFailed {
        task: TaskId,
        reason: String,
    },
}

/// What is to be done, in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<S> {
    /// Let the operator be swapped by every task behind its snapshot of this epoch, whose barrier comes next.
    Swap { epoch: Epoch },
    /// The new operator is in force for good.
    Adopt(Adopted),
    /// Hand the barrier to every source.
    InjectBarrier(Barrier),
    /// Write the manifest, create-if-absent. `ended`: every source had ended before the barrier.
    Publish { epoch: Epoch, ended: bool, snapshots: BTreeMap<TaskId, S> },
    /// The checkpoint is over without a manifest, since nothing has changed.
    Discard { epoch: Epoch },
    /// Make the output of this epoch visible.
    Commit(CommitPermit),
    /// Remove what the manifests that are kept don't need.
    Retain { committed: Epoch },
    /// End the attempt. No new one may begin in this process before a publish or commit that is still running has returned.
    Fail(FailReason),
    /// The job is over: its last checkpoint is committed, or wasn't needed. `ended`: all input was read, which is false after
    /// a stop.
    Finish { ended: bool },
}

/// Why an attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FailReason {
    #[error("checkpoint {epoch} has waited {waited:?} for the snapshots of {} of its tasks", .missing.len())]
    SnapshotTimeout { epoch: Epoch, waited: Duration, missing: BTreeSet<TaskId> },
    #[error("checkpoint {epoch} has waited {waited:?} for its manifest to be published")]
    PublishTimeout { epoch: Epoch, waited: Duration },
    #[error("checkpoint {epoch} has waited {waited:?} for the sinks to commit")]
    CommitTimeout { epoch: Epoch, waited: Duration },
    #[error("a snapshot of checkpoint {epoch} failed: {reason}")]
    Snapshot { task: TaskId, epoch: Epoch, reason: String },
    #[error("cannot publish checkpoint {epoch}: {reason}")]
    Publish { epoch: Epoch, reason: String },
    #[error("cannot commit checkpoint {epoch}: {reason}")]
    Commit { epoch: Epoch, reason: String },
    #[error("{reason}")]
    Task { task: TaskId, reason: String },
}

impl FailReason {
    /// What the user can do, where it isn't in the reason.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            FailReason::SnapshotTimeout { .. }
            | FailReason::PublishTimeout { .. }
            | FailReason::CommitTimeout { .. } => {
                Some("if the disk and the operators are merely slow, raise checkpoint.timeout")
            }
            FailReason::Snapshot { .. }
            | FailReason::Publish { .. }
            | FailReason::Commit { .. }
            | FailReason::Task { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Checkpoint<S> {
    barrier: Barrier,
    ended: bool,
    injected_at: Duration,
    snapshots: BTreeMap<TaskId, S>,
    changed: bool,
}

/// What is done about the oldest checkpoint in flight.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The tasks take their snapshots.
    Snapshotting,
    Publishing {
        deadline: Duration,
    },
    Committing {
        deadline: Duration,
    },
}

/// Drives the checkpoints of one attempt.
#[derive(Clone, Debug)]
pub struct Coordinator<S> {
    options: CoordinatorOptions,
    tasks: BTreeSet<TaskId>,
    /// The sources that have not ended.
    sources: BTreeSet<TaskId>,
    stop_requested: bool,
    /// The next checkpoint is wanted at once, and counts as changed.
    checkpoint_requested: bool,
    trial: Trial,
    /// The newest epoch that was injected in this attempt, or published before it.
    newest: Option<Epoch>,
    /// Oldest first.
    in_flight: VecDeque<Checkpoint<S>>,
    phase: Phase,
    /// When the next barrier is due.
    due: Duration,
    /// Failed or finished.
    is_over: bool,
}

impl<S> Coordinator<S> {
    /// `tasks` are all that will acknowledge, `sources` those among them that get the barriers, `last_published` is the epoch
    /// of the newest manifest. `now`, here and in [`step`](Self::step), is the time since the attempt's start.
    ///
    /// # Panics
    /// If there is no source, a source is no task, or the timeout is zero.
    pub fn new(
        options: CoordinatorOptions,
        tasks: BTreeSet<TaskId>,
        sources: BTreeSet<TaskId>,
        last_published: Option<Epoch>,
        now: Duration,
    ) -> Coordinator<S> {
        assert!(!sources.is_empty(), "a job has at least one source");
        assert!(sources.is_subset(&tasks), "every source is a task");
        assert!(!options.timeout.is_zero(), "a checkpoint has time");
        Coordinator {
            options,
            tasks,
            sources,
            stop_requested: false,
            checkpoint_requested: false,
            trial: Trial::default(),
            newest: last_published,
            in_flight: VecDeque::new(),
            phase: Phase::Snapshotting,
            due: now + options.interval,
            is_over: false,
        }
    }

    /// Takes in an event and says what is to be done. A late answer, about an epoch that is over, changes nothing.
    ///
    /// # Panics
    /// If the event is about a task or an epoch that never was, or asks for an upgrade while another one is on trial.
    pub fn step(&mut self, event: Event<S>, now: Duration) -> Vec<Action<S>> {
        let mut actions = Vec::new();
        if self.is_over {
            return actions;
        }
        match event {
            Event::Tick => {}
            Event::SourceEnded(task) => {
                self.check_task(task);
                self.sources.remove(&task);
            }
            Event::StopRequested => self.stop_requested = true,
            Event::CheckpointRequested => self.checkpoint_requested = true,
            Event::UpgradeRequested { probation } => self.trial.request(probation),
            Event::Acked { task, epoch, snapshot, changed } => {
                self.check_task(task);
                self.acked(task, epoch, snapshot, changed);
                self.end_snapshots(now, &mut actions);
            }
            Event::Published(receipt) => self.published(receipt, now, &mut actions),
            Event::Committed(epoch) => self.committed(epoch, now, &mut actions),
            Event::SnapshotFailed { task, epoch, reason } => {
                self.fail(FailReason::Snapshot { task, epoch, reason }, &mut actions);
            }
            Event::PublishFailed { epoch, reason } => self.fail(FailReason::Publish { epoch, reason }, &mut actions),
            Event::CommitFailed { epoch, reason } => self.fail(FailReason::Commit { epoch, reason }, &mut actions),
            Event::TaskFailed { task, reason } => self.fail(FailReason::Task { task, reason }, &mut actions),
        }
        self.pass_time(now, &mut actions);
        actions
    }

    /// When the next [`Event::Tick`] is due; `None` once the attempt is over.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        let step = match self.phase {
            Phase::Snapshotting => None,
            Phase::Publishing { deadline } | Phase::Committing { deadline } => Some(deadline),
        };
        let snapshots = self.waiting_for_snapshots().map(|checkpoint| checkpoint.injected_at + self.options.timeout);
        [step, snapshots, self.next_barrier_from()].into_iter().flatten().min()
    }

    fn check_task(&self, task: TaskId) {
        assert!(self.tasks.contains(&task), "task {} is one of this attempt", task.0);
    }

    fn acked(&mut self, task: TaskId, of: Epoch, snapshot: S, changed: bool) {
        assert!(Some(of) <= self.newest, "epoch {of} was injected before task {} acknowledged it", task.0);
        // A checkpoint that is over needs no ack, and a second ack of a task says nothing new.
        if let Some(checkpoint) = self.in_flight.iter_mut().find(|checkpoint| checkpoint.barrier.epoch == of)
            && let Entry::Vacant(first) = checkpoint.snapshots.entry(task)
        {
            first.insert(snapshot);
            checkpoint.changed |= changed;
        }
    }

    /// Publishes or discards the oldest checkpoints that every task has acknowledged.
    fn end_snapshots(&mut self, now: Duration, actions: &mut Vec<Action<S>>) {
        while let (Phase::Snapshotting, Some(oldest)) = (self.phase, self.in_flight.front_mut()) {
            if oldest.snapshots.len() < self.tasks.len() {
                return;
            }
            let epoch = oldest.barrier.epoch;
            if oldest.changed {
                // What is left of it counts as whole: it has been acknowledged by all.
                let snapshots = std::mem::take(&mut oldest.snapshots);
                actions.push(Action::Publish { epoch, ended: oldest.ended, snapshots });
                self.phase = Phase::Publishing { deadline: now + self.options.timeout };
            } else {
                actions.push(Action::Discard { epoch });
                self.end_oldest(now, actions);
            }
        }
    }

    fn published(&mut self, receipt: PublishReceipt, now: Duration, actions: &mut Vec<Action<S>>) {
        let (Phase::Publishing { .. }, Some(oldest)) = (self.phase, self.in_flight.front()) else {
            panic!("epoch {} was published although nobody asked for it", receipt.epoch());
        };
        assert_eq!(receipt.epoch(), oldest.barrier.epoch, "the receipt is for the epoch that is being published");
        actions.push(Action::Commit(CommitPermit::new(receipt)));
        self.phase = Phase::Committing { deadline: now + self.options.timeout };
    }

    fn committed(&mut self, epoch: Epoch, now: Duration, actions: &mut Vec<Action<S>>) {
        let (Phase::Committing { .. }, Some(oldest)) = (self.phase, self.in_flight.front()) else {
            panic!("epoch {epoch} was committed although nobody asked for it");
        };
        assert_eq!(epoch, oldest.barrier.epoch, "the epoch that is being committed");
        actions.extend(self.trial.committed(epoch, now).map(Action::Adopt));
        actions.push(Action::Retain { committed: epoch });
        self.end_oldest(now, actions);
        self.end_snapshots(now, actions);
    }

    /// The oldest checkpoint in flight is over.
    fn end_oldest(&mut self, now: Duration, actions: &mut Vec<Action<S>>) {
        let oldest = self.in_flight.pop_front().expect("a checkpoint is in flight");
        self.phase = Phase::Snapshotting;
        match oldest.barrier.purpose {
            Purpose::Last => {
                assert!(self.in_flight.is_empty(), "nothing is injected behind the last barrier");
                self.is_over = true;
                actions.push(Action::Finish { ended: oldest.ended });
            }
            Purpose::Continue => self.due = self.due.max(now + self.options.min_pause),
        }
    }

    fn fail(&mut self, reason: FailReason, actions: &mut Vec<Action<S>>) {
        self.is_over = true;
        actions.push(Action::Fail(reason));
    }

    /// Fails the attempt if something has had its time, or begins the next checkpoint if it is time for it.
    fn pass_time(&mut self, now: Duration, actions: &mut Vec<Action<S>>) {
        if self.is_over {
            return;
        }
        if let Some(reason) = self.late(now) {
            return self.fail(reason, actions);
        }
        if self.next_barrier_from().is_some_and(|from| now >= from) {
            self.inject(now, actions);
        }
    }

    /// What takes too long.
    fn late(&self, now: Duration) -> Option<FailReason> {
        let waited = self.options.timeout;
        let oldest = self.in_flight.front()?.barrier.epoch;
        match self.phase {
            Phase::Publishing { deadline } if now >= deadline => {
                return Some(FailReason::PublishTimeout { epoch: oldest, waited });
            }
            Phase::Committing { deadline } if now >= deadline => {
                return Some(FailReason::CommitTimeout { epoch: oldest, waited });
            }
            Phase::Snapshotting | Phase::Publishing { .. } | Phase::Committing { .. } => {}
        }
        let checkpoint = self.waiting_for_snapshots()?;
        (now >= checkpoint.injected_at + waited).then(|| {
            let missing = self.tasks.iter().filter(|task| !checkpoint.snapshots.contains_key(task)).copied();
            FailReason::SnapshotTimeout { epoch: checkpoint.barrier.epoch, waited, missing: missing.collect() }
        })
    }

    /// The oldest checkpoint that some task hasn't acknowledged. It was injected before all others of this kind, so it is the
    /// first to be late.
    fn waiting_for_snapshots(&self) -> Option<&Checkpoint<S>> {
        let decided = match self.phase {
            Phase::Snapshotting => 0,
            Phase::Publishing { .. } | Phase::Committing { .. } => 1,
        };
        self.in_flight.iter().skip(decided).find(|checkpoint| checkpoint.snapshots.len() < self.tasks.len())
    }

    fn next_purpose(&self) -> Purpose {
        if self.stop_requested || self.sources.is_empty() { Purpose::Last } else { Purpose::Continue }
    }

    fn may_inject(&self) -> bool {
        self.in_flight.len() < self.options.concurrent_max.get() as usize
    }

    fn is_last_injected(&self) -> bool {
        self.in_flight.back().is_some_and(|newest| newest.barrier.purpose == Purpose::Last)
    }

    /// From when on the next barrier is injected; `None` if something else has to happen first.
    fn next_barrier_from(&self) -> Option<Duration> {
        if !self.may_inject() || self.is_last_injected() {
            return None;
        }
        match (self.next_purpose(), self.trial.next_barrier()) {
            (Purpose::Last, _) => Some(Duration::ZERO),
            (Purpose::Continue, NextBarrier::Held) => None,
            (Purpose::Continue, NextBarrier::From(time)) => Some(time),
            (Purpose::Continue, NextBarrier::AsEver) if self.checkpoint_requested => Some(Duration::ZERO),
            (Purpose::Continue, NextBarrier::AsEver) => Some(self.due),
        }
    }

    fn inject(&mut self, now: Duration, actions: &mut Vec<Action<S>>) {
        let purpose = self.next_purpose();
        let epoch = self.newest.map_or(Epoch(1), Epoch::next);
        self.newest = Some(epoch);
        self.due = now + self.options.interval;
        let barrier = Barrier { epoch, purpose };
        let role = self.trial.injected(barrier);
        let changed = std::mem::take(&mut self.checkpoint_requested) || role != Role::None;
        if role == Role::Swap {
            actions.push(Action::Swap { epoch });
        }
        let (ended, snapshots) = (self.sources.is_empty(), BTreeMap::new());
        self.in_flight.push_back(Checkpoint { barrier, ended, injected_at: now, snapshots, changed });
        actions.push(Action::InjectBarrier(barrier));
    }
}

#[cfg(test)]
mod tests;
