//! The job file as typed options, paths and defaults resolved.
//!
//! Invariant: a [`JobFile`] has every value in its range, and its paths are relative to where the process stands, not to the job
//! file. Whether its parts fit together is for [`Plan`](crate::graph::Plan) to say.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::assemble::assemble;
use crate::config::error::ConfigError;
use crate::config::standing::Standing;
use crate::connector::{EventTimeOptions, Partition, SinkOptions, SourceOptions};
use crate::graph::{Exchange, Graph, InputRef, OperatorSpec, SinkCommit, SinkSpec, SourceSpec, SourceTime};
use crate::guest::Limits;
use crate::id::{Name, PluginHash};
use crate::protocol::restart::RestartStrategy;
use crate::protocol::{AlignmentOptions, Guarantee, MaxParallelism, OnError, WatermarkOptions, WatermarkStrategy};

/// Longer files are no job files.
const JOB_FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct JobFile {
    /// As it was given.
    pub path: PathBuf,
    pub job: Name,
    pub guarantee: Guarantee,
    /// Of what doesn't set its own.
    pub parallelism: u32,
    pub max_parallelism: MaxParallelism,
    /// Holds the lock, the live state and, unless it is elsewhere, the store.
    pub state_dir: PathBuf,
    pub checkpoint: CheckpointConfig,
    pub restart: RestartStrategy,
    pub sources: BTreeMap<Name, SourceConfig>,
    pub operators: BTreeMap<Name, OperatorConfig>,
    pub sinks: BTreeMap<Name, SinkConfig>,
    /// What is probably a mistake but can run, in words.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct CheckpointConfig {
    pub interval: Duration,
    pub min_pause: Duration,
    pub timeout: Duration,
    pub alignment: AlignmentOptions,
    /// How many may be under way at once; at least 1, and no more if barriers overtake.
    pub max_concurrent: u32,
    /// At least 1.
    pub retain: u32,
    pub store: PathBuf,
}

#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub options: SourceOptions,
    pub parallelism: u32,
    pub event_time: EventTimeOptions,
    pub watermarks: WatermarkOptions,
}

/// Where the component of an operator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    File(PathBuf),
    /// Among the plugins of a daemon.
    Plugin(PluginHash),
}

impl Component {
    /// Its path, if it is a file.
    pub fn as_file(&self) -> Option<&Path> {
        match self {
            Component::File(path) => Some(path),
            Component::Plugin(_) => None,
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Component::File(path) => path.display().fmt(f),
            Component::Plugin(hash) => write!(f, "{}{hash}", PluginHash::PREFIX),
        }
    }
}

#[derive(Clone, Debug)]
pub struct OperatorConfig {
    pub wasm: Component,
    pub inputs: Vec<InputRef>,
    pub parallelism: u32,
    /// `None`: the plan decides.
    pub exchange: Option<Exchange>,
    pub on_error: OnError,
    /// How many capsules of its failures are kept.
    pub capsules_max: u32,
    /// Its `config` table as a JSON object.
    pub config_json: String,
    pub limits: Limits,
    /// Changed keyed state that one subtask holds in memory.
    pub state_memory_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct SinkConfig {
    pub options: SinkOptions,
    pub inputs: Vec<InputRef>,
    pub parallelism: u32,
}

impl JobFile {
    /// Reads and checks a job file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn load(path: &Path) -> Result<JobFile, ConfigError> {
        let text = read_text(path)?;
        JobFile::parse(path, &text)
    }

    /// Checks the text of a job file that stands at `path`.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<JobFile, ConfigError> {
        let base = path.parent().unwrap_or(Path::new(""));
        let state_dir = |job: &Name| base.join(format!("{job}.state"));
        JobFile::parse_at(&Standing { path, base, state_dir: &state_dir }, text)
    }

    /// Checks the text of a job file that stands anywhere, or nowhere.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse_at(standing: &Standing<'_>, text: &str) -> Result<JobFile, ConfigError> {
        assemble(standing, text).map_err(|problem| ConfigError::new(standing.path, text, problem))
    }

    /// The shape of the job.
    pub fn graph(&self) -> Graph {
        let sources = self.sources.iter().map(|(name, source)| SourceSpec {
            name: name.clone(),
            parallelism: source.parallelism,
            replayable: is_replayable(&source.options),
            event_time: SourceTime {
                watermarks: source.watermarks.strategy != WatermarkStrategy::None,
                falls_idle: source.watermarks.idle_timeout.is_some(),
                silent_splits: source.options.has_silent_splits(),
            },
        });
        let operators = self.operators.iter().map(|(name, operator)| OperatorSpec {
            name: name.clone(),
            parallelism: operator.parallelism,
            inputs: operator.inputs.clone(),
            exchange: operator.exchange,
            on_error: operator.on_error,
        });
        let sinks = self.sinks.iter().map(|(name, sink)| SinkSpec {
            name: name.clone(),
            parallelism: sink.parallelism,
            inputs: sink.inputs.clone(),
            commit: sink_commit(&sink.options, self.guarantee),
            ordered: is_ordered(&sink.options),
        });
        let (sources, operators, sinks) = (sources.collect(), operators.collect(), sinks.collect());
        let (max_parallelism, guarantee) = (self.max_parallelism, self.guarantee);
        Graph { max_parallelism, guarantee, sources, operators, sinks }
    }
}

/// Whether a source gives the same records again from a remembered position.
fn is_replayable(options: &SourceOptions) -> bool {
    match options {
        SourceOptions::File(_) | SourceOptions::Generator(_) | SourceOptions::Kafka(_) | SourceOptions::Nexmark(_) => {
            true
        }
    }
}

fn sink_commit(options: &SinkOptions, guarantee: Guarantee) -> SinkCommit {
    match options {
        SinkOptions::File(_) => SinkCommit::TwoPhase,
        SinkOptions::Kafka(kafka) => match guarantee {
            Guarantee::ExactlyOnce => SinkCommit::Deciding { place: kafka.sorted_brokers() },
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => SinkCommit::Plain,
        },
        SinkOptions::Null(_) => SinkCommit::Discarded,
    }
}

/// Whether what is read from a sink is in order within each key: a partition holds all records of its keys.
fn is_ordered(options: &SinkOptions) -> bool {
    match options {
        SinkOptions::Kafka(kafka) => match kafka.partition {
            // With one partition for all, the order within keys is as good as it was.
            Partition::Key | Partition::Number(_) => true,
            Partition::RoundRobin => false,
        },
        SinkOptions::File(_) | SinkOptions::Null(_) => false,
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    // Asked before it is opened: to open a pipe is to wait for its writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ConfigError::NotAFile { path: path.to_owned() });
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(JOB_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > JOB_FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit_bytes: JOB_FILE_BYTES_MAX });
    }
    String::from_utf8(bytes)
        .map_err(|error| ConfigError::NotUtf8 { path: path.to_owned(), byte: error.utf8_error().valid_up_to() })
}
