//! `lockgate txn abort`: ends open transactions by taking their ids away from whoever has them.
//!
//! Invariant: nothing is done without `--yes`, to a job that runs here, or to an id that has nothing open.

use std::path::{Path, PathBuf};

use super::list::{open_transactions, prefix_of};
use super::lock::hold;
use super::report::{Aborted, AbortedId, OpenTransaction, Outcome};
use super::whom::{Brokers, Whom};
use crate::cli::kafka::asked;
use crate::cli::{CliError, print};
use crate::connector::kafka::wire::{Client, WireError};

/// Abort open transactions. Their records are never read by read_committed, and readers can go on. Whoever has the
/// transactional id is shut out: a job of Lockgate that runs ends with exit code 1, and goes on from its last checkpoint when it is
/// started again
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job file, unless --brokers is given; then the transactional ids
    #[arg(value_name = "JOB.TOML | ID")]
    words: Vec<String>,
    #[command(flatten)]
    brokers: Brokers,
    /// All that the job of the job file has open
    #[arg(long, conflicts_with = "brokers")]
    all_of_job: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Also while the job is running here, which ends it
    #[arg(long)]
    force: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If something of it could not be done.
pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let (job_file, ids) = split(args)?;
    let mut whom = Whom::reach(job_file.as_deref(), &args.brokers)?;
    let prefix = whom.job.as_ref().map(prefix_of);
    let of_this_job =
        args.all_of_job || prefix.as_ref().is_some_and(|prefix| ids.iter().any(|id| id.starts_with(prefix)));
    let _locks = match &whom.job {
        Some(file) if of_this_job && !args.force => hold(file)?,
        Some(_) | None => Vec::new(),
    };
    let ids = match (args.all_of_job, &prefix) {
        (true, Some(prefix)) => {
            let (_, open) = open_transactions(&mut whom.client, prefix).map_err(|error| asked(&error))?;
            open.into_iter().map(|open| open.transactional_id).collect()
        }
        (true, None) | (false, _) => ids,
    };
    if !args.yes && !ids.is_empty() {
        let refused = format!("{} would be aborted, and nothing was done", ids.join(", "));
        return Err(CliError::unusable(refused).help("say --yes to do it"));
    }
    let ids = ids.into_iter().map(|id| AbortedId { outcome: abort(&mut whom.client, &id), transactional_id: id });
    let ids = ids.collect();
    let aborted = Aborted { cluster: whom.client.cluster().id.clone(), ids };
    print::out(&if args.json { aborted.json() } else { aborted.to_string() })?;
    verdict(&aborted)
}

/// The words of the command line, as a job file and ids.
fn split(args: &Args) -> Result<(Option<PathBuf>, Vec<String>), CliError> {
    let (job_file, ids) = match (&args.brokers.brokers, args.words.split_first()) {
        (Some(_), _) => (None, args.words.clone()),
        (None, Some((job_file, ids))) => (Some(Path::new(job_file).to_owned()), ids.to_vec()),
        (None, None) => (None, Vec::new()),
    };
    match (ids.is_empty(), args.all_of_job) {
        (true, false) => Err(CliError::unusable("no transactional id is named")
            .help("name those that `lockgate txn list` shows, or say --all-of-job")),
        (false, true) => Err(CliError::unusable("ids and --all-of-job were given").help("give one of them")),
        (true, true) | (false, false) => Ok((job_file, ids)),
    }
}

fn abort(client: &mut Client, id: &str) -> Outcome {
    let failed = |error: &WireError| Outcome::Failed { problem: error.to_string(), help: error.help() };
    let found = match client.describe_transaction(id) {
        Ok(Some(found)) => found,
        Ok(None) => return Outcome::Unknown,
        Err(error) => return failed(&error),
    };
    match found.state.as_str() {
        "Ongoing" => {}
        "PrepareCommit" | "PrepareAbort" => return Outcome::Ending { state: found.state },
        _ => return Outcome::NothingOpen,
    }
    match client.fence(id) {
        Ok(_) => {
            let OpenTransaction { open_ms, partitions, .. } = OpenTransaction::new(found, super::list::now_ms());
            Outcome::Aborted { open_ms, partitions }
        }
        Err(error) => failed(&error),
    }
}

/// What the verb fails with after it has said what it did.
pub(super) fn verdict(aborted: &Aborted) -> Result<(), CliError> {
    let first_help = aborted.ids.iter().find_map(|id| match &id.outcome {
        Outcome::Failed { help, .. } => Some(help.clone()),
        Outcome::Aborted { .. } | Outcome::NothingOpen | Outcome::Ending { .. } | Outcome::Unknown => None,
    });
    let failed = aborted.count(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let unknown = aborted.count(|outcome| matches!(outcome, Outcome::Unknown));
    let done = aborted.count(|outcome| matches!(outcome, Outcome::Aborted { .. }));
    match (first_help, failed, unknown) {
        (Some(help), failed, _) => {
            Err(CliError::failed(format!("{failed} of {} could not be aborted", aborted.ids.len())).help(help))
        }
        (None, _, 0) => Ok(()),
        (None, _, unknown) => {
            let message = format!("{unknown} of {} ids are unknown to the cluster", aborted.ids.len());
            let error = if done == 0 { CliError::unusable(message) } else { CliError::failed(message) };
            Err(error.help("`lockgate txn list` shows what is open"))
        }
    }
}
