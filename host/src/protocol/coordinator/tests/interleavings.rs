//! Every order in which the world can answer a coordinator of two tasks, over a bounded number of steps.

use super::*;

/// Later than anything may be, and more than all steps before it take.
const LATE_SECS: u64 = 1_000;

/// What the world around the coordinator knows: which answers are still to come, and what the rules say of the rest.
#[derive(Clone, Default)]
struct World {
    concurrent_max: usize,
    /// Tasks that have a barrier and haven't acknowledged it.
    owing: BTreeSet<(Epoch, TaskId)>,
    /// Acks that were delayed: they come after their epoch is over, or twice.
    delayed: Vec<(TaskId, Epoch)>,
    injected: Vec<Barrier>,
    changed: BTreeSet<Epoch>,
    publishing: Option<Epoch>,
    committing: Option<Epoch>,
    published: Vec<Epoch>,
    committed: Vec<Epoch>,
    discarded: Vec<Epoch>,
    sources_ended: bool,
    stop_requested: bool,
    over: bool,
    now: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Tick,
    LateTick,
    Ack(Epoch, TaskId, bool),
    DelayedAck(usize),
    SnapshotFails(Epoch, TaskId),
    SourceEnds,
    Stop,
    Publishes,
    PublishFails,
    Commits,
    CommitFails,
    TaskFails,
}

impl World {
    fn answers(&self) -> Vec<Answer> {
        let mut answers = vec![Answer::TaskFails];
        // While no further checkpoint may be in flight a tick says nothing; to see that once is enough.
        if self.in_flight() < self.concurrent_max || self.owing.len() == 1 {
            answers.push(Answer::Tick);
        }
        for &(epoch, task) in &self.owing {
            let acks = [true, false].map(|changed| Answer::Ack(epoch, task, changed));
            answers.extend(acks.into_iter().chain([Answer::SnapshotFails(epoch, task)]));
        }
        answers.extend((0..self.delayed.len()).map(Answer::DelayedAck));
        if !self.owing.is_empty() || self.publishing.is_some() || self.committing.is_some() {
            answers.push(Answer::LateTick);
        }
        if !self.sources_ended {
            answers.push(Answer::SourceEnds);
        }
        if !self.stop_requested {
            answers.push(Answer::Stop);
        }
        if self.publishing.is_some() {
            answers.extend([Answer::Publishes, Answer::PublishFails]);
        }
        if self.committing.is_some() {
            answers.extend([Answer::Commits, Answer::CommitFails]);
        }
        answers
    }

