//! Whether partitions have what a job would begin or go on with, asked before anything runs.
//!
//! Invariant: nothing is refused that the source would read; no group is joined and no record is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::bounds::Asking;
use super::client;
use super::failing::is_about_a_topic;
use super::ids;
use super::position::{Partition, parse_state};
use super::scout::{Question, bounds_of};
use super::{KafkaSourceOptions, Start};
use crate::connector::kafka::{Doing, ELECTION_MAX, TopicIdAsker, through_elections};
use crate::connector::{ConnectorError, SplitState};
use crate::id::Name;

/// For all partitions of a source.
const TIMEOUT: Duration = Duration::from_secs(60);
/// For the first question, as the source has.
const FIRST_TIMEOUT: Duration = Duration::from_secs(30);

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
    // A position of something else is for the source to refuse.
    let positions = splits.iter().filter_map(|split| parse_state(split).ok());
    let positions = positions.filter(|(partition, position)| {
        options.takes(&partition.topic) && !(options.is_bounded() && position.has_ended())
    });
    let positions = positions.collect::<Vec<_>>();
    let topics = positions.iter().map(|(partition, _)| partition.topic.as_str()).collect::<BTreeSet<_>>();
    // Where ids can't be had, offsets are all that is looked at, as the source does.
    let ids = TopicIdAsker::new(&options.cluster(), name).ask(&topics)?.unwrap_or_default();
    let by_reference = positions.iter().map(|(partition, position)| (partition, position));
    if let Some(other) = ids::of_another(by_reference, &ids) {
        return Ok(vec![other.refused(name)]);
    }
    let places = positions.into_iter().map(|(partition, position)| (partition, position.next));
    out_of_bounds(options, name, job, places.collect(), Asking::Checkpoint)
}

/// What the source would say of the offsets of its key `start`. Those of partitions that aren't there are told elsewhere.
///
/// # Errors
/// If the cluster doesn't say.
pub fn bad_starts(
    options: &KafkaSourceOptions,
    name: &Name,
    job: &Name,
) -> Result<Vec<ConnectorError>, ConnectorError> {
    let Start::Offsets(offsets) = &options.start else { return Ok(Vec::new()) };
    let places = offsets.iter().flat_map(|(topic, of)| {
        of.iter().map(|(index, next)| (Partition { topic: topic.clone(), index: *index }, *next))
    });
    let places = places.filter(|(partition, _)| options.takes(&partition.topic)).collect();
    out_of_bounds(options, name, job, places, Asking::Start)
}

/// Asks what a source asks that begins, for all of its partitions.
///
/// # Errors
/// What the source would say.
pub fn check_beginning(options: &KafkaSourceOptions, name: &Name, job: &Name) -> Result<(), ConnectorError> {
    let question = Question {
        name: name.clone(),
        options: options.clone(),
        group: options.group(job),
        parallelism: 1,
        subtask: 0,
        read_before: BTreeSet::new(),
        known: BTreeMap::new(),
        check_known: true,
        unknown: Some(options.start.clone()),
        timeout: FIRST_TIMEOUT,
    };
    question.answer(&*client::open(options, name, job, 1)?).map(drop)
}

fn out_of_bounds(
    options: &KafkaSourceOptions,
    name: &Name,
    job: &Name,
    places: Vec<(Partition, u64)>,
    asking: Asking,
) -> Result<Vec<ConnectorError>, ConnectorError> {
    let mut out = Vec::new();
    if places.is_empty() {
        return Ok(out);
    }
    let consumer = client::open(options, name, job, places.len())?;
    let deadline = Instant::now() + TIMEOUT;
    for (partition, next) in places {
        let what = format!("partition {partition}");
        let listener = Some(&**consumer.context());
        let doing = Doing { name, brokers: &options.brokers, action: "read", what: &what, listener };
        let end = deadline.min(Instant::now() + ELECTION_MAX);
        match through_elections(&doing, end, || bounds_of(&consumer, &partition, deadline)) {
            Ok(bounds) => {
                let checked = bounds.check(&partition, next, asking);
                out.extend(checked.err().map(|problem| problem.refused(&doing)));
            }
            // A topic or partition that isn't there is told elsewhere.
            Err(error) if error.rdkafka_error_code().is_some_and(is_about_a_topic) => {}
            Err(error) => return Err(doing.failed(&error)),
        }
    }
    Ok(out)
}
