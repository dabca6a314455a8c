//! Kills a word count again and again at random moments, and compares what comes out in the end.

use std::time::{Duration, Instant};

use crate::process::Running;
use crate::text::Words;
use crate::word_count::WordCount;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct CrashCampaign {
    /// Decides text and moments.
    pub seed: u64,
    pub text_bytes: u64,
    /// SIGKILLs that must each hit a running process.
    pub kills: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct CrashReport {
    pub kills: u32,
    pub words: u64,
    pub part_files: usize,
    pub took: Duration,
}

/// Without a kill the rest of the input is done in this time for each gigabyte, on the slowest machine.
const PATIENCE_PER_GB: Duration = Duration::from_secs(3_600);

impl CrashCampaign {
    /// Runs it, saying how it goes on standard error.
    ///
    /// # Panics
    /// If the output isn't exact, or a run fails otherwise than by its kill.
    pub fn run(&self) -> CrashReport {
        let start = Instant::now();
        let job = WordCount::new().interval("200ms");
        let bytes_per_kill = self.text_bytes / u64::from(self.kills.max(1));
        // Twice what the text of one kill takes, so that all phases of a run are met, also the last ones.
        let longest_run_ms = 400 + bytes_per_kill / 10_000;
        let mut moments = Words::new(self.seed);
        let (mut killed, mut files) = (0, 0);
        while killed < self.kills {
            // However fast the host is, each run has work to do.
            job.add_text(&format!("{files:05}.txt"), self.seed + files, bytes_per_kill);
            files += 1;
            let age = Duration::from_millis(moments.below(longest_run_ms));
            killed += u32::from(kill_after(job.folder.start(), age));
            eprint!("\r{killed} of {} kills", self.kills);
        }
        eprintln!();
        let patience = PATIENCE_PER_GB.mul_f64((self.text_bytes as f64 / 1e9).max(0.1));
        job.folder.start().wait_at_most(patience).assert_success();
        let checked = job.assert_exact();
        CrashReport { kills: killed, words: checked.lines, part_files: checked.part_files, took: start.elapsed() }
    }
}

/// Kills a process when it is that old; tells whether it was still running.
///
/// # Panics
/// If it ends before with an error.
pub fn kill_after(mut running: Running, age: Duration) -> bool {
    while running.age() < age {
        if !running.is_alive() {
            running.wait().assert_success();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    running.kill();
    let finished = running.wait();
    if finished.was_killed() {
        return true;
    }
    finished.assert_success();
    false
}
