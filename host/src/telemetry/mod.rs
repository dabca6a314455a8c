//! What the host says about itself: counters that tasks keep, events that are logged.

mod counters;
mod events;

pub use counters::{JobCounters, SubtaskCounters, Totals};
pub use events::{CheckpointCompleted, CheckpointDiscarded, JobFinished, JobStarted, RetentionFailed};
