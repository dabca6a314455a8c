//! `lockgate stop`, `restart` and `delete`: a job of a daemon, begun and ended.
//!
//! Invariant: a verb returns when the daemon has done it, or refused it.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::jobs::Job;
use super::submit::submission;
use super::working::Working;
use super::{job_path, show};
use crate::cli::client::{Client, ServerArgs};
use crate::cli::{CliError, print};

/// Stop a job of a daemon, with a last checkpoint. It is kept, and goes on when it is restarted
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate stop words
  lockgate stop words --savepoint       its last checkpoint is kept until you delete it
  lockgate stop words --now             without a checkpoint; as safe as a crash

Exit codes: 0 it doesn't run any more; 1 it couldn't be stopped, or has no checkpoint to keep; 2 there is no such job")]
pub struct StopArgs {
    /// The job's name
    job: String,
    /// Keep the last checkpoint until it is deleted
    #[arg(long, conflicts_with = "now")]
    savepoint: bool,
    /// Take no checkpoint: what was read since the last one is read again
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the job as JSON
    #[arg(long)]
    pub json: bool,
}

/// Start a job of a daemon again, from its newest checkpoint. One that runs is stopped with a last checkpoint first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate restart words
  lockgate restart words job.toml       with a changed job file: another parallelism, another operator

Exit codes: 0 it starts; 1 it can't continue; 2 there is no such job, or the job file can't be used")]
pub struct RestartArgs {
    /// The job's name
    job: String,
    /// A changed job file of the job
    #[arg(value_name = "JOB.TOML")]
    job_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the job as JSON
    #[arg(long)]
    pub json: bool,
}

/// Delete a job of a daemon that doesn't run, with what the daemon's data folder has of it: its state and checkpoints. Its output
/// stays, and so does state that its job file has placed elsewhere
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate delete words

Exit codes: 0 it is gone; 1 it runs, or has savepoints; 2 there is no such job")]
pub struct DeleteArgs {
    /// The job's name
    job: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Print what was deleted as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the daemon doesn't stop it.
pub fn stop(args: &StopArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let path = job_path(&args.job)?;
    let (mode, doing) = match (args.savepoint, args.now) {
        (true, _) => ("savepoint", "stopping it with a savepoint"),
        (false, true) => ("now", "stopping it without a checkpoint"),
        (false, false) => ("checkpoint", "stopping it with a checkpoint"),
    };
    let working = Working::on(&format!("{}: {doing}", args.job));
    let answer = client.post(&format!("{path}/stop"), &json!({ "mode": mode }))?;
    drop(working);
    show(&answer, args.json, |job: Job| {
        let with = match (&job.checkpoint, args.now) {
            (Some(newest), false) => format!(" with checkpoint {}", newest.epoch),
            (Some(_), true) | (None, _) => String::new(),
        };
        format!("{}: {}{with}; it goes on with: lockgate restart {0}\n", job.name, job.status)
    })
}

/// # Errors
/// If the daemon doesn't start it.
pub fn restart(args: &RestartArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let path = job_path(&args.job)?;
    let changed = match &args.job_file {
        Some(job_file) => submission(&client, job_file)?,
        None => json!({}),
    };
    let working = Working::on(&format!("{}: starting it again", args.job));
    let answer = client.post(&format!("{path}/restart"), &changed)?;
    drop(working);
    show(&answer, args.json, |job: Job| started(&job))
}

/// What is said of a job that the daemon has just taken on.
pub(super) fn started(job: &Job) -> String {
    for warning in &job.warnings {
        print::err(&format!("warning: {warning}\n"));
    }
    let reason = job.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}: {}{reason}; see how it does with: lockgate status {0}\n", job.name, job.status)
}

/// # Errors
/// If the daemon doesn't delete it.
pub fn delete(args: &DeleteArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let path = job_path(&args.job)?;
    let working = Working::on(&format!("{}: deleting it", args.job));
    client.delete(&path)?;
    drop(working);
    show(&json!({ "deleted": args.job }), args.json, |_: Value| format!("{}: deleted\n", args.job))
}
