//! What the plugins of a job say of themselves.
//!
//! Invariant: every operator of the job is there, or the error names the one that can't be used.

use std::collections::BTreeMap;

use crate::cli::CliError;
use crate::cli::inspect::refused;
use crate::config::JobFile;
use crate::graph::OperatorFacts;
use crate::guest::{Descriptor, Engine, default_cache_dir};
use crate::id::Name;

/// The descriptor of each operator.
pub(super) struct Plugins(pub BTreeMap<Name, Descriptor>);

impl Plugins {
    /// What the plan needs to know.
    pub fn facts(&self) -> BTreeMap<Name, OperatorFacts> {
        let fact = |(name, descriptor): (&Name, &Descriptor)| {
            let outputs = descriptor.outputs.iter().map(ToString::to_string).collect();
            (name.clone(), OperatorFacts { outputs, keyed: descriptor.is_keyed() })
        };
        self.0.iter().map(fact).collect()
    }
}

pub(super) fn load_plugins(file: &JobFile) -> Result<Plugins, CliError> {
    let engine = Engine::new(default_cache_dir()).map_err(|error| refused(&error))?;
    let mut plugins = BTreeMap::new();
    for (name, operator) in &file.operators {
        let plugin = engine.load(name, &operator.wasm).map_err(|error| refused(&error))?;
        plugins.insert(name.clone(), plugin.descriptor().clone());
    }
    Ok(Plugins(plugins))
}
