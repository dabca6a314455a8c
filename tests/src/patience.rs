//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Long, because machines that test are busy; nothing waits it out when all is well.
pub const PATIENCE: Duration = Duration::from_secs(300);

const POLL_INTERVAL: Duration = Duration::from_millis(2);
const LONG_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns when `condition` holds.
///
/// # Panics
/// If it doesn't within [`PATIENCE`]; the message names what was waited for.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait(what, POLL_INTERVAL, condition);
}

/// As [`wait_until`], for what takes seconds, or costs something to ask for.
///
/// # Panics
/// As [`wait_until`].
pub fn wait_long_until(what: &str, condition: impl FnMut() -> bool) {
    wait(what, LONG_POLL_INTERVAL, condition);
}

fn wait(what: &str, interval: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for: {what}");
        std::thread::sleep(interval);
    }
}
