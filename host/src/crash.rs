//! Named points at which a test can kill the process.
//!
//! `LOCKGATE_CRASH_AT=name` kills it with SIGKILL the first time it comes by `name`, `name:3` the third time. Without the
//! variable a point costs one load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Armed {
    name: String,
    hits_left: AtomicU64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let wanted = std::env::var("LOCKGATE_CRASH_AT").ok()?;
            let (name, hits) = wanted.split_once(':').unwrap_or((&wanted, "1"));
            Some(Armed { name: name.to_owned(), hits_left: AtomicU64::new(hits.parse().ok()?) })
        })
        .as_ref()
}

/// Dies here, as by `kill -9`, if the test asked for it.
pub fn point(name: &'static str) {
    let Some(armed) = armed() else { return };
    if armed.name == name && armed.hits_left.fetch_sub(1, Ordering::SeqCst) == 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // SIGKILL can't be held back; the call returns only before it is delivered.
        std::thread::park();
    }
}
