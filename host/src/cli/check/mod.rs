//! `lockgate check`: what a job file means, and whether the job can run.
//!
//! Invariant: it changes nothing: no folder is created, no lock taken, no record of a source read; so it can be asked of a job that
//! runs. No broker is asked without `--connect`.

mod apart;
mod connect;
mod dot;
mod drawing;
pub(super) mod loops;
pub(super) mod places;
mod policies;
mod report;
mod shape;
#[cfg(test)]
mod tests;
mod times;

use std::error::Error;
use std::path::PathBuf;

use crate::cli::check::connect::{Connected, check_connected};
use crate::cli::compiler::usual;
use crate::cli::load::{Loaded, load};
use crate::cli::{CliError, print};
use crate::runtime::preview;

use places::{check_places, own_uid};
use report::Report;

/// Check a job file, its plugins and folders, and the checkpoint that it would continue from, and show the plan: tasks,
/// exchanges, keyed state, and what each path from a source to a sink guarantees. Changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate check job.toml
  lockgate check job.toml --connect          asks the Kafka brokers, too
  lockgate check job.toml --graph
  lockgate check job.toml --graph dot | dot -Tsvg > job.svg
  lockgate check job.toml --json | jq .guarantees

Exit codes: 0 the job can run, 2 it can't")]
pub struct Args {
    /// The job file
    #[arg(value_name = "JOB.TOML")]
    job_file: PathBuf,
    /// Print the plan, or the error, as JSON
    #[arg(long, conflicts_with = "graph")]
    pub json: bool,
    /// Ask the brokers of Kafka sources and sinks whether they let the job run: topics, rights, limits, the marker. Changes nothing
    #[arg(long, conflicts_with = "graph")]
    connect: bool,
    /// Draw the plan instead: as text, or in the language of Graphviz
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "text", value_name = "FORM")]
    graph: Option<GraphForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GraphForm {
    Text,
    Dot,
}

/// # Errors
/// The first thing for which the job can't run.
pub fn run(args: &Args) -> Result<(), CliError> {
    let loaded = load(&args.job_file, usual())?;
    check_places(&loaded.file)?;
    let connected = match args.connect {
        true => Some(check_connected(&loaded.file, own_uid(&loaded.file)?.as_ref())?),
        false => None,
    };
    let refused = connected.as_ref().and_then(refused);
    let report = Report::new(&loaded, connected);
    check_newest_checkpoint(loaded)?;
    let text = match (args.json, args.graph) {
        (true, _) => report.json(),
        (false, None) => report.to_string(),
        (false, Some(GraphForm::Text)) => report.drawing(),
        (false, Some(GraphForm::Dot)) => report.dot(),
    };
    print::out(&text)?;
    refused.map_or(Ok(()), Err)
}

/// What the verb fails with after its report is printed.
fn refused(connected: &Connected) -> Option<CliError> {
    let problems = match connected.errors().count() {
        0 => return None,
        1 => "a problem".to_owned(),
        count => format!("{count} problems"),
    };
    let refused = CliError::unusable(format!("this job can't run on its brokers: {problems}"));
    Some(refused.help("see the errors above; each says what to do"))
}

/// Whether the job could continue from the newest checkpoint of its store.
fn check_newest_checkpoint(loaded: Loaded) -> Result<(), CliError> {
    let job = loaded.into_job();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot start a runtime").caused_by(&error))?;
    runtime.block_on(preview(&job)).map_err(|error| {
        let refused = CliError::unusable(error.to_string());
        let refused = error.source().map_or(refused.clone(), |cause| refused.caused_by(cause));
        error.help().map_or(refused.clone(), |help| refused.help(help))
    })
}
