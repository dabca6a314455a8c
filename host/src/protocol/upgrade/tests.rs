//! An upgrade by example, and every order in which the world can answer a coordinator that has one on trial.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::*;
use crate::id::TaskId;
use crate::protocol::decision::Digest;
use crate::protocol::{Action, Coordinator, CoordinatorOptions, Event, PublishReceipt};

const TASK: TaskId = TaskId(0);
const PROBATION: Duration = Duration::from_secs(30);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn coordinator(concurrent_max: u32) -> Coordinator<()> {
    let options = CoordinatorOptions {
        interval: secs(10),
        min_pause: secs(0),
        timeout: secs(1_000),
        concurrent_max: NonZeroU32::new(concurrent_max).expect("at least 1"),
    };
    Coordinator::new(options, [TASK].into(), [TASK].into(), None, secs(0))
}

fn acked(epoch: u64) -> Event<()> {
    Event::Acked { task: TASK, epoch: Epoch(epoch), snapshot: (), changed: false }
}

fn published(epoch: u64) -> Event<()> {
    Event::Published(PublishReceipt::for_published(Epoch(epoch), Digest(epoch)))
}

fn barrier(epoch: u64, purpose: Purpose) -> Barrier {
    Barrier { epoch: Epoch(epoch), purpose }
}

/// What the coordinator asks for from an epoch's ack to its commit, at one time.
fn finish(coordinator: &mut Coordinator<()>, epoch: u64, now: Duration) -> Vec<Action<()>> {
    let publish = coordinator.step(acked(epoch), now);
    assert!(matches!(publish[..], [Action::Publish { .. }]), "also if nothing has changed: {publish:?}");
    coordinator.step(published(epoch), now);
    coordinator.step(Event::Committed(Epoch(epoch)), now)
}

#[test]
fn it_swaps_at_once_is_tried_for_its_probation_and_adopted_with_the_next_commit() {
    let mut coordinator = coordinator(1);
    let swap = coordinator.step(Event::UpgradeRequested { probation: PROBATION }, secs(1));
    assert_eq!(swap, [Action::Swap { epoch: Epoch(1) }, Action::InjectBarrier(barrier(1, Purpose::Continue))]);
    assert_eq!(finish(&mut coordinator, 1, secs(2)), [Action::Retain { committed: Epoch(1) }]);
    assert_eq!(coordinator.next_deadline(), Some(secs(32)));
    assert_eq!(coordinator.step(Event::CheckpointRequested, secs(31)), [], "that one waits as well");
    let proof = coordinator.step(Event::Tick, secs(32));
    assert_eq!(proof, [Action::InjectBarrier(barrier(2, Purpose::Continue))]);
    let adopted = Adopted { swapped_at: Epoch(1), adopted_at: Epoch(2) };
    let end = [Action::Adopt(adopted), Action::Retain { committed: Epoch(2) }];
    assert_eq!(finish(&mut coordinator, 2, secs(33)), end);
    assert_eq!(coordinator.next_deadline(), Some(secs(42)), "and all goes on as ever");
}

#[test]
fn a_stop_doesnt_wait_for_the_probation_and_adopts() {
    let mut coordinator = coordinator(1);
    coordinator.step(Event::UpgradeRequested { probation: PROBATION }, secs(1));
    finish(&mut coordinator, 1, secs(2));
    let last = coordinator.step(Event::StopRequested, secs(3));
    assert_eq!(last, [Action::InjectBarrier(barrier(2, Purpose::Last))]);
    let end = finish(&mut coordinator, 2, secs(4));
    assert_eq!(end[0], Action::Adopt(Adopted { swapped_at: Epoch(1), adopted_at: Epoch(2) }));
    assert_eq!(end.last(), Some(&Action::Finish { ended: false }));
}

#[test]
fn a_job_that_stops_before_the_swap_doesnt_swap() {
    let mut coordinator = coordinator(1);
    coordinator.step(Event::CheckpointRequested, secs(1));
    assert_eq!(coordinator.step(Event::UpgradeRequested { probation: PROBATION }, secs(1)), []);
    coordinator.step(Event::StopRequested, secs(1));
    let last = finish(&mut coordinator, 1, secs(2));
    assert_eq!(last.last(), Some(&Action::InjectBarrier(barrier(2, Purpose::Last))));
}

