//! Components that take too much to compile: each is refused with the limit, and nothing of it goes on.

#[path = "../../host/src/guest/tests/guest.rs"]
#[expect(dead_code, reason = "written for the tests of the room")]
mod wat_guest;

use std::fs;
use std::process::Command;
use std::time::Duration;

use lockgate_tests::{DaemonSetUp, JobFolder, Running, Sent, lockgate, wait_until};
use wat_guest::{EMIT_INPUT, Guest};

/// The exit code for a plugin that can't be used.
const UNUSABLE: i32 = 2;

/// Copies what it gets.
fn good() -> Vec<u8> {
    Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() }.component()
}

/// Takes minutes and some hundred megabytes to compile: at the beginning of each loop the compiler asks of each local what it is.
fn slow() -> Vec<u8> {
    const LOCALS: usize = 2_000;
    let a_loop = |local: usize| {
        let (one, other, last) = ((local * 7 + 1) % LOCALS, (local * 13 + 5) % LOCALS, (local * 3 + 2) % LOCALS);
        format!(
            "(loop (local.set {local} (i32.add (local.get {one}) (local.get {other}))) (br_if 0 (local.get {last})))"
        )
    };
    let loops = (0..LOCALS).map(a_loop).collect::<String>();
    let function = format!("(func (local {}) {loops})", "i32 ".repeat(LOCALS));
    Guest { extra: function.repeat(50), process: EMIT_INPUT.to_owned(), ..Guest::default() }.component()
}

fn inspect(folder: &JobFolder, component: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(lockgate());
    command.arg("inspect").arg(folder.path(component)).args(arguments);
    // Code that other tests have compiled isn't there.
    command.env("XDG_CACHE_HOME", folder.path("cache"));
    Running::start(command)
}

/// The processes that were started by one.
fn children(parent: u32) -> Vec<u32> {
    let ids = fs::read_dir("/proc").expect("procfs").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // Behind the name in brackets: the state, then the parent.
        let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parent_of == Some(parent)
    };
    ids.filter(is_child).collect()
}

fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_component_that_compiles_too_long_is_refused_by_a_job_with_the_limit() {
    let folder = JobFolder::new();
    folder.write("slow.wasm", slow());
    folder.write("input/a.txt", "a line\n");
    folder.write(
        "job.toml",
        "[job]\nname = 'copy'\n[source.text]\ntype = 'file'\npath = 'input'\n[operator.same]\nwasm = 'slow.wasm'\n\
         input = 'text'\n[sink.out]\ntype = 'file'\npath = 'out'\ninput = 'same'\n",
    );
    let mut command = folder.command("run");
    command.args(["--compile-time", "1s"]).env("XDG_CACHE_HOME", folder.path("cache"));
    let refused = Running::start(command).wait();
    refused.assert_refused(UNUSABLE, &["operator 'same'", "slow.wasm", "longer than 1s", "--compile-time"]);
    assert!(refused.took < Duration::from_secs(20), "{:?}", refused.took);
    assert!(!folder.path("out").exists(), "a refused job writes nothing");
}

#[test]
fn a_component_that_wants_too_much_memory_is_refused_with_the_limit() {
    let folder = JobFolder::new();
    folder.write("slow.wasm", slow());
    let refused = inspect(&folder, "slow.wasm", &["--compile-memory", "64MiB"]).wait();
    refused.assert_refused(UNUSABLE, &["slow.wasm", "more memory than 64MiB", "--compile-memory"]);
}

#[test]
fn a_daemon_refuses_what_compiles_too_long_and_takes_the_next_one() {
    let folder = JobFolder::new();
    folder.write("good.wasm", good());
    let set_up = DaemonSetUp::new(folder.path("data")).with(&["--compile-time", "3s"]);
    let daemon = set_up.start();
    let slow = Sent::Bytes { kind: "application/wasm", bytes: &slow() };
    daemon.refused(422, "POST", "/v1/plugins", slow, &["longer than 3s", "--compile-time"]);
    let left = fs::read_dir(folder.path("data/plugins")).expect("a folder").count();
    assert_eq!(left, 0, "nothing of it is kept");
    daemon.upload(&folder.path("good.wasm"));
    daemon.stop();
}

#[test]
fn what_is_compiled_already_needs_no_time_at_all() {
    let folder = JobFolder::new();
    folder.write("good.wasm", good());
    let at_once = ["--compile-time", "0ms"];
    inspect(&folder, "good.wasm", &at_once).wait().assert_refused(UNUSABLE, &["longer than 0ms"]);
    inspect(&folder, "good.wasm", &[]).wait().assert_success();
    inspect(&folder, "good.wasm", &at_once).wait().assert_success();
}

#[test]
fn nothing_goes_on_compiling_when_the_process_that_waits_is_killed() {
    let folder = JobFolder::new();
    folder.write("slow.wasm", slow());
    let mut waiting = inspect(&folder, "slow.wasm", &[]);
    let id = waiting.id();
    waiting.wait_until("it compiles", || !children(id).is_empty());
    let compiling = children(id);
    waiting.kill();
    waiting.wait();
    wait_until("the end of it", || !compiling.iter().any(|id| is_alive(*id)));
}

#[test]
fn the_verb_that_compiles_is_for_this_program_alone() {
    let mut command = Command::new(lockgate());
    command.args(["compile-component", "1", "1000", "1073741824"]);
    Running::start(command).wait().assert_refused(1, &["lockgate inspect"]);
    let help = Command::new(lockgate()).arg("--help").output().expect("it starts");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("compile-component"));
}
