//! The metrics of jobs as text that Prometheus reads, version 0.0.4.
//!
//! Invariant: one text is one reading: what changes meanwhile is in the next. However many jobs there are, a metric's name stands
//! there once, with the values of all of them.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::checkpoint_figures::{BUCKETS_S, Reading};
use super::metric_names::{self as names, MetricKind, MetricName, Per};
use super::{JobCounters, SubtaskCounters};
use crate::element::WATERMARK_END;
use crate::id::{Name, SubtaskId};

/// What the text is, for `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The moment of a reading, on the clock for times that pass and on that for the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub monotonic: Instant,
    pub wall: SystemTime,
}

/// All metrics of a job.
pub fn prometheus_text(job: &Name, counters: &JobCounters, now: Now) -> String {
    prometheus_text_of_all(&[(job, counters)], now)
}

/// All metrics of some jobs, which have different names.
pub fn prometheus_text_of_all(jobs: &[(&Name, &JobCounters)], now: Now) -> String {
    let read = jobs.iter().map(|&(job, counters)| JobReading {
        job,
        counters,
        subtasks: counters.subtasks(),
        checkpoints: counters.checkpoint_figures().read(),
    });
    let read = read.collect::<Vec<_>>();
    let metrics = |name: MetricName| read.iter().flat_map(|reading| reading.metrics(name, now)).collect::<Vec<_>>();
    let families = names::ALL.into_iter().map(|name| (name, metrics(name)));
    // A family without values can't be written; a gauge that isn't known has none.
    let families = families.filter(|(_, metrics)| !metrics.is_empty());
    let families = families.map(|(name, metrics)| family(name, metrics)).collect::<Vec<_>>();
    TextEncoder::new().encode_to_string(&families).expect("families that are named and not empty")
}

/// One job at one moment.
struct JobReading<'a> {
    job: &'a Name,
    counters: &'a JobCounters,
    subtasks: Vec<(SubtaskId, Arc<SubtaskCounters>)>,
    checkpoints: Reading,
}

impl JobReading<'_> {
    /// The values of one metric.
    fn metrics(&self, name: MetricName, now: Now) -> Vec<Metric> {
        let job = self.job;
        match name.per {
            Per::Job => {
                let value = of_the_job(name, self.counters, &self.checkpoints, now);
                value.map(|value| metric(value, &[pair("job", job.as_str())])).into_iter().collect()
            }
            Per::Subtask => {
                let of = |(subtask, counters): &(SubtaskId, Arc<SubtaskCounters>)| {
                    Some(metric(of_a_subtask(name, counters, now)?, &labels(job, subtask)))
                };
                self.subtasks.iter().filter_map(of).collect()
            }
            Per::Counter => {
                self.subtasks.iter().flat_map(|(subtask, counters)| of_counters(job, subtask, counters)).collect()
            }
        }
    }
}

enum Value {
    Counter(f64),
    Gauge(f64),
    Histogram(Box<Histogram>),
}

fn of_a_subtask(name: MetricName, counters: &SubtaskCounters, now: Now) -> Option<Value> {
    let (totals, times, state) = (counters.totals(), counters.times().read(), counters.state());
    let count = |count: u64| Some(Value::Counter(count as f64));
    let seconds = |ns: u64| Some(Value::Counter(ns as f64 / 1e9));
    let size = |size: Option<u64>| size.map(|size| Value::Gauge(size as f64));
    match name {
        names::RECORDS_IN => count(totals.records_in),
        names::RECORDS_OUT => count(totals.records_out),
        names::BYTES_IN => count(totals.bytes_in),
        names::BYTES_OUT => count(totals.bytes_out),
        names::RECORDS_REJECTED => count(totals.records_rejected),
        names::BUSY => seconds(times.busy_ns),
        names::IDLE => seconds(times.idle_ns),
        names::BACKPRESSURED => seconds(times.backpressured_ns),
        names::ALIGNMENT => seconds(times.aligning_ns),
        names::WATERMARK => {
            let reached_ms = times.watermark.filter(|watermark| *watermark < WATERMARK_END);
            reached_ms.map(|ms| Value::Gauge(ms as f64 / 1e3))
        }
        names::WATERMARK_LAG => times.lag(now.wall).map(|lag| Value::Gauge(lag.as_secs_f64())),
        names::STATE_SIZE => size(state.map(|state| state.snapshot_bytes)),
        names::STATE_MEMORY => size(state.map(|state| state.memory_bytes)),
        names::GUEST_MEMORY => size(counters.guest().memory_bytes()),
        names::STATE_DISK => size(state.map(|state| state.disk_bytes)),
        names::SOURCE_LAG => size(counters.backlog().lag_records()),
        names::KAFKA_QUEUE_MESSAGES => size(counters.backlog().queued_records()),
        names::KAFKA_QUEUE_BYTES => size(counters.backlog().queued_bytes()),
        other => unreachable!("{} is no metric of a subtask", other.name),
    }
}

