//! What can be wrong with the shape of a job.
//!
//! Invariant: every message names the source, operator or sink, and `help` says what to change.

use crate::graph::Exchange;
use crate::id::Name;

/// A job that can't be planned. Whoever wrote the job file can mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    #[error("the job has no source")]
    NoSource,
    #[error("the job has no sink")]
    NoSink,
    #[error("the name '{name}' is used for {first} and for {second}")]
    DuplicateName { name: Name, first: &'static str, second: &'static str },
    #[error("{kind} '{name}' has a parallelism of {parallelism}, outside of 1 to {max} (job.max_parallelism)")]
    Parallelism { kind: &'static str, name: Name, parallelism: u32, max: u32 },
    #[error("{kind} '{name}' has no input: nobody feeds it")]
    NotFed { kind: &'static str, name: Name },
    #[error("{kind} '{name}' reads '{input}', which does not exist")]
    UnknownInput { kind: &'static str, name: Name, input: Name, nearest: Option<String> },
    #[error("{kind} '{name}' reads sink '{input}', and a sink has no output")]
    ReadsSink { kind: &'static str, name: Name, input: Name },
    #[error("{kind} '{name}' reads output '{port}' of '{from}', which has no such output")]
    UnknownPort {
        kind: &'static str,
        name: Name,
        from: Name,
        port: String,
        ports: Vec<String>,
        nearest: Option<String>,
    },
    #[error("{kind} '{name}' reads the same output of '{from}' twice in one input")]
    ReadsTwice { kind: &'static str, name: Name, from: Name },
    #[error("operator '{name}' reads its own output")]
    SelfLoop { name: Name },
    #[error("the graph has a cycle: {}", arrows(.names))]
    Cycle {
        /// In the direction of the stream; the first is also the last.
        names: Vec<Name>,
    },
    #[error("nobody reads {kind} '{name}'")]
    NotRead { kind: &'static str, name: Name },
    #[error("operator '{name}' has keyed state, so its exchange is hash and can't be {asked}")]
    KeyedExchange { name: Name, asked: Exchange },
    #[error(
        "operator '{name}' has a parallelism of {parallelism} and '{from}' one of {from_parallelism}, so its exchange can't be forward"
    )]
    UnequalForward { name: Name, parallelism: u32, from: Name, from_parallelism: u32 },
    #[error("nothing is known of operator '{name}'")]
    NoFacts { name: Name },
}

impl GraphError {
    /// What the author of the job file can do.
    pub fn help(&self) -> String {
        match self {
            Self::NoSource => "add a [source.NAME] table with a type, and give its name to an operator or sink as input".into(),
            Self::NoSink => "add a [sink.NAME] table with a type (the type null discards what it gets) and an input".into(),
            Self::DuplicateName { .. } => "sources, operators and sinks share their names: rename one of them".into(),
            Self::Parallelism { .. } => {
                "lower the parallelism, or raise job.max_parallelism (only before the job's first run: it is part of its state)".into()
            }
            Self::NotFed { kind, name } => format!("give [{kind}.{name}] an input, for example input = \"NAME\", or remove it"),
            Self::UnknownInput { nearest: Some(nearest), .. } => format!("did you mean '{nearest}'?"),
            Self::UnknownInput { nearest: None, .. } => "an input is the name of a source or operator of this job".into(),
            Self::ReadsSink { .. } => "read what that sink reads".into(),
            Self::UnknownPort { nearest: Some(nearest), ports, .. } => {
                format!("did you mean '{nearest}'? Its outputs are: {}", ports.join(", "))
            }
            Self::UnknownPort { from, ports, .. } if ports.is_empty() => {
                format!("a source has one output without a name: write '{from}'")
            }
            Self::UnknownPort { ports, .. } => format!("its outputs are: {}", ports.join(", ")),
            Self::ReadsTwice { .. } => "remove one of the two; every record would be processed twice".into(),
            Self::SelfLoop { .. } | Self::Cycle { .. } => {
                "records must flow from the sources to the sinks: remove one of these inputs".into()
            }
            Self::NotRead { kind, name } => {
                format!("make '{name}' the input of an operator or sink (a sink of type null discards), or remove [{kind}.{name}]")
            }
            Self::KeyedExchange { .. } => "remove its exchange; the plan chooses hash".into(),
            Self::UnequalForward { .. } => "make the two equal, or take the exchange rebalance".into(),
            Self::NoFacts { .. } => "load its plugin before planning; this is an error of the host".into(),
        }
    }
}

/// What is probably a mistake but can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    #[error("nobody reads output '{port}' of operator '{name}': its records are dropped")]
    OutputNotRead { name: Name, port: String },
}

fn arrows(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(" → ")
}

/// The candidate that `name` was most likely meant to be, if one is near enough to be worth saying.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let scored = candidates.into_iter().map(|candidate| {
        let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
        (distance, candidate)
    });
    let (distance, candidate) = scored.min()?;
    // A third of the letters may differ, but one always may: "wsm" is near "wasm", "x" is not near "inputs".
    let allowed = (name.chars().count().max(candidate.chars().count()) / 3).max(1);
    let extends = lower.len() >= 3 && candidate.to_lowercase().starts_with(&lower);
    (distance <= allowed || extends).then_some(candidate)
}
