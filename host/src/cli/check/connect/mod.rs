//! `lockgate check --connect`: whether the brokers let the job run, asked before anything runs.
//!
//! What is wanted is read from the job file, what is there from the brokers; what is said of both is decided without either.
//!
//! Invariant: nothing is created or changed on a cluster.

mod facts;
mod finding;
mod judge;
mod marker;
mod probe;
mod stored;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::BTreeMap;

pub(super) use finding::{Answered, Connected};

use crate::cli::CliError;
use crate::cli::kafka::{properties, settings};
use crate::config::JobFile;
use crate::connector::kafka::wire::Client;
use crate::connector::topics_of;
use crate::id::JobUid;
use facts::Facts;
use finding::Finding;
use probe::{Parts, probe};
use wanted::Wanted;

/// `own`: the job that the checkpoint store belongs to, if it is anybody's.
///
/// # Errors
/// If settings can't be used. A cluster that doesn't answer is part of what is found.
pub(super) fn check_connected(file: &JobFile, own: Option<&JobUid>) -> Result<Connected, CliError> {
    let mut wanted = Wanted::of(file);
    let newest = stored::checkpoint(file, None)?;
    if let Some(newest) = &newest {
        for source in &mut wanted.sources {
            // A job that goes on from a checkpoint doesn't look at it.
            source.starts.clear();
            source.read_before = topics_of(&stored::splits(newest, &source.name));
        }
    }
    let mut decided = None;
    let mut connected = Connected::default();
    // By the place in `clusters`.
    let mut known = Vec::new();
    for (name, cluster) in wanted.clusters() {
        let properties = properties(name, cluster)?;
        let settings = settings(cluster, &properties)?;
        let parts = Parts::of(&wanted, cluster);
        let about = format!("cluster {}", cluster.brokers);
        let asked = Client::connect(settings).and_then(|mut client| {
            let facts = probe(&mut client, &parts, &properties)?;
            Ok((client, facts))
        });
        match asked {
            Ok((client, mut facts)) => {
                let (id, brokers) = (client.cluster().id.clone(), client.cluster().brokers.len());
                connected.clusters.push(Answered { cluster: id, broker: client.answered().to_string(), brokers });
                connected.findings.extend(marker::read(file, &parts, &mut facts, own));
                match marker::decided(file, &parts, &facts)? {
                    Some(Ok(found)) => decided = Some(found),
                    Some(Err(finding)) => {
                        facts.is_marker_missed = true;
                        connected.findings.push(finding);
                    }
                    None => {}
                }
                connected.findings.extend(judge_parts(&parts, &facts));
                known.push((cluster, facts.cluster));
            }
            Err(error) => connected.findings.push(Finding::error(&about, error.to_string(), error.help())),
        }
    }
    let transactional = wanted.sinks.iter().filter(|sink| sink.transaction.is_some()).filter_map(|sink| {
        let (_, id) = known.iter().find(|(cluster, _)| **cluster == sink.cluster)?;
        Some((sink, id.as_str()))
    });
    connected.findings.extend(judge::one_cluster(&transactional.collect::<Vec<_>>()));
    // What doesn't answer has been told, and one error is enough of a job that can't go on from anything.
    if connected.errors().next().is_none() {
        let checkpoint = stored::checkpoint(file, decided.as_ref())?;
        connected.findings.extend(match &checkpoint {
            Some(checkpoint) => stored::positions(file, checkpoint),
            None => stored::starts(file),
        });
    }
    Ok(connected)
}

fn judge_parts(parts: &Parts<'_>, facts: &Facts) -> Vec<Finding> {
    let mut found = judge::brokers(facts);
    for source in &parts.sources {
        found.extend(judge::source(source, facts));
    }
    for sink in &parts.sinks {
        found.extend(judge::sink(sink, facts));
    }
    let mut markers = BTreeMap::new();
    for sink in &parts.sinks {
        if let Some(transaction) = &sink.transaction {
            markers.entry(&transaction.marker_topic).or_insert((*sink, transaction));
        }
    }
    for (topic, (sink, transaction)) in markers {
        found.extend(judge::transaction(sink, transaction, facts));
        found.extend(judge::marker(sink, topic, facts));
    }
    found
}
