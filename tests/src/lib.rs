//! Drives the real `lockgate` binary over real files: what the end-to-end tests and the campaigns share.
//!
//! Invariant: nothing here links the host, and the expected output is counted by other code than the operators', so that an
//! error in either can't hide itself.

mod binary;
mod crash_campaign;
mod crash_matrix;
mod crash_points;
mod daemon;
mod folder;
pub mod kafka;
mod kafka_campaign;
mod kafka_feed;
mod kafka_job;
mod kafka_numbers;
mod kafka_proxy;
mod languages;
mod openapi;
mod patience;
mod process;
mod prometheus;
mod reference;
mod schemathesis;
mod text;
mod word_count;

pub use binary::{
    build_operator, faulty, lockgate, operator, operator_of, repository, same_with_other_hash, target_dir,
};
pub use crash_campaign::{CrashCampaign, CrashReport, kill_after};
pub use crash_matrix::{crash_in_turn, crash_in_turn_after_kill};
pub use crash_points::{crash_points, crash_points_of_upgrades, crash_points_without_kafka, daemon_crash_points};
pub use daemon::{Daemon, DaemonSetUp, Sent, exchange};
pub use folder::JobFolder;
pub use kafka_campaign::{KafkaCampaign, KafkaReport};
pub use kafka_feed::Feed;
pub use kafka_job::{KafkaJob, Offsets};
pub use kafka_numbers::{Copied, Wrong, assert_exactly_once, number_of, numbered, numbered_lines};
pub use kafka_proxy::{END_TXN, Fate, Proxy};
pub use languages::{Language, module_operators};
pub use openapi::OpenApi;
pub use patience::{PATIENCE, wait_long_until, wait_until};
pub use process::{Finished, Running};
pub use prometheus::{Answer, Metrics, ask};
pub use reference::{Checked, Mismatch, WordTotals, part_files};
pub use schemathesis::schemathesis;
pub use text::{Words, write_text};
pub use word_count::WordCount;

/// Says, past the test harness's capture, that this machine can't run a part of the tests. `tests/run.sh` lists these lines.
pub fn skipped(what: &str, why: &str) {
    use std::io::Write;
    // The line is for people; a closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}
