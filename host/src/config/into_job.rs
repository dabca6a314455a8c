//! From a job file and its checked plan to what the runtime runs.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::config::{JobFile, OperatorConfig, SourceConfig};
use crate::graph::Plan;
use crate::guest::OperatorFactory;
use crate::id::Name;
use crate::protocol::{Alignment, AlignmentOptions, CoordinatorOptions, Guarantee};
use crate::runtime::{Job, Operator, Source};

impl JobFile {
    /// The job, with what makes the instances of each of its operators.
    ///
    /// # Panics
    /// If an operator has no factory.
    pub fn into_job(self, plan: Plan, mut factories: BTreeMap<Name, Arc<dyn OperatorFactory>>) -> Job {
        let operators = self.operators.into_iter().map(|(name, operator)| {
            let factory = factories.remove(&name).expect("a factory for every operator");
            let OperatorConfig { config_json, limits, state_memory_bytes_max, on_error, capsules_max, .. } = operator;
            let candidate = None;
            (name, Operator { factory, candidate, config_json, limits, state_memory_bytes_max, on_error, capsules_max })
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
                concurrent_max: NonZeroU32::new(self.checkpoint.max_concurrent)
                    .expect("the job file has at least one checkpoint at a time"),
            },
            alignment: match (self.guarantee, self.checkpoint.alignment) {
                // Nothing is held, so output may be ahead of the state that a failure goes back to, and come again.
                (Guarantee::AtLeastOnce, _) => Alignment::AtLeastOnce,
                // At most once, too: a record held in state would be put out again.
                (Guarantee::AtMostOnce | Guarantee::ExactlyOnce, AlignmentOptions::Aligned) => Alignment::Aligned,
                (Guarantee::AtMostOnce | Guarantee::ExactlyOnce, AlignmentOptions::Unaligned { timeout }) => {
                    Alignment::Unaligned { after: timeout }
                }
            },
            retain: NonZeroU32::new(self.checkpoint.retain).expect("the job file keeps at least one"),
            restart: self.restart,
            guarantee: self.guarantee,
            plan,
            sources: self.sources.into_iter().map(|(name, source)| (name, source.into())).collect(),
            sinks: self.sinks.into_iter().map(|(name, sink)| (name, sink.options)).collect(),
        }
    }
}

impl From<SourceConfig> for Source {
    fn from(source: SourceConfig) -> Source {
        let SourceConfig { options, event_time, watermarks, .. } = source;
        Source { options, event_time, watermarks }
    }
}
