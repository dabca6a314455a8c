//! A process from start to end: how long it took, its CPU time and its peak memory.
//!
//! Invariant: the CPU time is whole, for it is read when the process has ended and is still to be waited for.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// The figures of one process.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub wall_s: f64,
    /// User and system time.
    pub cpu_s: f64,
    /// As of the last look, at most a few milliseconds before its end.
    pub peak_rss_bytes: u64,
}

/// How often a running process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs a program to its end.
pub fn measure(mut command: Command) -> anyhow::Result<Figures> {
    let log = tempfile::NamedTempFile::new()?;
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(log.reopen()?).spawn()?;
    let folder = format!("/proc/{}", child.id());
    let mut peak_rss_bytes = 0;
    let (cpu_s, wall_s) = loop {
        let stat = std::fs::read_to_string(format!("{folder}/stat"))?;
        // Fields 3, 14 and 15 of proc(5): its state, and times in hundredths of a second.
        let fields = stat.rsplit_once(')').context("a process's stat")?.1.split_whitespace().collect::<Vec<_>>();
        if fields[0] == "Z" {
            let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
            break (ticks as f64 / 100.0, started.elapsed().as_secs_f64());
        }
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        // A process that is about to end has no memory any more.
        if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            let kib = peak.split_whitespace().next().context("a size")?.parse::<u64>()?;
            peak_rss_bytes = kib * 1024;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let status = child.wait()?;
    ensure!(status.success(), "{command:?}: {status}: {}", std::fs::read_to_string(log.path())?);
    Ok(Figures { wall_s, cpu_s, peak_rss_bytes })
}
