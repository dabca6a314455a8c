//! Kafka sinks of an exactly-once job share a transaction, so that what they say of it must be the same, and it must outlive a
//! checkpoint.
//!
//! Invariant: brokers are not compared here; that two clusters can't share one is a matter of the graph.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::job_file::SinkConfig;
use crate::config::problem::Problem;
use crate::config::tree::{Node, Value};
use crate::connector::{KafkaSinkOptions, SinkOptions};
use crate::id::Name;
use crate::protocol::Guarantee;
use crate::units::duration::format;

/// `tables`: all of `[sink]`, as it was written. `interval`: of checkpoints. Gives what is probably a mistake but can run.
pub(super) fn check(
    job: &Name,
    sinks: &BTreeMap<Name, SinkConfig>,
    guarantee: Guarantee,
    interval: Duration,
    tables: Option<&Node>,
) -> Result<Option<String>, Problem> {
    match guarantee {
        Guarantee::ExactlyOnce => {}
        Guarantee::AtLeastOnce | Guarantee::AtMostOnce => return Ok(None),
    }
    let kafka = || {
        sinks.iter().filter_map(|(name, sink)| match &sink.options {
            SinkOptions::Kafka(options) => Some((name, options)),
            SinkOptions::File(_) | SinkOptions::Null(_) => None,
        })
    };
    let Some((first, options)) = kafka().next() else { return Ok(None) };
    kafka().skip(1).try_for_each(|(second, other)| differ((first, options), (second, other), tables))?;
    kafka().try_for_each(|(name, other)| not_among_markers(name, &other.topic, &options.marker_topic(job), tables))?;
    outlives(first, options.transaction_timeout, interval, tables)
}

fn not_among_markers(sink: &Name, topic: &str, marker_topic: &str, tables: Option<&Node>) -> Result<(), Problem> {
    const KEY: &str = "topic";
    if topic != marker_topic {
        return Ok(());
    }
    let problem = Problem::invalid(format!(
        "'{topic}' is the topic of the marker, which must not be among the records of the output"
    ));
    let place = tables.and_then(|tables| inside(inside(tables, sink.as_str())?, KEY));
    let problem =
        problem.with_help("name another one, or another marker_topic").at(place.and_then(|node| node.span.clone()));
    Err(problem.inside(KEY).inside(sink.as_str()).inside("sink"))
}

/// A transaction is open from one barrier to the next, and until that checkpoint is committed.
fn outlives(
    sink: &Name,
    timeout: Duration,
    interval: Duration,
    tables: Option<&Node>,
) -> Result<Option<String>, Problem> {
    const KEY: &str = "transaction_timeout";
    let enough = interval.saturating_mul(2);
    let (timeout_text, interval_text, enough_text) = (format(timeout), format(interval), format(enough));
    if timeout > interval {
        return Ok((timeout < enough).then(|| {
            format!(
                "{KEY} of [sink.{sink}] is {timeout_text}, and checkpoints are {interval_text} apart: one that takes longer than the rest \
                 of it fails; set it to {enough_text} or more"
            )
        }));
    }
    let message = format!(
        "{timeout_text} is too short: a transaction is open from one checkpoint to the next, {interval_text} (checkpoint.interval), so that \
         the brokers would abort each"
    );
    let help = format!("set it to {enough_text} or more, or lower interval of [checkpoint]");
    let table = tables.and_then(|tables| inside(tables, sink.as_str()));
    let place = table.and_then(|table| inside(table, KEY).or(Some(table)));
    let problem = Problem::invalid(message).with_help(&help).at(place.and_then(|node| node.span.clone()));
    Err(problem.inside(KEY).inside(sink.as_str()).inside("sink"))
}

fn differ(
    (first, options): (&Name, &KafkaSinkOptions),
    (second, other): (&Name, &KafkaSinkOptions),
    tables: Option<&Node>,
) -> Result<(), Problem> {
    let Some(key) = options.differs_from(other).filter(|key| *key != "brokers") else { return Ok(()) };
    let message = format!("it isn't that of sink '{first}', and with exactly-once all Kafka sinks share a transaction");
    let help =
        format!("give both the same {key}, or set guarantee = \"at-least-once\" in [job], or make two jobs of it");
    let table = tables.and_then(|tables| inside(tables, second.as_str()));
    let place = table.and_then(|table| inside(table, key).or(Some(table)));
    let problem = Problem::invalid(message).with_help(&help).at(place.and_then(|node| node.span.clone()));
    Err(problem.inside(key).inside(second.as_str()).inside("sink"))
}

/// What a table has under a key.
pub(super) fn inside<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Table(table) => table.get(key),
        _ => None,
    }
}
