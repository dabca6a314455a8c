//! A new version of an operator takes over the state of an older one: values of another type, other keys, another parallelism.
//! What it can't take over is refused, and nothing is lost by trying.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lockgate_tests::{JobFolder, Running, operator_of, part_files};

/// The exit code of a job that failed.
const FAILED: i32 = 1;

/// The job with one version of the counting operator.
#[derive(Clone, Copy)]
struct Version {
    feature: &'static str,
    parallelism: u32,
    /// Configuration of the operator that gives the keys.
    keys: &'static str,
    /// Configuration of the counting operator.
    config: &'static str,
}

const FIRST: Version = Version { feature: "first", parallelism: 1, keys: "", config: "" };
const MARKED: Version = Version { feature: "marked", keys: "mark = true", ..FIRST };
const FOLDED: Version = Version { feature: "folded", keys: "lower = true", ..FIRST };
const TALLY: Version = Version { feature: "tally", ..FIRST };
const SILENT: Version = Version { feature: "silent", ..FIRST };

impl Version {
    fn at(self, parallelism: u32) -> Version {
        Version { parallelism, ..self }
    }

    fn job_file(self) -> String {
        let Version { feature, parallelism, keys, config } = self;
        format!(
            r#"[job]
name = "versions"
state_dir = "state"
[checkpoint]
interval = "20ms"
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
[operator.keyer]
wasm = "{keyer}"
input = "text"
[operator.keyer.config]
{keys}
[operator.count]
wasm = "{count}"
input = "keyer"
parallelism = {parallelism}
[operator.count.config]
{config}
[sink.out]
type = "file"
path = "output"
input = "count"
"#,
            keyer = operator_of("tests/versions", "keyer").display(),
            count = operator_of("tests/versions", feature).display(),
        )
    }
}

/// A job's folder and what it has read so far.
struct Counting {
    folder: JobFolder,
    words: Vec<String>,
    files: usize,
}

impl Counting {
    fn new() -> Counting {
        Counting { folder: JobFolder::new(), words: Vec::new(), files: 0 }
    }

    /// Gives the job more to read, and the version that is to read it.
    fn prepare(&mut self, version: Version, words: impl IntoIterator<Item = String>) {
        let words = words.into_iter().collect::<Vec<_>>();
        let lines = words.iter().map(|word| format!("{word}\n")).collect::<String>();
        self.folder.write("job.toml", version.job_file());
        self.folder.write(format!("input/{:03}", self.files), lines);
        self.words.extend(words);
        self.files += 1;
    }

    fn run(&mut self, version: Version, words: impl IntoIterator<Item = String>) {
        self.prepare(version, words);
        self.folder.run().assert_success();
    }

    /// The committed lines, sorted.
    fn output(&self) -> Vec<String> {
        let files = part_files(&self.folder.path("output")).expect("the output can be listed");
        let text = files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect::<String>();
        let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
        lines.sort_unstable();
        lines
    }

    /// Each word with every number up to how often it was read.
    fn expected(&self) -> Vec<String> {
        let mut counts = BTreeMap::<&str, u64>::new();
        let mut lines = Vec::new();
        for word in &self.words {
            let count = counts.entry(word).or_default();
            *count += 1;
            lines.push(format!("{word}\t{count}"));
        }
        lines.sort_unstable();
        lines
    }

    fn assert_exact(&self, when: &str) {
        assert!(self.output() == self.expected(), "{when}: {:?} is not {:?}", self.output(), self.expected());
    }

    fn dry_run(&self, feature: &str) -> std::process::Command {
        let mut command = self.folder.command("upgrade");
        command.arg("count").arg(operator_of("tests/versions", feature)).args(["--dry-run", "--json"]);
        command
    }
}

/// `times` times each of `count` words.
fn words(count: usize, times: usize) -> impl Iterator<Item = String> {
    (0..times).flat_map(move |_| (0..count).map(|number| format!("word-{number}")))
}

#[test]
fn values_and_keys_change_while_the_parallelism_does_and_every_count_goes_on() {
    for parallelisms in [[1, 2, 3], [2, 3, 1], [3, 1, 2], [2, 2, 2]] {
        let [first, second, third] = parallelisms;
        let mut counting = Counting::new();
        counting.run(FIRST.at(first), words(300, 2));
        counting.run(MARKED.at(second), words(350, 1));
        counting.assert_exact(&format!("migrated at {parallelisms:?}"));
        counting.run(MARKED.at(third), words(350, 2));
        counting.assert_exact(&format!("restored after that at {parallelisms:?}"));
    }
}

#[test]
fn keys_that_become_one_are_counted_together() {
    for parallelism in [1, 3] {
        let mut counting = Counting::new();
        let mixed = (0..200).flat_map(|n| [format!("WORD-{n}"), format!("Word-{n}"), format!("word-{n}")]);
        counting.run(FIRST.at(parallelism), mixed);
        counting.assert_exact("each way to write it is a word");
        counting.run(FOLDED.at(parallelism), (0..200).map(|n| format!("Word-{n}")));
        let fourth = counting.output().iter().filter(|line| line.starts_with("word-") && line.ends_with("\t4")).count();
        assert_eq!(fourth, 200, "three were counted before");
    }
}

#[test]
fn a_version_that_does_not_say_how_to_migrate_is_refused_and_the_old_one_goes_on() {
    let mut counting = Counting::new();
    counting.run(FIRST, words(10, 1));
    counting.prepare(SILENT, words(10, 1));
    let finished = counting.folder.run();
    finished.assert_refused(FAILED, &["count", "'counts'", "from 1 to 2", "Operator::migrate"]);
    counting.run(FIRST, words(10, 1));
    counting.assert_exact("the old version");
}

