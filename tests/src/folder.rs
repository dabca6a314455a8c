//! A job's folder: job file, plugins, input, state, output.
//!
//! Invariant: it is removed when the test passes, and kept and named when it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::binary::lockgate;
use crate::process::{Finished, Running};

pub struct JobFolder {
    // `None` only while it is dropped.
    folder: Option<TempDir>,
}

impl JobFolder {
    /// An empty folder.
    ///
    /// # Panics
    /// If none can be made.
    #[expect(clippy::new_without_default, reason = "making a folder is no default")]
    pub fn new() -> JobFolder {
        let folder = tempfile::Builder::new().prefix("lockgate-test-").tempdir();
        JobFolder { folder: Some(folder.expect("the system's folder for temporary files is writable")) }
    }

    /// The path of `name` in the folder; an empty name is the folder itself.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.as_ref().expect("only dropping takes it").path().join(name)
    }

    /// Writes a file, with the folders above it.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        let parent = path.parent().expect("a file is in a folder");
        std::fs::create_dir_all(parent).unwrap_or_else(|error| panic!("cannot create {}: {error}", parent.display()));
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// Creates a folder in it.
    ///
    /// # Panics
    /// If it can't be created.
    pub fn create_dir(&self, name: impl AsRef<Path>) {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
    }

    /// `lockgate VERB job.toml`, not started yet.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(lockgate());
        command.arg(verb).arg(self.path("job.toml")).env_remove("LOCKGATE_CRASH_AT");
        command
    }

    /// `lockgate run`, on its own.
    pub fn start(&self) -> Running {
        Running::start(self.command("run"))
    }

    /// `lockgate run`, to its end.
    pub fn run(&self) -> Finished {
        self.start().wait()
    }

    /// `lockgate run`, to its end or to the crash point `at`.
    pub fn run_to_crash_point(&self, at: &str) -> Finished {
        let mut command = self.command("run");
        command.env("LOCKGATE_CRASH_AT", at);
        Running::start(command).wait()
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            println!("the job's folder is kept: {}", folder.keep().display());
        }
    }
}
