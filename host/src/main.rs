//! The `lockgate` binary: see `cli` for its verbs.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockgate_host::cli::main()
}
