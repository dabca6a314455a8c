//! Kafka sinks of an exactly-once job share a transaction, so that what they say of it must be the same.
//!
//! Invariant: brokers are not compared here; that two clusters can't share one is a matter of the graph.

use std::collections::BTreeMap;

use crate::config::job_file::SinkConfig;
use crate::config::problem::Problem;
use crate::config::tree::{Node, Value};
use crate::connector::{KafkaSinkOptions, SinkOptions};
use crate::id::Name;
use crate::protocol::Guarantee;

/// `tables`: all of `[sink]`, as it was written.
pub(super) fn check(
    sinks: &BTreeMap<Name, SinkConfig>,
    guarantee: Guarantee,
    tables: Option<&Node>,
) -> Result<(), Problem> {
    match guarantee {
        Guarantee::ExactlyOnce => {}
        Guarantee::AtLeastOnce | Guarantee::AtMostOnce => return Ok(()),
    }
    let mut kafka = sinks.iter().filter_map(|(name, sink)| match &sink.options {
        SinkOptions::Kafka(options) => Some((name, options)),
        SinkOptions::File(_) | SinkOptions::Null(_) => None,
    });
    let Some((first, options)) = kafka.next() else { return Ok(()) };
    kafka.try_for_each(|(second, other)| differ((first, options), (second, other), tables))
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

fn inside<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Table(table) => table.get(key),
        _ => None,
    }
}
