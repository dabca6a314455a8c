//! What these tests share: a word count that a daemon runs, and components that differ in nothing but their hash.

use std::path::PathBuf;

use lockgate_tests::{Daemon, DaemonSetUp, WordCount, operator, wait_long_until};

/// A word count whose job the daemon gets, with the daemon's data beside it.
pub struct ServedWordCount {
    pub job: WordCount,
    pub set_up: DaemonSetUp,
}

/// The name of its job.
pub const JOB: &str = "word-count";

impl ServedWordCount {
    pub fn new() -> ServedWordCount {
        let job = WordCount::new().continuous();
        let set_up = DaemonSetUp::new(job.folder.path("data"));
        ServedWordCount { job, set_up }
    }

    /// The folder to which the paths of the job file are relative.
    pub fn base_dir(&self) -> PathBuf {
        self.job.folder.path("")
    }

    /// The job file, with components by their hashes.
    pub fn job_file(&self, split: &str, count: &str) -> String {
        let named = |text: String, name: &str, hash: &str| {
            text.replace(&operator(name).display().to_string(), &format!("sha256:{hash}"))
        };
        named(named(self.job.job_file(), "split", split), "count", count)
    }

    /// Uploads the components and submits the job; gives the hashes of `split` and `count`.
    #[track_caller]
    pub fn submit(&self, daemon: &Daemon) -> (String, String) {
        let (split, count) = (daemon.upload(&operator("split")), daemon.upload(&operator("count")));
        daemon.submit(&self.job_file(&split, &count), &self.base_dir());
        (split, count)
    }

    /// Returns when the committed output is exactly what the input asks for.
    #[track_caller]
    pub fn wait_until_exact(&self) {
        wait_long_until("exact output", || self.job.totals().check(&self.job.output()).is_ok());
        self.job.assert_exact();
    }
}

/// A job that reads numbers and drops them, without an end.
pub fn endless_job(name: &str) -> String {
    format!(
        "[job]\nname = \"{name}\"\n[checkpoint]\ninterval = \"200ms\"\n[source.numbers]\ntype = \"generator\"\nrate = 50\n\
         splits = 1\n[sink.nowhere]\ntype = \"null\"\ninput = \"numbers\"\n"
    )
}
