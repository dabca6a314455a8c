//! Whether partitions still have what a checkpoint goes on from, asked before anything runs.
//!
//! Invariant: nothing is refused that the source would read; no group is joined and no record is fetched.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::KafkaSourceOptions;
use super::bounds::Asking;
use super::client;
use super::failing::is_about_a_topic;
use super::position::parse_state;
use super::scout::bounds_of;
use crate::connector::kafka::Doing;
use crate::connector::{ConnectorError, SplitState};
use crate::id::Name;

/// For all partitions of a source.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the source would say of positions that it can't go on from.
///
/// # Errors
/// If the cluster doesn't say.
pub fn lost_positions(
    options: &KafkaSourceOptions,
    name: &Name,
    job: &Name,
    splits: &[SplitState],
) -> Result<Vec<ConnectorError>, ConnectorError> {
    let consumer = client::open(options, name, job, splits.len().max(1))?;
    let deadline = Instant::now() + TIMEOUT;
    let mut lost = Vec::new();
    // A position of something else is for the source to refuse.
    for (partition, position) in splits.iter().filter_map(|split| parse_state(split).ok()) {
        let is_read = options.takes(&partition.topic) && !(options.is_bounded() && position.has_ended());
        if !is_read {
            continue;
        }
        let what = format!("partition {partition}");
        let listener = Some(&**consumer.context());
        let doing = Doing { name, brokers: &options.brokers, action: "read", what: &what, listener };
        match bounds_of(&consumer, &partition, deadline) {
            Ok(bounds) => {
                let checked = bounds.check(&partition, position.next, Asking::Checkpoint);
                lost.extend(checked.err().map(|out| doing.because(out.problem, out.advice, false)));
            }
            // A topic that isn't there is told elsewhere.
            Err(error) if error.rdkafka_error_code().is_some_and(is_about_a_topic) => {}
            Err(error) => return Err(doing.failed(&error)),
        }
    }
    Ok(lost)
}
