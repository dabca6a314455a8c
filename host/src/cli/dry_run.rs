//! Tries a component as an operator of a job file, and prints what came of it.
//!
//! Invariant: what it prints as JSON has the same facts as the text.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use crate::cli::compiler::{engine, usual};
use crate::cli::inspect::refused;
use crate::cli::load::load;
use crate::cli::{CliError, print};
use crate::id::Name;
use crate::runtime::{DryRun, DryRunError, DryRunTable, dry_run};

/// # Errors
/// If the job file or the component can't be used, or the component can't take up the state of the operator.
pub fn run(job_file: &Path, operator: &Name, wasm: &Path, json: bool) -> Result<(), CliError> {
    let job = load(job_file, usual())?.into_job();
    let engine = engine(usual())?;
    // Of an operator that the job doesn't have, that is said below.
    let limits = job.operators.get(operator).map(|operator| operator.limits).unwrap_or_default();
    let plugin = engine.load_within(operator, wasm, limits).map_err(|error| refused(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot start threads").caused_by(&error))?;
    let report = runtime.block_on(dry_run(&job, operator, Arc::new(plugin))).map_err(|error| failed(&error))?;
    print::out(&if json { format!("{}\n", as_json(&report)) } else { text(&report) })
}

fn failed(error: &DryRunError) -> CliError {
    let failed = match error {
        DryRunError::NoOperator { .. } | DryRunError::Folder { .. } => CliError::unusable(error.to_string()),
        DryRunError::Overtaken { .. } | DryRunError::Failed { .. } => CliError::failed(error.to_string()),
    };
    let failed = error.source().map_or(failed.clone(), |cause| failed.caused_by(cause));
    error.help().map_or(failed.clone(), |help| failed.help(help))
}

/// The report for scripts.
pub fn as_json(report: &DryRun) -> serde_json::Value {
    serde_json::to_value(report).expect("a report has only names and numbers")
}

/// The report for people.
pub fn text(report: &DryRun) -> String {
    let DryRun { job, operator, epoch, subtasks, tables, needs_restart, seconds } = report;
    let at = epoch.map_or_else(|| "without state".to_owned(), |epoch| format!("checkpoint {epoch}"));
    let mut text =
        format!("{operator} of job {job} can run with this component ({at}, subtasks: {subtasks}, {seconds:.1} s)\n");
    for table in tables {
        writeln!(text, "  {}", line(table)).expect("a string takes everything");
    }
    for reason in needs_restart {
        writeln!(text, "  takes a restart of the job: {reason}").expect("a string takes everything");
    }
    text.push_str("nothing was changed\n");
    text
}

fn line(table: &DryRunTable) -> String {
    let DryRunTable { name, from_version, to_version, entries_before, entries_after, .. } = table;
    let (bytes_before, bytes_after) = (table.bytes_before, table.bytes_after);
    match from_version {
        Some(from) if from != to_version => format!(
            "table {name}: version {from} -> {to_version}, {entries_before} -> {entries_after} entries, \
             {bytes_before} -> {bytes_after} bytes, migrated in {:.1} s",
            table.seconds
        ),
        Some(_) => format!("table {name}: version {to_version}, {entries_after} entries, {bytes_after} bytes"),
        None => format!("table {name}: new, version {to_version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;

    #[test]
    fn the_report_says_what_became_of_each_table() {
        let table = |name: &str, from_version, to_version| DryRunTable {
            name: name.to_owned(),
            from_version,
            to_version,
            keys_changed: false,
            entries_before: 10,
            entries_after: 8,
            bytes_before: 100,
            bytes_after: 160,
            seconds: 0.25,
        };
        let report = DryRun {
            job: Name::new("words").expect("a name"),
            operator: Name::new("count").expect("a name"),
            epoch: Some(Epoch(7)),
            subtasks: 2,
            tables: vec![table("counts", Some(1), 2), table("seen", Some(1), 1), table("fresh", None, 1)],
            needs_restart: vec!["it has more outputs".to_owned()],
            seconds: 1.5,
        };
        assert_eq!(
            text(&report),
            "count of job words can run with this component (checkpoint 7, subtasks: 2, 1.5 s)\n  \
             table counts: version 1 -> 2, 10 -> 8 entries, 100 -> 160 bytes, migrated in 0.2 s\n  \
             table seen: version 1, 8 entries, 160 bytes\n  \
             table fresh: new, version 1\n  \
             takes a restart of the job: it has more outputs\n\
             nothing was changed\n"
        );
        assert_eq!(as_json(&report)["tables"][0]["entries_after"], 8);
        assert_eq!(as_json(&report)["epoch"], 7);
    }
}
