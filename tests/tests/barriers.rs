//! Every way to align barriers, through the real binary: the output is exact after kills, with another parallelism each time.

use std::fs;
use std::path::Path;

use lockgate_tests::{JobFolder, WordCount, operator, part_files};

/// What is added for each run. It takes a run a few seconds on one core, and no run lives so long.
const TEXT_BYTES: u64 = 6_000_000;

/// The number of files of records in flight anywhere below a folder.
fn in_flight_files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let count = |path: std::path::PathBuf| {
        let is_one = path.file_name().is_some_and(|name| name.to_string_lossy().contains("in-flight"));
        if path.is_dir() { in_flight_files(&path) } else { usize::from(is_one) }
    };
    paths.map(count).sum()
}

/// Kills a job after its first new output, again and again, and lets it go on with another number of subtasks. Gives how many
/// files of records in flight were seen at the kills.
fn kill_and_rescale(barriers: &'static str) -> usize {
    let mut job = WordCount::new().interval("30ms").barriers(barriers);
    let mut in_flight = 0;
    for (number, parallelism) in [1, 2, 3, 1, 3, 2].into_iter().enumerate() {
        job.rescale(parallelism);
        job.add_text(&format!("{number}.txt"), number as u64 + 1, TEXT_BYTES);
        let parts = || part_files(&job.output()).map(|parts| parts.len()).unwrap_or_default();
        let before = parts();
        let mut running = job.folder.start();
        running.wait_until("new output", || parts() > before);
        running.kill();
        running.wait();
        in_flight += in_flight_files(&job.folder.path("state"));
    }
    job.rescale(1);
    job.folder.run().assert_success();
    job.assert_exact();
    in_flight
}

#[test]
fn barriers_that_overtake_lose_and_double_nothing_whatever_the_parallelism_becomes() {
    let in_flight = kill_and_rescale("alignment = \"unaligned\"");
    assert!(in_flight > 0, "no barrier has overtaken anything, so this tests nothing");
}

#[test]
fn barriers_that_overtake_after_a_time_lose_and_double_nothing_either() {
    kill_and_rescale("alignment = \"unaligned\"\nalignment_timeout = \"5ms\"");
}

#[test]
fn several_checkpoints_at_a_time_lose_and_double_nothing() {
    let in_flight = kill_and_rescale("max_concurrent = 3");
    assert_eq!(in_flight, 0, "aligned barriers leave nothing in flight");
}

#[test]
fn a_checkpoint_that_cannot_finish_names_what_holds_it_and_ends_at_once() {
    let folder = JobFolder::new();
    // A batch takes this sink half an hour.
    let job = format!(
        "[job]\nname = 'held'\n[checkpoint]\ninterval = '20ms'\ntimeout = '400ms'\n[restart]\nstrategy = 'none'\n\
         [source.records]\ntype = 'generator'\n[operator.count]\nwasm = '{}'\ninput = 'records'\n\
         [sink.slow]\ntype = 'null'\ninput = 'count'\nparallelism = 2\nrate = 1.0\n",
        operator("count").display()
    );
    folder.write("job.toml", job);
    let finished = folder.run();
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    for part in ["checkpoint", "slow", "count", "checkpoint.timeout"] {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
    assert!(!finished.stderr.contains("cancelled"), "{}", finished.stderr);
}
