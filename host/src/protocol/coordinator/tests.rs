//! The coordinator by example. Every order of events is in `interleavings.rs`.

use std::time::Duration;

use super::*;
use crate::protocol::decision::Digest;

mod interleavings;

const OPTIONS: CoordinatorOptions = CoordinatorOptions {
    interval: Duration::from_secs(10),
    min_pause: Duration::from_secs(3),
    timeout: Duration::from_secs(60),
    concurrent_max: NonZeroU32::MIN,
};
const SOURCE: TaskId = TaskId(0);
const SINK: TaskId = TaskId(1);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Of two tasks, `SOURCE` and `SINK`.
fn coordinator(last_published: Option<u64>) -> Coordinator<&'static str> {
    Coordinator::new(OPTIONS, [SOURCE, SINK].into(), [SOURCE].into(), last_published.map(Epoch), secs(0))
}

fn acked(task: TaskId, epoch: u64, changed: bool) -> Event<&'static str> {
    Event::Acked { task, epoch: Epoch(epoch), snapshot: "snapshot", changed }
}

fn barrier(epoch: u64, purpose: Purpose) -> Action<&'static str> {
    Action::InjectBarrier(Barrier { epoch: Epoch(epoch), purpose })
}

fn publish(epoch: u64, ended: bool) -> Action<&'static str> {
    Action::Publish { epoch: Epoch(epoch), ended, snapshots: [(SOURCE, "snapshot"), (SINK, "snapshot")].into() }
}

fn published(epoch: u64) -> Event<&'static str> {
    Event::Published(PublishReceipt::for_published(Epoch(epoch), Digest(epoch)))
}

fn commit(epoch: u64) -> Action<&'static str> {
    Action::Commit(CommitPermit::new(PublishReceipt::for_published(Epoch(epoch), Digest(epoch))))
}

#[test]
fn a_checkpoint_is_published_then_committed_then_the_next_one_is_due() {
    let mut coordinator = coordinator(Some(41));
    assert_eq!(coordinator.next_deadline(), Some(secs(10)));
    assert_eq!(coordinator.step(Event::Tick, secs(9)), []);
    assert_eq!(coordinator.step(Event::Tick, secs(10)), [barrier(42, Purpose::Continue)]);
    assert_eq!(coordinator.step(acked(SINK, 42, true), secs(11)), []);
    assert_eq!(coordinator.step(acked(SOURCE, 42, false), secs(12)), [publish(42, false)]);
    assert_eq!(coordinator.step(published(42), secs(13)), [commit(42)]);
    let retain = Action::Retain { committed: Epoch(42) };
    assert_eq!(coordinator.step(Event::Committed(Epoch(42)), secs(14)), [retain]);
    assert_eq!(coordinator.next_deadline(), Some(secs(20)));
    assert_eq!(coordinator.step(Event::Tick, secs(20)), [barrier(43, Purpose::Continue)]);
}

#[test]
fn a_slow_checkpoint_is_followed_by_the_minimum_pause() {
    let mut coordinator = coordinator(None);
    coordinator.step(Event::Tick, secs(10));
    coordinator.step(acked(SINK, 1, true), secs(30));
    coordinator.step(acked(SOURCE, 1, true), secs(30));
    coordinator.step(published(1), secs(31));
    coordinator.step(Event::Committed(Epoch(1)), secs(31));
    assert_eq!(coordinator.next_deadline(), Some(secs(34)));
}

#[test]
fn a_checkpoint_without_any_change_is_discarded_and_its_number_not_used_again() {
    let mut coordinator = coordinator(None);
    coordinator.step(Event::Tick, secs(10));
    coordinator.step(acked(SINK, 1, false), secs(11));
    let discard = Action::Discard { epoch: Epoch(1) };
    assert_eq!(coordinator.step(acked(SOURCE, 1, false), secs(11)), [discard]);
    assert_eq!(coordinator.step(Event::Tick, secs(20)), [barrier(2, Purpose::Continue)]);
}

#[test]
fn when_all_sources_have_ended_a_last_checkpoint_ends_the_job() {
    let mut coordinator = coordinator(None);
    assert_eq!(coordinator.step(Event::SourceEnded(SOURCE), secs(1)), [barrier(1, Purpose::Last)]);
    coordinator.step(acked(SOURCE, 1, true), secs(1));
    assert_eq!(coordinator.step(acked(SINK, 1, false), secs(1)), [publish(1, true)]);
    assert_eq!(coordinator.step(published(1), secs(1)), [commit(1)]);
    let end = [Action::Retain { committed: Epoch(1) }, Action::Finish { ended: true }];
    assert_eq!(coordinator.step(Event::Committed(Epoch(1)), secs(1)), end);
    assert_eq!(coordinator.next_deadline(), None);
}

