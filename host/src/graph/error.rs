//! What can be wrong with the shape of a job.
//!
//! Invariant: every message names the source, operator or sink, and `help` says what to change.

use crate::graph::{DEAD_LETTERS, Delivery, Exchange};
use crate::id::Name;
use crate::protocol::Guarantee;

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
    #[error("operator '{name}' declares the output dead-letters, which is the host's own name")]
    ReservedOutput { name: Name },
    #[error("{kind} '{name}' reads the dead letters of '{from}', which makes none")]
    NoDeadLetters { kind: &'static str, name: Name, from: Name },
    #[error("nobody reads the dead letters of operator '{name}'")]
    DeadLettersNotRead { name: Name },
    #[error("operator '{name}' is given {given} inputs and has {}: {}", .inputs.len(), .inputs.join(", "))]
    TooManyInputs { name: Name, given: u32, inputs: Vec<String> },
    #[error("operator '{name}' has no input '{input}'")]
    NoSuchInput { name: Name, input: String, inputs: Vec<String>, nearest: Option<String> },
    #[error("nobody feeds input '{input}' of operator '{name}'")]
    InputNotFed { name: Name, input: String, inputs: Vec<String> },
    #[error("input '{input}' of operator '{name}' is a broadcast, so its exchange can't be {asked}")]
    BroadcastExchange { name: Name, input: String, asked: Exchange },
    #[error("the job asks for {asked}, and the path {} gives {given}: {why}", arrows(.path))]
    Guarantee { asked: Guarantee, given: Delivery, path: Vec<Name>, why: &'static str },
    #[error(
        "sinks '{first}' and '{second}' would decide over checkpoints in two places, {first_place} and {second_place}"
    )]
    TwoDeciders { first: Name, first_place: String, second: Name, second_place: String },
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
            Self::ReservedOutput { .. } => {
                "let the operator name that output otherwise; what on_error = \"dead-letter\" puts out has this name".into()
            }
            Self::NoDeadLetters { from, .. } => {
                format!("set on_error = \"dead-letter\" in [operator.{from}], or don't read them")
            }
            Self::DeadLettersNotRead { name } => {
                format!("make '{name}:{DEAD_LETTERS}' the input of a sink, or set on_error = \"skip\" in [operator.{name}]")
            }
            Self::TooManyInputs { inputs, .. } if inputs.len() == 1 => {
                "to feed the one input from several, write a list in the list: inputs = [[\"a\", \"b\"]]".into()
            }
            Self::TooManyInputs { inputs, .. } => format!("name them: {}", named_inputs(inputs)),
            Self::NoSuchInput { nearest: Some(nearest), inputs, .. } => {
                format!("did you mean '{nearest}'? Its inputs are: {}", inputs.join(", "))
            }
            Self::NoSuchInput { inputs, .. } => format!("its inputs are: {}", inputs.join(", ")),
            Self::InputNotFed { name, inputs, .. } => format!("feed each of them in [operator.{name}]: {}", named_inputs(inputs)),
            Self::BroadcastExchange { .. } => "remove its exchange; the plan chooses broadcast".into(),
            Self::Guarantee { given, .. } => {
                format!("set guarantee = \"{given}\" in [job], or take a source that can be replayed and a sink that commits")
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
            Self::KeyedExchange { asked: Exchange::Forward, .. } => {
                "remove its exchange; the plan chooses hash (forward is safe only from one subtask to one subtask)".into()
            }
            Self::KeyedExchange { .. } => "remove its exchange; the plan chooses hash".into(),
            Self::UnequalForward { .. } => "make the two equal, or take the exchange rebalance".into(),
            Self::TwoDeciders { .. } => {
                "one transaction spans one cluster: give both the same brokers, or make two jobs of it, or set guarantee = \
                 \"at-least-once\" in [job]"
                    .into()
            }
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
    #[error("'{name}' reads '{from}' by broadcast: each record is processed {times} times, once by each subtask")]
    Multiplied { name: Name, from: Name, times: u32 },
    #[error(
        "operator '{name}' gets no watermark before source '{silent}' ends, which makes none: give [source.{silent}.watermark] a strategy or an idle_timeout"
    )]
    NoWatermark { name: Name, silent: Name },
    #[error(
        "a file of source '{name}' that stops growing holds the watermark back for ever: set idle_timeout in [source.{name}.watermark]"
    )]
    SilentSplits { name: Name },
}

/// How inputs are told apart in a job file.
fn named_inputs(inputs: &[String]) -> String {
    let named = inputs.iter().map(|input| format!("{input} = \"NAME\"")).collect::<Vec<_>>();
    format!("inputs = {{ {} }}", named.join(", "))
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
