//! Kafka jobs with the real binary and a real broker: what goes in comes out once, in order and whole, whatever is killed, and
//! what can't be mended by itself is told by name.
//!
//! Invariant: what is expected is worked out from what the test has produced, and read without the host's client library.

mod brokers;
mod campaign;
mod connect;
mod copy;
mod downtime;
mod guarantees;
mod hanging;
mod identity;
mod kill_matrix;
mod lag;
mod limits;
mod middle_of_commit;
mod outages;
mod partitions;
mod scenarios;
mod secure;
mod settings;
mod sinks;
mod slow_start;
mod starts;
mod stateful;
mod topics;
mod upgrade;

/// The exit code of a job that failed.
const FAILED: i32 = 1;
/// The exit code of a job that was refused before anything was done.
const UNUSABLE: i32 = 2;