#[test]
fn a_last_checkpoint_without_any_change_ends_the_job_without_a_manifest() {
    let mut coordinator = coordinator(Some(7));
    assert_eq!(coordinator.step(Event::StopRequested, secs(1)), [barrier(8, Purpose::Last)]);
    coordinator.step(acked(SOURCE, 8, false), secs(1));
    let end = [Action::Discard { epoch: Epoch(8) }, Action::Finish { ended: false }];
    assert_eq!(coordinator.step(acked(SINK, 8, false), secs(1)), end);
}

#[test]
fn a_stop_waits_for_the_checkpoint_in_flight() {
    let mut coordinator = coordinator(None);
    coordinator.step(Event::Tick, secs(10));
    assert_eq!(coordinator.step(Event::StopRequested, secs(11)), []);
    coordinator.step(acked(SOURCE, 1, true), secs(11));
    coordinator.step(acked(SINK, 1, true), secs(11));
    coordinator.step(published(1), secs(12));
    let next = [Action::Retain { committed: Epoch(1) }, barrier(2, Purpose::Last)];
    assert_eq!(coordinator.step(Event::Committed(Epoch(1)), secs(12)), next);
}

#[test]
fn each_step_of_a_checkpoint_has_its_own_time() {
    let mut snapshots = coordinator(None);
    snapshots.step(Event::Tick, secs(10));
    snapshots.step(acked(SOURCE, 1, true), secs(11));
    assert_eq!(snapshots.next_deadline(), Some(secs(70)));
    let missing = FailReason::SnapshotTimeout { epoch: Epoch(1), waited: secs(60), missing: [SINK].into() };
    assert_eq!(snapshots.step(Event::Tick, secs(70)), [Action::Fail(missing)]);
    assert_eq!(snapshots.step(acked(SINK, 1, true), secs(71)), [], "an ack comes too late");

    let mut publishes = coordinator(None);
    publishes.step(Event::Tick, secs(10));
    publishes.step(acked(SOURCE, 1, true), secs(11));
    // Even at the deadline of the snapshots: what has arrived is used.
    assert_eq!(publishes.step(acked(SINK, 1, true), secs(70)), [publish(1, false)]);
    let mut commits = publishes.clone();
    let late = FailReason::PublishTimeout { epoch: Epoch(1), waited: secs(60) };
    assert_eq!(publishes.step(Event::Tick, secs(130)), [Action::Fail(late)]);
    assert_eq!(publishes.step(published(1), secs(131)), [], "the next attempt will find the manifest");

    commits.step(published(1), secs(71));
    let late = FailReason::CommitTimeout { epoch: Epoch(1), waited: secs(60) };
    assert_eq!(commits.step(Event::Tick, secs(131)), [Action::Fail(late)]);
}

#[test]
fn a_checkpoint_that_is_asked_for_is_taken_at_once_and_published_though_nothing_has_changed() {
    let mut coordinator = coordinator(None);
    assert_eq!(coordinator.step(Event::CheckpointRequested, secs(1)), [barrier(1, Purpose::Continue)]);
    coordinator.step(acked(SINK, 1, false), secs(1));
    assert_eq!(coordinator.step(acked(SOURCE, 1, false), secs(1)), [publish(1, false)]);
    // A request that comes meanwhile is for the next one, which waits until this one is over.
    assert_eq!(coordinator.step(Event::CheckpointRequested, secs(2)), []);
    assert_eq!(coordinator.step(published(1), secs(2)), [commit(1)]);
    let next = [Action::Retain { committed: Epoch(1) }, barrier(2, Purpose::Continue)];
    assert_eq!(coordinator.step(Event::Committed(Epoch(1)), secs(2)), next);
    assert_eq!(coordinator.next_deadline(), Some(secs(62)), "of the snapshots: nothing more is asked for");
}

#[test]
fn the_last_checkpoint_is_published_if_one_is_asked_for_before_it() {
    let mut coordinator = concurrent(1);
    coordinator.step(Event::Tick, secs(10));
    assert_eq!(coordinator.step(Event::CheckpointRequested, secs(11)), []);
    assert_eq!(coordinator.step(Event::StopRequested, secs(11)), []);
    coordinator.step(acked(SOURCE, 1, false), secs(11));
    let last = [Action::Discard { epoch: Epoch(1) }, barrier(2, Purpose::Last)];
    assert_eq!(coordinator.step(acked(SINK, 1, false), secs(11)), last);
    coordinator.step(acked(SOURCE, 2, false), secs(12));
    assert_eq!(coordinator.step(acked(SINK, 2, false), secs(12)), [publish(2, false)]);
}

