//! A job file with its plugins loaded and its graph planned: what both `check` and `run` start from.
//!
//! Invariant: every operator of the job is there, or the error names the one that can't be used.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::CliError;
use crate::cli::inspect::refused;
use crate::config::JobFile;
use crate::graph::Plan;
use crate::guest::{Engine, Plugin, default_cache_dir};
use crate::id::Name;

pub(super) struct Loaded {
    pub file: JobFile,
    pub plan: Plan,
    pub plugins: BTreeMap<Name, Plugin>,
}

/// # Errors
/// The first thing for which the job can't run.
pub(super) fn load(path: &Path) -> Result<Loaded, CliError> {
    let file = JobFile::load(path)?;
    let graph = file.graph();
    // What is wrong with the graph is said before plugins are compiled.
    Plan::check_shape(&graph)?;
    let plugins = load_plugins(&file)?;
    let facts = plugins.iter().map(|(name, plugin)| (name.clone(), plugin.descriptor().facts())).collect();
    let plan = Plan::new(&graph, &facts)?;
    Ok(Loaded { file, plan, plugins })
}

fn load_plugins(file: &JobFile) -> Result<BTreeMap<Name, Plugin>, CliError> {
    let engine = Engine::new(default_cache_dir()).map_err(|error| refused(&error))?;
    let plugin = |(name, operator): (&Name, &crate::config::OperatorConfig)| {
        Ok((name.clone(), engine.load(name, &operator.wasm).map_err(|error| refused(&error))?))
    };
    file.operators.iter().map(plugin).collect()
}
