//! Brings a job to where its newest checkpoint left it, before anything runs.
//!
//! The order, and the crash that each step survives by being done again: see that a first run can begin (nothing is made), lock (the kernel frees it), claim an attempt (the
//! next one claims another), take over from other deciders and ask what was decided (an answer for ever), new working folder (those
//! of dead attempts are removed), withdraw the manifest that wasn't decided (it is found again), commit the output of the
//! checkpoint that was (idempotent), discard the leftovers of dead attempts (nothing that a checkpoint names is among them any more).
//!
//! Invariant: state and sources start from the checkpoint that was decided last or, if there is none, from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::commit::{Committers, Prepared};
use super::{Job, RunError};
use crate::connector::{
    ConnectorContext, ConnectorError, Decider, OpenSinks, ProgressReporter, SinkOptions, SinkToOpen, open_reporter,
};
use crate::crash;
use crate::id::{Attempt, Epoch, Name};
use crate::protocol::decision::{Decided, DeciderFacts, check_noted, resolve};
use crate::protocol::recovery::{
    EdgeFacts, ExpectedJob, ExpectedOperator, Identity, ManifestFacts, NewestManifest, OperatorFacts, RecoveryDecision,
    RecoveryFacts, decide,
};
use crate::protocol::{CommitPermit, PublishReceipt};
use crate::state::FREE_TABLE;
use crate::store::{CheckpointStore, EdgeRef, Manifest, OperatorCheckpoint, StoreError};
use crate::telemetry::CheckpointWithdrawn;

/// The slot of this process. One process runs a whole job.
pub const SLOT: u32 = 0;

mod first;
mod locks;
pub mod preview;

pub use locks::Locks;

/// A job that is ready to be wired.
pub struct Recovered {
    pub store: CheckpointStore,
    pub attempt: Attempt,
    pub manifest: Option<Manifest>,
    /// The newest epoch that was ever published, which isn't that of `manifest` if it was never decided.
    pub newest_epoch: Option<Epoch>,
    pub sinks: OpenSinks,
    pub committers: Committers,
    /// Live state of this attempt; nothing in it is ever resumed from.
    pub work_folder: PathBuf,
}

impl Recovered {
    /// Lets go of what the attempt had open and removes its live state. What fails of it the next attempt does.
    pub async fn close(&self) {
        if let Some(decider) = self.committers.decider.clone() {
            // It waits for the cluster.
            let _ = tokio::task::spawn_blocking(move || decider.close()).await;
        }
        let _ = std::fs::remove_dir_all(&self.work_folder);
    }

    pub fn context(&self, job: &Job, name: &Name, parallelism: u32) -> ConnectorContext {
        context(job, &self.store, self.attempt, name, parallelism)
    }
}

fn context(job: &Job, store: &CheckpointStore, attempt: Attempt, name: &Name, parallelism: u32) -> ConnectorContext {
    let (job, job_uid, name) = (job.name.clone(), store.job_uid().clone(), name.clone());
    ConnectorContext { job, job_uid, attempt, name, parallelism }
}

/// # Errors
/// [`RunError`], having changed nothing that matters to the next run.
pub async fn recover(job: &Job, locks: &mut Locks) -> Result<Recovered, RunError> {
    let name = &job.name;
    let store_failed = |source: StoreError| RunError::Store { job: name.clone(), source };
    first::check(job).await?;
    locks.acquire_state(job).map_err(store_failed)?;
    let store = CheckpointStore::open(&job.store, name, SLOT).await.map_err(store_failed)?;
    locks.acquire_store(job).map_err(store_failed)?;
    // Claimed first: a run of the same job that still publishes sees the claim, or its manifest is found below.
    let attempt = store.claim_attempt().await.map_err(store_failed)?;
    // What the job can't continue from is told before anybody is shut out or any output is claimed.
    let published = store.epochs().await.map_err(store_failed)?.pop();
    let newest = continue_from(job, &store, published).await?;
    if let Some(newer) = newest.as_ref().map(|(manifest, _)| manifest.attempt).filter(|used| *used >= attempt) {
        return Err(store_failed(StoreError::Fenced { ours: attempt, newer }));
    }
    crash::point("recover.claimed");
    let (sinks, decided) = open_and_decide(job, &store, attempt).await.inspect_err(|error| {
        // No marker was written for it, so that nobody knows of this folder yet.
        if published.is_none() && error.is_unfit() {
            locks.remove_what_was_made(job);
        }
    })?;
    let resumed = continue_from(job, &store, decided.epoch).await?;
    for (sink, committer) in sinks.committers() {
        if let Some(committed) = committer.committed().filter(|committed| Some(*committed) > decided.epoch) {
            return Err(RunError::CheckpointMissing { sink: sink.clone(), committed, newest: decided.epoch });
        }
    }
    if let Some(undecided) = decided.withdraw {
        store.withdraw(undecided).await.map_err(store_failed)?;
        CheckpointWithdrawn { job: name, epoch: undecided, resumed: decided.epoch }.emit();
    }
    let committers = Committers {
        store: store.clone(),
        decider: sinks.decider().cloned(),
        sinks: sinks.committers().clone(),
        reporters: open_reporters(job, &store, attempt, sinks.decider()).await?,
    };
    let digest = resumed.as_ref().map(|(manifest, receipt)| (manifest.epoch, receipt.digest()));
    let mut resumed_manifest = None;
    if let Some((manifest, receipt)) = resumed {
        commit_again(committers.clone(), &manifest, receipt).await?;
        resumed_manifest = Some(manifest);
    }
    crash::point("recover.committed");
    if let Some(decider) = committers.decider.clone().filter(|_| decided.adopt) {
        connect(job, move || decider.adopt(digest)).await?;
    }
    for committer in committers.sinks.values() {
        let discarded = committer.discard_leftovers();
        discarded.map_err(|source| RunError::Connector { job: name.clone(), source: Box::new(source) })?;
    }
    crash::point("recover.discarded");
    let work_folder = new_work_folder(job, attempt)?;
    let (manifest, newest_epoch) = (resumed_manifest, published);
    Ok(Recovered { store, attempt, manifest, newest_epoch, sinks, committers, work_folder })
}