/// Of two tasks, with up to `concurrent_max` checkpoints in flight.
fn concurrent(concurrent_max: u32) -> Coordinator<&'static str> {
    let concurrent_max = NonZeroU32::new(concurrent_max).expect("at least 1");
    let options = CoordinatorOptions { min_pause: secs(0), concurrent_max, ..OPTIONS };
    Coordinator::new(options, [SOURCE, SINK].into(), [SOURCE].into(), None, secs(0))
}

#[test]
fn several_checkpoints_collect_snapshots_at_once_and_are_decided_in_their_order() {
    let mut coordinator = concurrent(2);
    assert_eq!(coordinator.step(Event::Tick, secs(10)), [barrier(1, Purpose::Continue)]);
    assert_eq!(coordinator.next_deadline(), Some(secs(20)));
    assert_eq!(coordinator.step(Event::Tick, secs(20)), [barrier(2, Purpose::Continue)]);
    assert_eq!(coordinator.next_deadline(), Some(secs(70)), "no third one before the first is over");
    assert_eq!(coordinator.step(acked(SOURCE, 2, true), secs(21)), []);
    assert_eq!(coordinator.step(acked(SINK, 2, true), secs(22)), [], "the second waits for the first");
    coordinator.step(acked(SOURCE, 1, true), secs(31));
    assert_eq!(coordinator.step(acked(SINK, 1, true), secs(31)), [publish(1, false)]);
    assert_eq!(coordinator.step(published(1), secs(32)), [commit(1)]);
    let next = [Action::Retain { committed: Epoch(1) }, publish(2, false), barrier(3, Purpose::Continue)];
    assert_eq!(coordinator.step(Event::Committed(Epoch(1)), secs(33)), next);
}

#[test]
fn each_checkpoint_in_flight_has_its_own_time() {
    let mut coordinator = concurrent(3);
    coordinator.step(Event::Tick, secs(10));
    coordinator.step(Event::Tick, secs(20));
    coordinator.step(acked(SOURCE, 1, true), secs(21));
    coordinator.step(acked(SINK, 1, true), secs(21));
    coordinator.step(Event::Tick, secs(30));
    coordinator.step(published(1), secs(31));
    coordinator.step(Event::Committed(Epoch(1)), secs(32));
    coordinator.step(acked(SINK, 2, true), secs(40));
    coordinator.step(Event::Tick, secs(40));
    let missing = FailReason::SnapshotTimeout { epoch: Epoch(2), waited: secs(60), missing: [SOURCE].into() };
    assert_eq!(coordinator.step(Event::Tick, secs(80)), [Action::Fail(missing)]);
}

#[test]
fn the_last_checkpoint_may_be_taken_beside_others_and_none_follows_it() {
    let mut coordinator = concurrent(3);
    coordinator.step(Event::Tick, secs(10));
    assert_eq!(coordinator.step(Event::StopRequested, secs(11)), [barrier(2, Purpose::Last)]);
    assert_eq!(coordinator.step(Event::Tick, secs(40)), []);
    for (task, epoch) in [(SINK, 2), (SOURCE, 2), (SINK, 1)] {
        assert_eq!(coordinator.step(acked(task, epoch, false), secs(41)), []);
    }
    let end =
        [Action::Discard { epoch: Epoch(1) }, Action::Discard { epoch: Epoch(2) }, Action::Finish { ended: false }];
    assert_eq!(coordinator.step(acked(SOURCE, 1, false), secs(42)), end);
}

#[test]
fn a_second_ack_of_a_task_counts_once() {
    let mut coordinator = coordinator(None);
    coordinator.step(Event::Tick, secs(10));
    coordinator.step(acked(SOURCE, 1, true), secs(11));
    assert_eq!(coordinator.step(acked(SOURCE, 1, true), secs(11)), []);
}

#[test]
#[should_panic(expected = "nobody asked for it")]
fn a_receipt_that_nobody_asked_for_is_a_bug() {
    coordinator(None).step(published(1), secs(1));
}

#[test]
#[should_panic(expected = "was injected before")]
fn an_ack_of_an_epoch_that_never_was_is_a_bug() {
    coordinator(Some(3)).step(acked(SINK, 4, true), secs(1));
}
