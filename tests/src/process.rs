//! A `lockgate` process that is running, and what is known of one that has ended.
//!
//! Invariant: no process outlives its test.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::patience::{PATIENCE, wait_until};

pub struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Running {
    /// # Panics
    /// If it doesn't start.
    pub fn start(mut command: Command) -> Running {
        // Files take any amount of output without a thread that reads.
        let stdout = tempfile::tempfile().expect("a temporary file");
        let stderr = tempfile::tempfile().expect("a temporary file");
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().expect("a second handle"))
            .stderr(stderr.try_clone().expect("a second handle"))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Running { child, stdout, stderr, started }
    }

    /// Whether it hasn't ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// The number by which the system knows it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has had in use so far (`VmHWM`).
    ///
    /// # Panics
    /// If it has ended.
    pub fn peak_memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it is running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it isn't a zombie");
        let kib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
        kib * 1_024
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Where it says that it serves its metrics.
    ///
    /// # Panics
    /// If it ends before, or doesn't say it in time.
    pub fn metrics_address(&mut self) -> String {
        let mut found = None;
        wait_until("the address of the metrics", || {
            let messages = self.stderr();
            assert!(self.is_alive(), "lockgate ended before:\n{messages}");
            let address =
                |line: &str| Some(line.strip_prefix("metrics: http://")?.strip_suffix("/metrics")?.to_owned());
            found = messages.lines().find_map(address);
            found.is_some()
        });
        found.expect("waited for")
    }

    /// SIGTERM: stop with a checkpoint. To a process that has only just been started it would be the end.
    pub fn terminate(&self) {
        wait_until("it listens for signals", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
            let told = |what: &str| status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default().trim();
            let caught = u64::from_str_radix(told("SigCgt:"), 16).unwrap_or_default();
            told("State:").starts_with('Z') || caught >> (Signal::TERM.as_raw() - 1) & 1 == 1
        });
        self.signal(Signal::TERM);
    }

    /// SIGINT, as by Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// SIGKILL, as by `kill -9`, if it hasn't ended on its own.
    pub fn kill(&mut self) {
        if self.is_alive() {
            self.signal(Signal::KILL);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        // It may have ended on its own; it isn't waited for yet, so the number is still its own.
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot send {signal:?}: {error}"));
    }

    /// What it has written to standard error so far.
    pub fn stderr(&mut self) -> String {
        read_all(&mut self.stderr)
    }

    /// What it has written to standard output so far.
    pub fn stdout(&mut self) -> String {
        read_all(&mut self.stdout)
    }

    /// # Panics
    /// If it hasn't ended after [`PATIENCE`].
    pub fn wait(self) -> Finished {
        self.wait_at_most(PATIENCE)
    }

    /// # Panics
    /// If it hasn't ended after that time from now.
    pub fn wait_at_most(mut self, patience: Duration) -> Finished {
        let start = Instant::now();
        while start.elapsed() < patience && self.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(status) = self.child.try_wait().expect("a child can be waited for") else {
            panic!("lockgate is still running after {patience:?}; its messages:\n{}", self.stderr());
        };
        let (stdout, stderr) = (read_all(&mut self.stdout), read_all(&mut self.stderr));
        Finished { status, stdout, stderr, took: self.started.elapsed() }
    }

    /// Returns when `condition` holds.
    ///
    /// # Panics
    /// If the process ends before, or the condition doesn't hold in time.
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        wait_until(what, || {
            condition() || {
                assert!(self.is_alive(), "lockgate ended before: {what}; its messages:\n{}", self.stderr());
                false
            }
        });
    }
}

impl Running {
    /// Returns when it has said something on standard error.
    ///
    /// # Panics
    /// If the process ends before, or doesn't say it in time.
    pub fn wait_for_message(&mut self, words: &str) {
        wait_until(words, || {
            self.stderr().contains(words) || {
                assert!(self.is_alive(), "lockgate ended before it said '{words}'; its messages:\n{}", self.stderr());
                false
            }
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the messages of the process that the test was waiting for:\n{}", self.stderr());
        }
        // Both fail only if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Whether SIGKILL ended it.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::KILL.as_raw())
    }

    /// # Panics
    /// Unless it ended with exit code 0.
    #[track_caller]
    pub fn assert_success(&self) -> &Finished {
        assert!(self.status.success(), "lockgate ended with {}; its messages:\n{}", self.status, self.stderr);
        self
    }

    /// # Panics
    /// Unless it ended with `code` and one error that names each of `things`, with a line that says what to do.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, things: &[&str]) -> &Finished {
        let messages = &self.stderr;
        assert_eq!(self.status.code(), Some(code), "{}; its messages:\n{messages}", self.status);
        let errors = messages.lines().filter(|line| line.starts_with("error: ")).count();
        assert_eq!(errors, 1, "one error, not {errors}:\n{messages}");
        assert!(messages.lines().any(|line| line.starts_with("help: ")), "no line says what to do:\n{messages}");
        let host_panicked = messages.lines().any(|line| line.starts_with("thread '"));
        assert!(!host_panicked, "a panic is no error message:\n{messages}");
        for thing in things {
            assert!(messages.contains(thing), "nothing names '{thing}':\n{messages}");
        }
        self
    }
}

fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // The handle shares its position with the process, so go by offset through a copy of the path.
    let mut copy =
        File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))).expect("procfs is there");
    copy.rewind().expect("a file can be rewound");
    copy.read_to_end(&mut bytes).expect("a file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
