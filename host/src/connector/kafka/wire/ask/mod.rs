//! What is asked of a cluster, in types of our own.
//!
//! Invariant: the types here hold what was said and nothing that was guessed; `None` is what wasn't said.

mod cluster;
mod configs;
mod coordinators;
mod fence;
mod groups;
mod markers;
mod operations;
mod producers;
mod topic_ids;
mod topics;
mod transactions;

pub use cluster::Cluster;
pub use configs::Configs;
pub use fence::Fenced;
pub use groups::Group;
pub use operations::{Operation, Operations};
pub use producers::OpenOnPartition;
pub use topics::{Partition, Topic};
pub use transactions::{Listed, Transaction};
