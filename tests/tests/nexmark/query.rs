//! The job file of a query, as it is in the repository but for its size, in a folder of its own.

use std::fs;
use std::time::Duration;

use lockgate_tests::{JobFolder, Words, kill_after, operator_of, part_files, repository};

pub struct Query {
    pub folder: JobFolder,
    is_json: bool,
}

impl Query {
    pub fn new(name: &str, count: u64, event_rate: u64, parallelism: u32) -> Query {
        let file = repository().join("examples/nexmark").join(format!("{name}.toml"));
        let text = fs::read_to_string(file).expect("the query has a job file");
        let replaced = |text: String, from: &str, to: String| {
            assert!(text.contains(from), "{name}.toml has no {from}");
            text.replace(from, &to)
        };
        let text = replaced(text, "count = 1_000_000", format!("count = {count}"));
        let text = replaced(text, "event_rate = 10_000", format!("event_rate = {event_rate}"));
        let text = replaced(text, "interval = \"1s\"", "interval = \"50ms\"".to_owned());
        let mut text = replaced(text, "[checkpoint]", format!("parallelism = {parallelism}\n\n[checkpoint]"));
        let operators = text.lines().filter_map(|line| line.strip_prefix("wasm = \"")?.strip_suffix(".wasm\""));
        let operators = operators.map(str::to_owned).collect::<Vec<_>>();
        for operator in operators {
            let wasm = operator_of("examples/nexmark", &operator);
            text = text.replace(&format!("\"{operator}.wasm\""), &format!("\"{}\"", wasm.display()));
        }
        let folder = JobFolder::new();
        folder.write("job.toml", text);
        Query { folder, is_json: name == "q0" }
    }

    /// So many events a second by the clock, so that there is time to kill.
    pub fn rate(self, rate: u64) -> Query {
        let path = self.folder.path("job.toml");
        let text = fs::read_to_string(&path).expect("it was written");
        self.folder.write("job.toml", text.replace("event_rate =", &format!("rate = {rate}\nevent_rate =")));
        self
    }

    /// Starts the job and kills it, again and again; tells how many kills have hit a running process.
    pub fn kill_at_random_moments(&self, seed: u64, kills: u32) -> u32 {
        let mut moments = Words::new(seed);
        let mut kill = || kill_after(self.folder.start(), Duration::from_millis(200 + moments.below(900)));
        (0..kills).map(|_| u32::from(kill())).sum()
    }

    /// # Panics
    /// Unless the committed output is these lines, in any order.
    #[track_caller]
    pub fn assert_output(&self, wanted: &[String]) {
        let files = part_files(&self.folder.path("output")).expect("the output can be listed");
        let text = files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect::<String>();
        let mut lines = text.lines().map(|line| self.normal(line)).collect::<Vec<_>>();
        lines.sort();
        let differs = lines.iter().zip(wanted).find(|(line, wanted)| line != wanted);
        assert!(
            lines == wanted,
            "{} lines instead of {}; the first that differ: {differs:?}",
            lines.len(),
            wanted.len()
        );
    }

    fn normal(&self, line: &str) -> String {
        if !self.is_json {
            return line.to_owned();
        }
        serde_json::from_str::<serde_json::Value>(line).expect("an event").to_string()
    }
}