#[test]
fn state_is_never_brought_back_to_an_older_version() {
    let mut counting = Counting::new();
    counting.run(FIRST, words(10, 1));
    counting.run(TALLY, words(10, 1));
    counting.prepare(FIRST, words(10, 1));
    let finished = counting.folder.run();
    finished.assert_refused(FAILED, &["version 2 of table 'counts'", "declares version 1", "older version"]);
    counting.run(TALLY, words(10, 1));
    counting.assert_exact("the new version");
}

#[test]
fn a_migration_that_traps_in_the_middle_loses_nothing() {
    for parallelism in [1, 2] {
        let mut counting = Counting::new();
        counting.run(FIRST.at(parallelism), words(400, 2));
        counting.prepare(Version { config: "trap_at = 150", ..TALLY.at(parallelism) }, words(400, 1));
        for _ in 0..2 {
            counting.folder.run().assert_refused(FAILED, &["count", "migrate", "the configuration says so"]);
        }
        counting.run(TALLY.at(parallelism), words(400, 1));
        counting.assert_exact("the mended version");
    }
}

#[test]
fn a_crash_before_or_after_the_first_checkpoint_of_migrated_state_loses_and_doubles_nothing() {
    for at in ["store.upload.before", "store.publish.before", "store.publish.after", "connector.rename.before"] {
        let mut counting = Counting::new();
        counting.run(FIRST.at(2), words(200, 2));
        counting.prepare(MARKED.at(3), words(250, 1));
        let crashed = counting.folder.run_to_crash_point(at);
        assert!(crashed.was_killed(), "{at}: {}", crashed.stderr);
        counting.folder.run().assert_success();
        counting.assert_exact(at);
    }
}

/// Path and content of every file below a folder, and the paths of the folders.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.strip_prefix(folder).expect("it is below").display().to_string();
            if path.is_dir() {
                found.insert(format!("{name}/"), Vec::new());
                folders.push(path);
            } else {
                found.insert(name, fs::read(&path).expect("a readable file"));
            }
        }
    }
    found
}

#[test]
fn a_dry_run_tells_what_would_become_of_the_state_and_changes_nothing() {
    let mut counting = Counting::new();
    counting.run(FIRST.at(2), words(500, 2));
    let before = contents(&counting.folder.path(""));
    for (feature, is_migrated) in [("marked", true), ("tally", true), ("first", false)] {
        let finished = Running::start(counting.dry_run(feature)).wait();
        finished.assert_success();
        let report = serde_json::from_str::<serde_json::Value>(&finished.stdout).expect("JSON");
        assert_eq!((&report["operator"], &report["subtasks"]), (&"count".into(), &2.into()), "{report}");
        let [counts, unused] = report["tables"].as_array().expect("tables").as_slice() else { panic!("{report}") };
        assert_eq!((&counts["name"], &counts["from_version"]), (&"counts".into(), &1.into()), "{report}");
        assert_eq!((&counts["entries_before"], &counts["entries_after"]), (&500.into(), &500.into()), "{report}");
        assert_eq!(counts["to_version"] == 2, is_migrated, "{report}");
        let restarts = report["needs_restart"].as_array().expect("reasons").len();
        assert_eq!(restarts, usize::from(feature == "marked"), "only other keys need a restart: {report}");
        assert_eq!(unused["entries_after"], 0, "{report}");
    }
    let silent = Running::start(counting.dry_run("silent")).wait();
    silent.assert_refused(FAILED, &["count", "'counts'", "from 1 to 2"]);
    let after = contents(&counting.folder.path(""));
    assert!(before == after, "{:?} became {:?}", before.keys(), after.keys());
    counting.run(FIRST.at(2), words(500, 1));
    counting.assert_exact("the job after its dry runs");
}

#[test]
fn a_dry_run_names_an_operator_that_the_job_does_not_have() {
    let mut counting = Counting::new();
    counting.prepare(FIRST, words(1, 1));
    let mut command = counting.folder.command("upgrade");
    command.arg("counter").arg(operator_of("tests/versions", "first")).arg("--dry-run");
    Running::start(command).wait().assert_refused(2, &["'counter'", "count, keyer"]);
    let fresh = Running::start(counting.dry_run("tally")).wait();
    fresh.assert_success();
    assert!(fresh.stdout.contains("\"epoch\":null"), "{}", fresh.stdout);
}

#[test]
fn a_dry_run_reads_the_state_of_a_job_while_it_runs() {
    let folder = JobFolder::new();
    folder.write(
        "job.toml",
        format!(
            r#"[job]
name = "endless"
state_dir = "state"
[checkpoint]
interval = "10ms"
[source.numbers]
type = "generator"
kind = "sequence"
keys = 1000
[operator.count]
wasm = "{}"
input = "numbers"
parallelism = 2
[sink.out]
type = "null"
input = "count"
"#,
            operator_of("tests/versions", "first").display()
        ),
    );
    let mut job = folder.start();
    let manifests = folder.path("state/checkpoints/endless/0/manifests");
    // With as many as it keeps, it removes some while they are read.
    job.wait_until("three checkpoints", || fs::read_dir(&manifests).is_ok_and(|manifests| manifests.count() >= 3));
    for _ in 0..3 {
        let mut command = folder.command("upgrade");
        command.arg("count").arg(operator_of("tests/versions", "marked")).args(["--dry-run", "--json"]);
        let finished = Running::start(command).wait();
        finished.assert_success();
        let report = serde_json::from_str::<serde_json::Value>(&finished.stdout).expect("JSON");
        assert!(report["epoch"].as_u64() > Some(0), "{report}");
        assert!(report["tables"][0]["entries_after"].as_u64() > Some(0), "{report}");
    }
    assert!(job.is_alive(), "the dry runs were none of its business");
    job.terminate();
    job.wait().assert_success();
}