fn of_the_job(name: MetricName, counters: &JobCounters, checkpoints: &Reading, now: Now) -> Option<Value> {
    let count = |count: u64| Some(Value::Counter(count as f64));
    let newest = checkpoints.newest;
    match name {
        names::CHECKPOINT_DURATION => Some(Value::Histogram(Box::new(durations(checkpoints)))),
        names::CHECKPOINTS => count(counters.checkpoints()),
        names::CHECKPOINT_FAILURES => count(checkpoints.failures),
        names::CHECKPOINT_EPOCH => newest.map(|newest| Value::Gauge(newest.epoch.0 as f64)),
        names::CHECKPOINT_SIZE => newest.map(|newest| Value::Gauge(newest.size_bytes as f64)),
        names::CHECKPOINT_AGE => {
            newest.map(|newest| Value::Gauge(now.monotonic.saturating_duration_since(newest.committed).as_secs_f64()))
        }
        names::UPLOADED => count(counters.uploaded_bytes()),
        names::RESTARTS => count(counters.restarts()),
        other => unreachable!("{} is no metric of a job", other.name),
    }
}

/// What the operator counts itself.
fn of_counters(job: &Name, subtask: &SubtaskId, counters: &SubtaskCounters) -> Vec<Metric> {
    let value = |(counter, count): (Name, u64)| {
        let mut labels = labels(job, subtask);
        labels.push(pair("counter", counter.as_str()));
        metric(Value::Counter(count as f64), &labels)
    };
    counters.guest().read().into_iter().map(value).collect()
}

fn durations(checkpoints: &Reading) -> Histogram {
    let bucket = |(bound_s, count): (f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound_s);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(BUCKETS_S.into_iter().zip(checkpoints.at_most).map(bucket).collect());
    histogram.set_sample_count(checkpoints.count);
    histogram.set_sample_sum(checkpoints.took.as_secs_f64());
    histogram
}

