//! Whatever an operator fails at, a capsule is kept of it, and `lockgate replay` sees it fail again: the same failure, bit for bit, with
//! nothing of the job at hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockgate_tests::{Finished, JobFolder, Running, faulty, lockgate, operator, operator_of, part_files, target_dir};
use serde_json::Value;

/// The exit code of what failed, and of what can't be used.
const FAILED: i32 = 1;
const UNUSABLE: i32 = 2;

/// Copies `input` to `output`, and dead letters, if there are any, to `dead`.
fn write_job(folder: &JobFolder, on_error: &str, more: &str) {
    let dead = match on_error {
        "dead-letter" => "[sink.dead]\ntype = \"file\"\npath = \"dead\"\ninput = \"picky:dead-letters\"\n",
        _ => "",
    };
    let wasm = faulty();
    let job = format!(
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
on_error = "{on_error}"
{more}
[operator.picky.limits]
memory = "32MiB"
call = "1s"
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

/// The capsules of a job, by name.
fn capsules(folder: &JobFolder) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(folder.path("state/capsules")) else { return Vec::new() };
    let mut files = files.map(|file| file.expect("listed").path()).collect::<Vec<_>>();
    files.sort();
    files
}

fn replay(capsule: &Path, options: &[&str]) -> Finished {
    let mut command = Command::new(lockgate());
    command.arg("replay").arg(capsule).args(options);
    Running::start(command).wait()
}

/// Replays a capsule; gives its report. It must be the same failure, bit for bit.
#[track_caller]
fn same(capsule: &Path) -> Value {
    let finished = replay(capsule, &["--json"]);
    finished.assert_success();
    let report: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
    assert_eq!((&report["same"], &report["bit_for_bit"]), (&Value::Bool(true), &Value::Bool(true)), "{report:#}");
    assert_eq!(report["recorded"], report["replayed"], "{report:#}");
    report
}

fn lines(folder: &JobFolder, name: &str) -> Vec<String> {
    let files = part_files(&folder.path(name)).expect("the output can be listed");
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("output is text"));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Faults of `tests/faulty` that concern one record, with the kind of failure that each is and a word of its message.
const FAULTS: [(&str, &str, &str); 6] = [
    ("panic", "panic", "the record says so"),
    ("spin", "deadline", "1s"),
    ("hoard", "memory", "33554432"),
    ("recurse", "stack", "stack"),
    ("flood", "output", "4194304"),
    ("refuse", "rejected", "not to my taste"),
];

/// The same where records may be rejected: then the SDK holds what a record emits until it is through, which takes memory first.
fn skipped_faults() -> [(&'static str, &'static str, &'static str); 6] {
    FAULTS.map(|(fault, kind, word)| match fault {
        "flood" => (fault, "memory", "33554432"),
        _ => (fault, kind, word),
    })
}

/// The fault of a report's record, and what became of it.
fn told(report: &Value) -> (String, String) {
    let recorded = &report["recorded"];
    let kind = recorded["kind"].as_str().unwrap_or_else(|| text(&recorded["outcome"]));
    (text(&report["record"]["value"]).to_owned(), kind.to_owned())
}

#[test]
fn each_record_that_is_skipped_can_be_seen_to_fail_again() {
    let folder = JobFolder::new();
    write_job(&folder, "skip", "config.numbered = true");
    let mut input = String::new();
    for (fault, ..) in FAULTS {
        (0..500).for_each(|number| input += &format!("line {number}\n"));
        input += &format!("{fault}\n");
    }
    folder.write("input/a.txt", input);
    let finished = folder.run();
    finished.assert_success();
    assert_eq!(lines(&folder, "output").len(), 3_000);
    let capsules = capsules(&folder);
    let mut found = Vec::new();
    for capsule in &capsules {
        assert!(finished.stderr.contains(&format!("lockgate replay {}", capsule.display())), "{}", finished.stderr);
        let report = same(capsule);
        let state = &report["state"];
        assert_eq!((&state["of"], &state["snapshot_bytes"]), (&"call".into(), &8.into()), "{report:#}");
        let (fault, kind) = told(&report);
        let (_, _, word) = skipped_faults().into_iter().find(|(known, ..)| *known == fault).expect("one of the faults");
        assert!(text(&report["replayed"]["message"]).contains(word), "{report:#}");
        found.push((fault, kind));
    }
    found.sort();
    let mut expected = skipped_faults().map(|(fault, kind, _)| (fault.to_owned(), kind.to_owned())).to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_panic_is_replayed_with_its_message_its_place_and_its_record() {
    let folder = JobFolder::new();
    write_job(&folder, "skip", "");
    folder.write("input/a.txt", "one\npanic\ntwo\n");
    folder.run().assert_success();
    let capsules = capsules(&folder);
    assert_eq!(capsules.len(), 1, "{capsules:?}");
    let replayed = replay(&capsules[0], &[]);
    replayed.assert_success();
    for words in
        ["picky[0] of job 'copy'", "\"panic\"", "tests/faulty/src/lib.rs:", "the record says so", "bit for bit"]
    {
        assert!(replayed.stdout.contains(words), "no '{words}' in\n{}", replayed.stdout);
    }
    // It needs nothing of the job.
    let alone = JobFolder::new();
    fs::copy(&capsules[0], alone.path("alone.capsule")).expect("copied");
    drop(folder);
    same(&alone.path("alone.capsule"));
}

#[test]
fn dead_letters_name_their_capsules() {
    let folder = JobFolder::new();
    write_job(&folder, "dead-letter", "");
    folder.write("input/a.txt", "one\nrefuse\ntwo\npanic\nthree\n");
    folder.run().assert_success();
    let letters = lines(&folder, "dead");
    assert_eq!(letters.len(), 2, "{letters:?}");
    for letter in letters {
        let letter: Value = serde_json::from_str(&letter).expect("JSON");
        let report = same(Path::new(text(&letter["capsule"])));
        assert_eq!(report["record"]["value"], letter["value"]);
        assert_eq!(report["origin"]["split"], letter["split"], "{report:#}");
        assert_eq!(report["origin"]["offset"], letter["offset"], "{report:#}");
    }
}

#[test]
fn the_record_that_ends_a_job_is_found_in_its_batch() {
    for (fault, kind, word) in FAULTS {
        let folder = JobFolder::new();
        write_job(&folder, "fail", "config.numbered = true");
        let good = (0..300).map(|number| format!("line {number}\n")).collect::<String>();
        folder.write("input/a.txt", format!("{good}{fault}\n{good}"));
        let finished = folder.run();
        finished.assert_refused(FAILED, &["picky", "lockgate replay"]);
        let capsules = capsules(&folder);
        assert_eq!(capsules.len(), 1, "{fault}: {}", finished.stderr);
        assert!(finished.stderr.contains(&capsules[0].display().to_string()), "{}", finished.stderr);
        let report = same(&capsules[0]);
        let kind = if kind == "rejected" { "bad-record" } else { kind };
        assert_eq!(told(&report), (fault.to_owned(), kind.to_owned()));
        assert!(text(&report["replayed"]["message"]).contains(word), "{report:#}");
        // The rows before it in its batch have been processed: 300 are counted in 8 bytes.
        assert_eq!(report["state"]["snapshot_bytes"], 8, "{report:#}");
        // The next run meets it again, and keeps no second one.
        folder.run().assert_refused(FAILED, &["lockgate replay", &capsules[0].display().to_string()]);
        assert_eq!(self::capsules(&folder), capsules);
    }
}

#[test]
fn a_failure_of_the_world_is_no_record_s_and_leaves_no_capsule() {
    let folder = JobFolder::new();
    write_job(&folder, "fail", "");
    folder.write("input/a.txt", "one\nlater\n");
    folder.run().assert_refused(FAILED, &["not today"]);
    assert!(capsules(&folder).is_empty());
}

#[test]
fn there_are_as_many_capsules_as_the_job_file_allows() {
    for (allowed, expected) in [("capsules = 2", 2), ("capsules = 0", 0)] {
        let folder = JobFolder::new();
        write_job(&folder, "skip", allowed);
        // Each is another record.
        let input = ["refuse", "panic", "recurse", "flood"].map(|fault| format!("line\n{fault}\n")).concat();
        folder.write("input/a.txt", input);
        folder.run().assert_success();
        assert_eq!(capsules(&folder).len(), expected, "{allowed}");
    }
}

#[test]
fn a_capsule_that_was_tampered_with_is_refused() {
    let folder = JobFolder::new();
    write_job(&folder, "skip", "");
    folder.write("input/a.txt", "panic\n");
    folder.run().assert_success();
    let whole = fs::read(&capsules(&folder)[0]).expect("a capsule");
    let broken = folder.path("broken.capsule");
    for at in (0..whole.len()).step_by(whole.len() / 16) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&broken, bytes).expect("written");
        replay(&broken, &[]).assert_refused(UNUSABLE, &["broken.capsule"]);
        fs::write(&broken, &whole[..at]).expect("written");
        replay(&broken, &[]).assert_refused(UNUSABLE, &["broken.capsule"]);
    }
    replay(&folder.path("none.capsule"), &[]).assert_refused(UNUSABLE, &["none.capsule"]);
    replay(&folder.path(""), &[]).assert_refused(UNUSABLE, &["not a file"]);
}

/// Counts the records of each key, and panics at the third one of a key unless it is mended.
fn library(third: &str) -> String {
    format!(
        r#"//! Counts.
use lockgate::prelude::*;

pub struct Tally {{
    counts: Value<u64>,
}}

impl Operator for Tally {{
    fn new(declare: &mut Declaration) -> Tally {{
        Tally {{ counts: declare.value("counts") }}
    }}

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {{
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        if count == 3 {{
            {third}
        }}
        ctx.emit_fmt(record.key(), format_args!("{{count}}"));
        Ok(())
    }}
}}

lockgate::export!(Tally);
"#
    )
}

/// Cargo may have to compile the SDK, and to wait for the tests that do so as well.
const BUILD_PATIENCE: Duration = Duration::from_secs(1_200);

/// Where the operator of a test is built.
fn tools_dir() -> PathBuf {
    target_dir().join("operator-tools")
}

fn build(folder: &JobFolder, third: &str) -> PathBuf {
    folder.write("tally/src/lib.rs", library(third));
    let mut build = Command::new(lockgate());
    build.arg("build").arg(folder.path("tally")).env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", tools_dir());
    Running::start(build).wait_at_most(BUILD_PATIENCE).assert_success();
    folder.path("tally/tally.wasm")
}

fn cargo_test(folder: &JobFolder) -> Finished {
    let mut test = Command::new(env!("CARGO"));
    test.arg("test").current_dir(folder.path("tally")).env("CARGO_NET_OFFLINE", "true");
    test.env("CARGO_TARGET_DIR", tools_dir());
    Running::start(test).wait_at_most(BUILD_PATIENCE)
}

/// A job whose operator panics at the third `tea`.
fn tally_job(on_error: &str, wasm: &Path) -> String {
    format!(
        r#"[job]
name = "words"
state_dir = "state"
[checkpoint]
interval = "20ms"
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
[operator.split]
wasm = "{split}"
input = "text"
[operator.tally]
wasm = "{wasm}"
input = "split"
on_error = "{on_error}"
[sink.out]
type = "file"
path = "output"
input = "tally"
"#,
        split = operator("split").display(),
        wasm = wasm.display(),
    )
}

#[test]
fn a_failure_that_depends_on_state_is_replayed_tested_in_its_crate_and_mended() {
    let folder = JobFolder::new();
    let mut new = Command::new(lockgate());
    new.arg("new").arg("tally").current_dir(folder.path(""));
    Running::start(new).wait().assert_success();
    let wasm = build(&folder, "panic!(\"three is too many\");");
    folder.write("job.toml", tally_job("skip", &wasm));
    folder.write("input/a.txt", "tea oil tea salt tea oil\n");
    folder.run().assert_success();
    let capsules = capsules(&folder);
    assert_eq!(capsules.len(), 1, "{capsules:?}");

    // What it depends on is in the capsule: two of the key before, and of no other key.
    let report = same(&capsules[0]);
    assert!(text(&report["replayed"]["message"]).contains("three is too many"), "{report:#}");
    let entries = report["state"]["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 1, "{report:#}");
    assert_eq!((text(&entries[0]["key"]), text(&entries[0]["value_base64"])), ("tea", "Ag=="), "{report:#}");

    // A test of the crate fails in the same way.
    let crate_folder = folder.path("tally").display().to_string();
    let written = replay(&capsules[0], &["--write-test", &crate_folder]);
    written.assert_success();
    assert!(written.stdout.contains("tests/replay_tally_"), "{}", written.stdout);
    replay(&capsules[0], &["--write-test", &crate_folder]).assert_refused(FAILED, &["replay_tally_"]);
    let tested = cargo_test(&folder);
    assert!(!tested.status.success(), "{}", tested.stdout);
    let said = format!("{}{}", tested.stdout, tested.stderr);
    assert!(said.contains("three is too many") && said.contains("0 passed; 1 failed"), "{said}");

    // The mended operator processes the record, in the test and in its component.
    replay(&capsules[0], &["--wasm", &wasm.display().to_string()]).assert_refused(FAILED, &["doesn't process it"]);
    let mended = build(&folder, "ctx.log(Level::Info, \"three\");").display().to_string();
    let replayed = replay(&capsules[0], &["--wasm", &mended]);
    replayed.assert_success();
    assert!(replayed.stdout.contains("it is processed now"), "{}", replayed.stdout);
    let tested = cargo_test(&folder);
    tested.assert_success();

    // The capsule has the component that failed, whatever becomes of the file.
    same(&capsules[0]);

    // Another operator is none for this capsule.
    let other = replay(&capsules[0], &["--wasm", &operator("filter").display().to_string(), "--json"]);
    assert_ne!(other.status.code(), Some(101), "{}", other.stderr);
}

/// A folder with a job whose operator panics at the third `tea`, under the policy to fail.
fn failing_job(wasm: &Path, input: String) -> JobFolder {
    let folder = JobFolder::new();
    folder.write("job.toml", tally_job("fail", wasm).replace("20ms", "1h"));
    folder.write("input/a.txt", input);
    folder
}

#[test]
fn under_fail_the_record_is_found_in_its_batch_or_by_the_next_attempts() {
    let made = JobFolder::new();
    let mut new = Command::new(lockgate());
    new.arg("new").arg("tally").current_dir(made.path(""));
    Running::start(new).wait().assert_success();
    let wasm = build(&made, "panic!(\"three is too many\");");

    // All that it depends on is in the batch.
    let folder = failing_job(&wasm, "tea oil tea salt tea oil\n".to_owned());
    folder.run().assert_refused(FAILED, &["three is too many", "lockgate replay"]);
    let report = same(&capsules(&folder)[0]);
    assert_eq!(report["state"]["of"], "snapshot", "{report:#}");
    assert_eq!(text(&report["state"]["entries"][0]["value_base64"]), "Ag==", "{report:#}");

    // What it depends on is lost with the instance that fails: a run to find the record, and one to stop before it.
    let many = (0..60_000).map(|number| format!("w{number}\n")).collect::<String>();
    let folder = failing_job(&wasm, format!("tea tea\n{many}tea\n"));
    for _ in 0..2 {
        let finished = folder.run();
        finished.assert_refused(FAILED, &["three is too many"]);
        assert!(finished.stderr.contains("no capsule was written yet"), "{}", finished.stderr);
        assert!(!finished.stderr.contains("lockgate replay"), "{}", finished.stderr);
    }
    folder.run().assert_refused(FAILED, &["three is too many", "lockgate replay"]);
    let found = capsules(&folder);
    assert_eq!(found.len(), 1, "nothing else is left: {found:?}");
    let report = same(&found[0]);
    assert_eq!((&report["state"]["of"], &report["record"]["key"]), (&"call".into(), &"tea".into()), "{report:#}");
    assert_eq!(text(&report["state"]["entries"][0]["value_base64"]), "Ag==", "{report:#}");
}

/// A job whose operator waits for event time, and may not like what comes then.
fn moody_job(on_error: &str, bad_end: bool) -> JobFolder {
    let folder = JobFolder::new();
    let job = format!(
        r#"[job]
name = "moods"
state_dir = "state"
[checkpoint]
interval = "1h"
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
[operator.parse]
wasm = "{parse}"
input = "text"
[operator.moody]
wasm = "{moody}"
input = "parse"
on_error = "{on_error}"
config.bad_end = {bad_end}
[sink.out]
type = "file"
path = "output"
input = "moody"
"#,
        parse = operator_of("tests/blocks", "parse").display(),
        moody = operator_of("tests/blocks", "moody").display(),
    );
    folder.write("job.toml", job);
    folder
}

#[test]
fn a_timer_and_a_watermark_that_fail_are_replayed_as_records_are() {
    for on_error in ["fail", "skip"] {
        for (bad_end, call, message) in
            [(false, "timers (event time)", "not at this time"), (true, "watermark", "it must not end")]
        {
            let folder = moody_job(on_error, bad_end);
            let second = if bad_end { "good" } else { "bad timer" };
            folder.write("input/a.txt", format!("a,10,good\na,20,{second}\nb,30,good\n"));
            folder.run().assert_refused(FAILED, &["moody", message, "lockgate replay"]);
            let found = capsules(&folder);
            assert_eq!(found.len(), 1, "{call}, {on_error}: {found:?}");
            let report = same(&found[0]);
            assert_eq!(report["call"], call, "{report:#}");
            assert!(text(&report["replayed"]["message"]).contains(message), "{report:#}");
            let record = &report["record"];
            assert_eq!(record["value"].as_str(), (!bad_end).then_some("bad timer"), "{report:#}");
        }
    }
}
