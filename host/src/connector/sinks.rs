//! All sinks of a job, opened together: some of them share a transaction.
//!
//! Invariant: every sink has a committer, and there is at most one decider.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file_sink::{FileCommitter, FileSinkWriter};
use super::kafka_sink::{KafkaSinks, SourceGroup, ToOpen};
use super::null_sink::{NullCommitter, NullSinkWriter};
use super::{ConnectorContext, ConnectorError, Decider, SinkCommitter, SinkOptions, SinkWriter, SourceOptions};
use crate::id::Name;
use crate::protocol::Guarantee;

/// A sink, and what it is told of its job.
#[derive(Clone, Debug)]
pub struct SinkToOpen {
    pub options: SinkOptions,
    pub context: ConnectorContext,
}

/// The sinks of one attempt.
pub struct OpenSinks {
    sinks: BTreeMap<Name, SinkToOpen>,
    committers: BTreeMap<Name, Arc<dyn SinkCommitter>>,
    kafka: KafkaSinks,
}

impl OpenSinks {
    /// Opens the commit sides of all sinks and claims their output for this job.
    ///
    /// # Errors
    /// If options can't be used, or output belongs to another job or can't be created.
    pub fn open(
        sinks: BTreeMap<Name, SinkToOpen>,
        sources: &BTreeMap<Name, SourceOptions>,
        guarantee: Guarantee,
    ) -> Result<OpenSinks, ConnectorError> {
        let mut committers = BTreeMap::new();
        let mut kafka = BTreeMap::new();
        for (name, SinkToOpen { options, context }) in &sinks {
            options.validate().map_err(|bad| bad.refused(context))?;
            let committer: Arc<dyn SinkCommitter> = match options {
                SinkOptions::File(options) => Arc::new(FileCommitter::open(options, context)?),
                SinkOptions::Kafka(options) => {
                    kafka.insert(name, (options, context));
                    continue;
                }
                SinkOptions::Null(_) => Arc::new(NullCommitter),
            };
            committers.insert(name.clone(), committer);
        }
        let names = kafka.keys().map(|name| (*name).clone()).collect::<Vec<_>>();
        let kafka = KafkaSinks::open(&kafka, groups(sources, &kafka), guarantee)?;
        committers.extend(names.into_iter().map(|name| (name.clone(), kafka.committer(&name))));
        Ok(OpenSinks { sinks, committers, kafka })
    }

    pub fn committers(&self) -> &BTreeMap<Name, Arc<dyn SinkCommitter>> {
        &self.committers
    }

    pub fn decider(&self) -> Option<&Arc<dyn Decider>> {
        self.kafka.decider()
    }

    /// Opens one subtask of a sink.
    ///
    /// # Errors
    /// If its output can't be reached.
    ///
    /// # Panics
    /// If there is no such sink or subtask.
    pub fn writer(&self, name: &Name, subtask: u32) -> Result<Box<dyn SinkWriter>, ConnectorError> {
        let SinkToOpen { options, context } = &self.sinks[name];
        assert!(subtask < context.parallelism, "subtask {subtask} of {}", context.parallelism);
        Ok(match options {
            SinkOptions::File(options) => Box::new(FileSinkWriter::open(options, context, subtask)),
            SinkOptions::Kafka(_) => self.kafka.writer(name, subtask),
            SinkOptions::Null(options) => Box::new(NullSinkWriter::open(options, context)),
        })
    }
}

/// The sources whose positions are offsets of a Kafka group, if there is a Kafka sink to commit them.
fn groups(sources: &BTreeMap<Name, SourceOptions>, sinks: &ToOpen<'_>) -> BTreeMap<Name, SourceGroup> {
    let Some((_, context)) = sinks.values().next() else { return BTreeMap::new() };
    let group = |options: &SourceOptions| match options {
        SourceOptions::Kafka(kafka) => {
            Some(SourceGroup { brokers: kafka.brokers.clone(), group: kafka.group(&context.job) })
        }
        SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => None,
    };
    sources.iter().filter_map(|(name, options)| Some((name.clone(), group(options)?))).collect()
}
