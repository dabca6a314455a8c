//! Operators that mean no good, as jobs of one daemon: each ends its own job with an error that says why, and the job beside them never
//! notices.

use std::fs;
use std::path::PathBuf;

use lockgate_tests::{Daemon, DaemonSetUp, JobFolder, Metrics, Sent, part_files, wait_long_until, wait_until};
use serde_json::{Value, json};

use crate::wat_guest::{DATA, EMIT_INPUT, Guest, RESULT, emit, emit_zeros, list, log, store, store_words};

const MIB: u64 = 1 << 20;
const SPIN: &str = "(loop $spin (br $spin))";
const LATE: &str = "limit of 100ms";
const GROW: &str = "(loop $more (drop (memory.grow (i32.const 1))) (br $more))";
const GROW_TABLE: &str = "(loop $more (drop (table.grow $t (ref.null func) (i32.const 100))) (br $more))";
/// Sets a timer for each record.
const SET_TIMERS: &str = "(call $write_timers (i32.const 0) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
    (local.get 6) (local.get 7) (local.get 8) (local.get 9) (local.get 10) (local.get 11)
    (i32.const 0) (i32.const 0))";
/// Makes the event time of the first record a millisecond later.
const LATER: &str = "(i64.store (local.get 10) (i64.add (i64.load (local.get 10)) (i64.const 1)))";
/// Makes the first key another one each time.
const OTHER_KEY: &str =
    "(local.set $i (i32.add (local.get $i) (i32.const 1))) (i32.store (local.get 2) (local.get $i))";
/// Writes the values of the records for their keys.
const WRITE: &str = "(call $write_many (i32.const 0) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
    (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (local.get 6) (local.get 7) (local.get 8) (local.get 9) (i32.const 0) (i32.const 0))";

/// A job that does harm, and the words of its error.
struct Harm {
    name: &'static str,
    guest: Guest,
    words: &'static [&'static str],
}

