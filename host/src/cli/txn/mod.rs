//! `lockgate txn`: the transactions that are open on a Kafka cluster, and an end to those that are stuck.
//!
//! Invariant: `list` changes nothing; `abort` touches only the ids that it names.

mod abort;
mod hanging;
mod list;
mod lock;
mod report;
#[cfg(test)]
mod tests;
mod whom;

use crate::cli::CliError;

/// List the open transactions of a job or a Kafka cluster, or abort them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate txn list job.toml                                 those of this job
  lockgate txn list --brokers localhost:9092                 all on the cluster
  lockgate txn list --brokers localhost:9092 --hanging       those that no coordinator knows, too
  lockgate txn abort job.toml --all-of-job --yes
  lockgate txn abort --brokers localhost:9092 shop-tx-1 --yes

Exit codes: 0 done; 1 the cluster can't be asked, or a transaction could not be aborted; 2 the command line or job file can't be
used, there is no such id, the job is running, or --yes is missing: nothing was done")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    List(list::Args),
    Abort(abort::Args),
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.verb {
            Verb::List(args) => args.json,
            Verb::Abort(args) => args.json,
        }
    }
}

/// # Errors
/// If the cluster can't be asked, or what was asked for can't be done.
pub fn run(args: &Args) -> Result<(), CliError> {
    match &args.verb {
        Verb::List(args) => list::run(args),
        Verb::Abort(args) => abort::run(args),
    }
}
