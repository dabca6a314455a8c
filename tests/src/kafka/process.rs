//! The process of a test's own broker: one Java after the other in the same folder.
//!
//! Invariant: at most one is running, and it is waited for before the next one starts.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::guard::Guard;
use super::prepare::prepare;
use crate::patience::{PATIENCE, wait_until};

/// What it logs when it answers.
const STARTED: &str = "Kafka Server started";
/// How often other ports are tried, should another program take them at the same moment.
const PORTS_TRIED_MAX: usize = 5;

pub(super) struct Process {
    settings: Vec<(String, String)>,
    child: Option<Child>,
    guard: Guard,
    folder: TempDir,
}

impl Process {
    /// Starts one in a new folder; gives its address, too.
    pub fn start(settings: &[(&str, &str)]) -> (Process, String) {
        let folder = tempfile::Builder::new().prefix("lockgate-kafka-").tempdir();
        let folder = folder.expect("the system's folder for temporary files is writable");
        let guard = Guard::over(folder.path());
        let mut process = Process { settings: owned(settings), child: None, guard, folder };
        for _ in 0..PORTS_TRIED_MAX {
            match process.launch() {
                Ok(address) => return (process, address),
                Err(log) => assert!(log.contains("Address already in use"), "the broker ended at its start:\n{log}"),
            }
            std::fs::remove_file(process.folder.path().join("server.properties")).expect("the script has written it");
        }
        panic!("{PORTS_TRIED_MAX} times, another program took the port that was free before");
    }

    /// Starts it again with the same data and port, and `settings` instead of those of the same names.
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn restart_with(&mut self, settings: &[(&str, &str)]) {
        self.end(Signal::TERM);
        self.settings.retain(|(key, _)| settings.iter().all(|(new, _)| new != key));
        self.settings.extend(owned(settings));
        if let Err(log) = self.launch() {
            panic!("the broker ended when it was started again:\n{log}");
        }
    }

    /// Its address when it answers, else what it has logged before it ended.
    fn launch(&mut self) -> Result<String, String> {
        let mut prepared = prepare(self.folder.path(), &self.settings);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).expect("the folder is ours");
        let logged_before = self.log().len();
        let command = prepared.command.stdin(Stdio::null()).stdout(handle(&log)).stderr(handle(&log));
        // Ctrl-C is for the test program; the guard ends what that leaves.
        let child =
            command.process_group(0).spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        self.guard.started(child.id());
        self.child = Some(child);
        let start = Instant::now();
        while !self.log()[logged_before..].contains(STARTED) {
            if !self.is_running() {
                self.end(Signal::KILL);
                return Err(self.log().split_off(logged_before));
            }
            assert!(start.elapsed() < PATIENCE, "the broker hasn't started in {PATIENCE:?}:\n{}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(prepared.address)
    }

    /// Sends the signal and waits for the end. Nothing if it isn't running.
    ///
    /// # Panics
    /// If it doesn't end.
    pub fn end(&mut self, signal: Signal) {
        if self.child.is_none() {
            return;
        }
        self.signal(signal);
        // A process that is stopped can't act on a signal.
        self.signal(Signal::CONT);
        wait_until("the end of the broker", || !self.is_running());
        self.child = None;
        self.guard.ended();
    }

    /// Sends the signal, if it hasn't ended.
    pub fn signal(&mut self, signal: Signal) {
        if !self.is_running() {
            return;
        }
        let child = self.child.as_ref().expect("it is running");
        // It may have ended since; it isn't waited for yet, so the number is still its own.
        kill_process(Pid::from_child(child), signal).unwrap_or_else(|error| panic!("cannot send {signal:?}: {error}"));
    }

    pub fn is_running(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().expect("a child can be waited for").is_some();
        self.child.as_mut().is_some_and(|child| !ended(child))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("broker.log")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only if it has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.guard.ended();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("the broker's log ends:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
    }
}

fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn handle(log: &File) -> File {
    log.try_clone().expect("a second handle")
}
