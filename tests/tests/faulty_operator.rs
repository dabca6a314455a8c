//! Whatever an operator does wrong, the host ends the job with one error that says who did what, and the mended operator goes
//! on from the last checkpoint with nothing lost or doubled.

use std::fs;
use std::time::Duration;

use lockgate_tests::{JobFolder, Metrics, Running, ask, faulty, part_files};

/// The exit code of a job that failed.
const FAILED: i32 = 1;
/// That of one that a second SIGTERM stopped.
const STOPPED_AT_ONCE: i32 = 128 + 15;

fn job_file(tolerant: bool) -> String {
    format!(
        r#"[job]
name = "copy"
state_dir = "state"
[checkpoint]
interval = "20ms"
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
[operator.picky]
wasm = "{wasm}"
input = "text"
[operator.picky.config]
tolerant = {tolerant}
[operator.picky.limits]
memory = "32MiB"
call = "500ms"
output = "4MiB"
[sink.out]
type = "file"
path = "output"
input = "picky"
"#,
        wasm = faulty().display()
    )
}

fn output(folder: &JobFolder) -> String {
    let files = part_files(&folder.path("output")).expect("the output can be listed");
    files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect()
}

/// Runs into the fault, which is described by `words`; then with a tolerant operator to the end.
fn assert_contained(fault: &str, words: &[&str]) {
    let folder = JobFolder::new();
    folder.write("job.toml", job_file(false));
    let good = (0..50_000).map(|number| format!("line {number}\n")).collect::<String>();
    folder.write("input/a.txt", &good);
    folder.run().assert_success();
    folder.write("input/b.txt", format!("before\n{fault}\nafter\n"));
    // Twice: the fault is met again, and nothing of the failed attempt has stayed.
    for _ in 0..2 {
        folder.run().assert_refused(FAILED, &[words, &["picky"]].concat());
        assert_eq!(output(&folder), good, "a failed call has no effect");
    }
    folder.write("job.toml", job_file(true));
    folder.run().assert_success();
    assert_eq!(output(&folder), format!("{good}before\n{fault}\nafter\n"));
}

#[test]
fn state_that_is_in_no_table_is_that_of_the_checkpoint_after_a_kill() {
    let folder = JobFolder::new();
    let job = job_file(true).replace("tolerant = true", "tolerant = true\nnumbered = true");
    folder.write("job.toml", job.replace("path = \"input\"", "path = \"input\"\nmode = \"continuous\""));
    let lines = (1..=400_000).map(|number| format!("line {number}\n")).collect::<String>();
    folder.write("input/a.txt", lines);
    let mut running = folder.start();
    running.wait_until("the first committed output", || {
        part_files(&folder.path("output")).is_ok_and(|files| !files.is_empty())
    });
    running.kill();
    running.wait();
    folder.write("input/b.txt", "the last one\n");
    folder.write("job.toml", job);
    folder.run().assert_success();
    let output = output(&folder);
    for (line, number) in output.lines().zip(1..) {
        let wanted = format!("{number} line {number}");
        assert!(line == wanted || line == "400001 the last one", "'{line}' and not '{wanted}'");
    }
    assert_eq!(output.lines().count(), 400_001);
}

#[test]
fn a_panic_ends_the_job_with_its_message() {
    assert_contained("panic", &["panicked", "the record says so"]);
}

#[test]
fn an_endless_loop_is_stopped_at_the_time_limit() {
    assert_contained("spin", &["500ms"]);
}

#[test]
fn a_second_signal_soon_after_the_first_ends_a_job_whose_operator_does_not_return() {
    let folder = JobFolder::new();
    folder.write("job.toml", job_file(false).replace("500ms", "1h"));
    let lines = "before\nspin\nafter\n";
    folder.write("input/a.txt", lines);
    let mut command = folder.command("run");
    command.args(["--metrics", "127.0.0.1:0"]);
    let mut running = Running::start(command);
    let address = running.metrics_address();
    running.wait_until("all input on its way to the operator", || {
        let answer = ask(&address, "GET", "/metrics").expect("an answer");
        let metrics = Metrics::parse(&answer.body).expect("metrics");
        metrics.sum("lockgate_records_out_total", ("operator", "text")) == 3.0
    });
    running.terminate();
    running.wait_for_message("stopping with a checkpoint");
    // Nothing is waited for: what comes at once would be the same wish.
    std::thread::sleep(Duration::from_millis(20));
    running.terminate();
    let finished = running.wait();
    assert_eq!(finished.status.code(), Some(STOPPED_AT_ONCE), "{}", finished.stderr);
    assert!(finished.stderr.contains("stopped at once"), "{}", finished.stderr);
    folder.write("job.toml", job_file(true));
    folder.run().assert_success();
    assert_eq!(output(&folder), lines);
}

#[test]
fn memory_is_refused_at_its_limit() {
    assert_contained("hoard", &["memory", "33554432"]);
}

#[test]
fn an_endless_recursion_is_stopped_at_the_end_of_the_stack() {
    assert_contained("recurse", &["stack"]);
    assert_contained("recurse widely", &["stack"]);
}

#[test]
fn output_is_refused_at_its_limit() {
    assert_contained("flood", &["4194304"]);
}

#[test]
fn a_refused_record_ends_the_job_with_the_reason() {
    assert_contained("refuse", &["it is not to my taste", "row 1"]);
}
