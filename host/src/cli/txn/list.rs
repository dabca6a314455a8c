//! `lockgate txn list`: what is open.
//!
//! Invariant: a broker that can't be asked is an error; the list is never silently shorter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::hanging::find_hanging;
use super::report::{Listing, OpenTransaction};
use super::whom::{Brokers, Whom};
use crate::cli::kafka::asked;
use crate::cli::{CliError, print};
use crate::config::JobFile;
use crate::connector::kafka::wire::{Client, Listed, WireError};

/// How many ids a coordinator is asked about at once.
const DESCRIBED_AT_ONCE: usize = 200;

/// Show open transactions: id, state, for how long, timeout, producer and partitions. Readers with read_committed wait behind them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job file: the transactions of this job on its cluster
    #[arg(value_name = "JOB.TOML")]
    job_file: Option<PathBuf>,
    #[command(flatten)]
    brokers: Brokers,
    /// Only ids that begin like this [default: 'JOB/' with a job file, else all]
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Look on the partitions, too, for transactions that no coordinator knows: nothing ends those by itself
    #[arg(long)]
    hanging: bool,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the cluster can't be asked.
pub(super) fn run(args: &Args) -> Result<(), CliError> {
    let mut whom = Whom::reach(args.job_file.as_deref(), &args.brokers)?;
    let of_job = whom.job.as_ref().map(prefix_of);
    let prefix = args.prefix.clone().or(of_job).unwrap_or_default();
    let hanging = args.hanging.then(|| find_hanging(&mut whom.client)).transpose().map_err(|error| asked(&error))?;
    let (known, open) = open_transactions(&mut whom.client, &prefix).map_err(|error| asked(&error))?;
    let listing = Listing {
        cluster: whom.client.cluster().id.clone(),
        broker: whom.client.answered().to_string(),
        prefix,
        known,
        transactions: open,
        hanging,
    };
    print::out(&if args.json { listing.json() } else { listing.to_string() })
}

/// The transactional ids of a job begin with it.
pub(super) fn prefix_of(file: &JobFile) -> String {
    format!("{}/", file.job)
}

/// How many ids with this prefix there are, and those with something open.
pub(super) fn open_transactions(client: &mut Client, prefix: &str) -> Result<(usize, Vec<OpenTransaction>), WireError> {
    let listed = client.list_transactions()?;
    let ours = listed.iter().filter(|listed| listed.transactional_id.starts_with(prefix)).collect::<Vec<_>>();
    let mut by_coordinator = BTreeMap::<i32, Vec<&str>>::new();
    for Listed { transactional_id, coordinator, .. } in ours.iter().filter(|listed| listed.is_open()) {
        by_coordinator.entry(*coordinator).or_default().push(transactional_id);
    }
    let now_ms = now_ms();
    let mut open = Vec::new();
    for (coordinator, ids) in by_coordinator {
        for ids in ids.chunks(DESCRIBED_AT_ONCE) {
            // It may have been completed since.
            let described = client.describe_transactions(coordinator, ids)?.into_iter();
            open.extend(
                described
                    .filter(|described| described.is_open())
                    .map(|described| OpenTransaction::new(described, now_ms)),
            );
        }
    }
    open.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
    Ok((ours.len(), open))
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
