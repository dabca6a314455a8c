//! The verbs of the command line.

mod error;

pub use error::{CliError, Exit};
