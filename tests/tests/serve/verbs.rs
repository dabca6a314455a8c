//! The verbs that ask a daemon, by the real binary against the real daemon.

use std::process::Command;

use lockgate_tests::{Daemon, Finished, Running, lockgate, operator, same_with_other_hash};
use serde_json::Value;

use crate::support::{JOB, ServedWordCount};

const TOKEN: &str = "a-secret-of-the-tests-0123456789";
const FAILED: i32 = 1;
const UNUSABLE: i32 = 2;

fn verb(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(lockgate());
    command.args(arguments).env("LOCKGATE_SERVER", format!("http://{}", daemon.address()));
    command.env("LOCKGATE_TOKEN", TOKEN).env_remove("LOCKGATE_CRASH_AT");
    command
}

fn finish(daemon: &Daemon, arguments: &[&str]) -> Finished {
    Running::start(verb(daemon, arguments)).wait()
}

#[track_caller]
fn say(daemon: &Daemon, arguments: &[&str]) -> String {
    let finished = finish(daemon, arguments);
    finished.assert_success();
    assert!(finished.stdout.lines().all(|line| line.chars().count() <= 120), "{}", finished.stdout);
    finished.stdout
}

#[track_caller]
fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    let finished = finish(daemon, &[arguments, &["--json"]].concat());
    finished.assert_success();
    serde_json::from_str(&finished.stdout).expect("JSON and nothing else")
}

#[test]
fn a_job_lives_from_its_submission_to_its_deletion_by_the_verbs() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let job_file = served.job.folder.path("job.toml");
    let job_file = job_file.to_str().expect("UTF-8");
    let daemon = served.set_up.clone().token(TOKEN).start();
    assert!(say(&daemon, &["list"]).contains("no jobs yet"));
    assert!(say(&daemon, &["plugin", "list"]).contains("no plugins yet"));

    let said = say(&daemon, &["submit", job_file]);
    assert!(said.starts_with(&format!("{JOB}: ")) && said.contains("lockgate status word-count"), "{said}");
    served.wait_until_exact();
    daemon.wait_for_status(JOB, "running");
    assert!(daemon.job(JOB)["job_toml"].as_str().expect("text").contains("sha256:"));
    let list = say(&daemon, &["list"]);
    assert!(list.starts_with("job ") && list.contains(JOB) && list.contains("running"), "{list}");
    let status = say(&daemon, &["status", JOB]);
    assert!(
        status.starts_with("word-count: running") && status.contains("split") && status.contains("sink"),
        "{status}"
    );
    assert_eq!(json(&daemon, &["status", JOB])["name"], JOB);
    let plugins = json(&daemon, &["plugin", "list"])["plugins"].clone();
    assert_eq!(plugins.as_array().map(Vec::len), Some(2));
    let hash = plugins[0]["hash"].as_str().expect("a hash").to_owned();
    assert!(say(&daemon, &["plugin", "list"]).contains(&hash), "hashes are whole");
    finish(&daemon, &["submit", job_file]).assert_refused(FAILED, &[JOB]);
    finish(&daemon, &["plugin", "remove", &hash]).assert_refused(FAILED, &[&hash, JOB]);
    finish(&daemon, &["delete", JOB]).assert_refused(FAILED, &[JOB]);

    let kept = json(&daemon, &["savepoint", JOB]);
    let epoch = kept["epoch"].to_string();
    assert!(say(&daemon, &["savepoint", JOB, "--list"]).contains(&epoch));
    let stopped = say(&daemon, &["stop", JOB]);
    assert!(stopped.starts_with("word-count: stopped"), "{stopped}");
    served.job.add_text("b.txt", 2, 200_000);
    say(&daemon, &["restart", JOB, job_file]);
    served.wait_until_exact();
    finish(&daemon, &["stop", JOB, "--now"]).assert_success();
    finish(&daemon, &["delete", JOB]).assert_refused(FAILED, &["savepoint"]);
    say(&daemon, &["savepoint", JOB, "--delete", &epoch]);
    finish(&daemon, &["savepoint", JOB, "--delete", &epoch]).assert_refused(UNUSABLE, &[&epoch]);
    assert_eq!(json(&daemon, &["delete", JOB])["deleted"], JOB);
    finish(&daemon, &["status", JOB]).assert_refused(UNUSABLE, &[JOB]);
    say(&daemon, &["plugin", "remove", &format!("sha256:{hash}")]);
    daemon.stop();
}

