//! Tries a component against the newest checkpoint of a job without running it: opens it with the operator's configuration, lets
//! it take up the state, and says what became of that.
//!
//! Invariant: the checkpoint store is only read, the live state of a running job isn't touched, and nothing is left behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::folder::Folder;
use super::recover::{SLOT, expected, manifest_facts};
use super::upgrade::fits;
use super::wire::Opening;
use super::{Job, RunError};
use crate::graph::NodeKind;
use crate::guest::{Counters, Descriptor, InstanceContext, OperatorFactory, OperatorInstance};
use crate::id::{Attempt, Epoch, Name, SubtaskId};
use crate::protocol::recovery::{ExpectedOperator, Identity, NewestManifest, RecoveryDecision, RecoveryFacts, decide};
use crate::state::{BlockCache, KeyedState, StateError, StateOptions};
use crate::store::{CheckpointStore, Manifest, StoreError, SubtaskSnapshot};
use crate::task::TaskError;

mod folder;

/// While the job runs, retention may remove the checkpoint that is being read; then there is a newer one.
const TRIES_MAX: u32 = 8;
/// What the databases of one dry run keep of their files in memory.
const BLOCK_CACHE_BYTES_MAX: usize = 16 << 20;

/// What a component made of a job's newest checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DryRun {
    pub job: Name,
    pub operator: Name,
    /// The checkpoint; none if the job has none yet, and so no state to take up.
    pub epoch: Option<Epoch>,
    /// How many instances were opened: those of the job's parallelism.
    pub subtasks: u32,
    pub tables: Vec<DryRunTable>,
    /// Why the job has to be stopped and started for it; empty if the component can take over while the job runs.
    pub needs_restart: Vec<String>,
    pub seconds: f64,
}

/// What became of one table, over all subtasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DryRunTable {
    pub name: String,
    /// The version in the checkpoint; none if it holds no such table.
    pub from_version: Option<u32>,
    pub to_version: u32,
    /// Whether it was migrated in a way that can give entries other keys.
    pub keys_changed: bool,
    pub entries_before: u64,
    pub entries_after: u64,
    /// Of keys, user keys and values.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Spent on migrating it, one subtask after the other.
    pub seconds: f64,
}

/// Why a component can't take up a job's state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DryRunError {
    #[error("job '{job}' has no operator '{operator}'; it has {}", .known.join(", "))]
    NoOperator { job: Name, operator: Name, known: Vec<String> },
    #[error("cannot make the folder {}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("the checkpoints of job '{job}' are removed faster than they can be read: it was tried {tries} times")]
    Overtaken { job: Name, tries: u32 },
    #[error("operator '{operator}' of job '{job}' can't go on from its newest checkpoint with this component")]
    Failed { job: Name, operator: Name, source: Box<RunError> },
}

impl DryRunError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            DryRunError::NoOperator { .. } => Some("take the name that it has in the job file".to_owned()),
            DryRunError::Folder { .. } => Some("check the disk under the job's state_dir".to_owned()),
            DryRunError::Overtaken { .. } => Some(
                "let the job keep more of them (checkpoint.retain), or take fewer (checkpoint.interval)".to_owned(),
            ),
            DryRunError::Failed { source, .. } => source.help(),
        }
    }
}

/// Opens a component as an operator of a job, at the checkpoint that was decided last. The job may be running. Takes as much
/// disk beside `state_dir` as the state of the operator's largest subtask, while it runs.
///
/// # Errors
/// If there is no such operator, or a run with this component would fail before its first record.
pub async fn dry_run(job: &Job, operator: &Name, factory: Arc<dyn OperatorFactory>) -> Result<DryRun, DryRunError> {
    let node = job.plan.nodes.iter().find(|node| node.name == *operator && node.kind == NodeKind::Operator);
    let Some(node) = node else {
        let known = job.operators.keys().map(ToString::to_string).collect();
        return Err(DryRunError::NoOperator { job: job.name.clone(), operator: operator.clone(), known });
    };
    let started = Instant::now();
    let failed = |source: RunError| DryRunError::Failed {
        job: job.name.clone(),
        operator: operator.clone(),
        source: Box::new(source),
    };
    let trial = Trial { job, operator, factory, parallelism: node.parallelism };
    let mut last = None;
    for _ in 0..TRIES_MAX {
        let (epoch, outcome) = trial.once().await?;
        match outcome {
            Ok(tables) => {
                let (job, operator) = (job.name.clone(), operator.clone());
                let (needs_restart, seconds) = (trial.needs_restart(&tables), started.elapsed().as_secs_f64());
                let subtasks = node.parallelism;
                return Ok(DryRun { job, operator, epoch, subtasks, tables, needs_restart, seconds });
            }
            // It failed, and not because the checkpoint is gone.
            Err(error) if last == Some(epoch) || trial.newest().await.map_err(&failed)? == epoch => {
                return Err(failed(error));
            }
            Err(_) => last = Some(epoch),
        }
    }
    Err(DryRunError::Overtaken { job: job.name.clone(), tries: TRIES_MAX })
}

