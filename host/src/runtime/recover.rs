//! Brings a job to where its newest checkpoint left it, before anything runs.
//!
//! The order, and the crash that each step survives by being done again: lock (the kernel frees it), claim an attempt (the
//! next one claims another), commit the newest checkpoint's output (idempotent), discard the leftovers of dead attempts
//! (nothing that a checkpoint names is among them any more), new working folder (those of dead attempts are removed).
//!
//! Invariant: state and sources start from the newest published checkpoint or, if there is none, from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pump::commit_all;
use super::{Job, RunError};
use crate::connector::{ConnectorContext, SinkCommitter, open_committer};
use crate::crash;
use crate::id::{Attempt, Epoch, Name};
use crate::protocol::recovery::{
    EdgeFacts, ExpectedJob, ExpectedOperator, Identity, ManifestFacts, NewestManifest, OperatorFacts, RecoveryDecision,
    RecoveryFacts, decide,
};
use crate::protocol::{CommitPermit, PublishReceipt};
use crate::store::{CheckpointStore, EdgeRef, JobLock, Manifest, OperatorCheckpoint, StoreError};

/// The slot of this process. One process runs a whole job.
pub const SLOT: u32 = 0;

/// A job that is ready to be wired.
pub struct Recovered {
    pub store: CheckpointStore,
    pub attempt: Attempt,
    pub manifest: Option<Manifest>,
    pub committers: BTreeMap<Name, Arc<dyn SinkCommitter>>,
    /// Live state of this attempt; nothing in it is ever resumed from.
    pub work_folder: PathBuf,
}

/// What keeps other processes out, from the first attempt to the last, so that none can slip in between two of them.
#[derive(Default)]
pub struct Locks(Vec<JobLock>);

impl Locks {
    /// Takes the lock of the state folder, then, when it is known to be there, that of the store.
    fn acquire(&mut self, place: usize, folder: &Path, job: &Name) -> Result<(), StoreError> {
        if self.0.len() == place {
            self.0.push(JobLock::acquire(folder, job)?);
        }
        Ok(())
    }
}

impl Recovered {
    /// Removes this attempt's live state. If that fails the next attempt does it.
    pub fn remove_work_folder(&self) {
        let _ = std::fs::remove_dir_all(&self.work_folder);
    }

    pub fn context(&self, job: &Job, name: &Name, parallelism: u32) -> ConnectorContext {
        ConnectorContext {
            job: job.name.clone(),
            job_uid: self.store.job_uid().clone(),
            attempt: self.attempt,
            name: name.clone(),
            parallelism,
        }
    }
}

/// # Errors
/// [`RunError`], having changed nothing that matters to the next run.
pub async fn recover(job: &Job, locks: &mut Locks) -> Result<Recovered, RunError> {
    let name = &job.name;
    let store_failed = |source: StoreError| RunError::Store { job: name.clone(), source };
    locks.acquire(0, &job.state_dir, name).map_err(store_failed)?;
    let root = &job.store;
    let store = CheckpointStore::open(root, name, SLOT).await.map_err(store_failed)?;
    locks.acquire(1, &root.join(name.as_str()), name).map_err(store_failed)?;
    // Claimed first: a run of the same job that still publishes sees the claim, or its manifest is found below.
    let attempt = store.claim_attempt().await.map_err(store_failed)?;
    let newest = newest(job, &store).await?;
    if let Some(newer) = newest.as_ref().map(|(manifest, _)| manifest.attempt).filter(|used| *used >= attempt) {
        return Err(store_failed(StoreError::Fenced { ours: attempt, newer }));
    }
    crash::point("recover.claimed");
    let work_folder = new_work_folder(job, attempt)?;
    let mut recovered = Recovered { store, attempt, manifest: None, committers: BTreeMap::new(), work_folder };
    for (sink, options) in &job.sinks {
        let node = job.plan.nodes.iter().find(|node| node.name == *sink).expect("the plan has every sink");
        let context = recovered.context(job, sink, node.parallelism);
        let committer = open_committer(options, &context);
        let committer =
            committer.map_err(|source| RunError::Connector { job: name.clone(), source: Box::new(source) })?;
        recovered.committers.insert(sink.clone(), Arc::from(committer));
    }
    let newest_epoch = newest.as_ref().map(|(manifest, _)| manifest.epoch);
    for (sink, committer) in &recovered.committers {
        if let Some(committed) = committer.committed().filter(|committed| Some(*committed) > newest_epoch) {
            return Err(RunError::CheckpointMissing { sink: sink.clone(), committed, newest: newest_epoch });
        }
    }
    if let Some((manifest, receipt)) = newest {
        commit_again(&recovered.committers, &manifest, receipt)?;
        recovered.manifest = Some(manifest);
    }
    crash::point("recover.committed");
    for committer in recovered.committers.values() {
        let discarded = committer.discard_leftovers();
        discarded.map_err(|source| RunError::Connector { job: name.clone(), source: Box::new(source) })?;
    }
    crash::point("recover.discarded");
    Ok(recovered)
}

