//! Daemons on real folders, with plugins and jobs that are small and real.

mod crash;
mod damage;
mod jobs;
mod limits;
mod plugins;
mod savepoints;
mod upgrades;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Daemon, DaemonOptions, JobInfo, PluginInfo, ServeError, Submission};
use crate::guest::Compiler;
use crate::guest::tests::guest::{EMIT_INPUT, Guest};

/// So long nothing takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where daemons are started one after the other, with room beside for what jobs write.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    async fn start(&self) -> Arc<Daemon> {
        start_at(self.path()).await.expect("a daemon")
    }

    /// Puts a component beside the jobs and gives its path.
    fn component(&self, name: &str, component: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, component).expect("written");
        path
    }

    /// The numbers that a job `copy` has written, in order.
    fn numbers(&self) -> Vec<u64> {
        numbers_in(&self.path().join("out"))
    }
}

async fn start_at(root: &Path) -> Result<Arc<Daemon>, ServeError> {
    Daemon::start(options(root)).await
}

fn options(root: &Path) -> DaemonOptions {
    let compiler = Compiler::InProcess;
    DaemonOptions { data_dir: root.join("data"), plugin_bytes_max: 1 << 20, plugins_max: 8, jobs_max: 4, compiler }
}

/// An operator that gives on what it gets; each name is another component.
fn same(name: &'static str) -> Vec<u8> {
    Guest { name, process: EMIT_INPUT.to_owned(), ..Guest::default() }.component()
}

async fn upload(daemon: &Arc<Daemon>, component: &[u8]) -> Result<PluginInfo, ServeError> {
    let mut upload = daemon.begin_upload().await?;
    for piece in component.chunks(1_000) {
        upload.write(piece).await?;
    }
    upload.finish().await.map(|uploaded| uploaded.plugin)
}

/// A job `copy` that writes 0, 1, 2 and so on to `out`, without end.
fn copy(root: &Path, wasm: &str) -> Submission {
    let job_toml = format!(
        "[job]\nname = 'copy'\n[checkpoint]\ninterval = '20ms'\nretain = 1\n\
         [source.numbers]\ntype = 'generator'\nkind = 'sequence'\nsplits = 1\nrate = 2000\n\
         [operator.same]\nwasm = '{wasm}'\ninput = 'numbers'\n\
         [sink.out]\ntype = 'file'\npath = 'out'\ninput = 'same'\n"
    );
    Submission { job_toml, base_dir: Some(root.to_owned()) }
}

/// Changes the text of a submission.
fn changed(submission: Submission, from: &str, to: &str) -> Submission {
    assert!(submission.job_toml.contains(from), "{from}");
    Submission { job_toml: submission.job_toml.replace(from, to), ..submission }
}

/// Waits until a job is as it should be.
async fn until(daemon: &Daemon, job: &str, is_so: impl Fn(&JobInfo) -> bool) -> JobInfo {
    let begun = Instant::now();
    loop {
        let info = daemon.job(job).expect("the job is there");
        if is_so(&info) {
            return info;
        }
        assert!(begun.elapsed() < PATIENCE, "{info:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a job has committed so many checkpoints since it was started.
async fn until_checkpoints(daemon: &Daemon, job: &str, count: u64) -> JobInfo {
    until(daemon, job, |info| info.checkpoints >= count).await
}

/// All committed lines of an output folder, which are numbers, in order.
fn numbers_in(out: &Path) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(out) else { return Vec::new() };
    let parts = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let texts = parts.map(|path| std::fs::read_to_string(path).expect("text")).collect::<Vec<_>>();
    let mut numbers =
        texts.iter().flat_map(|text| text.lines()).map(|line| line.parse().expect("a number")).collect::<Vec<_>>();
    numbers.sort_unstable();
    numbers
}

/// Whether a job has written each number from 0 on once, and some at all.
#[track_caller]
fn assert_exactly_once(numbers: &[u64]) {
    assert!(!numbers.is_empty(), "something was written");
    for (expected, found) in (0..).zip(numbers) {
        assert_eq!(*found, expected, "of {} numbers", numbers.len());
    }
}
