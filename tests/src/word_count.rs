//! The main job over generated text, with short intervals so that a small input meets many checkpoints.

use std::path::PathBuf;

use crate::binary::operator;
use crate::folder::JobFolder;
use crate::reference::{Checked, WordTotals};
use crate::text::write_text;

/// A word count in a folder of its own: `input`, `output`, `state`, `job.toml`.
pub struct WordCount {
    pub folder: JobFolder,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    mode: &'static str,
    interval: String,
    /// More lines of `[checkpoint]`.
    barriers: &'static str,
    state_memory: &'static str,
    parallelism: u32,
    guarantee: &'static str,
    restart: &'static str,
}

impl WordCount {
    /// A bounded job without input yet, with a checkpoint every 20 ms and all but the sink in two subtasks, so that
    /// barriers have several inputs to be aligned on. It isn't started again after a failure.
    pub fn new() -> WordCount {
        let settings = Settings {
            mode: "bounded",
            interval: "20ms".to_owned(),
            barriers: "",
            parallelism: 2,
            state_memory: "128MiB",
            guarantee: "exactly-once",
            restart: "strategy = \"none\"",
        };
        let job = WordCount { folder: JobFolder::new(), settings };
        job.folder.create_dir("input");
        job.write_job();
        job
    }

    /// Waits for new files and new lines instead of ending.
    pub fn continuous(mut self) -> WordCount {
        self.settings.mode = "continuous";
        self.write_job();
        self
    }

    /// Little memory, so that state is merged into files and these are uploaded, too.
    pub fn little_state_memory(mut self) -> WordCount {
        self.settings.state_memory = "2MiB";
        self.write_job();
        self
    }

    pub fn guarantee(mut self, guarantee: &'static str) -> WordCount {
        self.settings.guarantee = guarantee;
        self.write_job();
        self
    }

    /// With this as its `[restart]` table.
    pub fn restart(mut self, restart: &'static str) -> WordCount {
        self.settings.restart = restart;
        self.write_job();
        self
    }

    pub fn interval(mut self, interval: &str) -> WordCount {
        self.settings.interval = interval.to_owned();
        self.write_job();
        self
    }

    /// How barriers are aligned, as lines of the job file.
    pub fn barriers(mut self, barriers: &'static str) -> WordCount {
        self.settings.barriers = barriers;
        self.write_job();
        self
    }

    pub fn parallelism(mut self, parallelism: u32) -> WordCount {
        self.rescale(parallelism);
        self
    }

    /// The next run has another parallelism.
    pub fn rescale(&mut self, parallelism: u32) {
        self.settings.parallelism = parallelism;
        self.write_job();
    }

    /// Adds a file of generated text to the input. The job sees it whole or not at all.
    pub fn add_text(&self, name: &str, seed: u64, bytes: u64) -> &WordCount {
        let fresh = self.folder.path("fresh.txt");
        write_text(&fresh, seed, bytes).expect("the job's folder is writable");
        std::fs::rename(fresh, self.input().join(name)).expect("the job's folder is writable");
        self
    }

    pub fn input(&self) -> PathBuf {
        self.folder.path("input")
    }

    pub fn output(&self) -> PathBuf {
        self.folder.path("output")
    }

    /// How often each word is in the input now.
    pub fn totals(&self) -> WordTotals {
        WordTotals::of_folder(&self.input()).expect("the input can be read")
    }

    /// # Panics
    /// Unless the committed output is exactly what the input asks for.
    #[track_caller]
    pub fn assert_exact(&self) -> Checked {
        match self.totals().check(&self.output()) {
            Ok(checked) => checked,
            Err(mismatch) => panic!("the output isn't exact: {mismatch:?}"),
        }
    }

    /// Writes the job file.
    fn write_job(&self) {
        self.folder.write("job.toml", self.job_file());
    }

    /// The job file's text, for tests that break it.
    pub fn job_file(&self) -> String {
        let (split, count) = (operator("split"), operator("count"));
        let Settings { mode, interval, barriers, parallelism, state_memory, guarantee, restart } = &self.settings;
        format!(
            r#"[job]
name = "word-count"
guarantee = "{guarantee}"
state_dir = "state"

[checkpoint]
interval = "{interval}"
{barriers}

[restart]
{restart}

[source.text]
type = "file"
path = "input"
mode = "{mode}"
parallelism = {parallelism}

[operator.split]
wasm = "{split}"
input = "text"
parallelism = {parallelism}

[operator.count]
wasm = "{count}"
input = "split"
parallelism = {parallelism}
limits.state_memory = "{state_memory}"

[sink.out]
type = "file"
path = "output"
input = "count"
"#,
            split = split.display(),
            count = count.display(),
        )
    }
}

impl Default for WordCount {
    fn default() -> WordCount {
        WordCount::new()
    }
}
