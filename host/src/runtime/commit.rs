//! Commits an epoch whose manifest is published: the decision first where a sink makes it, which is noted, then all other sinks,
//! then those who only want to know.
//!
//! Invariant: no other sink commits anything before the decision is certain.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::connector::{ConnectorError, Decider, ProgressReporter, SinkCommitter, SplitState};
use crate::crash;
use crate::id::Name;
use crate::protocol::CommitPermit;
use crate::store::{CheckpointStore, Manifest, StoreError};
use crate::telemetry::ProgressNotReported;

/// A sink whose output could not be committed for certain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    #[error("it isn't certain that it is decided")]
    Decision { source: ConnectorError },
    #[error("cannot note that it is decided")]
    Note { source: StoreError },
    #[error("cannot commit the output of sink '{sink}'")]
    Sink { sink: Name, source: ConnectorError },
}

impl CommitError {
    /// What to do about it, where there is more to say than the error itself does.
    pub fn help(&self) -> Option<String> {
        match self {
            CommitError::Decision { source } | CommitError::Sink { source, .. } => Some(source.help()),
            CommitError::Note { source } => source.help(),
        }
    }
}

/// Who is told of what is committed.
#[derive(Clone)]
pub struct Committers {
    /// Where decisions are noted.
    pub store: CheckpointStore,
    pub decider: Option<Arc<dyn Decider>>,
    pub sinks: BTreeMap<Name, Arc<dyn SinkCommitter>>,
    /// By source.
    pub reporters: BTreeMap<Name, Arc<dyn ProgressReporter>>,
}

/// What is committed of one epoch.
#[derive(Debug, Default)]
pub struct Prepared {
    /// By sink.
    committables: BTreeMap<Name, Vec<Vec<u8>>>,
    /// By source: of all subtasks.
    positions: BTreeMap<Name, Vec<SplitState>>,
}

impl Prepared {
    /// What a manifest holds of sinks and sources.
    pub fn of(manifest: &Manifest) -> Prepared {
        let mut prepared = Prepared::default();
        for (name, operator) in &manifest.operators {
            let committables = operator.subtasks.iter().map(|part| &part.committable);
            let committables = committables.filter(|bytes| !bytes.is_empty()).cloned().collect::<Vec<_>>();
            let splits = operator.subtasks.iter().flat_map(|part| &part.splits).cloned().collect::<Vec<_>>();
            if !committables.is_empty() {
                prepared.committables.insert(name.clone(), committables);
            }
            if !splits.is_empty() {
                prepared.positions.insert(name.clone(), splits);
            }
        }
        prepared
    }
}

impl Committers {
    /// Commits an epoch.
    ///
    /// # Errors
    /// If it isn't certain that it is decided, or that a sink has committed.
    pub fn commit(&self, permit: &CommitPermit, prepared: &Prepared) -> Result<(), CommitError> {
        if let Some(decider) = &self.decider {
            decider.decide(permit, &prepared.positions).map_err(|source| CommitError::Decision { source })?;
            crash::point("runtime.decided");
        }
        self.commit_decided(permit, prepared)
    }

    /// Commits an epoch of which it is certain that it is decided.
    ///
    /// # Errors
    /// If it isn't certain that a sink has committed.
    ///
    /// # Panics
    /// Outside of a thread of the runtime that may block.
    pub fn commit_decided(&self, permit: &CommitPermit, prepared: &Prepared) -> Result<(), CommitError> {
        if self.decider.is_some() {
            let noted = Handle::current().block_on(self.store.note_decided(permit.epoch()));
            noted.map_err(|source| CommitError::Note { source })?;
        }
        for (sink, committer) in &self.sinks {
            let committables = prepared.committables.get(sink).map(Vec::as_slice).unwrap_or_default();
            let failed = |source| CommitError::Sink { sink: sink.clone(), source };
            committer.commit(permit, committables).map_err(failed)?;
            crash::point("runtime.commit.sink");
        }
        for (source, reporter) in &self.reporters {
            let splits = prepared.positions.get(source).map(Vec::as_slice).unwrap_or_default();
            if let Err(error) = reporter.committed(splits) {
                ProgressNotReported { source, error: &error }.emit();
            }
        }
        Ok(())
    }
}
