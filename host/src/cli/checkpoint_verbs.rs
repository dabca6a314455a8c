//! The command line of `lockgate checkpoint`: which job, which checkpoint, text or JSON.
//!
//! Invariant: the store is that of the job file, so that both verbs look where `run` would.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::{CliError, checkpoint, print};
use crate::config::JobFile;
use crate::id::Epoch;

/// List or verify the checkpoints of a job
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate checkpoint list job.toml
  lockgate checkpoint verify job.toml        every checkpoint
  lockgate checkpoint verify job.toml 42     checkpoint 42

Exit codes: 0 done, and what was verified is whole; 1 a checkpoint is damaged; 2 there is no such job or checkpoint")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the checkpoints that a job could continue from, oldest first
    List {
        /// The job file
        #[arg(value_name = "JOB.TOML")]
        job_file: PathBuf,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every file of a checkpoint and compare it with its checksum
    Verify {
        /// The job file
        #[arg(value_name = "JOB.TOML")]
        job_file: PathBuf,
        /// The checkpoint's number [default: all that there are]
        epoch: Option<u64>,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match self.verb {
            Verb::List { json, .. } | Verb::Verify { json, .. } => json,
        }
    }
}

/// # Errors
/// If the store can't be read, isn't this job's, or a checkpoint is damaged.
pub fn run(args: &Args) -> Result<(), CliError> {
    match &args.verb {
        Verb::List { job_file, json } => {
            let file = JobFile::load(job_file)?;
            show(&checkpoint::list(&file.checkpoint.store, &file.job)?, *json)
        }
        Verb::Verify { job_file, epoch, json } => {
            let file = JobFile::load(job_file)?;
            let verified = checkpoint::verify(&file.checkpoint.store, &file.job, epoch.map(Epoch))?;
            show(&verified, *json)?;
            verified.failure().map_or(Ok(()), Err)
        }
    }
}

fn show<T: Display + Serialize>(report: &T, json: bool) -> Result<(), CliError> {
    if !json {
        return print::out(&report.to_string());
    }
    let text =
        serde_json::to_string_pretty(report).map_err(|error| CliError::failed("cannot print").caused_by(&error))?;
    print::out(&format!("{text}\n"))
}
