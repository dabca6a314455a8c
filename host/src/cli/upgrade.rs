//! `lockgate upgrade`: another component for an operator, of a daemon's job or, to try it out, of a job file's.
//!
//! Invariant: with `--dry-run` nothing of the job is changed, whether it runs or not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::client::ServerArgs;
use crate::cli::remote::upgrade::{Wish, upgrade};
use crate::cli::{CliError, dry_run};
use crate::id::Name;
use crate::units;

/// Replace the component of an operator of a daemon's job, while the job runs. The new one is checked and compiled first; it takes
/// over at a checkpoint, with the state, which it migrates if its tables are of a newer version. If it fails before it has been
/// on probation for long enough, the old one goes on from that checkpoint, and nothing is lost or doubled.
///
/// With --dry-run it is only tried against the newest checkpoint: opened with the operator's configuration, it takes up and
/// migrates the real state, and what became of that is said. That can be done for a job file, too, without a daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate upgrade words count new/count.wasm
  lockgate upgrade words count new/count.wasm --probation 1m
  lockgate upgrade words count new/count.wasm --dry-run
  lockgate upgrade job.toml count new/count.wasm --dry-run --json | jq .tables

Exit codes: 0 the new component runs, or could; 1 it can't take over, or it failed and the old one is back; 2 there is no such job or
operator, or the component can't be used")]
pub struct Args {
    /// The job's name; or, with --dry-run, a job file, whose name ends with .toml
    job: String,
    /// The operator's name in the job
    operator: String,
    /// The new component
    #[arg(value_name = "NEW.WASM")]
    wasm: PathBuf,
    /// Only try it on the newest checkpoint
    #[arg(long)]
    dry_run: bool,
    /// How long the new component must run without a failure until the old one is given up [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = units::duration::parse, conflicts_with = "dry_run")]
    probation: Option<Duration>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the outcome, or the error, as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the component can't take over, or was taken back.
pub fn run(args: &Args) -> Result<(), CliError> {
    let Args { job, operator, wasm, dry_run, probation, json, server } = args;
    if Path::new(job).extension().is_some_and(|end| end == "toml") {
        return try_on_job_file(args);
    }
    upgrade(server, &Wish { job, operator, wasm, dry_run: *dry_run, probation: *probation, json: *json })
}

fn try_on_job_file(args: &Args) -> Result<(), CliError> {
    if !args.dry_run {
        let refused =
            CliError::unusable(format!("{} is a job file, and only a daemon upgrades a job while it runs", args.job));
        return Err(refused.help(
            "try the component with --dry-run; then stop the job, name the new component in the file, and run it again",
        ));
    }
    let operator = Name::new(&args.operator).map_err(|_| {
        CliError::unusable(format!("'{}' can't be the name of an operator", args.operator.escape_debug()))
            .help("take the name that it has in the job file")
    })?;
    dry_run::run(Path::new(&args.job), &operator, &args.wasm, args.json)
}
