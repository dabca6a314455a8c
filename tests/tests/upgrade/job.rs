//! A job whose operator is upgraded, and what must be true of its output.
//!
//! Invariant: the output is judged by what it says alone; which component is in force, by the checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lockgate_tests::{Finished, JobFolder, Running, Words, operator, operator_of, part_files};
use serde_json::Value;

/// Lines of one word each; so many words there are.
const WORDS: u64 = 500;

pub struct UpgradedJob {
    pub folder: JobFolder,
    /// Lines of the job file's `[checkpoint]`.
    checkpoint: &'static str,
    fault: &'static str,
    on_error: &'static str,
    mode: &'static str,
    seed: u64,
}

/// What one epoch has put out.
#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    pub epoch: u64,
    pub edition: String,
    pub lines: u64,
}

/// A driver that has ended.
pub struct Driven {
    pub finished: Finished,
    /// What it has said.
    pub answers: Vec<Value>,
}

/// One line of the output.
struct Line {
    edition: String,
    word: String,
    count: u64,
    seen: u64,
}

impl UpgradedJob {
    /// It isn't started again after a failure, so that a job that goes on after one shows that a revert isn't counted.
    pub fn new() -> UpgradedJob {
        let checkpoint = "interval = \"20ms\"";
        let (folder, mode) = (JobFolder::new(), "bounded");
        folder.create_dir("later");
        UpgradedJob { folder, checkpoint, fault: "", on_error: "fail", mode, seed: 0 }.written()
    }

    /// It waits for more input instead of ending.
    pub fn continuous(self) -> UpgradedJob {
        UpgradedJob { mode: "continuous\"\ndiscover_interval = \"5ms\"\nsettle = \"5ms", ..self }.written()
    }

    pub fn checkpoint(self, lines: &'static str) -> UpgradedJob {
        UpgradedJob { checkpoint: lines, ..self }.written()
    }

    /// Where the new component fails.
    pub fn fault(self, place: &'static str) -> UpgradedJob {
        UpgradedJob { fault: place, ..self }.written()
    }

    pub fn on_error(self, policy: &'static str) -> UpgradedJob {
        UpgradedJob { on_error: policy, ..self }.written()
    }

    fn written(self) -> UpgradedJob {
        let (split, old) = (operator("split"), component("old"));
        let UpgradedJob { checkpoint, fault, on_error, mode, .. } = &self;
        self.folder.write(
            "job.toml",
            format!(
                r#"[job]
name = "upgraded"
state_dir = "state"
parallelism = 2
[checkpoint]
{checkpoint}
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
mode = "{mode}"
[operator.split]
wasm = "{split}"
input = "text"
[operator.tally]
wasm = "{old}"
input = "split"
on_error = "{on_error}"
config.fault = "{fault}"
[sink.out]
type = "file"
path = "output"
input = "tally"
"#,
                split = split.display(),
                old = old.display()
            ),
        );
        self
    }

    /// Adds so many words to the input, in a file for each of two subtasks.
    pub fn add_words(&mut self, words: u64) {
        for file in ["a", "b"] {
            let lines = self.lines(words / 2);
            self.folder.write(format!("input/{}-{file}.txt", self.seed), lines);
        }
    }

    /// Keeps a file with so many words for later. Gives its name.
    pub fn keep_words(&mut self, words: u64) -> String {
        let (lines, name) = (self.lines(words), format!("later-{}.txt", self.seed));
        self.folder.write(format!("later/{name}"), lines);
        name
    }

    fn lines(&mut self, words: u64) -> String {
        self.seed += 1;
        let mut chance = Words::new(self.seed);
        (0..words).map(|_| format!("w{}\n", chance.below(WORDS))).collect()
    }

    /// Runs the job, and asks this of it.
    pub fn drive(&self, arguments: &[&str]) -> Driven {
        self.drive_to("none", arguments)
    }

    /// The same, to the crash point `at`.
    pub fn drive_to(&self, at: &str, arguments: &[&str]) -> Driven {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upgrade-driver"));
        command.arg(self.folder.path("job.toml")).args(arguments).env("LOCKGATE_CRASH_AT", at);
        let finished = Running::start(command).wait();
        let answers = finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        Driven { finished, answers }
    }

    /// The component that the newest checkpoint names for the operator; `None` if there is no checkpoint yet.
    pub fn in_force(&self) -> Option<String> {
        let mut command = self.folder.command("checkpoint");
        let program = command.get_program().to_owned();
        command = Command::new(program);
        command.args(["checkpoint", "list", "--json"]).arg(self.folder.path("job.toml"));
        let listed = Running::start(command).wait();
        if !listed.status.success() {
            return None;
        }
        let listed = serde_json::from_str::<Value>(&listed.stdout).expect("JSON");
        let newest = listed["checkpoints"].as_array()?.last()?;
        newest["components"]["tally"].as_str().map(str::to_owned)
    }

