//! `lockgate savepoint`: checkpoints of a daemon's job that are kept until somebody deletes them.
//!
//! Invariant: without an option it takes one; nothing is deleted without `--delete`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::table::{Side, Table, or_dash};
use super::working::Working;
use super::{job_path, show};
use crate::cli::CliError;
use crate::cli::checkpoint::{age, size};
use crate::cli::client::{Client, ServerArgs};

/// Take a savepoint of a daemon's job: a checkpoint that is kept until you delete it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate savepoint words              of a job that runs; of one that doesn't, its newest checkpoint is kept
  lockgate savepoint words --list
  lockgate savepoint words --delete 42

Exit codes: 0 done; 1 the job can't take a checkpoint now; 2 there is no such job or savepoint")]
pub struct SavepointArgs {
    /// The job's name
    job: String,
    /// Show those that there are
    #[arg(long, conflicts_with = "delete")]
    list: bool,
    /// Delete the one of this number
    #[arg(long, value_name = "N")]
    delete: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Deserialize)]
struct Savepoints {
    savepoints: Vec<Savepoint>,
}

#[derive(Deserialize)]
struct Savepoint {
    epoch: u64,
    created_at_ms: Option<u64>,
    files: Option<u64>,
    bytes: Option<u64>,
    problem: Option<String>,
}

/// # Errors
/// If the daemon doesn't do it.
pub fn run(args: &SavepointArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let (job, path) = (&args.job, format!("{}/savepoints", job_path(&args.job)?));
    if args.list {
        return show(&client.get(&path)?, args.json, |Savepoints { savepoints }| text(job, &savepoints));
    }
    if let Some(epoch) = args.delete {
        client.delete(&format!("{path}/{epoch}"))?;
        let deleted = json!({ "job": job, "deleted": epoch });
        return show(&deleted, args.json, |_: Value| format!("{job}: savepoint {epoch} is deleted\n"));
    }
    let working = Working::on(&format!("{job}: taking a savepoint"));
    let answer = client.post(&path, &json!({}))?;
    drop(working);
    show(&answer, args.json, |savepoint: Savepoint| {
        let bytes = savepoint.bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
        let epoch = savepoint.epoch;
        format!("{job}: savepoint {epoch}{bytes}; it is kept until: lockgate savepoint {job} --delete {epoch}\n")
    })
}

fn text(job: &str, savepoints: &[Savepoint]) -> String {
    if savepoints.is_empty() {
        return format!("{job}: no savepoints\n");
    }
    use Side::{Left, Right};
    let columns = [("savepoint", Right), ("age", Right), ("files", Right), ("size", Right), ("", Left)];
    let mut table = Table::new(&columns);
    for savepoint in savepoints {
        table.row(vec![
            savepoint.epoch.to_string(),
            or_dash(savepoint.created_at_ms, age),
            or_dash(savepoint.files, |files| files.to_string()),
            or_dash(savepoint.bytes, size),
            savepoint.problem.clone().unwrap_or_default(),
        ]);
    }
    table.text()
}
