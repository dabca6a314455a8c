//! The verbs of the command line.

pub mod checkpoint;
mod error;

pub use error::{CliError, Exit};
