//! The main job, end to end: exact output, resuming, stopping, new input.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use lockgate_tests::{Running, WordCount, part_files};

const SMALL: u64 = 300_000;
/// Long enough that a signal sent after the first output comes long before the end.
const LARGE: u64 = 12_000_000;

/// Every part file with its content.
fn parts(job: &WordCount) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = part_files(&job.output()).expect("the output can be listed");
    files.into_iter().map(|file| (file.clone(), fs::read(file).expect("a part file can be read"))).collect()
}

fn start_and_wait_for_output(job: &WordCount) -> Running {
    let mut running = job.folder.start();
    running.wait_until("the first committed output", || !parts(job).is_empty());
    running
}

#[test]
fn each_word_is_counted_exactly_once_over_several_files() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, SMALL).add_text("b.txt", 2, SMALL).add_text("c.txt", 3, SMALL);
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn a_second_run_finds_nothing_new_and_changes_nothing() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, SMALL);
    job.folder.run().assert_success();
    let first = parts(&job);
    job.folder.run().assert_success();
    assert_eq!(parts(&job), first);
    job.assert_exact();
}

#[test]
fn a_run_after_a_new_file_continues_and_leaves_the_old_output_alone() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, SMALL);
    job.folder.run().assert_success();
    let first = parts(&job);
    job.add_text("b.txt", 2, SMALL);
    job.folder.run().assert_success();
    let second = parts(&job);
    assert!(first.iter().all(|(file, content)| second.get(file) == Some(content)), "committed files never change");
    job.assert_exact();
}

#[test]
fn an_empty_input_folder_is_a_job_that_ends() {
    let job = WordCount::new();
    job.folder.run().assert_success();
    assert_eq!(job.assert_exact().lines, 0);
}

#[test]
fn a_continuous_job_notices_new_files() {
    let job = WordCount::new().continuous();
    job.add_text("a.txt", 1, SMALL);
    let mut running = start_and_wait_for_output(&job);
    job.add_text("b.txt", 2, SMALL);
    running.wait_until("exact output of both files", || job.totals().check(&job.output()).is_ok());
    running.terminate();
    running.wait().assert_success();
    job.assert_exact();
}

#[test]
fn sigterm_stops_with_a_checkpoint_and_the_next_run_continues() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, LARGE);
    let running = start_and_wait_for_output(&job);
    running.terminate();
    running.wait().assert_success();
    assert!(job.totals().check(&job.output()).is_err(), "the signal must come before the end, or this tests nothing");
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn sigint_stops_with_a_checkpoint_and_the_next_run_continues() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, LARGE);
    let running = start_and_wait_for_output(&job);
    running.interrupt();
    running.wait().assert_success();
    assert!(job.totals().check(&job.output()).is_err(), "the signal must come before the end, or this tests nothing");
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn a_second_signal_stops_at_once_and_loses_nothing() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, LARGE);
    let running = start_and_wait_for_output(&job);
    running.terminate();
    running.interrupt();
    running.wait();
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn every_parallelism_gives_the_same_counts() {
    for parallelism in [1, 3] {
        let job = WordCount::new().parallelism(parallelism);
        job.add_text("a.txt", 1, SMALL);
        job.folder.run().assert_success();
        job.assert_exact();
    }
}

#[test]
fn a_branching_job_feeds_every_sink_in_full() {
    let job = WordCount::new();
    let second_sink = "\n[sink.copy]\ntype = \"file\"\npath = \"copy\"\ninput = \"count\"\n";
    job.folder.write("job.toml", job.job_file() + second_sink);
    job.add_text("a.txt", 1, SMALL);
    job.folder.run().assert_success();
    job.assert_exact();
    job.totals().check(&job.folder.path("copy")).expect("the second sink's output is exact, too");
}
