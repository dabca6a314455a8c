//! Kills a word count at named points, one run after the other, and compares what comes out in the end.

use crate::reference::part_files;
use crate::word_count::WordCount;

/// Enough that the job takes several checkpoints.
const TEXT_BYTES: u64 = 1_500_000;

/// Runs one job through crashes at `points` in turn (`name`, or `name:3` for its third time), each with new input, and then
/// to its end. Gives how many of the points were reached.
///
/// # Panics
/// If the output isn't exact, or a run fails otherwise than by its crash.
pub fn crash_in_turn(points: &[String]) -> usize {
    let job = WordCount::new().interval("5ms").little_state_memory();
    let reached = crash_job_in_turn(&job, points);
    finish(&job, points);
    reached
}

/// As [`crash_in_turn`], for points that are reached only by a run that takes up what a killed one has left.
///
/// # Panics
/// As [`crash_in_turn`].
pub fn crash_in_turn_after_kill(points: &[String]) -> usize {
    let job = WordCount::new().interval("5ms").little_state_memory();
    job.add_text("first.txt", 1, TEXT_BYTES);
    let mut running = job.folder.start();
    running.wait_until("the first committed output", || has_output(&job));
    running.kill();
    running.wait();
    let reached = crash_job_in_turn(&job, points);
    finish(&job, points);
    reached
}

fn crash_job_in_turn(job: &WordCount, points: &[String]) -> usize {
    let mut reached = 0;
    for (turn, point) in points.iter().enumerate() {
        job.add_text(&format!("turn-{turn}.txt"), turn as u64, TEXT_BYTES);
        let finished = job.folder.run_to_crash_point(point);
        if finished.was_killed() {
            reached += 1;
        } else {
            assert!(finished.status.success(), "after {:?}: {}\n{}", &points[..turn], finished.status, finished.stderr);
        }
    }
    reached
}

fn finish(job: &WordCount, points: &[String]) {
    job.add_text("last.txt", 99, TEXT_BYTES);
    let finished = job.folder.run();
    assert!(finished.status.success(), "after {points:?}: {}\n{}", finished.status, finished.stderr);
    if let Err(mismatch) = job.totals().check(&job.output()) {
        panic!("after {points:?} the output isn't exact: {mismatch:?}");
    }
}

fn has_output(job: &WordCount) -> bool {
    part_files(&job.output()).is_ok_and(|files| !files.is_empty())
}
