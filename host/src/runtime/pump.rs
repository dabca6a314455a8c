//! Drives the coordinator of one attempt: brings it what has happened, does what it decides.
//!
//! Invariant: decisions are the coordinator's alone; this file only measures time, starts work and reports its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use super::commit::{CommitError, Committers, Prepared};
use super::guards::Guards;
use super::requests::{Request, Requests, Wish};
use super::upgrade::Upgrades;
use super::upload::{Part, UploadError, upload};
use super::{Job, RunError};
use crate::crash;
use crate::element::Barrier;
use crate::id::{Attempt, Epoch, Name, TaskId};
use crate::protocol::{Action, CommitPermit, Coordinator, Event, FailReason, MaxParallelism, PublishReceipt};
use crate::store::{CheckpointStore, MANIFEST_VERSION, Manifest, OperatorCheckpoint, StoreError};
use crate::task::{SwapBoard, TaskError, TaskEvent, TaskStatus};
use crate::telemetry::{CheckpointCompleted, CheckpointDiscarded, JobCounters, Newest, RetentionFailed};

/// What the pump needs to know of the attempt.
pub struct Attempted {
    pub job: Name,
    pub store: CheckpointStore,
    pub attempt: Attempt,
    pub slot: u32,
    pub max_parallelism: MaxParallelism,
    pub retain: NonZeroU32,
    pub committers: Committers,
    pub counters: Arc<JobCounters>,
    pub guards: Arc<Guards>,
}

/// What may be asked of the job while it runs, and what its operators are.
pub struct Asked<'a> {
    pub job: &'a Job,
    pub requests: &'a mut Requests,
    pub upgrades: &'a mut Upgrades,
    /// That of all tasks.
    pub board: SwapBoard,
}

/// How an attempt has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// So has its input.
    Input,
    Stopped,
    Cancelled,
}

/// What the pump has waited for.
enum Happened {
    Event(Event<Vec<Part>>),
    /// The coordinator needs to know nothing of it.
    Nothing,
    Cancelled,
}

/// The running tasks and the ways to reach them.
pub struct Running {
    pub tasks: JoinSet<(TaskId, Result<(), TaskError>)>,
    /// What each task is doing, for errors.
    pub statuses: BTreeMap<TaskId, Arc<TaskStatus>>,
    pub sources: BTreeSet<TaskId>,
    /// To every source task.
    pub barriers: Vec<mpsc::Sender<Barrier>>,
    /// To every other task: nothing is sent, but a task whose sender is gone is cancelled.
    pub others: Vec<mpsc::Sender<Barrier>>,
    pub events: mpsc::UnboundedReceiver<TaskEvent>,
}

/// Work that runs beside the stream, when it is done.
enum Done {
    Uploaded { task: TaskId, epoch: Epoch, changed: bool, parts: Result<Vec<Part>, UploadError> },
    Published { epoch: Epoch, receipt: Result<PublishReceipt, StoreError> },
    Committed { epoch: Epoch, outcome: Result<(), CommitError> },
    Retained(Result<(), StoreError>),
}

pub struct Pump<'a> {
    attempted: Attempted,
    asked: Asked<'a>,
    coordinator: Coordinator<Vec<Part>>,
    running: Running,
    work: JoinSet<Done>,
    started: Instant,
    /// Of epochs that are being published.
    prepared: BTreeMap<Epoch, Prepared>,
    injected: BTreeMap<Epoch, Instant>,
    /// Bytes of what the manifests reach that are being published or committed.
    sizes: BTreeMap<Epoch, u64>,
    /// The first real failure, with its causes; the coordinator sees only text.
    failure: Option<RunError>,
    wish: watch::Receiver<Wish>,
}

