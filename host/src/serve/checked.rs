//! From the text of a job file to a job that can run: parsed, its plugins loaded, planned.
//!
//! Invariant: every operator of a [`Checked`] has its plugin, and nothing of it depends on a file that could change since, but the
//! input and output that the job file names.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::durable::now_ms;
use super::error::{ServeError, causes_of};
use super::folder::DataFolder;
use super::info::{FailureInfo, PartKind, UpgradingInfo};
use super::plugins::Plugins;
use super::spec::JobSpec;
use crate::config::{Component, JobFile, Standing};
use crate::graph::Plan;
use crate::guest::{OperatorFactory, Plugin};
use crate::id::{Name, PluginHash};
use crate::runtime::Job;

/// The longest job file.
pub const JOB_TOML_BYTES_MAX: u64 = 1 << 20;

/// A job that can run, as often as is wanted.
#[derive(Clone)]
pub struct Checked {
    pub file: JobFile,
    pub plan: Plan,
    pub plugins: BTreeMap<Name, PluginHash>,
    loaded: BTreeMap<Name, Arc<Plugin>>,
    /// Of an upgrade that was interrupted: an operator's new component.
    candidate: Option<(Name, Arc<Plugin>)>,
}

/// What is told of a job beside what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub guarantee: String,
    pub parts: BTreeMap<Name, (PartKind, u32)>,
    pub warnings: Vec<String>,
    pub state_dir: PathBuf,
    pub store: PathBuf,
    pub retain: NonZeroU32,
}

/// What is wrong with a job's folders and inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub message: String,
    pub help: Option<String>,
}

/// Looks whether the folders and inputs that a job names can be used; makes nothing.
pub type JobCheck = Arc<dyn Fn(&JobFile) -> Result<(), Unfit> + Send + Sync>;

/// Reads the text of a job file.
///
/// # Errors
/// If it can't be used, by its line; or has a relative path, and there is no folder for it.
pub fn parse(folder: &DataFolder, job_toml: &str, base_dir: Option<&Path>) -> Result<JobFile, ServeError> {
    if job_toml.len() as u64 > JOB_TOML_BYTES_MAX {
        return Err(ServeError::JobFileTooLarge { limit_bytes: JOB_TOML_BYTES_MAX });
    }
    if let Some(base_dir) = base_dir.filter(|base_dir| !base_dir.is_absolute()) {
        return Err(ServeError::BaseDir { base_dir: base_dir.to_owned() });
    }
    let (path, base) = (Path::new("job.toml"), base_dir.unwrap_or(Path::new("")));
    let standing = Standing { path, base, state_dir: &|name| folder.state(name) };
    let file =
        JobFile::parse_at(&standing, job_toml).map_err(|source| ServeError::JobFile { source: Box::new(source) })?;
    match file.relative_path() {
        Some((key, path)) => Err(ServeError::RelativePath { key, path: path.to_owned() }),
        None => Ok(file),
    }
}

/// The plugins that a job file names by their hash; the others have a path.
pub fn components(file: &JobFile) -> impl Iterator<Item = (&Name, &Component)> {
    file.operators.iter().map(|(name, operator)| (name, &operator.wasm))
}

impl Checked {
    /// Loads the plugins of a job file's operators and plans it.
    ///
    /// # Errors
    /// If its parts don't fit together or a plugin can't be loaded.
    pub async fn new(
        from: &Arc<Plugins>,
        file: JobFile,
        plugins: BTreeMap<Name, PluginHash>,
    ) -> Result<Checked, ServeError> {
        let graph = file.graph();
        let unplanned = |source| ServeError::Graph { job: file.job.clone(), source: Box::new(source) };
        // What is wrong with the graph is said before plugins are compiled.
        Plan::check_shape(&graph).map_err(unplanned)?;
        let mut loaded = BTreeMap::new();
        for (name, operator) in &file.operators {
            let no_plugin = || ServeError::Unfit {
                message: format!("it isn't known which plugin operator '{name}' of the job '{}' has", file.job),
                help: Some("restart the job with its job file".to_owned()),
            };
            let hash = plugins.get(name).ok_or_else(no_plugin)?;
            loaded.insert(name.clone(), from.load(hash, name, operator.limits).await?);
        }
        let facts = loaded.iter().map(|(name, plugin)| (name.clone(), plugin.descriptor().facts())).collect();
        let plan = Plan::new(&graph, &facts).map_err(unplanned)?;
        Ok(Checked { file, plan, plugins, loaded, candidate: None })
    }

    /// As the data folder has it. Of an upgrade that may have been adopted, or not, it has both components.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if its text can't be used any more.
    pub async fn of_spec(from: &Arc<Plugins>, spec: &JobSpec) -> Result<Checked, ServeError> {
        let file = parse(from.folder(), &spec.job_toml, spec.base_dir.as_deref())?;
        let mut checked = Checked::new(from, file, spec.plugins.clone()).await?;
        if let Some(UpgradingInfo { operator, to, .. }) = &spec.upgrading
            && let Some(limits) = checked.file.operators.get(operator).map(|operator| operator.limits)
        {
            checked.candidate = Some((operator.clone(), from.load(to, operator, limits).await?));
        }
        Ok(checked)
    }

    /// What the runtime runs.
    pub fn job(&self) -> Job {
        let factory =
            |(name, plugin): (&Name, &Arc<Plugin>)| (name.clone(), Arc::clone(plugin) as Arc<dyn OperatorFactory>);
        let mut job = self.file.clone().into_job(self.plan.clone(), self.loaded.iter().map(factory).collect());
        if let Some((operator, plugin)) = self.candidate.clone() {
            job.operators.get_mut(&operator).expect("an operator of the job file").candidate = Some(plugin);
        }
        job
    }

    pub fn shape(&self) -> Shape {
        let mut shape = Shape::of(&self.file);
        shape.warnings.extend(self.plan.warnings.iter().map(ToString::to_string));
        shape
    }
}

impl Shape {
    /// What a job file says by itself.
    pub fn of(file: &JobFile) -> Shape {
        let sources = file.sources.iter().map(|(name, it)| (name.clone(), (PartKind::Source, it.parallelism)));
        let operators = file.operators.iter().map(|(name, it)| (name.clone(), (PartKind::Operator, it.parallelism)));
        let sinks = file.sinks.iter().map(|(name, it)| (name.clone(), (PartKind::Sink, it.parallelism)));
        Shape {
            guarantee: file.guarantee.to_string(),
            parts: sources.chain(operators).chain(sinks).collect(),
            warnings: file.warnings.clone(),
            state_dir: file.state_dir.clone(),
            store: file.checkpoint.store.clone(),
            retain: NonZeroU32::new(file.checkpoint.retain).expect("the job file retains at least one"),
        }
    }
}

impl FailureInfo {
    /// With all that caused it.
    pub(super) fn of(error: &dyn std::error::Error, help: Option<String>) -> FailureInfo {
        FailureInfo { error: error.to_string(), causes: causes_of(error), help, at_ms: now_ms() }
    }
}
