//! What a plan is made from: the sources, operators and sinks of a job, as the job file has them, and what each operator says
//! of itself.
//!
//! Invariant: nothing here is checked yet; only [`Plan::new`](super::Plan::new) says whether it fits together.

use crate::graph::Exchange;
use crate::id::Name;
use crate::protocol::MaxParallelism;

/// The shape of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub max_parallelism: MaxParallelism,
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSpec {
    pub name: Name,
    pub parallelism: u32,
    pub inputs: Vec<InputRef>,
    /// What the job file asks for; otherwise the plan decides.
    pub exchange: Option<Exchange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    pub name: Name,
    pub parallelism: u32,
    pub inputs: Vec<InputRef>,
    pub commit: SinkCommit,
}

/// Where an operator or sink reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputRef {
    pub from: Name,
    /// A named output of `from`; its first one if there is no name.
    pub port: Option<String>,
    /// The number that the reader's `process` is given with these records. Several with the same number are a union. Of no
    /// meaning to a sink.
    pub input: u32,
}

/// How the output of a sink becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkCommit {
    /// Prepared with the checkpoint, made visible when it has been published.
    TwoPhase,
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