/// The newest checkpoint, if the job may and can continue from it.
async fn newest(job: &Job, store: &CheckpointStore) -> Result<Option<(Manifest, PublishReceipt)>, RunError> {
    let name = &job.name;
    let store_failed = |source: StoreError| RunError::Store { job: name.clone(), source };
    let epochs: BTreeSet<Epoch> = store.epochs().await.map_err(store_failed)?.into_iter().collect();
    let Some(&epoch) = epochs.last() else { return Ok(None) };
    let (manifest, receipt) = store.load(epoch).await.map_err(store_failed)?;
    let facts = RecoveryFacts {
        identity: Identity::Found { job: name.clone(), uid: store.job_uid().clone() },
        attempts: BTreeSet::new(),
        manifests: epochs,
        newest: Some(NewestManifest::Valid(manifest_facts(&manifest))),
    };
    match decide(&facts, &expected(job)) {
        RecoveryDecision::Fresh => Ok(None),
        RecoveryDecision::Resume { epoch } => {
            assert_eq!(epoch, manifest.epoch, "the newest checkpoint is the one that was read");
            Ok(Some((manifest, receipt)))
        }
        RecoveryDecision::Refuse(source) => Err(RunError::Refused { job: name.clone(), source: Box::new(source) }),
    }
}

fn manifest_facts(manifest: &Manifest) -> ManifestFacts {
    let operator = |operator: &OperatorCheckpoint| {
        let keyed = || operator.subtasks.iter().filter_map(|part| part.keyed.as_ref());
        let tables = keyed().flat_map(|keyed| &keyed.tables);
        let in_flight = operator.subtasks.iter().filter_map(|part| part.in_flight.as_ref());
        let edge = |edge: &EdgeRef| {
            let EdgeRef { from, output, input, exchange: _ } = edge.clone();
            EdgeFacts { from, output, input }
        };
        OperatorFacts {
            splits: operator.subtasks.iter().any(|part| !part.splits.is_empty()),
            operator_state: operator.subtasks.iter().any(|part| part.operator_state.is_some()),
            committables: operator.subtasks.iter().any(|part| !part.committable.is_empty()),
            key_groups: keyed().map(|keyed| keyed.key_groups).collect(),
            tables: tables.map(|table| (table.name.clone(), table.version)).collect(),
            in_flight: in_flight.flat_map(|in_flight| in_flight.edges.iter().map(edge)).collect(),
        }
    };
    ManifestFacts {
        job: manifest.job.clone(),
        uid: manifest.job_uid.clone(),
        epoch: manifest.epoch,
        attempt: manifest.attempt,
        max_parallelism: manifest.max_parallelism,
        operators: manifest.operators.iter().map(|(name, checkpoint)| (name.clone(), operator(checkpoint))).collect(),
    }
}

fn expected(job: &Job) -> ExpectedJob {
    let sources = job.sources.keys().map(|name| (name.clone(), ExpectedOperator::Source));
    let sinks = job.sinks.keys().map(|name| (name.clone(), ExpectedOperator::Sink));
    let operators = job.operators.iter().map(|(name, operator)| {
        let tables = operator.factory.descriptor().stored_tables().into_iter();
        let tables = tables.map(|table| (table.name, table.version)).collect();
        (name.clone(), ExpectedOperator::Operator { tables })
    });
    let mut edges = BTreeMap::<Name, BTreeSet<EdgeFacts>>::new();
    for edge in &job.plan.edges {
        let (from, to) = (job.plan.node(edge.from), job.plan.node(edge.to));
        let output = from.outputs[edge.port as usize].clone();
        let edge = EdgeFacts { from: from.name.clone(), output, input: edge.input };
        edges.entry(to.name.clone()).or_default().insert(edge);
    }
    ExpectedJob {
        name: job.name.clone(),
        max_parallelism: job.max_parallelism,
        operators: sources.chain(operators).chain(sinks).collect(),
        edges,
    }
}

/// A crash between publish and commit is finished here; a commit that was done is found done.
fn commit_again(
    committers: &BTreeMap<Name, Arc<dyn SinkCommitter>>,
    manifest: &Manifest,
    receipt: PublishReceipt,
) -> Result<(), RunError> {
    let committables = committers.keys().map(|sink| {
        let subtasks = manifest.operators.get(sink).into_iter().flat_map(|operator| &operator.subtasks);
        let prepared = subtasks.map(|part| part.committable.clone()).filter(|committable| !committable.is_empty());
        (sink.clone(), prepared.collect())
    });
    let permit = CommitPermit::new(receipt);
    let outcome = commit_all(&permit, committers, &committables.collect());
    outcome.map_err(|source| RunError::Commit { epoch: manifest.epoch, source: Box::new(source) })
}

/// Removes the working folders of dead attempts and makes this one's.
fn new_work_folder(job: &Job, attempt: Attempt) -> Result<PathBuf, RunError> {
    let all = job.state_dir.join("work");
    let failed = |action, path: &PathBuf| {
        let path = path.clone();
        move |source| RunError::WorkFolder { action, path, source }
    };
    if all.exists() {
        std::fs::remove_dir_all(&all).map_err(failed("remove", &all))?;
    }
    let own = all.join(attempt.to_string());
    std::fs::create_dir_all(&own).map_err(failed("create", &own))?;
    Ok(own)
}
