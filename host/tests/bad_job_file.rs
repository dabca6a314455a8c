//! Job files that can't be used, given to the real binary: each is refused with exit code 2, before anything is changed, by one
//! error that names the thing and says what to do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// From a file to a file, with no operator: what is needed for all that isn't about plugins.
const COPY: &str = r#"
[job]
name = "copy"

[source.text]
type = "file"
path = "input"

[sink.out]
type = "file"
path = "out"
input = "text"
"#;

const WORD_COUNT: &str = r#"
[job]
name = "word-count"

[source.text]
type = "file"
path = "input"

[operator.split]
wasm = "split.wasm"
input = "text"

[operator.count]
wasm = "count.wasm"
input = "split"

[sink.out]
type = "file"
path = "out"
input = "count"
"#;

/// All that are given a job file refuse it in the same way.
const VERBS: [&str; 2] = ["check", "run"];

fn lockgate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.current_dir(folder).args(arguments).env_remove("LOCKGATE_LOG").env("XDG_CACHE_HOME", folder.join("cache"));
    command.stdin(Stdio::null()).output().expect("the binary starts")
}

/// A folder with an input of one line.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("input")).expect("made");
    fs::write(folder.path().join("input/a.txt"), "one line\n").expect("written");
    folder
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let mut names =
        entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect::<Vec<_>>();
    names.retain(|name| name != "cache");
    names.sort();
    names
}

/// Expects that every verb refuses the job, says all of `wanted` on standard error and leaves no trace.
#[track_caller]
fn refused_in(folder: &Path, job: &str, wanted: &[&str]) {
    fs::write(folder.join("job.toml"), job).expect("written");
    let before = names_in(folder);
    for verb in VERBS {
        let output = lockgate(folder, &[verb, "job.toml"]);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{verb} says: {said}");
        assert!(output.stdout.is_empty(), "{verb} prints no result");
        assert_eq!(said.matches("error: ").count(), 1, "{verb} says one error: {said}");
        for wanted in wanted {
            assert!(said.contains(wanted), "{verb} doesn't say '{wanted}' but: {said}");
        }
        assert_eq!(names_in(folder), before, "{verb} leaves no trace");
    }
}

#[track_caller]
fn refused(job: &str, wanted: &[&str]) {
    refused_in(folder().path(), job, wanted);
}

