//! A job file with its plugins loaded and its graph planned: what both `check` and `run` start from.
//!
//! Invariant: every operator of the job is there, or the error names the one that can't be used.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::cli::CliError;
use crate::cli::check::loops::loop_warnings;
use crate::cli::compiler::engine;
use crate::cli::inspect::refused;
use crate::config::JobFile;
use crate::graph::Plan;
use crate::guest::{Compiler, OperatorFactory, Plugin};
use crate::id::Name;
use crate::runtime::Job;

pub(super) struct Loaded {
    pub file: JobFile,
    pub plan: Plan,
    pub plugins: BTreeMap<Name, Plugin>,
}

impl Loaded {
    /// What the runtime runs.
    pub fn into_job(self) -> Job {
        let factory = |(name, plugin)| (name, Arc::new(plugin) as Arc<dyn OperatorFactory>);
        self.file.into_job(self.plan, self.plugins.into_iter().map(factory).collect())
    }

    /// What is probably a mistake but can run.
    pub fn warnings(&self) -> Vec<String> {
        let of_plan = self.plan.warnings.iter().map(ToString::to_string);
        self.file.warnings.iter().cloned().chain(of_plan).chain(loop_warnings(&self.file)).collect()
    }
}

/// # Errors
/// The first thing for which the job can't run.
pub(super) fn load(path: &Path, compiler: Compiler) -> Result<Loaded, CliError> {
    let file = JobFile::load(path)?;
    let graph = file.graph();
    // What is wrong with the graph is said before plugins are compiled.
    Plan::check_shape(&graph)?;
    let plugins = load_plugins(&file, compiler)?;
    let facts = plugins.iter().map(|(name, plugin)| (name.clone(), plugin.descriptor().facts())).collect();
    let plan = Plan::new(&graph, &facts)?;
    Ok(Loaded { file, plan, plugins })
}

fn load_plugins(file: &JobFile, compiler: Compiler) -> Result<BTreeMap<Name, Plugin>, CliError> {
    let engine = engine(compiler)?;
    let plugin = |(name, operator): (&Name, &crate::config::OperatorConfig)| {
        let wasm = operator.wasm.as_file().ok_or_else(|| {
            let message = format!("operator '{name}' has the plugin {}, which only a daemon has", operator.wasm);
            CliError::unusable(message).help("submit the job to the daemon, or write the path of a component")
        })?;
        let plugin = engine.load_within(name, wasm, operator.limits);
        Ok((name.clone(), plugin.map_err(|error| refused(&error))?))
    };
    file.operators.iter().map(plugin).collect()
}
