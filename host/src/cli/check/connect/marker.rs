//! Reads the marker of the job, as the sink does.
//!
//! Invariant: a topic that isn't there isn't read, so that reading can't make it.

use super::facts::{Facts, MarkerFacts};
use super::finding::Finding;
use super::probe::Parts;
use super::stored;
use crate::cli::CliError;
use crate::config::JobFile;
use crate::connector::kafka::wire::ResponseError;
use crate::connector::{marker_place, peek_marker};
use crate::id::JobUid;
use crate::protocol::decision::{Decided, DecisionRefused};

/// Adds the marker to the facts. Gives what is wrong with reading it.
pub(super) fn read(file: &JobFile, parts: &Parts<'_>, facts: &mut Facts, own: Option<&JobUid>) -> Option<Finding> {
    let (sink, transaction) = parts.sinks.iter().find_map(|sink| Some((sink, sink.transaction.as_ref()?)))?;
    let topic = &transaction.marker_topic;
    facts.topics.get(topic).filter(|found| found.topic.error.is_none())?;
    match peek_marker(&sink.cluster, &sink.name, &file.job, topic) {
        Ok(marker) => {
            let job_uid = marker.map(|marker| marker.job_uid.0);
            facts.marker = Some(MarkerFacts { job_uid, own_uid: own.map(|own| own.0.clone()) });
            None
        }
        Err(error) => Some(Finding::error(&sink.about(), error.without_name(), error.help())),
    }
}

/// Where the job would start by the marker; or why it can't, as a run would say. `None`: it has nothing to go on from, or what is to
/// be said is said of the topic or the marker itself.
///
/// # Errors
/// If the checkpoint store can't be read.
pub(super) fn decided(
    file: &JobFile,
    parts: &Parts<'_>,
    facts: &Facts,
) -> Result<Option<Result<Decided, Finding>>, CliError> {
    let wanted = parts.sinks.iter().find_map(|sink| Some((sink, sink.transaction.as_ref()?)));
    let Some((sink, transaction)) = wanted else { return Ok(None) };
    let topic = &transaction.marker_topic;
    let is_there = match facts.topics.get(topic).map(|found| found.topic.error) {
        Some(None) => true,
        Some(Some(ResponseError::UnknownTopicOrPartition)) => false,
        Some(Some(_)) | None => return Ok(None),
    };
    let place = marker_place(&file.job, &facts.cluster, topic);
    let peek = || match is_there {
        true => peek_marker(&sink.cluster, &sink.name, &file.job, topic),
        false => Ok(None),
    };
    let resolved = match stored::decided(file, &place, peek)? {
        // Told with the marker.
        None | Some(Err(DecisionRefused::OtherJob { .. })) => return Ok(None),
        Some(resolved) => resolved,
    };
    Ok(Some(resolved.map_err(|refused| Finding::error(&sink.about(), refused.to_string(), refused.help()))))
}
