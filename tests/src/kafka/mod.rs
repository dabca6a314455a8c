//! A real Kafka for tests, and what looks into it without the library that the host uses.
//!
//! Invariant: no broker outlives the test program, and what a test knows of Kafka's contents comes from another client than the host's.

mod broker;
mod client;
mod codec;
mod guard;
mod kcat;
mod pipe;
mod prepare;
mod process;
mod record;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use broker::Broker;
pub use client::Client;
pub use kcat::{kcat_produce, kcat_read};
pub use prepare::kafka_missing;
pub use record::{GroupOffset, NewRecord, Record, Transaction};

/// A name that no other test uses, for topics, groups, jobs and transactional ids: `PREFIX-` and a number.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static STARTED: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        // Programs that start in the same second differ by their process number.
        (now.as_secs() << 22) | u64::from(std::process::id() & 0x3f_ffff)
    });
    format!("{prefix}-{:x}-{}", *STARTED, NEXT.fetch_add(1, Ordering::Relaxed))
}