    fn event(&mut self, answer: Answer) -> Event<&'static str> {
        let reason = String::new;
        let epoch = self.injected.last().map_or(Epoch(0), |barrier| barrier.epoch);
        match answer {
            Answer::Tick => {
                self.now += if self.in_flight() < self.concurrent_max { 10 } else { 1 };
                Event::Tick
            }
            Answer::LateTick => {
                self.now += LATE_SECS;
                Event::Tick
            }
            Answer::Ack(epoch, task, changed) => {
                self.owing.remove(&(epoch, task));
                if changed {
                    self.changed.insert(epoch);
                }
                if self.delayed.is_empty() {
                    self.delayed.push((task, epoch));
                }
                acked(task, epoch.0, changed)
            }
            Answer::DelayedAck(index) => {
                let (task, epoch) = self.delayed.remove(index);
                acked(task, epoch.0, true)
            }
            Answer::SnapshotFails(epoch, task) => Event::SnapshotFailed { task, epoch, reason: reason() },
            Answer::SourceEnds => {
                self.sources_ended = true;
                Event::SourceEnded(SOURCE)
            }
            Answer::Stop => {
                self.stop_requested = true;
                Event::StopRequested
            }
            Answer::Publishes => {
                let epoch = self.publishing.take().expect("asked for");
                self.published.push(epoch);
                published(epoch.0)
            }
            Answer::PublishFails => Event::PublishFailed { epoch, reason: reason() },
            Answer::Commits => {
                let epoch = self.committing.take().expect("asked for");
                self.committed.push(epoch);
                Event::Committed(epoch)
            }
            Answer::CommitFails => Event::CommitFailed { epoch, reason: reason() },
            Answer::TaskFails => Event::TaskFailed { task: SINK, reason: reason() },
        }
    }

    fn in_flight(&self) -> usize {
        self.injected.len() - self.committed.len() - self.discarded.len()
    }

    /// The oldest epoch in flight.
    fn oldest(&self) -> Option<Epoch> {
        let is_over = |epoch: &Epoch| self.committed.contains(epoch) || self.discarded.contains(epoch);
        self.injected.iter().map(|barrier| barrier.epoch).find(|epoch| !is_over(epoch))
    }

    fn is_whole(&self, epoch: Epoch) -> bool {
        self.owing.iter().all(|(owed, _)| *owed != epoch)
    }

    /// Does what is asked, and checks that it may be asked.
    fn perform(&mut self, action: Action<&'static str>) {
        assert!(!self.over, "{action:?} after the end");
        match action {
            // Those are in the tests of upgrades.
            Action::Swap { .. } | Action::Adopt(_) => panic!("nobody asked for an upgrade"),
            Action::InjectBarrier(barrier) => {
                assert!(self.in_flight() < self.concurrent_max, "no more checkpoints at a time than are allowed");
                let newest = self.injected.last().map_or(Epoch(5), |barrier| barrier.epoch);
                assert_eq!(barrier.epoch, newest.next());
                let last = self.stop_requested || self.sources_ended;
                assert_eq!(barrier.purpose == Purpose::Last, last);
                self.injected.push(barrier);
                self.owing.extend([SOURCE, SINK].map(|task| (barrier.epoch, task)));
            }
            Action::Publish { epoch, ended, snapshots } => {
                assert!(self.is_whole(epoch) && snapshots.len() == 2, "only what is whole is published");
                assert!(self.changed.contains(&epoch), "only what has changed is published");
                assert_eq!(self.published, self.committed, "the publish before is committed");
                assert_eq!(Some(epoch), self.oldest(), "epochs are decided in their order");
                assert!(!ended || self.sources_ended);
                self.publishing = Some(epoch);
            }
            Action::Discard { epoch } => {
                let is_same = !self.changed.contains(&epoch);
                assert!(self.is_whole(epoch) && is_same, "only what is whole and the same is discarded");
                assert_eq!(Some(epoch), self.oldest(), "epochs are decided in their order");
                self.discarded.push(epoch);
            }
            Action::Commit(permit) => {
                assert_eq!(Some(&permit.epoch()), self.published.last());
                self.committing = Some(permit.epoch());
            }
            Action::Retain { committed } => assert_eq!(Some(&committed), self.committed.last()),
            Action::Fail(_) => self.over = true,
            Action::Finish { ended } => {
                assert_eq!(self.injected.last().map(|barrier| barrier.purpose), Some(Purpose::Last));
                assert_eq!(self.in_flight(), 0);
                assert!(ended || self.stop_requested, "a job ends when its input does or when it is told to");
                self.over = true;
            }
        }
    }
}

fn explore(coordinator: &Coordinator<&'static str>, world: &World, steps_left: u32, ends: &mut BTreeMap<bool, u64>) {
    if steps_left == 0 {
        *ends.entry(world.over).or_default() += 1;
        return;
    }
    for answer in world.answers() {
        let (mut coordinator, mut world) = (coordinator.clone(), world.clone());
        let event = world.event(answer);
        let failure = matches!(
            answer,
            Answer::SnapshotFails(..)
                | Answer::PublishFails
                | Answer::CommitFails
                | Answer::TaskFails
                | Answer::LateTick
        );
        let was_over = world.over;
        let actions = coordinator.step(event, secs(world.now));
        let failed = actions.iter().any(|action| matches!(action, Action::Fail(_)));
        assert_eq!(failed, failure && !was_over, "{answer:?} gives {actions:?}");
        for action in actions {
            world.perform(action);
        }
        assert_eq!(coordinator.next_deadline().is_none(), world.over);
        // What comes after the end does nothing, whatever it is: one more step shows it.
        let left = if world.over { steps_left.min(2) } else { steps_left };
        explore(&coordinator, &world, left - 1, ends);
    }
}

/// Every order of so many answers, with up to `concurrent_max` checkpoints in flight.
fn explore_all(concurrent_max: u32, steps: u32) {
    let most = NonZeroU32::new(concurrent_max).expect("at least 1");
    let options = CoordinatorOptions { timeout: secs(LATE_SECS), concurrent_max: most, ..OPTIONS };
    let coordinator = Coordinator::new(options, [SOURCE, SINK].into(), [SOURCE].into(), Some(Epoch(5)), secs(0));
    let world = World { concurrent_max: concurrent_max as usize, ..World::default() };
    let mut ends = BTreeMap::new();
    explore(&coordinator, &world, steps, &mut ends);
    assert!(ends.values().all(|&paths| paths > 1_000), "{ends:?}");
}

#[test]
fn whatever_the_order_of_answers_the_rules_hold() {
    explore_all(1, 10);
}

#[test]
fn with_several_checkpoints_in_flight_the_rules_hold_as_well() {
    explore_all(2, 8);
    explore_all(3, 7);
}