struct Trial<'a> {
    job: &'a Job,
    operator: &'a Name,
    factory: Arc<dyn OperatorFactory>,
    parallelism: u32,
}

/// Where one try was made, and what came of it.
type Outcome = (Option<Epoch>, Result<Vec<DryRunTable>, RunError>);

impl Trial<'_> {
    /// Why it can't take over while the job runs.
    fn needs_restart(&self, tables: &[DryRunTable]) -> Vec<String> {
        let operator = &self.job.operators[self.operator];
        let place = fits::Place { parallelism: self.parallelism, on_error: operator.on_error };
        let mut reasons = fits::misfits(place, operator.factory.descriptor(), self.factory.descriptor());
        if self.parallelism > 1 {
            let moving = tables.iter().filter(|table| table.keys_changed);
            let reason = |table: &DryRunTable| {
                format!("the keys of its table '{}' change, and may come to belong to other subtasks", table.name)
            };
            reasons.extend(moving.map(reason));
        }
        reasons
    }

    fn store_failed(&self, source: StoreError) -> RunError {
        RunError::Store { job: self.job.name.clone(), source }
    }

    async fn store(&self) -> Result<Option<CheckpointStore>, RunError> {
        match CheckpointStore::open_existing(&self.job.store, &self.job.name, SLOT).await {
            Ok(store) => Ok(Some(store)),
            Err(StoreError::NoJob { .. }) => Ok(None),
            Err(error) => Err(self.store_failed(error)),
        }
    }

    /// The checkpoint that was decided last, as far as the store knows.
    async fn newest(&self) -> Result<Option<Epoch>, RunError> {
        let Some(store) = self.store().await? else { return Ok(None) };
        Ok(self.newest_of(&store).await?.map(|manifest| manifest.epoch))
    }

    async fn newest_of(&self, store: &CheckpointStore) -> Result<Option<Manifest>, RunError> {
        let failed = |source| self.store_failed(source);
        let noted = store.noted_decided().await.map_err(failed)?;
        for epoch in store.epochs().await.map_err(failed)?.into_iter().rev() {
            match store.inspect(epoch).await {
                Ok(manifest) if manifest.decision.is_none() || Some(epoch) <= noted => return Ok(Some(manifest)),
                // Its sink hasn't decided it, or it is gone by now.
                Ok(_) | Err(StoreError::NoCheckpoint { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(None)
    }

    async fn once(&self) -> Result<Outcome, DryRunError> {
        let beside = Folder::beside(&self.job.state_dir);
        let folder = beside.map_err(|(path, source)| DryRunError::Folder { path, source })?;
        let store = match self.store().await {
            Ok(Some(store)) => store,
            // Without a store there is nothing to be read from one.
            Ok(None) => return Ok((None, self.without_state(&folder))),
            Err(error) => return Ok((None, Err(error))),
        };
        let manifest = match self.newest_of(&store).await {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return Ok((None, self.without_state(&folder))),
            Err(error) => return Ok((None, Err(error))),
        };
        Ok((Some(manifest.epoch), self.at(&store, &manifest, &folder).await))
    }

    /// Whether the component opens at all.
    fn without_state(&self, folder: &Folder) -> Result<Vec<DryRunTable>, RunError> {
        let mut report = Report::new(self.factory.descriptor(), &[]);
        for index in 0..self.parallelism {
            let (options, mut context) = self.instance(index, folder);
            let subtask = context.subtask.clone();
            if !options.tables.is_empty() {
                let state = KeyedState::open(options, &[], &|_, _| Ok(()));
                context.state = Some(state.map_err(|source| self.failed(TaskError::State { subtask, source }))?);
            }
            let opened = self.factory.open(context).map_err(|error| self.failed(error.into()));
            report.add(&mut *opened?).map_err(|(subtask, source)| self.failed(TaskError::State { subtask, source }))?;
        }
        Ok(report.tables)
    }

    async fn at(
        &self,
        store: &CheckpointStore,
        manifest: &Manifest,
        folder: &Folder,
    ) -> Result<Vec<DryRunTable>, RunError> {
        self.check(store, manifest)?;
        let restored = manifest.operators.get(self.operator).map_or(&[][..], |operator| &operator.subtasks);
        let mut report = Report::new(self.factory.descriptor(), restored);
        for index in 0..self.parallelism {
            let (options, context) = self.instance(index, folder);
            let factory = Arc::clone(&self.factory);
            let opening = Opening { factory, restored: restored.to_vec(), store: store.clone(), options, context };
            let mut next = report;
            let work_dir = opening.options.work_dir.clone();
            let outcome = tokio::task::spawn_blocking(move || {
                let (mut instance, _) = opening.open()?;
                let added = next.add(&mut *instance);
                added.map_err(|(subtask, source)| TaskError::State { subtask, source })?;
                drop(instance);
                // To make room for the next one; what stays goes with the folder.
                let _ = std::fs::remove_dir_all(work_dir);
                Ok::<_, TaskError>(next)
            });
            report = match outcome.await {
                Ok(outcome) => outcome.map_err(|source| self.failed(source))?,
                Err(error) => return Err(RunError::Panicked { message: error.to_string() }),
            };
        }
        Ok(report.tables)
    }

    /// Refuses what a recovery would.
    fn check(&self, store: &CheckpointStore, manifest: &Manifest) -> Result<(), RunError> {
        let facts = RecoveryFacts {
            identity: Identity::Found { job: self.job.name.clone(), uid: store.job_uid().clone() },
            attempts: Default::default(),
            manifests: [manifest.epoch].into(),
            newest: Some(NewestManifest::Valid(manifest_facts(manifest))),
        };
        let mut job = expected(self.job, manifest);
        let tables = self.factory.descriptor().stored_tables().into_iter();
        let tables = tables.map(|table| (table.name, table.version)).collect();
        let operator = ExpectedOperator::Operator { tables, migrates: self.factory.migrates() };
        job.operators.insert(self.operator.clone(), operator);
        match decide(&facts, &job) {
            RecoveryDecision::Refuse(source) => {
                Err(RunError::Refused { job: self.job.name.clone(), source: Box::new(source) })
            }
            RecoveryDecision::Fresh | RecoveryDecision::Resume { .. } => Ok(()),
        }
    }

    fn instance(&self, index: u32, folder: &Folder) -> (StateOptions, InstanceContext) {
        let operator = &self.job.operators[self.operator];
        let subtask = SubtaskId { operator: self.operator.clone(), index };
        let max_parallelism = self.job.max_parallelism;
        let options = StateOptions {
            work_dir: folder.path().join(index.to_string()),
            subtask: subtask.clone(),
            key_groups: max_parallelism.range(index, self.parallelism),
            max_parallelism,
            attempt: Attempt(0),
            tables: self.factory.descriptor().stored_tables(),
            memory_bytes_max: operator.state_memory_bytes_max,
            block_cache: BlockCache::new(BLOCK_CACHE_BYTES_MAX),
        };
        let context = InstanceContext {
            job: self.job.name.clone(),
            subtask,
            parallelism: self.parallelism,
            config_json: operator.config_json.clone(),
            limits: operator.limits,
            rejections: false,
            state: None,
            counters: Counters::default(),
        };
        (options, context)
    }

    fn failed(&self, source: TaskError) -> RunError {
        RunError::Task { chain: self.operator.to_string(), source: Box::new(source) }
    }
}

/// What is found, subtask by subtask.
struct Report {
    tables: Vec<DryRunTable>,
}

impl Report {
    fn new(descriptor: &Descriptor, restored: &[SubtaskSnapshot]) -> Report {
        let stored = restored.iter().find_map(|part| part.keyed.as_ref()).map_or(&[][..], |keyed| &keyed.tables);
        let table = |table: &crate::guest::Table| DryRunTable {
            name: table.name.to_string(),
            from_version: stored.iter().find(|other| *table.name.as_str() == *other.name).map(|other| other.version),
            to_version: table.version,
            keys_changed: false,
            entries_before: 0,
            entries_after: 0,
            bytes_before: 0,
            bytes_after: 0,
            seconds: 0.0,
        };
        Report { tables: descriptor.tables.iter().map(table).collect() }
    }

    /// Adds what an instance that is open holds.
    fn add(&mut self, instance: &mut dyn OperatorInstance) -> Result<(), (SubtaskId, StateError)> {
        let Some(state) = instance.keyed_state() else { return Ok(()) };
        for (index, table) in self.tables.iter_mut().enumerate() {
            let size = state.size_of_table(index as u32).map_err(|error| (state.subtask().clone(), error))?;
            let migrated = state.migrated().iter().find(|migrated| migrated.name == table.name);
            let (before, took) = migrated.map_or((size, Duration::ZERO), |migrated| (migrated.before, migrated.took));
            table.keys_changed |= migrated.is_some_and(|migrated| migrated.keys_changed);
            table.entries_before += before.entries;
            table.bytes_before += before.bytes;
            table.entries_after += size.entries;
            table.bytes_after += size.bytes;
            table.seconds += took.as_secs_f64();
        }
        Ok(())
    }
}
