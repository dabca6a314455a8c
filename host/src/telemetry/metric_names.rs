//! The names of all metrics, in one place.
//!
//! By Prometheus' conventions: base units (seconds, bytes), `_total` for what only grows. Labels are bounded: `job`, `operator` (the
//! name of a source, operator or sink) and `subtask` (its number).
//!
//! Invariant: every metric that is given out is in [`ALL`], and the README's table has the same ones.

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    pub name: &'static str,
    pub kind: MetricKind,
    pub per: Per,
    /// What it is, as a line for people.
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the process runs.
    Counter,
    /// Goes up and down; left out while it isn't known.
    Gauge,
    Histogram,
}

/// What there is one value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Job,
    Subtask,
    /// The counters that an operator keeps by itself; the label `counter` has their names.
    Counter,
}

const fn counter(name: &'static str, per: Per, help: &'static str) -> MetricName {
    MetricName { name, kind: MetricKind::Counter, per, help }
}

const fn gauge(name: &'static str, per: Per, help: &'static str) -> MetricName {
    MetricName { name, kind: MetricKind::Gauge, per, help }
}

pub const RECORDS_IN: MetricName = counter("lockgate_records_in_total", Per::Subtask, "Records taken in");
pub const RECORDS_OUT: MetricName = counter("lockgate_records_out_total", Per::Subtask, "Records given out");
pub const BYTES_IN: MetricName = counter("lockgate_bytes_in_total", Per::Subtask, "Bytes of the batches taken in");
pub const BYTES_OUT: MetricName = counter("lockgate_bytes_out_total", Per::Subtask, "Bytes of the batches given out");
pub const RECORDS_REJECTED: MetricName = counter(
    "lockgate_records_rejected_total",
    Per::Subtask,
    "Records that the operator could not process, and that were skipped or became dead letters",
);
pub const BUSY: MetricName =
    counter("lockgate_busy_seconds_total", Per::Subtask, "Time at work; subtasks that share a thread have the same");
pub const IDLE: MetricName =
    counter("lockgate_idle_seconds_total", Per::Subtask, "Time spent waiting for something to do");
pub const BACKPRESSURED: MetricName = counter(
    "lockgate_backpressured_seconds_total",
    Per::Subtask,
    "Time spent waiting for room in a channel that leads on",
);
pub const ALIGNMENT: MetricName = counter(
    "lockgate_alignment_seconds_total",
    Per::Subtask,
    "Time from the first barrier of a checkpoint to the last one that it is aligned with",
);
pub const WATERMARK: MetricName = gauge(
    "lockgate_watermark_timestamp_seconds",
    Per::Subtask,
    "Event time that has been reached, since the Unix epoch",
);
pub const WATERMARK_LAG: MetricName =
    gauge("lockgate_watermark_lag_seconds", Per::Subtask, "How far that is behind the time of day");
pub const STATE_SIZE: MetricName =
    gauge("lockgate_state_size_bytes", Per::Subtask, "Files of keyed state that the newest snapshot consists of");
pub const STATE_MEMORY: MetricName = gauge(
    "lockgate_state_memory_bytes",
    Per::Subtask,
    "Changed keyed state in memory that isn't in RocksDB yet, at the newest snapshot",
);
pub const STATE_DISK: MetricName =
    gauge("lockgate_state_disk_bytes", Per::Subtask, "Live RocksDB files of keyed state, at the newest snapshot");
pub const GUEST_MEMORY: MetricName =
    gauge("lockgate_guest_memory_bytes", Per::Subtask, "Memory of the operator's instance");
pub const SOURCE_LAG: MetricName = gauge(
    "lockgate_source_lag_records",
    Per::Subtask,
    "Records between what the source has given and the end of its input",
);
pub const KAFKA_QUEUE_MESSAGES: MetricName = gauge(
    "lockgate_kafka_queue_messages",
    Per::Subtask,
    "Records in the queues of the Kafka client: fetched and not given yet, or written and not acknowledged",
);
pub const KAFKA_QUEUE_BYTES: MetricName = gauge("lockgate_kafka_queue_bytes", Per::Subtask, "Bytes of these records");
pub const GUEST_COUNTER: MetricName =
    counter("lockgate_operator_counter_total", Per::Counter, "What the operator counts itself, by the label `counter`");
pub const CHECKPOINT_DURATION: MetricName = MetricName {
    name: "lockgate_checkpoint_duration_seconds",
    kind: MetricKind::Histogram,
    per: Per::Job,
    help: "From the injection of a checkpoint's barrier to the last sink's commit",
};
pub const CHECKPOINTS: MetricName = counter("lockgate_checkpoints_total", Per::Job, "Checkpoints that were committed");
pub const CHECKPOINT_FAILURES: MetricName =
    counter("lockgate_checkpoint_failures_total", Per::Job, "Checkpoints that failed or took too long");
pub const CHECKPOINT_EPOCH: MetricName =
    gauge("lockgate_checkpoint_epoch", Per::Job, "Number of the newest committed checkpoint");
pub const CHECKPOINT_SIZE: MetricName = gauge(
    "lockgate_checkpoint_size_bytes",
    Per::Job,
    "Files that the newest committed checkpoint consists of, also those it shares with older ones",
);
pub const CHECKPOINT_AGE: MetricName =
    gauge("lockgate_checkpoint_age_seconds", Per::Job, "Time since the newest checkpoint was committed");
pub const UPLOADED: MetricName =
    counter("lockgate_checkpoint_uploaded_bytes_total", Per::Job, "State brought to the checkpoint store");

pub const RESTARTS: MetricName =
    counter("lockgate_restarts_total", Per::Job, "Attempts that were begun after another one had failed");

/// All metrics, in the order in which they are given out.
pub const ALL: [MetricName; 27] = [
    RECORDS_IN,
    RECORDS_OUT,
    BYTES_IN,
    BYTES_OUT,
    RECORDS_REJECTED,
    BUSY,
    IDLE,
    BACKPRESSURED,
    ALIGNMENT,
    WATERMARK,
    WATERMARK_LAG,
    STATE_SIZE,
    STATE_MEMORY,
    STATE_DISK,
    GUEST_MEMORY,
    SOURCE_LAG,
    KAFKA_QUEUE_MESSAGES,
    KAFKA_QUEUE_BYTES,
    GUEST_COUNTER,
    CHECKPOINT_DURATION,
    CHECKPOINTS,
    CHECKPOINT_FAILURES,
    CHECKPOINT_EPOCH,
    CHECKPOINT_SIZE,
    CHECKPOINT_AGE,
    UPLOADED,
    RESTARTS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_told_apart() {
        for metric in ALL {
            let is_plain = metric.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_plain && metric.name.starts_with("lockgate_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{}", metric.help);
            assert_eq!(ALL.iter().filter(|other| other.name == metric.name).count(), 1, "{}", metric.name);
        }
    }

    #[test]
    fn the_readme_has_each_metric_and_no_other() {
        let readme = include_str!("../../../README.md");
        let row = |metric: MetricName| {
            let labels = match metric.per {
                Per::Job => "job",
                Per::Subtask => "subtask",
                Per::Counter => "counter",
            };
            format!("| `{}` | {labels} | {} |", metric.name, metric.help)
        };
        for metric in ALL {
            assert!(readme.contains(&row(metric)), "the README lacks this row:\n{}", row(metric));
        }
        assert_eq!(readme.matches("| `lockgate_").count(), ALL.len(), "the README has a metric that there isn't");
    }
}