async fn open_and_decide(
    job: &Job,
    store: &CheckpointStore,
    attempt: Attempt,
) -> Result<(OpenSinks, Decided), RunError> {
    let sinks = open_sinks(job, store, attempt).await?;
    let decided = decided(job, store, sinks.decider()).await?;
    Ok((sinks, decided))
}

async fn open_reporters(
    job: &Job,
    store: &CheckpointStore,
    attempt: Attempt,
    decider: Option<&Arc<dyn Decider>>,
) -> Result<BTreeMap<Name, Arc<dyn ProgressReporter>>, RunError> {
    let mut reporters = BTreeMap::new();
    for (name, source) in &job.sources {
        // The decision holds the positions of those.
        if decider.is_some_and(|decider| decider.covers(name)) {
            continue;
        }
        let (options, context) = (source.options.clone(), context(job, store, attempt, name, 1));
        if let Some(reporter) = connect(job, move || open_reporter(&options, &context)).await? {
            reporters.insert(name.clone(), Arc::from(reporter));
        }
    }
    Ok(reporters)
}

async fn open_sinks(job: &Job, store: &CheckpointStore, attempt: Attempt) -> Result<OpenSinks, RunError> {
    let to_open = |(name, options): (&Name, &SinkOptions)| {
        let node = job.plan.nodes.iter().find(|node| node.name == *name).expect("the plan has every sink");
        let context = context(job, store, attempt, name, node.parallelism);
        (name.clone(), SinkToOpen { options: options.clone(), context })
    };
    let sinks = job.sinks.iter().map(to_open).collect();
    let sources = job.sources.iter().map(|(name, source)| (name.clone(), source.options.clone())).collect();
    let guarantee = job.guarantee;
    connect(job, move || OpenSinks::open(sinks, &sources, guarantee)).await
}

/// Runs what waits for others in a thread of its own.
async fn connect<T: Send + 'static>(
    job: &Job,
    work: impl FnOnce() -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, RunError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => {
            outcome.map_err(|source| RunError::Connector { job: job.name.clone(), source: Box::new(source) })
        }
        Err(error) => Err(RunError::Panicked { message: error.to_string() }),
    }
}

/// Which checkpoint was decided last. From here on no other process can decide another.
async fn decided(job: &Job, store: &CheckpointStore, decider: Option<&Arc<dyn Decider>>) -> Result<Decided, RunError> {
    let Some(decider) = decider.cloned() else { return resolved(job, store, None).await };
    let place = decider.place().clone();
    let (asked, published) = (Arc::clone(&decider), store.epochs().await);
    let has_published = !published.map_err(|source| RunError::Store { job: job.name.clone(), source })?.is_empty();
    if has_published && !connect(job, move || asked.has_marker_topic()).await? {
        // There can't be a marker: if the job can't go on without one, that is told before a topic is made for it.
        resolved(job, store, Some(DeciderFacts { place: place.clone(), marker: None })).await?;
    }
    refuse_older_store(job, store, &decider).await?;
    let marker = connect(job, move || decider.take_over()).await?;
    resolved(job, store, Some(DeciderFacts { place, marker })).await
}

