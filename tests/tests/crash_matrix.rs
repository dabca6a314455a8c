//! The output is exact whatever named point of a checkpoint or of a recovery the process is killed at.

use std::sync::Mutex;
use std::thread;

use lockgate_tests::{Words, crash_in_turn, crash_in_turn_after_kill, crash_points_without_kafka};

/// One for each core of a small machine.
const WORKERS: usize = 2;
/// Pairs of different points that continuous integration tries; `tests/campaign.sh pairs` tries all.
const PAIRS: usize = 24;

/// Calls `try_one` with each item, in several threads.
fn with_each<T: Send + Sync>(items: Vec<T>, try_one: impl Fn(&T) + Sync) {
    let queue = Mutex::new(items.into_iter());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let item = queue.lock().expect("taking an item doesn't panic").next();
                    let Some(item) = item else { break };
                    try_one(&item);
                }
            });
        }
    });
}

#[test]
fn the_output_is_exact_after_crashes_at_each_point_twice_in_a_row() {
    let points = crash_points_without_kafka();
    assert!(!points.is_empty(), "the host has crash points");
    with_each(points, |point| {
        let turns = [point.clone(), point.clone(), format!("{point}:2")];
        let reached = crash_in_turn(&turns) + crash_in_turn_after_kill(&turns);
        assert!(reached > 0, "no run ever comes by the crash point {point}");
    });
}

#[test]
fn the_output_is_exact_after_a_crash_at_one_point_and_then_at_another() {
    let points = crash_points_without_kafka();
    let mut chance = Words::new(7);
    let mut any = || points[chance.below(points.len() as u64) as usize].clone();
    let pairs = (0..PAIRS).map(|_| [any(), any()]).collect();
    with_each(pairs, |pair| {
        crash_in_turn(pair);
    });
}
