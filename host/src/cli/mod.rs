//! The verbs of the command line.

pub mod build;
pub mod checkpoint;
mod error;
pub mod inspect;
pub mod new;

pub use error::{CliError, Exit};
