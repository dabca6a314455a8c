//! A job that fails starts again by itself, and what an operator can't process is skipped or becomes a dead letter, without a
//! record being lost or doubled.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockgate_tests::{Finished, JobFolder, Running, WordTotals, Words, faulty, kill_after, operator, part_files};

/// The exit code of a job that failed.
const FAILED: i32 = 1;

/// Copies `input` to `output`, and dead letters, if there are any, to `dead`.
struct CopyJob {
    restart: &'static str,
    on_error: &'static str,
    interval: &'static str,
    tolerant: bool,
}

impl CopyJob {
    fn new(restart: &'static str, on_error: &'static str) -> CopyJob {
        CopyJob { restart, on_error, interval: "20ms", tolerant: false }
    }

    fn write(&self, folder: &JobFolder) {
        let CopyJob { restart, on_error, interval, tolerant } = self;
        let dead = match *on_error {
            "dead-letter" => "[sink.dead]\ntype = \"file\"\npath = \"dead\"\ninput = \"picky:dead-letters\"\n",
            _ => "",
        };
        let wasm = faulty();
        let job = format!(
            r#"[job]
name = "copy"
state_dir = "state"
[checkpoint]
interval = "{interval}"
[restart]
{restart}
[source.text]
type = "file"
path = "input"
[operator.picky]
wasm = "{wasm}"
input = "text"
on_error = "{on_error}"
[operator.picky.config]
tolerant = {tolerant}
[operator.picky.limits]
memory = "32MiB"
call = "200ms"
output = "4MiB"
[sink.out]
type = "file"
path = "output"
input = "picky"
{dead}"#,
            wasm = wasm.display(),
        );
        folder.write("job.toml", job);
    }
}

const QUICK: &str = "strategy = \"fixed-delay\"\nattempts = 1000\ndelay = \"50ms\"";

fn lines(folder: &JobFolder, name: &str) -> Vec<String> {
    let files = part_files(&folder.path(name)).expect("the output can be listed");
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("output is text"));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn numbered(from: u32, to: u32) -> Vec<String> {
    (from..to).map(|number| format!("line {number}")).collect()
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn run_for_json(folder: &JobFolder) -> (Finished, String) {
    let mut command = folder.command("run");
    command.arg("--json");
    let finished = Running::start(command).wait();
    let json = finished.stdout.clone();
    (finished, json)
}

/// The number that a JSON object has under a key.
fn number(json: &str, key: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {json}"));
    let digits = rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    digits.parse().unwrap_or_else(|_| panic!("{key} is no number in {json}"))
}

fn ms_from_now(delay: Duration) -> u128 {
    (SystemTime::now() + delay).duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

#[test]
fn a_failure_that_passes_is_survived_without_a_trace_in_the_output() {
    let folder = JobFolder::new();
    CopyJob::new(QUICK, "fail").write(&folder);
    let passing = format!("later than {}", ms_from_now(Duration::from_millis(1_500)));
    let all = [numbered(0, 30_000), vec![passing], numbered(30_000, 60_000)].concat();
    folder.write("input/a.txt", text(&all));
    let (finished, json) = run_for_json(&folder);
    finished.assert_success();
    assert_eq!(lines(&folder, "output"), all);
    assert!(number(&json, "restarts") > 0, "{json}");
    assert!(finished.stderr.contains("restart 1 of 1000 in 50ms"), "{}", finished.stderr);
    assert!(finished.stderr.contains("not yet"), "the log says why: {}", finished.stderr);
}

#[test]
fn a_job_that_fails_too_often_says_how_often_and_why() {
    let folder = JobFolder::new();
    let restart = "strategy = \"exponential-backoff\"\nattempts = 2\ninitial_delay = \"10ms\"";
    CopyJob::new(restart, "fail").write(&folder);
    folder.write("input/a.txt", "later\n");
    let finished = folder.run();
    finished.assert_refused(FAILED, &["failed 3 times in a row", "attempts made: 3", "picky", "not today"]);
}

#[test]
fn without_restarts_the_first_failure_ends_the_job() {
    let folder = JobFolder::new();
    CopyJob::new("strategy = \"none\"", "fail").write(&folder);
    folder.write("input/a.txt", "later\n");
    let finished = folder.run();
    finished.assert_refused(FAILED, &["picky", "not today"]);
    assert!(!finished.stderr.contains("restart 1"), "{}", finished.stderr);
}

#[test]
fn what_would_fail_again_is_not_tried_again() {
    for fault in ["refuse", "give up"] {
        let folder = JobFolder::new();
        CopyJob::new(QUICK, "fail").write(&folder);
        folder.write("input/a.txt", format!("{fault}\n"));
        let finished = folder.run();
        finished.assert_refused(FAILED, &["picky"]);
        assert!(!finished.stderr.contains("restart 1"), "{fault}: {}", finished.stderr);
    }
}

#[test]
fn a_stop_between_two_attempts_takes_effect_at_once_and_loses_nothing() {
    let folder = JobFolder::new();
    let mut job = CopyJob::new("strategy = \"fixed-delay\"\nattempts = 3\ndelay = \"1h\"", "fail");
    job.write(&folder);
    let all = [numbered(0, 1_000), vec!["later".to_owned()], numbered(1_000, 2_000)].concat();
    folder.write("input/a.txt", text(&all));
    let mut running = folder.start();
    running.wait_for_message("restart 1 of 3");
    running.terminate();
    let finished = running.wait();
    finished.assert_success();
    assert!(finished.stdout.contains("stopped between two attempts"), "{}", finished.stdout);
    job.tolerant = true;
    job.write(&folder);
    folder.run().assert_success();
    assert_eq!(lines(&folder, "output"), all);
}

#[test]
fn skipped_records_are_left_out_and_counted_whatever_went_wrong_with_them() {
    let folder = JobFolder::new();
    CopyJob::new("strategy = \"none\"", "skip").write(&folder);
    let faults = ["refuse", "panic", "spin", "hoard", "recurse", "flood", "panic"];
    let mut all = Vec::new();
    for (number, fault) in (0..).zip(faults) {
        all.extend(numbered(number * 2_000, (number + 1) * 2_000));
        all.push(fault.to_owned());
    }
    folder.write("input/a.txt", text(&all));
    let (finished, json) = run_for_json(&folder);
    finished.assert_success();
    assert_eq!(lines(&folder, "output"), numbered(0, 14_000));
    assert!(finished.stderr.contains("a record was rejected"), "{}", finished.stderr);
    assert!(number(&json, "records_rejected") >= faults.len() as u64, "{json}");
}

#[test]
fn an_operator_that_traps_without_end_is_given_up() {
    let folder = JobFolder::new();
    let job = CopyJob { interval: "1h", ..CopyJob::new("strategy = \"none\"", "skip") };
    job.write(&folder);
    folder.write("input/a.txt", "panic\n".repeat(150));
    folder.run().assert_refused(FAILED, &["picky", "more than 100 records", "panicked"]);
}

/// What a dead letter says of itself: kind and line; a line stands for the place at which it was read.
fn letter(line: &str) -> (String, String) {
    let field = |key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\":\"")).unwrap_or_else(|| panic!("no {key} in {line}"));
        rest.split('"').next().expect("a text").to_owned()
    };
    assert_eq!(field("operator"), "picky", "{line}");
    assert!(field("split").ends_with(".txt"), "{line}");
    (field("kind"), field("value"))
}

