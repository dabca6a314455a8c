//! The tables of a job file as serde reads them, with the ranges of their values.
//!
//! Invariant: every struct refuses unknown keys, and no default stands here: they are in `default.toml`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::config::inputs::Inputs;
use crate::config::job_file::Component;
use crate::config::problem::Problem;
use crate::config::ranges;
use crate::config::source_time::{RawEventTime, RawWatermark};
use crate::graph::Exchange;
use crate::id::Name;
use crate::protocol::restart::{Backoff, RestartBudget, RestartStrategy};
use crate::protocol::{AlignmentOptions, Guarantee, OnError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJob {
    pub name: Name,
    pub guarantee: Guarantee,
    #[serde(deserialize_with = "ranges::parallelism")]
    pub parallelism: u32,
    #[serde(deserialize_with = "ranges::max_parallelism")]
    pub max_parallelism: u32,
    #[serde(default, deserialize_with = "ranges::some_path")]
    pub state_dir: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCheckpoint {
    #[serde(deserialize_with = "ranges::interval")]
    pub interval: Duration,
    #[serde(deserialize_with = "ranges::pause")]
    pub min_pause: Duration,
    #[serde(deserialize_with = "ranges::timeout")]
    pub timeout: Duration,
    alignment: RawAlignment,
    #[serde(deserialize_with = "ranges::pause")]
    alignment_timeout: Duration,
    #[serde(deserialize_with = "ranges::max_concurrent")]
    pub max_concurrent: u32,
    #[serde(deserialize_with = "ranges::retain")]
    pub retain: u32,
    #[serde(default, deserialize_with = "ranges::some_path")]
    pub store: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawAlignment {
    Aligned,
    Unaligned,
}

impl RawCheckpoint {
    /// There is something to overtake where barriers hold inputs, and one barrier at a time overtakes.
    pub fn alignment(&self, guarantee: Guarantee) -> Result<AlignmentOptions, Problem> {
        let refuse =
            |key: &str, message: String, help: &str| Err(Problem::invalid(message).with_help(help).inside(key));
        match (self.alignment, guarantee) {
            (RawAlignment::Aligned, _) if !self.alignment_timeout.is_zero() => refuse(
                "alignment_timeout",
                "aligned barriers wait without a limit, so there is nothing to limit".to_owned(),
                "set alignment = \"unaligned\" too, so that a barrier overtakes after this time; or remove it",
            ),
            (RawAlignment::Aligned, _) => Ok(AlignmentOptions::Aligned),
            (RawAlignment::Unaligned, Guarantee::AtLeastOnce) => refuse(
                "alignment",
                format!("with the guarantee {guarantee} barriers hold nothing, so there is nothing to overtake"),
                "remove it, or set guarantee = \"exactly-once\" in [job]",
            ),
            (RawAlignment::Unaligned, Guarantee::AtMostOnce | Guarantee::ExactlyOnce) if self.max_concurrent > 1 => {
                refuse(
                    "max_concurrent",
                    format!("{} unaligned checkpoints at once would hold each other's records", self.max_concurrent),
                    "set it to 1, or set alignment = \"aligned\"",
                )
            }
            (RawAlignment::Unaligned, Guarantee::AtMostOnce | Guarantee::ExactlyOnce) => {
                Ok(AlignmentOptions::Unaligned { timeout: self.alignment_timeout })
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRestart {
    strategy: RawStrategy,
    #[serde(deserialize_with = "ranges::attempts")]
    attempts: u32,
    #[serde(deserialize_with = "ranges::delay")]
    delay: Duration,
    #[serde(deserialize_with = "ranges::delay")]
    initial_delay: Duration,
    #[serde(deserialize_with = "ranges::delay")]
    max_delay: Duration,
    #[serde(deserialize_with = "ranges::multiplier")]
    multiplier: f64,
    #[serde(deserialize_with = "ranges::jitter")]
    jitter: f64,
    #[serde(deserialize_with = "ranges::reset_after")]
    reset_after: Duration,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawStrategy {
    None,
    FixedDelay,
    ExponentialBackoff,
}

/// What each strategy goes by, beside itself.
const FIXED_DELAY_KEYS: [&str; 3] = ["attempts", "delay", "reset_after"];
const BACKOFF_KEYS: [&str; 6] = ["attempts", "initial_delay", "max_delay", "multiplier", "jitter", "reset_after"];

impl RawRestart {
    /// What to say of each key that the job file gives and that has no effect.
    pub fn warnings<'k>(&self, given: impl Iterator<Item = &'k str>) -> Vec<String> {
        let (strategy, keys) = match self.strategy {
            RawStrategy::None => ("none", &[][..]),
            RawStrategy::FixedDelay => ("fixed-delay", &FIXED_DELAY_KEYS[..]),
            RawStrategy::ExponentialBackoff => ("exponential-backoff", &BACKOFF_KEYS[..]),
        };
        let goes_by = if keys.is_empty() { String::new() } else { format!(", which goes by {}", keys.join(", ")) };
        let idle = given.filter(|key| *key != "strategy" && !keys.contains(key));
        idle.map(|key| format!("restart.{key} has no effect with strategy = \"{strategy}\"{goes_by}")).collect()
    }

    pub fn strategy(&self) -> Result<RestartStrategy, Problem> {
        let budget = RestartBudget { attempts: self.attempts, reset_after: self.reset_after };
        match self.strategy {
            RawStrategy::None => Ok(RestartStrategy::None),
            RawStrategy::FixedDelay => Ok(RestartStrategy::FixedDelay { delay: self.delay, budget }),
            RawStrategy::ExponentialBackoff if self.max_delay < self.initial_delay => {
                let problem = Problem::invalid("it is shorter than initial_delay".to_owned());
                Err(problem.with_help("delays grow from initial_delay to max_delay").inside("max_delay"))
            }
            RawStrategy::ExponentialBackoff => Ok(RestartStrategy::ExponentialBackoff(Backoff {
                initial_delay: self.initial_delay,
                max_delay: self.max_delay,
                multiplier: self.multiplier,
                jitter: self.jitter,
                budget,
            })),
        }
    }
}

/// The keys of a source that don't depend on its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSource {
    #[serde(default, deserialize_with = "ranges::some_parallelism")]
    pub parallelism: Option<u32>,
    pub event_time: RawEventTime,
    pub watermark: RawWatermark,
}

pub(super) const SOURCE_KEYS: [&str; 3] = ["parallelism", "event_time", "watermark"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOperator {
    #[serde(deserialize_with = "ranges::component")]
    pub wasm: Component,
    #[serde(default)]
    pub input: Option<Inputs>,
    #[serde(default)]
    pub inputs: Option<Inputs>,
    #[serde(default, deserialize_with = "ranges::some_parallelism")]
    pub parallelism: Option<u32>,
    #[serde(default)]
    pub exchange: Option<Exchange>,
    pub on_error: OnError,
    #[serde(deserialize_with = "ranges::capsules")]
    pub capsules: u32,
    pub limits: RawLimits,
    /// Taken out before the rest is read; here so that it is among the known keys.
    #[serde(default, rename = "config")]
    _config: Option<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    #[serde(deserialize_with = "ranges::memory_limit")]
    pub memory: u64,
    #[serde(deserialize_with = "ranges::call_limit")]
    pub call: Duration,
    #[serde(deserialize_with = "ranges::output_limit")]
    pub output: u64,
    #[serde(deserialize_with = "ranges::state_memory_limit")]
    pub state_memory: u64,
    #[serde(deserialize_with = "ranges::tables_limit")]
    pub tables: u32,
    #[serde(deserialize_with = "ranges::instances_limit")]
    pub instances: u32,
    #[serde(deserialize_with = "ranges::stack_limit")]
    pub stack: u64,
    #[serde(deserialize_with = "ranges::log_rate_limit")]
    pub log_rate: u32,
    #[serde(deserialize_with = "ranges::state_limit")]
    pub state: u64,
}

/// The keys of a sink that don't depend on its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSink {
    #[serde(default)]
    pub input: Option<Inputs>,
    #[serde(default)]
    pub inputs: Option<Inputs>,
    #[serde(default, deserialize_with = "ranges::some_parallelism")]
    pub parallelism: Option<u32>,
}

pub(super) const SINK_KEYS: [&str; 3] = ["input", "inputs", "parallelism"];
