//! What a plan is made from: the sources, operators and sinks of a job, as the job file has them, and what each operator says
//! of itself.
//!
//! Invariant: nothing here is checked yet; only [`Plan::new`](super::Plan::new) says whether it fits together.

use crate::graph::Exchange;
use crate::id::Name;
use crate::protocol::{Guarantee, MaxParallelism, OnError};

/// The shape of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub max_parallelism: MaxParallelism,
    /// What is asked of every path from a source to a sink.
    pub guarantee: Guarantee,
    pub sources: Vec<SourceSpec>,
    pub operators: Vec<OperatorSpec>,
    pub sinks: Vec<SinkSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    pub name: Name,
    pub parallelism: u32,
    /// Whether it gives the same records again from a remembered position.
    pub replayable: bool,
    pub event_time: SourceTime,
}

/// What a source does for event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTime {
    /// Whether it makes watermarks before it ends.
    pub watermarks: bool,
    /// Whether it, or a split of it, stops to hold the watermark back when it falls silent.
    pub falls_idle: bool,
    /// Whether a split of it may fall silent for ever while others go on.
    pub silent_splits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSpec {
    pub name: Name,
    pub parallelism: u32,
    pub inputs: Vec<InputRef>,
    /// What the job file asks for; otherwise the plan decides.
    pub exchange: Option<Exchange>,
    pub on_error: OnError,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    pub name: Name,
    pub parallelism: u32,
    pub inputs: Vec<InputRef>,
    pub commit: SinkCommit,
    /// Whether its readers rely on the order of the records of a key.
    pub ordered: bool,
}

/// Where an operator or sink reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputRef {
    pub from: Name,
    /// A named output of `from`; its first one if there is no name.
    pub port: Option<String>,
    /// Which input of the reader these records feed. Several that feed the same one are a union. Of no meaning to a sink.
    pub input: InputPlace,
}

/// An input of an operator, by either of the two ways to say it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputPlace {
    /// In the order in which the operator declares them, from 0.
    Number(u32),
    Name(String),
}

/// How the output of a sink becomes visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkCommit {
    /// Prepared with the checkpoint, made visible when it has been published.
    TwoPhase,
    /// By a transaction that can't be prepared, and therefore is the decision over the checkpoint itself. All sinks of a job that
    /// decide share one, which is in one place.
    Deciding { place: String },
    /// As it is written.
    Plain,
    /// There is no output.
    Discarded,
}

/// What an operator says of itself, by its `describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFacts {
    /// In the order of the numbers that `process` is given; at least one.
    pub inputs: Vec<InputFacts>,
    /// The names of its outputs; at least one.
    pub outputs: Vec<String>,
    /// Whether it has keyed state or timers, and so must be given all records of a key by one subtask, but for those of its
    /// broadcast inputs.
    pub keyed: bool,
}

/// What an operator says of one of its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFacts {
    pub name: String,
    /// Whether every subtask gets all of its records.
    pub broadcast: bool,
}
