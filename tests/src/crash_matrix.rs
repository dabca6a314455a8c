//! Kills a word count at named points, one run after the other, and compares what comes out in the end.

use std::path::{Path, PathBuf};

use crate::reference::{Mismatch, part_files};
use crate::word_count::WordCount;

/// Enough that the job takes several checkpoints.
const TEXT_BYTES: u64 = 1_500_000;

/// Runs one job through crashes at `points` in turn (`name`, or `name:3` for its third time), each with new input, and then
/// to its end. Gives how many of the points were reached. A job that promises only at-most-once may lose records.
///
/// # Panics
/// If the output isn't exact, or a run fails otherwise than by its crash.
pub fn crash_in_turn(points: &[String]) -> usize {
    let job = job(points);
    let reached = crash_job_in_turn(&job, points);
    finish(&job, points);
    reached
}

/// As [`crash_in_turn`], for points that are reached only by a run that takes up what a killed one has left.
///
/// # Panics
/// As [`crash_in_turn`].
pub fn crash_in_turn_after_kill(points: &[String]) -> usize {
    let job = job(points);
    job.add_text("first.txt", 1, TEXT_BYTES);
    let mut running = job.folder.start();
    running.wait_until("the first committed output", || has_output(&job));
    running.kill();
    running.wait();
    let reached = crash_job_in_turn(&job, points);
    finish(&job, points);
    reached
}

/// The job that comes by these points: progress is recorded only at-most-once.
fn job(points: &[String]) -> WordCount {
    let job = WordCount::new().interval("5ms").little_state_memory();
    if is_at_most_once(points) { job.guarantee("at-most-once") } else { job }
}

fn is_at_most_once(points: &[String]) -> bool {
    points.iter().any(|point| point.starts_with("store.progress."))
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
    match job.totals().check(&job.output()) {
        Ok(_) => {}
        Err(Mismatch::Missing { .. }) if is_at_most_once(points) => {}
        Err(mismatch) => panic!("after {points:?} the output isn't exact: {mismatch:?}"),
    }
    for place in ["output/.lockgate/staging", "state/work"] {
        let left = files_below(&job.folder.path(place));
        assert!(left.is_empty(), "after {points:?} there are leftovers: {left:?}");
    }
}

/// All files below a folder; none if it isn't there.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn has_output(job: &WordCount) -> bool {
    part_files(&job.output()).is_ok_and(|files| !files.is_empty())
}
