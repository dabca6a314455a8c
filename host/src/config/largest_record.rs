//! Whether the buffer of a Kafka sink can hold the largest record that its properties allow: it would never take one otherwise.
//!
//! Invariant: what `properties_file` says isn't known here; whoever makes the producer looks once more.

use std::collections::BTreeMap;

use crate::config::job_file::SinkConfig;
use crate::config::problem::Problem;
use crate::config::shared_transaction::inside;
use crate::config::tree::Node;
use crate::connector::SinkOptions;
use crate::id::Name;
use crate::protocol::Guarantee;
use crate::units::size::format;

/// `tables`: all of `[sink]`, as it was written.
pub(super) fn check(
    sinks: &BTreeMap<Name, SinkConfig>,
    guarantee: Guarantee,
    tables: Option<&Node>,
) -> Result<(), Problem> {
    let kafka = || {
        sinks.iter().filter_map(|(name, sink)| match &sink.options {
            SinkOptions::Kafka(options) => Some((name, options)),
            SinkOptions::File(_) | SinkOptions::Null(_) => None,
        })
    };
    // With transactions there are two producers, for all sinks together.
    let half_of_all = kafka().map(|(_, options)| options.buffer).fold(0, u64::saturating_add) / 2;
    for (name, options) in kafka() {
        let (room, whose) = match guarantee {
            Guarantee::ExactlyOnce => (half_of_all, "each of two transactions has half of buffer"),
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => (options.buffer, "that is its buffer"),
        };
        let Some(largest) = options.record_bytes_max().filter(|largest| *largest > room) else { continue };
        let message = format!(
            "a record of \"message.max.bytes\" = {largest} doesn't fit into librdkafka's queue, which holds {}: {whose}",
            format(room)
        );
        let help = match guarantee {
            Guarantee::ExactlyOnce => "raise it to more than twice that, or lower message.max.bytes in properties",
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => {
                "raise it to that, or lower message.max.bytes in properties"
            }
        };
        const KEY: &str = "buffer";
        let table = tables.and_then(|tables| inside(tables, name.as_str()));
        let place = table.and_then(|table| inside(table, KEY).or(Some(table)));
        let problem = Problem::invalid(message).with_help(help).at(place.and_then(|node| node.span.clone()));
        return Err(problem.inside(KEY).inside(name.as_str()).inside("sink"));
    }
    Ok(())
}
