//! The job file: from TOML to typed options.
//!
//! Invariant: parsed once and handed down; a key that nobody knows is refused, and every default stands in `default.toml`.

mod assemble;
mod error;
mod inputs;
mod into_job;
mod job_file;
mod largest_record;
mod problem;
mod ranges;
mod raw;
mod reader;
mod shared_transaction;
mod source_time;
mod standing;
#[cfg(test)]
mod tests;
mod tree;
mod typed;

pub use crate::protocol::Guarantee;
pub use crate::units;
pub use error::{ConfigError, Place, TableName};
pub use job_file::{CheckpointConfig, Component, JobFile, OperatorConfig, SinkConfig, SourceConfig};
pub use standing::Standing;