#[test]
fn the_component_of_the_decided_manifest_is_in_force() {
    assert_eq!(in_force("new", Some("new")), InForce::New);
    assert_eq!(in_force("new", Some("old")), InForce::Old);
    assert_eq!(in_force("new", None), InForce::Old, "of an older host, or no manifest at all");
}

#[test]
fn what_the_store_alone_can_not_know_is_left_to_the_recovery() {
    let decided = |component| Stored { component: Some(component), is_decided: true };
    let open = |component| Stored { component: Some(component), is_decided: false };
    let told = |checkpoints: &[Stored<'static>]| in_force_by_store("new", checkpoints.iter().copied());
    assert_eq!(told(&[decided("new"), decided("old")]), Some(InForce::New));
    assert_eq!(told(&[decided("old")]), Some(InForce::Old));
    assert_eq!(told(&[open("new"), decided("old")]), None, "it may be withdrawn");
    assert_eq!(told(&[open("old"), decided("new")]), None);
    assert_eq!(told(&[open("new"), decided("new"), decided("old")]), Some(InForce::New), "either way");
    assert_eq!(told(&[open("old"), decided("old")]), Some(InForce::Old), "either way");
    assert_eq!(told(&[]), Some(InForce::Old));
    assert_eq!(told(&[open("old")]), Some(InForce::Old));
    assert_eq!(told(&[open("new")]), None, "it may begin again");
}

/// What the world around the coordinator knows, and what the rules say of the rest.
#[derive(Clone, Debug, Default)]
struct World {
    concurrent_max: usize,
    owing: BTreeSet<Epoch>,
    publishing: Option<Epoch>,
    committing: Option<Epoch>,
    injected: Vec<Barrier>,
    committed: BTreeMap<Epoch, u64>,
    requested: bool,
    swapped_at: Option<Epoch>,
    adopted: Option<Adopted>,
    asked_for_checkpoint: bool,
    stop_requested: bool,
    over: bool,
    now: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    /// So many seconds pass.
    Tick(u64),
    Ack(Epoch),
    Publishes,
    Commits,
    Stop,
    Upgrade,
    Checkpoint,
    Fails,
}

impl World {
    fn answers(&self) -> Vec<Answer> {
        let mut answers = vec![Answer::Tick(7), Answer::Tick(30), Answer::Fails];
        answers.extend(self.owing.iter().map(|&epoch| Answer::Ack(epoch)));
        answers.extend(self.publishing.map(|_| Answer::Publishes));
        answers.extend(self.committing.map(|_| Answer::Commits));
        answers.extend((!self.stop_requested).then_some(Answer::Stop));
        answers.extend((!self.requested).then_some(Answer::Upgrade));
        answers.extend((!self.asked_for_checkpoint).then_some(Answer::Checkpoint));
        answers
    }

    fn event(&mut self, answer: Answer) -> Event<()> {
        match answer {
            Answer::Tick(passed) => {
                self.now += passed;
                Event::Tick
            }
            Answer::Ack(epoch) => {
                self.owing.remove(&epoch);
                acked(epoch.0)
            }
            Answer::Publishes => published(self.publishing.take().expect("asked for").0),
            Answer::Commits => {
                let epoch = self.committing.take().expect("asked for");
                self.committed.insert(epoch, self.now);
                Event::Committed(epoch)
            }
            Answer::Stop => {
                self.stop_requested = true;
                Event::StopRequested
            }
            Answer::Upgrade => {
                self.requested = true;
                Event::UpgradeRequested { probation: PROBATION }
            }
            Answer::Checkpoint => {
                self.asked_for_checkpoint = true;
                Event::CheckpointRequested
            }
            Answer::Fails => Event::TaskFailed { task: TASK, reason: String::new() },
        }
    }

    /// Does what is asked, and checks that it may be asked.
    fn perform(&mut self, action: &Action<()>) {
        assert!(!self.over, "{action:?} after the end");
        match action {
            Action::Swap { epoch } => {
                assert!(self.requested && self.swapped_at.is_none(), "one swap for one request");
                assert!(self.injected.iter().all(|barrier| barrier.epoch < *epoch), "before its barrier is under way");
                self.swapped_at = Some(*epoch);
            }
            Action::InjectBarrier(barrier) => self.inject(*barrier),
            Action::Publish { epoch, .. } => self.publishing = Some(*epoch),
            Action::Discard { epoch } => {
                let proof = self.swapped_at.map(Epoch::next);
                assert!(Some(*epoch) != self.swapped_at && Some(*epoch) != proof, "those of an upgrade are published");
            }
            Action::Commit(permit) => self.committing = Some(permit.epoch()),
            Action::Adopt(adopted) => {
                let swap = self.swapped_at.expect("only what was swapped is adopted");
                assert_eq!(*adopted, Adopted { swapped_at: swap, adopted_at: swap.next() });
                assert!(self.committed.contains_key(&swap) && self.committed.contains_key(&swap.next()));
                assert!(self.adopted.replace(*adopted).is_none(), "once");
            }
            Action::Retain { .. } => {}
            Action::Fail(_) | Action::Finish { .. } => self.over = true,
        }
    }

    fn inject(&mut self, barrier: Barrier) {
        if let Some(swap) = self.swapped_at.filter(|swap| barrier.epoch == swap.next()) {
            let over = self.committed.get(&swap).is_some_and(|committed| self.now >= committed + PROBATION.as_secs());
            assert!(over || barrier.purpose == Purpose::Last, "{barrier:?} comes in the probation of {swap}");
        }
        let swaps = self.swapped_at == Some(barrier.epoch);
        assert!(!swaps || barrier.purpose == Purpose::Continue, "the stream goes on behind a swap");
        if self.requested && barrier.purpose == Purpose::Continue {
            assert!(self.swapped_at.is_some(), "the first barrier behind the request swaps");
        }
        self.injected.push(barrier);
        self.owing.insert(barrier.epoch);
        assert!(self.injected.len() <= self.committed.len() + self.concurrent_max + DISCARDED_MAX);
    }
}

/// A run of some steps has no more checkpoints without a change than this.
const DISCARDED_MAX: usize = 8;

/// Every order of so many answers, each state of coordinator and world looked at once. Gives how many adopted, and how many ended before.
fn explore_all(concurrent_max: u32, steps: u32) -> (u64, u64) {
    let world = World { concurrent_max: concurrent_max as usize, ..World::default() };
    let mut states = vec![(coordinator(concurrent_max), world)];
    let (mut adopted, mut over) = (0, 0);
    for _ in 0..steps {
        let (mut next, mut seen) = (Vec::new(), BTreeSet::new());
        for (before, world_before) in &states {
            for answer in world_before.answers() {
                let (mut coordinator, mut world) = (before.clone(), world_before.clone());
                let event = world.event(answer);
                let actions = coordinator.step(event, secs(world.now));
                actions.iter().for_each(|action| world.perform(action));
                let fails = actions.iter().any(|action| matches!(action, Action::Fail(_)));
                assert_eq!(fails, answer == Answer::Fails, "{answer:?} gives {actions:?}");
                adopted += u64::from(world.adopted.is_some() && world_before.adopted.is_none());
                if world.over {
                    over += u64::from(world.adopted.is_none());
                } else if seen.insert(format!("{coordinator:?}{world:?}")) {
                    next.push((coordinator, world));
                }
            }
        }
        states = next;
    }
    (adopted, over)
}

#[test]
fn whatever_the_order_of_answers_an_upgrade_is_swapped_once_and_proved_by_the_next_checkpoint() {
    for concurrent_max in [1, 2] {
        let (adopted, over) = explore_all(concurrent_max, 10);
        assert!(adopted > 10 && over > 100, "{adopted} adopted, {over} over before");
    }
}