#[test]
fn an_operator_is_upgraded_by_a_verb_after_it_was_tried() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let folder = &served.job.folder;
    let (job_file, newer) = (folder.path("job.toml"), folder.path("newer.wasm"));
    same_with_other_hash(&operator("count"), &newer, "newer");
    let newer = newer.to_str().expect("UTF-8");
    let daemon = served.set_up.clone().token(TOKEN).start();
    say(&daemon, &["submit", job_file.to_str().expect("UTF-8")]);
    served.wait_until_exact();
    let tried = say(&daemon, &["upgrade", JOB, "count", newer, "--dry-run"]);
    assert!(tried.contains("nothing was changed"), "{tried}");
    served.job.add_text("b.txt", 2, 500_000);
    let upgraded = say(&daemon, &["upgrade", JOB, "count", newer, "--probation", "50ms"]);
    assert!(upgraded.contains("count of word-count is upgraded"), "{upgraded}");
    served.wait_until_exact();
    finish(&daemon, &["upgrade", JOB, "other", newer]).assert_refused(UNUSABLE, &["other"]);
    finish(&daemon, &["upgrade", "other", "count", newer]).assert_refused(UNUSABLE, &["other"]);
    daemon.stop();
}

#[test]
fn what_cannot_be_asked_is_said_with_what_to_do() {
    let served = ServedWordCount::new();
    let daemon = served.set_up.clone().token(TOKEN).start();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("bound").to_string();
    drop(gone);
    let nobody = finish(&daemon, &["list", "--server", &address]);
    nobody.assert_refused(FAILED, &["no daemon answers at", &address, "lockgate serve"]);
    let nowhere = finish(&daemon, &["list", "--server", "nowhere.invalid"]);
    nowhere.assert_refused(FAILED, &["there is no host of the name in http://nowhere.invalid", "--server"]);
    let mut wrong = verb(&daemon, &["list"]);
    wrong.env("LOCKGATE_TOKEN", "not-the-secret-of-the-tests");
    Running::start(wrong).wait().assert_refused(UNUSABLE, &["token", "LOCKGATE_TOKEN"]);
    finish(&daemon, &["list", "--server", "https://localhost"]).assert_refused(UNUSABLE, &["TLS"]);
    finish(&daemon, &["status", "../x"]).assert_refused(UNUSABLE, &["../x"]);
    finish(&daemon, &["plugin", "load", "/no/such.wasm"]).assert_refused(UNUSABLE, &["/no/such.wasm"]);
    finish(&daemon, &["plugin", "remove", "abc"]).assert_refused(UNUSABLE, &["abc"]);
    served.job.folder.write("garbage.wasm", "not wasm");
    let garbage = served.job.folder.path("garbage.wasm");
    finish(&daemon, &["plugin", "load", garbage.to_str().expect("UTF-8")]).assert_refused(UNUSABLE, &[]);
    served.job.folder.write("job.toml", "[job]\nnam = \"x\"\n");
    let job_file = served.job.folder.path("job.toml");
    let job_file = job_file.to_str().expect("UTF-8");
    finish(&daemon, &["submit", job_file]).assert_refused(UNUSABLE, &["job.toml:2", "nam"]);
    let refused = finish(&daemon, &["submit", job_file, "--json"]);
    let error: Value = serde_json::from_str(&refused.stdout).expect("JSON");
    assert_eq!(error["error"]["exit_code"], UNUSABLE);
    daemon.stop();
}

#[test]
fn a_component_that_is_too_large_is_not_even_sent() {
    let served = ServedWordCount::new();
    let daemon = served.set_up.clone().token(TOKEN).with(&["--plugin-max", "1MiB"]).start();
    let large = served.job.folder.path("large.wasm");
    std::fs::File::create(&large).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    let refused = finish(&daemon, &["plugin", "load", large.to_str().expect("UTF-8")]);
    refused.assert_refused(UNUSABLE, &["1MiB"]);
    daemon.stop();
}