fn harm(name: &'static str, guest: Guest, words: &'static [&'static str]) -> Harm {
    Harm { name, guest, words }
}

/// In one of its functions each.
fn in_exports() -> Vec<Harm> {
    let new = Guest::default;
    vec![
        harm("loop-in-open", Guest { open: SPIN.to_owned(), ..new() }, &["failed in open", LATE]),
        harm("loop-in-process", Guest { process: SPIN.to_owned(), ..new() }, &["failed in process", LATE]),
        harm("loop-in-timers", timed(SPIN), &["failed in timers", LATE]),
        harm("loop-in-watermark", Guest { watermark: SPIN.to_owned(), ..new() }, &["failed in watermark", LATE]),
        harm("loop-in-snapshot", Guest { snapshot: SPIN.to_owned(), ..new() }, &["failed in snapshot", LATE]),
        harm("loop-for-memory", Guest { realloc: SPIN.to_owned(), ..new() }, &["failed in open", LATE]),
        harm("trap-in-open", Guest { open: "unreachable".to_owned(), ..new() }, &["failed in open", "unreachable"]),
        harm("trap-in-process", Guest { process: "unreachable".to_owned(), ..new() }, &["in process", "unreachable"]),
        harm("trap-in-timers", timed("unreachable"), &["failed in timers", "unreachable"]),
        harm(
            "trap-in-snapshot",
            Guest { snapshot: "unreachable".to_owned(), ..new() },
            &["in snapshot", "unreachable"],
        ),
        harm("trap-behind-snapshot", behind_snapshot(), &["failed in snapshot", "unreachable"]),
        harm(
            "panic",
            Guest { process: format!("{} unreachable", log(3, "no such word")), ..new() },
            &["panicked: no such word"],
        ),
        harm("panic-not-utf-8", Guest { process: format!("{} unreachable", log(3, b"\xff\xfe")), ..new() }, &["utf-8"]),
    ]
}

/// More than there is of something.
fn beyond_limits() -> Vec<Harm> {
    let of = |process: &str| Guest { process: process.to_owned(), ..Guest::default() };
    let recursion = Guest { extra: "(func $dig (call $dig) (call $dig))".to_owned(), ..of("(call $dig)") };
    let table = Guest { extra: "(table $t 1 funcref)".to_owned(), ..of(GROW_TABLE) };
    let flood = of(&format!("(loop $more {} (br $more))", emit_zeros(0, 100)));
    let entries =
        Guest { tables: vec![("counts", 0, 1)], ..of(&format!("(loop $more {OTHER_KEY} {WRITE} (br $more))")) };
    let timers = Guest { timers: true, ..of(&format!("(loop $more {LATER} {SET_TIMERS} (br $more))")) };
    let again = Guest { process: SET_TIMERS.to_owned(), ..timed(SET_TIMERS) };
    vec![
        harm("memory", of(GROW), &["failed in process", "bytes of memory, and its limit is 4194304"]),
        harm("stack", recursion, &["used up its stack of 131072 bytes"]),
        harm("table", table, &["table elements, and its limit is 1000"]),
        harm("output", flood, &["more than its limit of 262144 bytes"]),
        harm("entries", entries, &["fit into memory"]),
        harm("timers", timers, &["fit into memory"]),
        harm("timers-again", again, &["failed in timers", "set timers again and again"]),
    ]
}

/// What isn't so.
fn lies() -> Vec<Harm> {
    let of = |process: &str| Guest { process: process.to_owned(), ..Guest::default() };
    let snapshot = |snapshot: String| Guest { snapshot, ..Guest::default() };
    let bad_log = format!("{} (call $log (i32.const 1) {})", store(DATA, [0xff]), list(DATA, 1));
    let none = list(0, 0);
    let undeclared = format!("(call $write_many (i32.const 9) {none} {none} {none} {none} {none} {none} {none})");
    let undeclared = Guest { tables: vec![("counts", 0, 1)], ..snapshot(undeclared) };
    vec![
        harm("offsets", of(&emit(0, 2, 8, 16)), &["failed in process", "malformed batch"]),
        harm("output-that-is-not", of(&emit_zeros(7, 1)), &["output 7"]),
        harm(
            "snapshot-that-is-not",
            snapshot(store_words(RESULT + 4, &[0, u32::MAX])),
            &["in snapshot", "out of bounds"],
        ),
        harm("snapshot-of-no-table", undeclared, &["failed in snapshot", "no table 9"]),
        harm("emit-in-snapshot", snapshot(emit_zeros(0, 1)), &["failed in snapshot", "may not emit"]),
        harm("log-not-utf-8", of(&bad_log), &["utf-8"]),
        harm(
            "memory-that-is-not",
            Guest { realloc: "(return (i32.const -8))".to_owned(), ..Guest::default() },
            &["realloc"],
        ),
    ]
}

/// Sets timers and then does this when they fire.
fn timed(on_timers: &str) -> Guest {
    Guest { timers: true, process: SET_TIMERS.to_owned(), on_timers: on_timers.to_owned(), ..Guest::default() }
}

/// Traps behind the answer of its snapshot.
fn behind_snapshot() -> Guest {
    let behind = r#"(func (export "cabi_post_lockgate:operator/operator@0.1.0#snapshot") (param i32) unreachable)"#;
    Guest { extra: behind.to_owned(), ..Guest::default() }
}

/// A daemon with a job that must not notice anything.
struct Scene {
    folder: JobFolder,
    daemon: Daemon,
}

const NEIGHBOUR: &str = "neighbour";

impl Scene {
    fn new() -> Scene {
        let folder = JobFolder::new();
        let daemon = DaemonSetUp::new(folder.path("data")).start();
        let scene = Scene { folder, daemon };
        let good = scene.component("good", &Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() });
        let job = format!(
            "[job]\nname = \"{NEIGHBOUR}\"\n[checkpoint]\ninterval = \"50ms\"\n[restart]\nstrategy = \"none\"\n[source.numbers]\n\
             type = \"generator\"\nkind = \"sequence\"\nrate = 500\nsplits = 1\n[operator.copy]\nwasm = \"{}\"\ninput = \"numbers\"\n\
             [sink.out]\ntype = \"file\"\npath = \"neighbour\"\ninput = \"copy\"\n",
            good.display()
        );
        scene.daemon.submit(&job, &scene.folder.path(""));
        scene.assert_neighbour_goes_on();
        scene
    }

    fn component(&self, name: &str, guest: &Guest) -> PathBuf {
        let path = format!("{name}.wasm");
        self.folder.write(&path, guest.component());
        self.folder.path(path)
    }

    fn committed(&self) -> usize {
        part_files(&self.folder.path("neighbour")).expect("the output can be listed").len()
    }

    /// Returns when the neighbour has committed more.
    #[track_caller]
    fn assert_neighbour_goes_on(&self) {
        let before = self.committed();
        wait_until("the neighbour to commit more", || self.committed() > before + 1);
        let neighbour = self.daemon.job(NEIGHBOUR);
        assert_eq!((&neighbour["status"], &neighbour["restarts"]), (&json!("running"), &json!(0)), "{neighbour}");
    }

    fn submit(&self, name: &str, guest: &Guest, restart: &str, source: &str) {
        let wasm = self.component(name, guest);
        let job = format!(
            "[job]\nname = \"{name}\"\n[checkpoint]\ninterval = \"50ms\"\n[restart]\n{restart}\n[source.numbers]\ntype = \"generator\"\n\
             kind = \"sequence\"\nsplits = 1\n{source}\n[operator.hostile]\nwasm = \"{wasm}\"\ninput = \"numbers\"\n\
             [operator.hostile.limits]\nmemory = \"4MiB\"\nstate_memory = \"64KiB\"\ncall = \"100ms\"\noutput = \"256KiB\"\n\
             stack = \"128KiB\"\ntables = 1000\n[sink.nowhere]\ntype = \"null\"\ninput = \"hostile\"\n",
            wasm = wasm.display()
        );
        self.daemon.submit(&job, &self.folder.path(""));
    }

    /// Removes a job and its plugin.
    fn remove(&self, name: &str) {
        let job = self.daemon.job(name);
        self.daemon.done(204, "DELETE", &format!("/v1/jobs/{name}"), Sent::Nothing);
        let plugin = job["plugins"]["hostile"].as_str().expect("its plugin");
        self.daemon.done(204, "DELETE", &format!("/v1/plugins/{plugin}"), Sent::Nothing);
    }

    fn metrics(&self) -> Metrics {
        let answer = self.daemon.send("GET", "/metrics", Sent::Nothing).expect("an answer");
        Metrics::parse(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body))
    }

    /// Another job runs to its end, and the neighbour has each of its records once.
    fn end(self) {
        let good = Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() };
        self.submit("good", &good, "strategy = \"none\"", "count = 1000");
        self.daemon.wait_for_status("good", "ended");
        self.assert_neighbour_goes_on();
        let Scene { folder, mut daemon } = self;
        let peak = daemon.process().peak_memory_bytes();
        assert!(peak < 512 * MIB, "{peak} bytes at the most");
        daemon.stop();
        let files = part_files(&folder.path("neighbour")).expect("the output can be listed");
        let text = files.iter().map(|file| fs::read_to_string(file).expect("it is text")).collect::<String>();
        let mut numbers = text.lines().map(|line| line.parse::<usize>().expect("a number")).collect::<Vec<_>>();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..numbers.len()), "each number once");
    }
}

