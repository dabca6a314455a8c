//! A job file or plugin that can't be used is refused before anything is done, and the repaired job runs as if nothing had been.

use std::fs;

use lockgate_tests::{Running, WordCount, operator};

/// The exit code for a job file or plugin that can't be used.
const UNUSABLE: i32 = 2;
/// The exit code for a job that failed.
const FAILED: i32 = 1;

/// Both verbs refuse the job with `broken` as its file, and name `things`; with the right file it runs.
#[track_caller]
fn assert_refused(job: &WordCount, broken: &str, things: &[&str]) {
    let right = job.job_file();
    assert_ne!(broken, right, "the job file is broken");
    job.folder.write("job.toml", broken);
    for verb in ["check", "run"] {
        Running::start(job.folder.command(verb)).wait().assert_refused(UNUSABLE, things);
    }
    assert!(!job.output().exists(), "a refused job writes nothing");
    job.folder.write("job.toml", right);
    job.folder.run().assert_success();
    job.assert_exact();
}

fn job_with_text() -> WordCount {
    let job = WordCount::new();
    job.add_text("a.txt", 1, 20_000);
    job
}

/// A job whose `split` is a file in the job's folder with these bytes.
#[track_caller]
fn assert_plugin_refused(bytes: &[u8], things: &[&str]) {
    let job = job_with_text();
    job.folder.write("bad.wasm", bytes);
    let broken = job.job_file().replace(&operator("split").display().to_string(), "bad.wasm");
    assert_refused(&job, &broken, &[things, &["bad.wasm"]].concat());
}

#[test]
fn a_misspelt_key_is_refused_with_the_nearest_known_one() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("interval =", "intervall ="), &["intervall", "'interval'"]);
}

#[test]
fn a_misspelt_table_is_refused_with_the_nearest_known_one() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("[checkpoint]", "[checkpiont]"), &["checkpiont", "'checkpoint'"]);
}

#[test]
fn a_misspelt_key_of_a_connector_is_refused_with_the_nearest_known_one() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("mode =", "moed ="), &["moed", "'mode'"]);
}

#[test]
fn an_unknown_connector_is_refused_with_those_there_are() {
    let job = job_with_text();
    let broken = job.job_file().replacen("type = \"file\"", "type = \"fiel\"", 1);
    assert_refused(&job, &broken, &["fiel", "file"]);
}

#[test]
fn a_guarantee_that_is_not_there_is_refused_with_those_there_are() {
    let job = job_with_text();
    let broken = job.job_file().replace("\"exactly-once\"", "\"exactly-twice\"");
    assert_refused(&job, &broken, &["exactly-twice", "exactly-once"]);
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("[job]", "[job"), &["job.toml:1"]);
}

#[test]
fn an_unknown_input_is_refused() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("input = \"text\"", "input = \"txet\""), &["txet", "text"]);
}

#[test]
fn a_cycle_is_refused_with_the_operators_in_it() {
    let job = job_with_text();
    let broken = job.job_file().replace("input = \"text\"", "inputs = [\"text\", \"count\"]");
    assert_refused(&job, &broken, &["cycle", "split", "count"]);
}

#[test]
fn an_operator_that_nobody_feeds_is_refused() {
    let job = job_with_text();
    assert_refused(&job, &job.job_file().replace("input = \"text\"", ""), &["split", "input"]);
}

#[test]
fn a_missing_plugin_is_refused() {
    let job = job_with_text();
    let broken = job.job_file().replace(&operator("split").display().to_string(), "nowhere.wasm");
    assert_refused(&job, &broken, &["split", "nowhere.wasm"]);
}

#[test]
fn a_plugin_that_is_cut_off_anywhere_is_refused() {
    let whole = fs::read(operator("split")).expect("it was built");
    for sixteenth in 0..16 {
        assert_plugin_refused(&whole[..whole.len() * sixteenth / 16], &["split"]);
    }
    assert_plugin_refused(&whole[..whole.len() - 1], &["split"]);
}

#[test]
fn a_core_module_is_refused_with_the_way_to_make_a_component() {
    assert_plugin_refused(b"\0asm\x01\0\0\0", &["split", "core module", "lockgate build"]);
}

#[test]
fn a_component_of_another_world_version_is_refused_with_both_versions() {
    let mut component = fs::read(operator("split")).expect("it was built");
    let (ours, other) = (b"@0.1.0", b"@0.9.0");
    let mut replaced = 0;
    for start in 0..component.len() - ours.len() {
        let window = &mut component[start..start + ours.len()];
        if window == ours {
            window.copy_from_slice(other);
            replaced += 1;
        }
    }
    assert!(replaced > 0, "a component names the version of its world");
    assert_plugin_refused(&component, &["split", "0.9.0", "0.1.0"]);
}

#[test]
fn a_job_that_cannot_continue_from_its_checkpoint_is_refused_by_both_verbs_and_goes_on_as_it_was() {
    let job = job_with_text();
    job.folder.run().assert_success();
    let (right, count) = (job.job_file(), operator("count").display().to_string());
    let changes = [
        (
            right.replace("[operator.count]", "[operator.tally]").replace("\"count\"", "\"tally\""),
            "'count', which the job no longer has",
        ),
        (
            right.replace(&count, &operator("split").display().to_string()),
            "operator 'count', which its component no longer declares",
        ),
        (right.replace("state_dir", "max_parallelism = 64\nstate_dir"), "max_parallelism = 128, and the job says 64"),
        (
            right
                .replace("[sink.out]", "[sink.text2]\ntype = \"null\"\ninput = \"count\"\n[sink.other]")
                .replace("path = \"output\"", "path = \"elsewhere\""),
            "'out', which the job no longer has",
        ),
    ];
    job.add_text("b.txt", 2, 20_000);
    for (changed, problem) in changes {
        job.folder.write("job.toml", changed);
        for (verb, code) in [("check", UNUSABLE), ("run", FAILED)] {
            let things = ["cannot continue job 'word-count' from its newest checkpoint", problem];
            Running::start(job.folder.command(verb)).wait().assert_refused(code, &things);
        }
    }
    job.folder.write("job.toml", right);
    Running::start(job.folder.command("check")).wait().assert_success();
    job.folder.run().assert_success();
    job.assert_exact();
}
