//! The command line of `lockgate checkpoint`: which job, which checkpoint, text or JSON.
//!
//! Invariant: the store is that of the job file, so that every verb looks where `run` would.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::{CliError, checkpoint, print, savepoint};
use crate::config::JobFile;
use crate::id::Epoch;

/// List and verify the checkpoints of a job, keep some of them, delete those
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate checkpoint list job.toml
  lockgate checkpoint verify job.toml        every checkpoint
  lockgate checkpoint verify job.toml 42     checkpoint 42
  lockgate checkpoint keep job.toml 42       makes it a savepoint, which stays
  lockgate checkpoint delete job.toml 42     deletes that savepoint

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
    /// Make a checkpoint a savepoint: it stays until it is deleted, however many come after it
    Keep {
        /// The job file
        #[arg(value_name = "JOB.TOML")]
        job_file: PathBuf,
        /// The checkpoint's number [default: the newest]
        epoch: Option<u64>,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a savepoint, with what only it needs; if the job runs, that goes with its next checkpoint
    Delete {
        /// The job file
        #[arg(value_name = "JOB.TOML")]
        job_file: PathBuf,
        /// The savepoint's number
        epoch: u64,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what no checkpoint that is retained or kept needs, of a job that doesn't run; one that runs does it by itself
    Gc {
        /// The job file
        #[arg(value_name = "JOB.TOML")]
        job_file: PathBuf,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match self.verb {
            Verb::List { json, .. }
            | Verb::Verify { json, .. }
            | Verb::Keep { json, .. }
            | Verb::Delete { json, .. }
            | Verb::Gc { json, .. } => json,
        }
    }
}

/// # Errors
/// If the store can't be used, isn't this job's, or a checkpoint is damaged or not there.
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
        Verb::Keep { job_file, epoch, json } => {
            show(&savepoint::keep(&JobFile::load(job_file)?, epoch.map(Epoch))?, *json)
        }
        Verb::Delete { job_file, epoch, json } => {
            show(&savepoint::delete(&JobFile::load(job_file)?, Epoch(*epoch))?, *json)
        }
        Verb::Gc { job_file, json } => show(&savepoint::collect(&JobFile::load(job_file)?)?, *json),
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