/// Submits each, sees it fail for its reason, and the neighbour go on.
fn assert_contained(harms: Vec<Harm>) {
    let scene = Scene::new();
    for Harm { name, guest, words } in harms {
        scene.submit(name, &guest, "strategy = \"none\"", "count = 5");
        let failed = scene.daemon.wait_for_status(name, "failed");
        let failure = failed["failure"].to_string();
        for word in words.iter().chain(&["operator 'hostile[0]'"]) {
            assert!(failure.contains(word), "{name}: nothing says '{word}': {failure}");
        }
        assert_eq!(failed["resumes"], false, "{name}");
        let memory = scene.metrics().get("lockgate_guest_memory_bytes", &[("job", name)]);
        assert!(memory.is_none_or(|bytes| bytes == 0.0), "{name}: its instance is still there");
        scene.assert_neighbour_goes_on();
        scene.remove(name);
    }
    scene.end();
}

#[test]
fn a_job_whose_operator_never_comes_back_fails_alone() {
    assert_contained(in_exports());
}

#[test]
fn a_job_whose_operator_wants_more_than_its_limits_fails_alone() {
    assert_contained(beyond_limits());
}

#[test]
fn a_job_whose_operator_lies_fails_alone() {
    assert_contained(lies());
}

#[test]
fn an_operator_that_loops_in_restore_or_close_holds_nobody_up() {
    let scene = Scene::new();
    let snapshot = store_words(RESULT + 4, &[DATA, 1]);
    let guest = Guest { restore: SPIN.to_owned(), snapshot, ..Guest::default() };
    scene.submit("loop-in-restore", &guest, "strategy = \"none\"", "rate = 50");
    wait_until("a checkpoint of it", || scene.daemon.job("loop-in-restore")["checkpoints"].as_u64() > Some(0));
    let path = "/v1/jobs/loop-in-restore";
    scene.daemon.done(200, "POST", &format!("{path}/stop"), Sent::Nothing);
    scene.daemon.done(200, "POST", &format!("{path}/restart"), Sent::Nothing);
    let failed = scene.daemon.wait_for_status("loop-in-restore", "failed");
    assert!(failed["failure"].to_string().contains("failed in restore"), "{failed}");
    scene.assert_neighbour_goes_on();
    // All of its output is committed when it is closed.
    scene.submit(
        "loop-in-close",
        &Guest { close: SPIN.to_owned(), ..Guest::default() },
        "strategy = \"none\"",
        "count = 5",
    );
    scene.daemon.wait_for_status("loop-in-close", "ended");
    scene.assert_neighbour_goes_on();
    scene.end();
}

