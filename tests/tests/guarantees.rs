//! Each guarantee by counting: at-most-once never puts a record out twice, at-least-once never loses one, exactly-once does
//! neither, whenever the process is killed.

use std::fs;
use std::time::Duration;

use lockgate_tests::{JobFolder, Mismatch, WordCount, Words, faulty, kill_after, part_files};

/// More than all runs before the last one can make at that rate, so that each kill hits a running job.
const RECORDS: usize = 240_000;
const RATE: u32 = 40_000;
const KILLS: u32 = 10;

/// Numbers through an operator behind an exchange into files. With `parallelism` 2, barriers have several inputs.
fn job(guarantee: &str, parallelism: u32) -> String {
    let wasm = faulty();
    format!(
        r#"[job]
name = "numbers"
guarantee = "{guarantee}"
state_dir = "state"
parallelism = {parallelism}
[checkpoint]
interval = "30ms"
[source.numbers]
type = "generator"
kind = "sequence"
count = {RECORDS}
rate = {RATE}.0
[operator.copy]
wasm = "{wasm}"
input = "numbers"
exchange = "hash"
[sink.out]
type = "file"
path = "output"
input = "copy"
"#,
        wasm = wasm.display()
    )
}

/// How often each number is in the output after many kills and a last run to the end.
fn counts(guarantee: &str, seed: u64) -> Vec<u32> {
    let folder = JobFolder::new();
    folder.write("job.toml", job(guarantee, 2));
    let mut chance = Words::new(seed);
    for _ in 0..KILLS {
        let was_running = kill_after(folder.start(), Duration::from_millis(80 + chance.below(400)));
        assert!(was_running, "the job has ended too early to be killed {KILLS} times");
    }
    folder.run().assert_success();
    count(&folder)
}

fn count(folder: &JobFolder) -> Vec<u32> {
    let mut counts = vec![0; RECORDS];
    for file in part_files(&folder.path("output")).expect("the output can be listed") {
        for line in fs::read_to_string(file).expect("output is text").lines() {
            let number: usize = line.parse().unwrap_or_else(|_| panic!("'{line}' is no number"));
            counts[number] += 1;
        }
    }
    counts
}

fn lost(counts: &[u32]) -> usize {
    counts.iter().filter(|count| **count == 0).count()
}

fn doubled(counts: &[u32]) -> usize {
    counts.iter().filter(|count| **count > 1).count()
}

#[test]
fn at_most_once_never_puts_a_record_out_twice() {
    let counts = counts("at-most-once", 21);
    println!("at-most-once: {} lost of {RECORDS}", lost(&counts));
    assert_eq!(doubled(&counts), 0);
    assert!(lost(&counts) < RECORDS, "something comes out");
}

/// A lost record leaves a count out. A count that comes twice is a state that went back behind the output: then a record that
/// an operator holds in its state would be put out again.
#[test]
fn at_most_once_no_state_goes_back_behind_the_output() {
    for barriers in ["alignment = \"aligned\"", "alignment = \"unaligned\""] {
        let job = WordCount::new().interval("5ms").guarantee("at-most-once").barriers(barriers);
        let (mut chance, mut killed, mut files) = (Words::new(24), 0, 0);
        while killed < KILLS {
            job.add_text(&format!("{files:02}.txt"), files, 1_500_000);
            files += 1;
            killed += u32::from(kill_after(job.folder.start(), Duration::from_millis(80 + chance.below(400))));
        }
        job.folder.run().assert_success();
        let checked = job.totals().check(&job.output());
        assert!(matches!(checked, Ok(_) | Err(Mismatch::Missing { .. })), "{barriers}: {checked:?}");
    }
}

#[test]
fn at_most_once_takes_no_replay_of_what_is_recorded_as_read() {
    for parallelism in [1, 2] {
        let folder = JobFolder::new();
        folder.write("job.toml", job("at-most-once", parallelism));
        assert!(folder.run_to_crash_point("store.progress.after").was_killed());
        folder.run().assert_success();
        let counts = count(&folder);
        assert_eq!(doubled(&counts), 0);
        assert!((1..RECORDS / 2).contains(&lost(&counts)), "what was read before the kill is lost, and no more");
    }
}

#[test]
fn at_most_once_loses_nothing_that_is_not_recorded_as_read() {
    for point in ["store.progress.before", "store.progress.written"] {
        let folder = JobFolder::new();
        folder.write("job.toml", job("at-most-once", 1));
        assert!(folder.run_to_crash_point(point).was_killed());
        folder.run().assert_success();
        let counts = count(&folder);
        assert_eq!((lost(&counts), doubled(&counts)), (0, 0), "{point}");
    }
}

#[test]
fn at_least_once_never_loses_a_record() {
    let counts = counts("at-least-once", 22);
    println!("at-least-once: {} doubled of {RECORDS}", doubled(&counts));
    assert_eq!(lost(&counts), 0);
}

#[test]
fn exactly_once_neither_loses_nor_doubles_one() {
    let counts = counts("exactly-once", 23);
    assert_eq!((lost(&counts), doubled(&counts)), (0, 0));
}

#[test]
fn an_orderly_stop_loses_nothing_even_at_most_once() {
    let folder = JobFolder::new();
    folder.write("job.toml", job("at-most-once", 2));
    for _ in 0..3 {
        let mut running = folder.start();
        let output = folder.path("output");
        let before = part_files(&output).expect("it can be listed").len();
        running.wait_until("output", || part_files(&output).is_ok_and(|files| files.len() > before + 2));
        running.terminate();
        running.wait().assert_success();
    }
    folder.run().assert_success();
    let files = part_files(&folder.path("output")).expect("the output can be listed");
    let lines = files.iter().map(|file| fs::read_to_string(file).expect("text").lines().count()).sum::<usize>();
    assert_eq!(lines, RECORDS);
}
