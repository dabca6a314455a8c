//! `lockgate check`: what a job file means, and whether the job can run.
//!
//! Invariant: it changes nothing: no folder is created, no lock taken, no record read.

mod dot;
mod drawing;
pub(super) mod places;
mod report;
mod shape;
#[cfg(test)]
mod tests;
mod times;

use std::path::PathBuf;

use crate::cli::load::load;
use crate::cli::{CliError, print};

use places::check_places;
use report::Report;

/// Check a job file, its plugins and its folders, and show the plan: tasks, exchanges, keyed state, and what each path
/// from a source to a sink guarantees. Changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate check job.toml
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
    let loaded = load(&args.job_file)?;
    check_places(&loaded.file)?;
    let report = Report::new(&loaded);
    let text = match (args.json, args.graph) {
        (true, _) => report.json(),
        (false, None) => report.to_string(),
        (false, Some(GraphForm::Text)) => report.drawing(),
        (false, Some(GraphForm::Dot)) => report.dot(),
    };
    print::out(&text)
}