impl<'a> Pump<'a> {
    pub fn new(
        attempted: Attempted,
        asked: Asked<'a>,
        coordinator: Coordinator<Vec<Part>>,
        running: Running,
        started: Instant,
    ) -> Pump<'a> {
        let wish = asked.requests.wish();
        Pump {
            attempted,
            asked,
            coordinator,
            running,
            work: JoinSet::new(),
            started,
            prepared: BTreeMap::new(),
            injected: BTreeMap::new(),
            sizes: BTreeMap::new(),
            failure: None,
            wish,
        }
    }

    /// Runs the attempt to its end and waits for all that it has started.
    ///
    /// # Errors
    /// What made the attempt fail.
    pub async fn run(mut self) -> Result<Ended, RunError> {
        let mut outcome = self.take_up_requests();
        let outcome = loop {
            if let Some(outcome) = outcome {
                break outcome.map_err(|reason| self.given_up(reason));
            }
            outcome = match self.next().await {
                Happened::Event(event) => self.step(event),
                Happened::Nothing => None,
                Happened::Cancelled => Some(Ok(Ended::Cancelled)),
            };
        };
        // Tasks stop when nobody can send them barriers any more. After a good end, those behind the sources still pass on its ends.
        self.running.barriers.clear();
        let passes_on = matches!(outcome, Ok(Ended::Input | Ended::Stopped));
        if !passes_on {
            self.running.others.clear();
            // What is prepared may wait for a cluster, or for an epoch before it that has failed.
            self.attempted.committers.sinks.values().for_each(|committer| committer.give_up());
        }
        self.running.events.close();
        while let Some(joined) = self.running.tasks.join_next().await {
            // It was cancelled just now, and that is no cause.
            if !passes_on && matches!(joined, Ok((_, Err(TaskError::Cancelled)))) {
                continue;
            }
            let failed = self.task_ended(joined);
            debug_assert!(failed.is_none() || !passes_on, "a task fails only before the job is finished");
        }
        // A publish or commit that is still running must have its outcome before another attempt may look.
        while self.work.join_next().await.is_some() {}
        match (outcome, self.failure) {
            (Ok(ended), _) => Ok(ended),
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => Err(error),
        }
    }

    /// Why the attempt has failed, told while its tasks can still be asked.
    fn given_up(&self, reason: FailReason) -> RunError {
        match reason {
            FailReason::SnapshotTimeout { epoch, waited, missing } => {
                let statuses = missing.iter().filter_map(|task| self.running.statuses.get(task));
                RunError::Stuck { epoch, waited, waits: statuses.map(|status| status.why_missing(epoch)).collect() }
            }
            other => RunError::Attempt(other),
        }
    }

    /// Lets the coordinator know what was asked of attempts before and has still to be done.
    fn take_up_requests(&mut self) -> Option<Result<Ended, FailReason>> {
        let checkpoint = self.asked.requests.begin_attempt().then_some(Event::CheckpointRequested);
        let upgrade = self.asked.upgrades.begin_attempt().map(|probation| Event::UpgradeRequested { probation });
        [checkpoint, upgrade].into_iter().flatten().find_map(|event| self.step(event))
    }

    async fn next(&mut self) -> Happened {
        let deadline = self.coordinator.next_deadline().map(|deadline| self.started + deadline);
        let tick = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            Some(event) = self.running.events.recv() => self.task_event(event),
            Some(done) = self.work.join_next() => self.work_done(done),
            Some(joined) = self.running.tasks.join_next() => self.task_ended(joined),
            Ok(()) = self.wish.changed() => match *self.wish.borrow_and_update() {
                Wish::GoOn => None,
                Wish::Stop => Some(Event::StopRequested),
                Wish::Cancel => return Happened::Cancelled,
            },
            Some(request) = self.asked.requests.next() => self.request(request),
            () = tick => Some(Event::Tick),
        };
        event.map_or(Happened::Nothing, Happened::Event)
    }

    fn request(&mut self, request: Request) -> Option<Event<Vec<Part>>> {
        match request {
            Request::Checkpoint(reply) => {
                self.asked.requests.await_checkpoint(reply);
                Some(Event::CheckpointRequested)
            }
            Request::Upgrade(request, reply) => {
                let probation = self.asked.upgrades.request(self.asked.job, request, reply)?;
                Some(Event::UpgradeRequested { probation })
            }
        }
    }

    fn task_event(&mut self, event: TaskEvent) -> Option<Event<Vec<Part>>> {
        match event {
            TaskEvent::SourceEnded(task) => Some(Event::SourceEnded(task)),
            TaskEvent::Snapshot { task, epoch, changed, parts } => {
                let (store, attempt) = (self.attempted.store.clone(), self.attempted.attempt);
                let counters = Arc::clone(&self.attempted.counters);
                self.work.spawn(async move {
                    let parts = upload(parts, epoch, store, attempt, &counters).await;
                    Done::Uploaded { task, epoch, changed, parts }
                });
                None
            }
        }
    }

    fn work_done(&mut self, done: Result<Done, JoinError>) -> Option<Event<Vec<Part>>> {
        let done = match done {
            Ok(done) => done,
            Err(error) => return Some(self.panicked(&error)),
        };
        match done {
            Done::Uploaded { task, epoch, changed, parts: Ok(snapshot) } => {
                Some(Event::Acked { task, epoch, snapshot, changed })
            }
            Done::Uploaded { task, epoch, changed: _, parts: Err(source) } => {
                let reason = self.failed(RunError::Snapshot { epoch, source: Box::new(source) });
                Some(Event::SnapshotFailed { task, epoch, reason })
            }
            Done::Published { epoch: _, receipt: Ok(receipt) } => {
                crash::point("runtime.published");
                Some(Event::Published(receipt))
            }
            Done::Published { epoch, receipt: Err(source) } => {
                let reason = self.failed(RunError::Publish { epoch, source });
                Some(Event::PublishFailed { epoch, reason })
            }
            Done::Committed { epoch, outcome: Ok(()) } => {
                crash::point("runtime.committed");
                self.attempted.counters.committed(epoch);
                self.attempted.guards.committed(epoch);
                self.asked.requests.committed(epoch);
                self.asked.upgrades.committed(epoch);
                let took = self.injected.remove(&epoch).map_or(Duration::ZERO, |injected| injected.elapsed());
                let size_bytes = self.sizes.remove(&epoch).unwrap_or_default();
                let newest = Newest { epoch, took, size_bytes, committed: Instant::now() };
                self.attempted.counters.checkpoint_figures().committed(newest);
                CheckpointCompleted { epoch, took }.emit();
                Some(Event::Committed(epoch))
            }
            Done::Committed { epoch, outcome: Err(source) } => {
                let reason = self.failed(RunError::Commit { epoch, source: Box::new(source) });
                Some(Event::CommitFailed { epoch, reason })
            }
            Done::Retained(Ok(())) => None,
            Done::Retained(Err(error)) => {
                RetentionFailed { error: &error }.emit();
                None
            }
        }
    }

    /// A task that was cancelled tells nothing: the one that ended first does.
    fn task_ended(&mut self, joined: Result<(TaskId, Result<(), TaskError>), JoinError>) -> Option<Event<Vec<Part>>> {
        match joined {
            Ok((_, Ok(()))) => None,
            Ok((task, Err(TaskError::Cancelled))) if !self.running.tasks.is_empty() => {
                tracing::debug!(task = task.0, "task cancelled");
                None
            }
            Ok((task, Err(source))) => {
                let chain =
                    self.running.statuses.get(&task).map(|status| status.chain().to_owned()).unwrap_or_default();
                let reason = self.failed(RunError::Task { chain, source: Box::new(source) });
                Some(Event::TaskFailed { task, reason })
            }
            Err(error) => Some(self.panicked(&error)),
        }
    }

    /// A panic poisons the attempt, whichever task it was.
    fn panicked(&mut self, error: &JoinError) -> Event<Vec<Part>> {
        let reason = self.failed(RunError::Panicked { message: error.to_string() });
        Event::TaskFailed { task: TaskId(u32::MAX), reason }
    }

    /// Keeps the first failure and gives its text for the coordinator.
    fn failed(&mut self, error: RunError) -> String {
        let reason = error.to_string();
        self.failure.get_or_insert(error);
        reason
    }

    /// Lets the coordinator decide and does what it says. The outcome, when there is one.
    fn step(&mut self, event: Event<Vec<Part>>) -> Option<Result<Ended, FailReason>> {
        let now = self.started.elapsed();
        for action in self.coordinator.step(event, now) {
            match action {
                Action::Swap { epoch } => {
                    self.asked.board.post(self.asked.upgrades.swap(self.asked.job, epoch));
                    crash::point("upgrade.armed");
                }
                Action::Adopt(adopted) => {
                    crash::point("upgrade.adopted");
                    let Asked { job, requests, upgrades, board } = &mut self.asked;
                    upgrades.adopt(job, adopted, board.figures());
                    requests.in_force(upgrades.components(job));
                }
                Action::InjectBarrier(barrier) => self.inject(barrier),
                Action::Publish { epoch, ended, snapshots } => self.publish(epoch, ended, snapshots),
                Action::Discard { epoch } => {
                    self.injected.remove(&epoch);
                    if let Some(decider) = &self.attempted.committers.decider {
                        decider.discarded(epoch);
                    }
                    CheckpointDiscarded { epoch }.emit();
                }
                Action::Commit(permit) => self.commit(permit),
                Action::Retain { committed } => self.retain(committed),
                Action::Fail(reason) => {
                    if !matches!(reason, FailReason::Task { .. }) {
                        self.attempted.counters.checkpoint_figures().failed();
                    }
                    return Some(Err(reason));
                }
                Action::Finish { ended } => return Some(Ok(if ended { Ended::Input } else { Ended::Stopped })),
            }
        }
        None
    }

    fn inject(&mut self, barrier: Barrier) {
        self.injected.insert(barrier.epoch, Instant::now());
        self.asked.requests.injected(barrier.epoch);
        for source in &self.running.barriers {
            // There is room for all that may be in flight. A source that is gone has failed, which its task reports.
            let _ = source.try_send(barrier);
        }
    }

    fn publish(&mut self, epoch: Epoch, ended: bool, snapshots: BTreeMap<TaskId, Vec<Part>>) {
        let mut subtasks: BTreeMap<Name, BTreeMap<u32, _>> = BTreeMap::new();
        for (subtask, snapshot) in snapshots.into_values().flatten() {
            subtasks.entry(subtask.operator).or_default().insert(subtask.index, snapshot);
        }
        let operators = subtasks.into_iter().map(|(name, subtasks)| {
            let subtasks = subtasks.into_values().collect();
            let component = self.asked.upgrades.component(self.asked.job, &name, epoch);
            (name, OperatorCheckpoint { subtasks, component })
        });
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            job: self.attempted.job.clone(),
            job_uid: self.attempted.store.job_uid().clone(),
            slot: self.attempted.slot,
            epoch,
            attempt: self.attempted.attempt,
            created_ms: created.as_millis() as u64,
            ended,
            max_parallelism: self.attempted.max_parallelism,
            decision: self.attempted.committers.decider.as_ref().map(|decider| decider.place().clone()),
            operators: operators.collect(),
        };
        self.prepared.insert(epoch, Prepared::of(&manifest));
        // A file that several parts name is counted once.
        let files: BTreeMap<_, _> = manifest.files().map(|file| (&file.path, file.size_bytes)).collect();
        self.sizes.insert(epoch, files.values().sum());
        let store = self.attempted.store.clone();
        self.work.spawn(async move {
            crash::point("runtime.publish.before");
            Done::Published { epoch, receipt: store.publish(&manifest).await }
        });
    }

    fn commit(&mut self, permit: CommitPermit) {
        let epoch = permit.epoch();
        let prepared = self.prepared.remove(&epoch).expect("what is committed was published");
        let committers = self.attempted.committers.clone();
        self.work.spawn(async move {
            let work = tokio::task::spawn_blocking(move || {
                crash::point("runtime.commit.before");
                committers.commit(&permit, &prepared)
            });
            Done::Committed { epoch, outcome: work.await.expect("committing does not panic") }
        });
    }

    fn retain(&mut self, committed: Epoch) {
        let (store, keep) = (self.attempted.store.clone(), self.attempted.retain);
        let attempt = self.attempted.attempt;
        self.work.spawn(async move { Done::Retained(store.retain(committed, keep, attempt).await.map(drop)) });
    }
}