    /// Checks that each record of the input has its effect once, that state went on from one component to the next, and that each epoch
    /// is the work of one component. Gives the work in the order of its epochs.
    #[track_caller]
    pub fn assert_exact(&self) -> Vec<Work> {
        let mut works = BTreeMap::<u64, Work>::new();
        let (mut counts, mut seen) = (BTreeMap::<String, Vec<u64>>::new(), BTreeMap::<u64, u64>::new());
        for (epoch, subtask, path) in self.parts() {
            let text = fs::read_to_string(&path).expect("output is text");
            for line in text.lines().map(Line::parse) {
                let begun = || Work { epoch, edition: line.edition.clone(), lines: 0 };
                let work = works.entry(epoch).or_insert_with(begun);
                work.lines += 1;
                assert_eq!(work.edition, line.edition, "epoch {epoch} is the work of one component");
                counts.entry(line.word).or_default().push(line.count);
                let before = seen.insert(subtask, line.seen).unwrap_or_default();
                assert_eq!(line.seen, before + 1, "in subtask {subtask}, epoch {epoch}");
            }
        }
        for (word, total) in self.totals() {
            let mut counted = counts.remove(&word).unwrap_or_default();
            counted.sort_unstable();
            assert_eq!(counted, (1..=total).collect::<Vec<_>>(), "{word}");
        }
        assert!(counts.is_empty(), "{counts:?} isn't in the input");
        works.into_values().collect()
    }

    /// How many lines are committed.
    pub fn committed_lines(&self) -> u64 {
        let lines = |path: &PathBuf| fs::read_to_string(path).expect("output is text").lines().count() as u64;
        self.parts().iter().map(|(_, _, path)| lines(path)).sum()
    }

    /// Epoch, subtask and path of each part file, in this order.
    fn parts(&self) -> Vec<(u64, u64, PathBuf)> {
        let files = part_files(&self.folder.path("output")).expect("the output can be listed");
        let part = |path: PathBuf| {
            let name = path.file_stem()?.to_str()?;
            let mut numbers = name.strip_prefix("part-")?.split('-').map(|number| number.parse::<u64>().ok());
            Some((numbers.next()??, numbers.next()??, path.clone()))
        };
        let mut parts = files.into_iter().map(|path| part(path).expect("part-<epoch>-<subtask>")).collect::<Vec<_>>();
        parts.sort();
        parts
    }

    fn totals(&self) -> BTreeMap<String, u64> {
        let mut totals = BTreeMap::new();
        for entry in fs::read_dir(self.folder.path("input")).expect("the input can be listed") {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("input is text");
            text.lines().for_each(|word| *totals.entry(word.to_owned()).or_default() += 1);
        }
        totals
    }
}

impl Driven {
    /// The first answer that has this, and what it has.
    #[track_caller]
    pub fn answer(&self, key: &str) -> &Value {
        let answer = self.answers.iter().find_map(|answer| answer.get(key));
        answer.unwrap_or_else(|| panic!("no answer has '{key}': {:?}\n{}", self.answers, self.finished.stderr))
    }
}

impl Line {
    fn parse(line: &str) -> Line {
        let fields = line.split('\t').collect::<Vec<_>>();
        let [edition, word, count, seen] = fields[..] else { panic!("'{line}' has four fields") };
        let number = |field: &str| field.parse().unwrap_or_else(|_| panic!("'{field}' is a number"));
        Line { edition: edition.to_owned(), word: word.to_owned(), count: number(count), seen: number(seen) }
    }
}

/// One of the two editions of the operator.
pub fn component(edition: &str) -> PathBuf {
    operator_of("tests/upgrades", edition)
}

/// An upgrade, as the driver takes it.
pub fn upgrade_to(edition: &str) -> String {
    format!("upgrade:{}", replaced_by(edition))
}

/// `tally=PATH`.
pub fn replaced_by(edition: &str) -> String {
    format!("tally={}", component(edition).display())
}

/// The SHA-256 of an edition, as the system's own program says it.
pub fn hash(edition: &str) -> String {
    let output = Command::new("sha256sum").arg(component(edition)).output().expect("sha256sum is there");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().next().expect("a hash").to_owned()
}

/// The editions in a row, without repetitions.
pub fn changes(works: &[Work]) -> Vec<&str> {
    let mut changes = works.iter().map(|work| work.edition.as_str()).collect::<Vec<_>>();
    changes.dedup();
    changes
}