/// The word count with `from` replaced.
#[track_caller]
fn changed(from: &str, to: &str, wanted: &[&str]) {
    assert!(WORD_COUNT.contains(from), "the word count has no {from:?}");
    refused(&WORD_COUNT.replacen(from, to, 1), wanted);
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_nearest_one() {
    changed("[job]", "[jbo]", &["job.toml:2: unknown key 'jbo' in the job file", "did you mean 'job'?"]);
    changed(
        "[job]",
        "[job]\nparalelism = 2",
        &["job.toml:3: unknown key 'paralelism' in [job]", "did you mean 'parallelism'?"],
    );
    changed("wasm =", "wsam =", &["job.toml:10: unknown key 'wsam' in [operator.split]", "did you mean 'wasm'?"]);
    changed(
        "path = \"input\"",
        "pth = \"input\"",
        &["job.toml:7: unknown key 'pth' in [source.text]", "did you mean 'path'?"],
    );
    changed(
        "input = \"count\"",
        "inptu = \"count\"",
        &["job.toml:20: unknown key 'inptu' in [sink.out]", "did you mean 'input'?"],
    );
    changed(
        "[sink.out]",
        "[checkpoint]\nintervall = \"1s\"\n[sink.out]",
        &["job.toml:18: unknown key 'intervall' in [checkpoint]", "did you mean 'interval'?"],
    );
    changed(
        "[sink.out]",
        "[operator.count.limits]\nmemry = \"1GiB\"\n[sink.out]",
        &["job.toml:18: unknown key 'memry' in [operator.count.limits]", "did you mean 'memory'?"],
    );
}

#[test]
fn a_wrong_value_is_named_with_what_is_allowed() {
    changed(
        "type = \"file\"",
        "type = \"fiel\"",
        &["source.text.type = \"fiel\" is not known", "did you mean 'file'?", "nexmark"],
    );
    changed(
        "[job]",
        "[job]\nguarantee = \"twice\"",
        &["job.guarantee", "twice", "it can be: at-most-once, at-least-once, exactly-once"],
    );
    changed(
        "[job]",
        "[job]\nparallelism = 0",
        &["job.parallelism: 0 is outside of 1 to 32768", "help: it counts subtasks"],
    );
    changed(
        "[sink.out]",
        "[checkpoint]\nalignment = \"unaligned\"\nmax_concurrent = 2\n[sink.out]",
        &["job.toml:19: checkpoint.max_concurrent: 2 unaligned checkpoints at once", "help: set it to 1"],
    );
    changed(
        "[job]",
        "[job]\nparallelism = \"two\"",
        &["job.parallelism is the text \"two\"; it must be a whole number"],
    );
    changed(
        "[sink.out]",
        "[checkpoint]\ninterval = \"1 second\"\n[sink.out]",
        &["job.toml:18: checkpoint.interval: '1 second' is not a duration", "\"500ms\""],
    );
    changed(
        "[sink.out]",
        "[operator.count.limits]\nmemory = 1000\n[sink.out]",
        &["job.toml:18: operator.count.limits.memory is 1000; it must be a text in quotes"],
    );
    changed("name = \"word-count\"", "name = \"word count\"", &["job.name", "'word count' is not a usable name"]);
    changed("name = \"word-count\"", "", &["[job] has no key 'name'"]);
}

#[test]
fn a_job_file_that_is_none_is_named() {
    let folder = folder();
    let refused = |argument: &str, wanted: &[&str]| {
        for verb in VERBS {
            let output = lockgate(folder.path(), &[verb, argument]);
            let said = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!(output.status.code(), Some(2), "{said}");
            wanted.iter().for_each(|wanted| assert!(said.contains(wanted), "{said}"));
        }
    };
    refused("missing.toml", &["error: cannot read job file missing.toml", "caused by: No such file", "help: "]);
    refused("input", &["error: job file input is not a file"]);
    pipe(&folder.path().join("pipe.toml"));
    refused("pipe.toml", &["error: job file pipe.toml is not a file", "help: "]);
    fs::write(folder.path().join("binary.toml"), b"[job]\nname = \"\xff\xfe\"\n").expect("written");
    refused("binary.toml", &["binary.toml is not text: its byte 14 is not UTF-8"]);
    fs::write(folder.path().join("open.toml"), "[job\n").expect("written");
    refused("open.toml", &["open.toml:1: this is not TOML"]);
}

#[test]
fn a_graph_that_does_not_fit_together_is_named_before_any_plugin_is_looked_for() {
    changed(
        "input = \"text\"",
        "inputs = [\"text\", \"count\"]",
        &["the graph has a cycle: count → split → count", "help: "],
    );
    changed("input = \"text\"", "input = \"split\"", &["operator 'split' reads its own output"]);
    changed("input = \"text\"\n", "", &["operator 'split' has no input: nobody feeds it", "[operator.split]"]);
    changed(
        "input = \"split\"",
        "input = \"spilt\"",
        &["operator 'count' reads 'spilt', which does not exist", "did you mean 'split'?"],
    );
    changed("input = \"count\"", "input = \"text\"", &["nobody reads operator 'count'"]);
    changed("[sink.out]", "[sink.count]", &["the name 'count' is used for an operator and for a sink"]);
    changed(
        "input = \"split\"",
        "input = \"split\"\nparallelism = 500",
        &["operator 'count' has a parallelism of 500", "1 to 128"],
    );
    refused("[job]\nname = \"nothing\"", &["the job has no source", "[source.NAME]"]);
    refused("[job]\nname = \"no-sink\"\n[source.a]\ntype = \"generator\"", &["the job has no sink", "[sink.NAME]"]);
}

#[test]
fn a_plugin_that_cannot_be_used_is_named() {
    refused(WORD_COUNT, &["operator 'count'", "count.wasm", "help: "]);
    let core_module = b"\0asm\x01\0\0\0";
    for (bytes, wanted) in [
        (&core_module[..], "component"),
        (b"\0asm\x0d\0\x01", "split.wasm"),
        (b"", "empty"),
        (b"text", "not WebAssembly"),
    ] {
        let folder = folder();
        fs::write(folder.path().join("split.wasm"), bytes).expect("written");
        let job = WORD_COUNT.replace("count.wasm", "split.wasm");
        refused_in(folder.path(), &job, &["operator 'count'", "split.wasm", wanted, "help: "]);
    }
}

#[test]
fn two_sinks_with_one_folder_are_named_before_either_has_it() {
    let second = "\n[sink.more]\ntype = \"file\"\npath = \"./out\"\ninput = \"text\"\n";
    refused(
        &format!("{COPY}{second}"),
        &["sinks 'more' and 'out' have the same output folder", "help: give [sink.out]"],
    );
}

#[test]
fn more_subtasks_than_a_generator_has_splits_are_refused_with_the_line() {
    let job = COPY
        .replace("type = \"file\"\npath = \"input\"", "type = \"generator\"\nparallelism = 3\nsplits = 2\ncount = 1");
    refused(
        &job,
        &["job.toml:7: source.text.parallelism: 3 subtasks can't share 2 splits", "help: lower the parallelism"],
    );
}

/// A pipe in the file system. Nobody writes to it, so that opening it would last for ever.
fn pipe(at: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
}

#[test]
fn a_pipe_in_the_place_of_a_component_or_an_input_is_refused_without_waiting_for_its_writer() {
    let in_folder = folder();
    pipe(&in_folder.path().join("split.wasm"));
    let job = WORD_COUNT.replace("count.wasm", "split.wasm");
    refused_in(in_folder.path(), &job, &["operator 'count'", "split.wasm", "it is not a file", "help: "]);
    let output = lockgate(in_folder.path(), &["inspect", "split.wasm"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("it is not a file"), "{said}");
    pipe(&in_folder.path().join("pipe"));
    let job = COPY.replace("path = \"input\"", "path = \"pipe\"");
    refused_in(in_folder.path(), &job, &["text: cannot read from pipe: it is neither a file nor a folder", "help: "]);
}

#[test]
fn an_input_that_is_not_there_is_named() {
    let folder = folder();
    fs::remove_dir_all(folder.path().join("input")).expect("removed");
    fs::write(folder.path().join("job.toml"), COPY).expect("written");
    let output = lockgate(folder.path(), &["check", "job.toml"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("text") && said.contains("input"), "{said}");
}

#[test]
fn an_output_that_cannot_be_a_folder_is_named() {
    let folder = folder();
    fs::write(folder.path().join("out"), "a file").expect("written");
    fs::write(folder.path().join("job.toml"), COPY).expect("written");
    let output = lockgate(folder.path(), &["check", "job.toml"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("out is not a folder"), "{said}");
}

#[test]
fn a_job_that_can_run_is_shown_with_its_plan_and_guarantees_and_nothing_is_made() {
    let folder = folder();
    fs::write(folder.path().join("job.toml"), COPY).expect("written");
    let before = names_in(folder.path());
    let output = lockgate(folder.path(), &["check", "job.toml"]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let time = "text: none; watermark none, never idle";
    for wanted in ["1 ×", "source text → sink out", time, "text → out", "exactly-once: ", "ok: this job can run"] {
        assert!(shown.contains(wanted), "no '{wanted}' in {shown}");
    }
    let output = lockgate(folder.path(), &["check", "job.toml", "--json"]);
    let json = serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
    assert_eq!(json["guarantees"][0]["delivers"], "exactly-once");
    let output = lockgate(folder.path(), &["check", "job.toml", "--graph"]);
    let drawn = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(drawn.contains("│ source text │\n│   │ forward │\n│ sink out    │"), "{drawn}");
    let output = lockgate(folder.path(), &["check", "job.toml", "--graph", "dot"]);
    let dot = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(dot.starts_with("digraph \"copy\" {") && dot.contains("\"text\" -> \"out\""), "{dot}");
    assert_eq!(names_in(folder.path()), before);
}

#[test]
fn a_script_gets_the_error_as_json_too() {
    let folder = folder();
    fs::write(folder.path().join("job.toml"), COPY.replace("path = \"out\"", "pth = \"out\"")).expect("written");
    let output = lockgate(folder.path(), &["check", "job.toml", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json = serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
    assert_eq!(json["error"]["message"], "job.toml:11: unknown key 'pth' in [sink.out]");
    assert_eq!(json["error"]["exit_code"], 2);
    assert!(json["error"]["help"].as_str().expect("a text").starts_with("did you mean 'path'?"));
}

#[test]
fn wrong_usage_is_told_and_help_is_no_error() {
    let folder = folder();
    for arguments in
        [&["chekc"][..], &["check"], &["check", "job.toml", "--graph", "svg"], &["--log", "!!", "check", "job.toml"]]
    {
        let output = lockgate(folder.path(), arguments);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("error: "), "{said}");
    }
    let output = lockgate(folder.path(), &["--help"]);
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    for wanted in ["Examples:", "Exit codes:", "new", "build", "inspect", "check", "run", "checkpoint"] {
        assert!(shown.contains(wanted), "no '{wanted}' in {shown}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = folder();
    fs::write(folder.path().join("job.toml"), COPY).expect("written");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    let child = command.current_dir(folder.path()).args(["check", "job.toml"]).stdout(writer).stderr(Stdio::piped());
    let output = child.spawn().expect("started").wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}