#[test]
fn jobs_that_fail_again_and_again_leave_the_time_to_others() {
    let scene = Scene::new();
    let of = |process: &str| Guest { process: process.to_owned(), ..Guest::default() };
    let jobs = [
        ("spins", of(SPIN)),
        ("grows", of(GROW)),
        ("traps", of("unreachable")),
        ("opens", Guest { open: SPIN.to_owned(), ..of("") }),
    ];
    for (name, guest) in &jobs {
        scene.submit(name, guest, "strategy = \"fixed-delay\"\nattempts = 1000000\ndelay = \"1ms\"", "rate = 1000");
    }
    // Beside them, a component that never says what it is.
    let endless = Guest { describe: SPIN.to_owned(), ..Guest::default() }.component();
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| {
            let sent = Sent::Bytes { kind: "application/wasm", bytes: &endless };
            scene.daemon.refused(422, "POST", "/v1/plugins", sent, &["describe", "10s"]);
        });
        for _ in 0..3 {
            let before = jobs.each_ref().map(|(name, _)| restarts(&scene.daemon.job(name)));
            scene.assert_neighbour_goes_on();
            wait_long_until("each of them to fail again", || {
                let now = jobs.each_ref().map(|(name, _)| restarts(&scene.daemon.job(name)));
                now.iter().zip(&before).all(|(now, before)| now > before)
            });
        }
        upload.join().expect("it is refused");
    });
    for (name, _) in &jobs {
        let path = format!("/v1/jobs/{name}/stop");
        scene.daemon.done(200, "POST", &path, Sent::Json(&json!({ "mode": "now" })));
        scene.remove(name);
    }
    scene.end();
}

fn restarts(job: &Value) -> u64 {
    assert_ne!(job["status"], "failed", "{job}");
    job["restarts"].as_u64().expect("a number")
}

#[test]
fn components_that_do_harm_before_they_are_called_are_refused_and_leave_nothing() {
    let scene = Scene::new();
    let before = scene.daemon.get("/v1/plugins");
    let extra = |extra: &str| Guest { extra: extra.to_owned(), ..Guest::default() };
    let foreign = (r#"(import "clock" "now" (func (result i64)))"#, "import clock: interface { now: func() -> u64; }");
    let many = (0..100).map(|_| "out").collect();
    for (guest, words) in [
        (extra("(func $start unreachable) (start $start)"), ["its start function", "unreachable"]),
        (extra(&"(memory 0) ".repeat(4)), ["its start function", "memory count"]),
        (extra("(table 10000001 funcref)"), ["its start function", "table elements"]),
        (Guest { pages: 65_536, ..Guest::default() }, ["its start function", "bytes of memory"]),
        (Guest { describe: "unreachable".to_owned(), ..Guest::default() }, ["describe", "unreachable"]),
        (Guest { import: foreign, ..Guest::default() }, ["imports clock", "operators don't get"]),
        (Guest { outputs: many, ..Guest::default() }, ["100 outputs", "64 is the most"]),
    ] {
        let bytes = guest.component();
        let sent = Sent::Bytes { kind: "application/wasm", bytes: &bytes };
        scene.daemon.refused(422, "POST", "/v1/plugins", sent, &words);
    }
    assert_eq!(scene.daemon.get("/v1/plugins"), before);
    scene.end();
}
