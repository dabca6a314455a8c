//! The engine of a verb, and what compiling a component may take.
//!
//! Invariant: no verb compiles a component in its own process.

use std::time::Duration;

use crate::cli::CliError;
use crate::cli::inspect::refused;
use crate::guest::{CompileLimits, Compiler, Engine, default_cache_dir};
use crate::units;

#[derive(Clone, Debug, clap::Args)]
pub struct CompilerArgs {
    /// How long it may take to compile a component, in wall-clock and in processor time
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration::parse)]
    compile_time: Duration,
    /// How much memory that may take
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = units::size::parse)]
    compile_memory: u64,
}

impl CompilerArgs {
    pub fn compiler(&self) -> Compiler {
        let limits = CompileLimits { time: self.compile_time, memory_bytes: self.compile_memory };
        Compiler::this_program(limits)
    }
}

/// The compiler of a verb that doesn't say what it may take.
pub fn usual() -> Compiler {
    Compiler::this_program(CompileLimits::default())
}

/// # Errors
/// If this machine can't run components.
pub fn engine(compiler: Compiler) -> Result<Engine, CliError> {
    Engine::new(default_cache_dir(), compiler).map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Verb {
        #[command(flatten)]
        compiler: CompilerArgs,
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(Verb::parse_from(["verb"]).compiler.compiler(), usual());
        let given = Verb::parse_from(["verb", "--compile-time", "1s", "--compile-memory", "1GiB"]).compiler.compiler();
        let limits = CompileLimits { time: Duration::from_secs(1), memory_bytes: 1 << 30 };
        assert_eq!(given, Compiler::this_program(limits));
    }
}
