//! From a job file and its checked plan to what the runtime runs.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::config::{JobFile, OperatorConfig};
use crate::graph::Plan;
use crate::guest::OperatorFactory;
use crate::id::Name;
use crate::protocol::CoordinatorOptions;
use crate::runtime::{Job, Operator};

impl JobFile {
    /// The job, with what makes the instances of each of its operators.
    ///
    /// # Panics
    /// If an operator has no factory.
    pub fn into_job(self, plan: Plan, mut factories: BTreeMap<Name, Arc<dyn OperatorFactory>>) -> Job {
        let operators = self.operators.into_iter().map(|(name, operator)| {
            let factory = factories.remove(&name).expect("a factory for every operator");
            let OperatorConfig { config_json, limits, state_memory_bytes_max, .. } = operator;
            (name, Operator { factory, config_json, limits, state_memory_bytes_max })
        });
        Job {
            operators: operators.collect(),
            name: self.job,
            state_dir: self.state_dir,
            store: self.checkpoint.store,
            max_parallelism: self.max_parallelism,
            checkpoints: CoordinatorOptions {
                interval: self.checkpoint.interval,
                min_pause: self.checkpoint.min_pause,
                timeout: self.checkpoint.timeout,
            },
            retain: NonZeroU32::new(self.checkpoint.retain).expect("the job file keeps at least one"),
            plan,
            sources: self.sources.into_iter().map(|(name, source)| (name, source.options)).collect(),
            sinks: self.sinks.into_iter().map(|(name, sink)| (name, sink.options)).collect(),
        }
    }
}