/// A store that is behind the marker already is refused before a healthy run of the job, which is somewhere else, is shut out.
async fn refuse_older_store(job: &Job, store: &CheckpointStore, decider: &Arc<dyn Decider>) -> Result<(), RunError> {
    let (place, asked) = (decider.place().clone(), Arc::clone(decider));
    let marker = connect(job, move || asked.peek()).await?;
    match resolved(job, store, Some(DeciderFacts { place, marker })).await {
        Err(error @ RunError::Undecided { .. }) if error.is_unfit() => Err(error),
        // The marker may be an older one, or the store move on meanwhile: what is so afterwards counts.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What these facts and those of the store make of it.
async fn resolved(job: &Job, store: &CheckpointStore, facts: Option<DeciderFacts>) -> Result<Decided, RunError> {
    let store_failed = |source: StoreError| RunError::Store { job: job.name.clone(), source };
    let epochs = store.epochs().await.map_err(store_failed)?;
    let marked = facts.as_ref().and_then(|facts| facts.marker.as_ref()?.decided).map(|(epoch, _)| epoch);
    let mut published = BTreeMap::new();
    for (from_newest, epoch) in epochs.into_iter().rev().enumerate() {
        if from_newest < 2 || marked == Some(epoch) {
            published.insert(epoch, store.published(epoch).await.map_err(store_failed)?);
        }
    }
    let noted = store.noted_decided().await.map_err(store_failed)?;
    let decided = resolve(store.job_uid(), &published, facts.as_ref()).and_then(|decided| {
        facts.as_ref().map_or(Ok(()), |facts| check_noted(&decided, noted, &facts.place))?;
        Ok(decided)
    });
    decided.map_err(|source| RunError::Undecided { job: job.name.clone(), source: Box::new(source) })
}

/// A checkpoint, if the job may and can continue from it; those behind it don't count.
async fn continue_from(
    job: &Job,
    store: &CheckpointStore,
    epoch: Option<Epoch>,
) -> Result<Option<(Manifest, PublishReceipt)>, RunError> {
    let name = &job.name;
    let store_failed = |source: StoreError| RunError::Store { job: name.clone(), source };
    let Some(epoch) = epoch else { return Ok(None) };
    let (manifest, receipt) = store.load(epoch).await.map_err(store_failed)?;
    let facts = RecoveryFacts {
        identity: Identity::Found { job: name.clone(), uid: store.job_uid().clone() },
        attempts: BTreeSet::new(),
        manifests: BTreeSet::from([epoch]),
        newest: Some(NewestManifest::Valid(manifest_facts(&manifest))),
    };
    match decide(&facts, &expected(job, &manifest)) {
        RecoveryDecision::Fresh => panic!("epoch {epoch} was published"),
        RecoveryDecision::Resume { epoch } => {
            assert_eq!(epoch, manifest.epoch, "the checkpoint is the one that was read");
            Ok(Some((manifest, receipt)))
        }
        RecoveryDecision::Refuse(source) => Err(RunError::Refused { job: name.clone(), source: Box::new(source) }),
    }
}

pub(super) fn manifest_facts(manifest: &Manifest) -> ManifestFacts {
    let operator = |operator: &OperatorCheckpoint| {
        let keyed = || operator.subtasks.iter().filter_map(|part| part.keyed.as_ref());
        let tables = keyed().flat_map(|keyed| &keyed.tables).filter(|table| table.name != FREE_TABLE);
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

/// The job with the components that are in force at a checkpoint.
pub(super) fn expected(job: &Job, manifest: &Manifest) -> ExpectedJob {
    let sources = job.sources.keys().map(|name| (name.clone(), ExpectedOperator::Source));
    let sinks = job.sinks.keys().map(|name| (name.clone(), ExpectedOperator::Sink));
    let operators = job.operators.iter().map(|(name, operator)| {
        let tables = operator.at(name, Some(manifest)).descriptor().stored_tables().into_iter();
        let tables = tables.map(|table| (table.name, table.version)).collect();
        (name.clone(), ExpectedOperator::Operator { tables, migrates: operator.at(name, Some(manifest)).migrates() })
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

/// A crash between the decision and the commits is finished here; a commit that was done is found done.
async fn commit_again(committers: Committers, manifest: &Manifest, receipt: PublishReceipt) -> Result<(), RunError> {
    let (permit, prepared) = (CommitPermit::new(receipt), Prepared::of(manifest));
    let epoch = permit.epoch();
    match tokio::task::spawn_blocking(move || committers.commit_decided(&permit, &prepared)).await {
        Ok(outcome) => outcome.map_err(|source| RunError::Commit { epoch, source: Box::new(source) }),
        Err(error) => Err(RunError::Panicked { message: error.to_string() }),
    }
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
