//! What the host says about itself: counters that tasks keep, the metrics that are made of them, events that are logged.

mod backlog;
mod checkpoint_figures;
mod counters;
mod events;
mod exposition;
mod guest_figures;
mod metric_names;
mod printable;
mod times;

pub use backlog::Backlog;
pub use checkpoint_figures::{CheckpointFigures, Newest, Reading};
pub use counters::{JobCounters, PendingRestart, StateSize, SubtaskCounters, Totals};
pub use events::{
    AttemptFailed, CheckpointCompleted, CheckpointDiscarded, CheckpointWithdrawn, InputPassedOver, JobFinished,
    JobStarted, NextAttempt, PartitionDropped, ProgressNotReported, RecordsUndelivered, RetentionFailed,
};
pub use exposition::{CONTENT_TYPE, Now, prometheus_text};
pub use guest_figures::{GUEST_COUNTERS_MAX, GuestFigures};
pub use printable::printable;
pub use times::{SubtaskTimes, Times};