fn labels(job: &Name, subtask: &SubtaskId) -> Vec<LabelPair> {
    let index = subtask.index.to_string();
    vec![pair("job", job.as_str()), pair("operator", subtask.operator.as_str()), pair("subtask", &index)]
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn metric(value: Value, labels: &[LabelPair]) -> Metric {
    let mut metric = Metric::from_label(labels.to_vec());
    match value {
        Value::Counter(value) => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        Value::Gauge(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        Value::Histogram(histogram) => metric.set_histogram(*histogram),
    }
    metric
}

fn family(name: MetricName, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.name.to_owned());
    family.set_help(name.help.to_owned());
    family.set_field_type(match name.kind {
        MetricKind::Counter => MetricType::COUNTER,
        MetricKind::Gauge => MetricType::GAUGE,
        MetricKind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(metrics);
    family
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::element::{Batch, NO_TIMESTAMP, Row};
    use crate::id::Epoch;
    use crate::telemetry::Newest;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a name")
    }

    fn at(monotonic: Instant, wall_ms: u64) -> Now {
        Now { monotonic, wall: SystemTime::UNIX_EPOCH + Duration::from_millis(wall_ms) }
    }

    #[test]
    fn what_is_not_known_yet_is_left_out_and_counters_begin_at_0() {
        let counters = JobCounters::default();
        counters.subtask(&SubtaskId { operator: name("split"), index: 0 });
        let text = prometheus_text(&name("words"), &counters, at(Instant::now(), 0));
        assert!(
            text.contains("\nlockgate_records_in_total{job=\"words\",operator=\"split\",subtask=\"0\"} 0\n"),
            "{text}"
        );
        assert!(text.contains("\nlockgate_checkpoints_total{job=\"words\"} 0\n"), "{text}");
        assert!(!text.contains("age_seconds") && !text.contains("watermark") && !text.contains("state_size"), "{text}");
    }

    #[test]
    fn a_metric_of_several_jobs_has_one_heading_and_the_values_of_each() {
        let (a, b) = (JobCounters::default(), JobCounters::default());
        for counters in [&a, &b] {
            counters.subtask(&SubtaskId { operator: name("split"), index: 0 });
        }
        let (words, copies) = (name("words"), name("copies"));
        let text = prometheus_text_of_all(&[(&words, &a), (&copies, &b)], at(Instant::now(), 0));
        let headings = text.lines().filter(|line| line.starts_with("# TYPE ")).collect::<Vec<_>>();
        let once = headings.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(headings.len(), once.len(), "{text}");
        for job in ["words", "copies"] {
            assert!(text.contains(&format!("\nlockgate_checkpoints_total{{job=\"{job}\"}} 0\n")), "{text}");
            let of_subtask = format!("lockgate_idle_seconds_total{{job=\"{job}\",operator=\"split\",subtask=\"0\"}} 0");
            assert!(text.contains(&of_subtask), "{text}");
        }
        assert_eq!(prometheus_text_of_all(&[], at(Instant::now(), 0)), "");
    }

    #[test]
    fn every_metric_is_given_out_once_there_is_something_to_say() {
        let counters = JobCounters::default();
        let count = counters.subtask(&SubtaskId { operator: name("count"), index: 1 });
        let mut batch = Batch::with_capacity(1, 8);
        batch.push(Row { key: Some(b"k"), value: Some(b"v"), timestamp: NO_TIMESTAMP });
        count.took(&batch);
        count.guest().set_memory(1 << 16);
        count.guest().add("late", 4);
        count.backlog().lag(Some(17));
        count.backlog().queued(3, 300);
        count.times().busy(Duration::from_millis(1_500));
        count.times().watermark(2_500);
        count.set_state(crate::telemetry::StateSize { snapshot_bytes: 3, memory_bytes: 2, disk_bytes: 1 });
        let committed = Instant::now();
        let took = Duration::from_millis(75);
        counters.checkpoint_figures().committed(Newest { epoch: Epoch(7), took, size_bytes: 10, committed });
        let text = prometheus_text(&name("words"), &counters, at(committed + Duration::from_secs(2), 5_000));
        for metric in names::ALL {
            assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{}:\n{text}", metric.name);
        }
        for line in [
            "lockgate_records_in_total{job=\"words\",operator=\"count\",subtask=\"1\"} 1",
            "lockgate_guest_memory_bytes{job=\"words\",operator=\"count\",subtask=\"1\"} 65536",
            "lockgate_source_lag_records{job=\"words\",operator=\"count\",subtask=\"1\"} 17",
            "lockgate_kafka_queue_messages{job=\"words\",operator=\"count\",subtask=\"1\"} 3",
            "lockgate_kafka_queue_bytes{job=\"words\",operator=\"count\",subtask=\"1\"} 300",
            "lockgate_operator_counter_total{job=\"words\",operator=\"count\",subtask=\"1\",counter=\"late\"} 4",
            "lockgate_busy_seconds_total{job=\"words\",operator=\"count\",subtask=\"1\"} 1.5",
            "lockgate_watermark_timestamp_seconds{job=\"words\",operator=\"count\",subtask=\"1\"} 2.5",
            "lockgate_watermark_lag_seconds{job=\"words\",operator=\"count\",subtask=\"1\"} 2.5",
            "lockgate_state_size_bytes{job=\"words\",operator=\"count\",subtask=\"1\"} 3",
            "lockgate_checkpoint_duration_seconds_bucket{job=\"words\",le=\"0.05\"} 0",
            "lockgate_checkpoint_duration_seconds_bucket{job=\"words\",le=\"0.1\"} 1",
            "lockgate_checkpoint_duration_seconds_bucket{job=\"words\",le=\"+Inf\"} 1",
            "lockgate_checkpoint_duration_seconds_sum{job=\"words\"} 0.075",
            "lockgate_checkpoint_epoch{job=\"words\"} 7",
            "lockgate_checkpoint_age_seconds{job=\"words\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line}:\n{text}");
        }
    }
}
