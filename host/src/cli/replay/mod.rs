//! `lockgate replay`: makes the call again at which an operator has failed, out of the capsule that was kept of it.
//!
//! Invariant: the exit code is 0 if, and only if, what was asked for is so: the same failure, bit for bit, or with another
//! component none at all.

mod report;

use std::path::PathBuf;

use crate::cli::compiler::{engine, usual};
use crate::cli::{CliError, print};
use crate::replay::{Capsule, Outcome, ReplayError, rerun, rerun_with, write_test};
use report::Report;

/// Make a call again at which an operator has failed, offline: the same component, record, state and configuration. A job writes
/// a capsule of each failure to `capsules` in its state_dir; a capsule holds all of it, and can be sent to somebody else
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate replay copy.state/capsules/parse-0-7-1.capsule
  lockgate replay parse-0-7-1.capsule --wasm my-op/my_op.wasm      does the new build process the record?
  lockgate replay parse-0-7-1.capsule --write-test my-op           make a test of it for the operator's crate
  lockgate replay parse-0-7-1.capsule --json | jq .record

Exit codes: 0 it fails as it did, bit for bit (with --wasm: it doesn't fail); 1 it does something else (with --wasm: it fails);
2 the capsule or the component can't be used")]
pub struct Args {
    /// The capsule
    #[arg(value_name = "CAPSULE")]
    capsule: PathBuf,
    /// Run this component instead of the capsule's, against the same record and state
    #[arg(long, value_name = "FILE.WASM")]
    wasm: Option<PathBuf>,
    /// Write a test with the record and the state that was read into `tests` of this folder, which is that of the operator's crate
    #[arg(long, value_name = "DIR")]
    write_test: Option<PathBuf>,
    /// The operator's type in that crate [default: the one that it exports]
    #[arg(long = "type", value_name = "TYPE", requires = "write_test")]
    operator: Option<String>,
    /// Print what happened as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the capsule can't be used, or what comes of it isn't what is wanted.
pub fn run(args: &Args) -> Result<(), CliError> {
    let capsule = Capsule::read(&args.capsule).map_err(|error| unusable(&error))?;
    let engine = engine(usual())?;
    let rerun = match &args.wasm {
        None => rerun(&engine, &capsule),
        Some(wasm) => rerun_with(&engine, &capsule, wasm),
    };
    let rerun = rerun.map_err(|error| unusable(&error))?;
    let test = args.write_test.as_ref().map(|folder| write_test(&capsule, folder, args.operator.as_deref()));
    let test = test.transpose().map_err(|error| unusable(&error))?;
    let report = Report::new(&args.capsule, &capsule, &rerun, args.wasm.is_some(), test);
    print::out(&if args.json { report.json() } else { report.to_string() })?;
    if args.wasm.is_some() {
        return match rerun.outcome {
            Outcome::Passed => Ok(()),
            Outcome::Rejected { .. } | Outcome::Failed { .. } => {
                Err(CliError::failed("the component doesn't process it either")
                    .help("the report says what it does; --write-test makes a test of it for the operator's crate"))
            }
        };
    }
    if rerun.is_bit_for_bit(&capsule) {
        return Ok(());
    }
    let what = if rerun.is_same_failure(&capsule) {
        "it fails as it did, but has read, emitted or written something else before"
    } else {
        "it doesn't do what it did when the capsule was written"
    };
    Err(CliError::failed(what).help(format!(
        "the capsule was written by Lockgate {}, and this is {}; with the same version, please report it",
        crate::telemetry::printable(&capsule.host_version, 40),
        env!("CARGO_PKG_VERSION")
    )))
}

fn unusable(error: &ReplayError) -> CliError {
    let said = match error {
        ReplayError::File { .. } => CliError::failed(error.to_string()),
        ReplayError::Read { .. }
        | ReplayError::Refused { .. }
        | ReplayError::Component { .. }
        | ReplayError::Other { .. }
        | ReplayError::Unsuited { .. }
        | ReplayError::State { .. }
        | ReplayError::NoCrate { .. } => CliError::unusable(error.to_string()),
    };
    let said = std::error::Error::source(error).map_or(said.clone(), |cause| said.caused_by(cause));
    said.help(error.help())
}
