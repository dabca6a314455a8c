//! The process that another one starts to compile a component. Not for people.
//!
//! Invariant: it is told what [`Compiler`](crate::guest::Compiler) tells it, and nothing else is done in it.

use std::time::Duration;

use crate::cli::CliError;
use crate::guest::{CompileLimits, compile_for};

/// Compile the component on standard input for another process of this program
#[derive(Debug, clap::Args)]
pub struct Args {
    parent_id: u32,
    time_ms: u64,
    memory_bytes: u64,
}

/// # Errors
/// If it can't be read, limited or answered.
pub fn run(args: &Args) -> Result<(), CliError> {
    let limits = CompileLimits { time: Duration::from_millis(args.time_ms), memory_bytes: args.memory_bytes };
    compile_for(args.parent_id, limits).map_err(|error| {
        let failed = CliError::failed("cannot compile").caused_by(&error);
        failed.help("this verb is the program's own: `lockgate inspect` compiles a component, and keeps its code")
    })
}