#[test]
fn each_bad_record_becomes_one_dead_letter_whenever_the_process_is_killed() {
    let folder = JobFolder::new();
    CopyJob::new(QUICK, "dead-letter").write(&folder);
    let (mut good, mut bad) = (Vec::new(), BTreeMap::new());
    let (mut chance, mut killed, mut files) = (Words::new(11), 0, 0);
    while killed < 6 {
        // However fast the host is, each run has work to do.
        let from = files * 20_000;
        let all = (from..from + 20_000).map(|number| match number {
            _ if number % 10_000 == 5_000 => "panic".to_owned(),
            _ if number % 500 == 77 => "refuse".to_owned(),
            _ => format!("line {number:07}"),
        });
        let all = all.collect::<Vec<_>>();
        for line in &all {
            match line.as_str() {
                "panic" => *bad.entry(("panic".to_owned(), line.clone())).or_insert(0) += 1,
                "refuse" => *bad.entry(("bad-record".to_owned(), line.clone())).or_insert(0) += 1,
                _ => good.push(line.clone()),
            }
        }
        folder.write(format!("input/{files:02}.txt"), text(&all));
        files += 1;
        killed += u32::from(kill_after(folder.start(), Duration::from_millis(50 + chance.below(400))));
    }
    folder.run().assert_success();
    let mut output = lines(&folder, "output");
    output.sort();
    assert_eq!(output, good);
    let mut letters = BTreeMap::new();
    for line in lines(&folder, "dead") {
        *letters.entry(letter(&line)).or_insert(0) += 1;
    }
    assert_eq!(letters, bad);
}

#[test]
fn the_state_of_operators_behind_a_trap_is_that_of_the_records_that_were_processed() {
    let folder = JobFolder::new();
    folder.create_dir("input");
    let (split, count, wasm) = (operator("split"), operator("count"), faulty());
    folder.write(
        "job.toml",
        format!(
            r#"[job]
name = "words"
state_dir = "state"
parallelism = 2
[checkpoint]
interval = "20ms"
[source.text]
type = "file"
path = "input"
[operator.split]
wasm = "{split}"
input = "text"
[operator.picky]
wasm = "{wasm}"
input = "split"
on_error = "skip"
[operator.count]
wasm = "{count}"
input = "picky"
[sink.out]
type = "file"
path = "output"
input = "count"
parallelism = 1
"#,
            split = split.display(),
            count = count.display(),
            wasm = wasm.display(),
        ),
    );
    let (mut words, mut clean) = (Words::new(5), Vec::new());
    for file in 0..4 {
        let (mut text, mut dirty) = (Vec::new(), Vec::new());
        for number in 0..3_000 {
            let start = text.len();
            words.push_line(&mut text);
            dirty.extend_from_slice(&text[start..]);
            if number % 1_000 == 500 {
                dirty.extend_from_slice(b"panic\n");
            }
            if number % 100 == 50 {
                dirty.extend_from_slice(b"refuse\n");
            }
        }
        folder.write(format!("input/{file}.txt"), &dirty);
        clean.extend(text);
    }
    folder.run().assert_success();
    let mut totals = WordTotals::default();
    totals.add(&clean);
    totals.check(&folder.path("output")).unwrap_or_else(|mismatch| panic!("the output isn't exact: {mismatch:?}"));
}
