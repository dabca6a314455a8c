//! From a job's shape to a checked plan: which subtasks share a task, and what connects the tasks.
//!
//! Invariant: nothing here knows a file, clock, thread, random number, async or guest; the same job gives the same plan,
//! number for number.

mod chain;
mod check;
mod edges;
mod error;
mod guarantee;
mod plan;
mod spec;
#[cfg(test)]
mod tests;
mod warnings;

pub use error::{GraphError, Warning, nearest};
pub use guarantee::{Delivery, PathGuarantee, guarantees};
pub use plan::{Chain, ChainId, Channel, Edge, EdgeId, Exchange, Node, NodeId, NodeKind, Plan, Task};
pub use spec::{
    Graph, InputFacts, InputPlace, InputRef, OperatorFacts, OperatorSpec, SinkCommit, SinkSpec, SourceSpec, SourceTime,
};

/// The output of an operator with the policy dead-letter that takes the records that it couldn't process. No operator may
/// declare one of this name.
pub const DEAD_LETTERS: &str = "dead-letters";
