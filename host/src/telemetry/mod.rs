//! What the host says about itself: counters that tasks keep, the metrics that are made of them, events that are logged.

mod backlog;
mod checkpoint_figures;
mod counters;
mod events;
mod exposition;
mod guest_figures;
mod metric_names;
mod printable;
mod rates;
mod times;

pub use backlog::Backlog;
pub use checkpoint_figures::{CheckpointFigures, Newest, Reading};
pub use counters::{JobCounters, PendingRestart, StateSize, SubtaskCounters, Totals};
pub use events::{
    AttemptFailed, CheckpointCompleted, CheckpointDiscarded, CheckpointWithdrawn, CompilationStarted, InputPassedOver,
    JobFinished, JobStarted, NextAttempt, OperatorSwapped, PartitionDropped, ProgressNotReported, RecordsUndelivered,
    RetentionFailed, TableMigrated, TableMigrating, UpgradeAdopted, UpgradeReverted,
};
pub use exposition::{CONTENT_TYPE, Now, prometheus_text, prometheus_text_of_all};
pub use guest_figures::{GUEST_COUNTERS_MAX, GuestFigures};
pub use printable::printable;
pub use rates::{RATE_SPAN, Rates};
pub use times::{SubtaskTimes, Times};
