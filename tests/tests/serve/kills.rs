//! SIGKILL of the daemon at random moments.

use std::time::Duration;

use lockgate_tests::{Words, wait_long_until};

use crate::support::{JOB, ServedWordCount, endless_job};

/// `tests/campaign.sh api` has more.
const KILLS: u64 = 8;
const LONGEST_RUN_MS: u64 = 1_500;

#[test]
fn whenever_the_daemon_is_killed_its_jobs_go_on_and_their_output_is_exact() {
    let kills = std::env::var("LOCKGATE_SERVE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let served = ServedWordCount::new();
    let mut daemon = served.set_up.start();
    served.submit(&daemon);
    daemon.submit(&endless_job("beside"), &served.base_dir());
    let mut moments = Words::new(7);
    for kill in 0..kills {
        served.job.add_text(&format!("{kill:05}.txt"), kill, 400_000);
        let age = Duration::from_millis(moments.below(LONGEST_RUN_MS));
        wait_long_until("the moment of the kill", || daemon.process().age() >= age);
        daemon.kill();
        daemon = served.set_up.start();
    }
    served.wait_until_exact();
    daemon.wait_for_status(JOB, "running");
    daemon.wait_for_status("beside", "running");
    daemon.stop();
}
