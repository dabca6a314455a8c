//! `lockgate upgrade` of a daemon's job: another component for an operator, while the job runs.
//!
//! Invariant: it succeeds only if the new component was adopted, or the dry run would be.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::plugin::{self, Plugin};
use super::table::{Side, Table};
use super::working::Working;
use super::{job_path, read, show};
use crate::cli::CliError;
use crate::cli::checkpoint::size;
use crate::cli::client::{Client, ServerArgs};
use crate::cli::progress::count;
use crate::id::Name;

/// What the command line asks for.
pub struct Wish<'a> {
    pub job: &'a str,
    pub operator: &'a str,
    pub wasm: &'a Path,
    pub dry_run: bool,
    pub probation: Option<Duration>,
    pub json: bool,
}

#[derive(Deserialize)]
struct Upgraded {
    from: String,
    to: String,
    swapped_at: Option<u64>,
    adopted_at: Option<u64>,
    paused_ms: Option<f64>,
    migrated_entries: u64,
    report: Option<Report>,
}

/// What a dry run found.
#[derive(Deserialize)]
struct Report {
    epoch: Option<u64>,
    tables: Vec<TableReport>,
}

#[derive(Deserialize)]
struct TableReport {
    name: String,
    /// None if the checkpoint holds no such table.
    from_version: Option<u32>,
    to_version: u32,
    entries_before: u64,
    entries_after: u64,
    bytes_before: u64,
    bytes_after: u64,
    seconds: f64,
}

/// Sends the component, then has it swapped in, or tried.
///
/// # Errors
/// If the daemon doesn't take the component, or the new one wasn't adopted.
pub fn upgrade(server: &ServerArgs, wish: &Wish<'_>) -> Result<(), CliError> {
    let client = Client::new(server)?;
    let path = job_path(wish.job)?;
    let operator = Name::new(wish.operator)
        .map_err(|error| CliError::unusable(error.to_string()).help("name an operator as the job file does"))?;
    // Before a component is sent that nobody will need.
    client.get(&path)?;
    let plugin: Plugin = read(&plugin::load(&client, wish.wasm)?)?;
    let probation_ms = wish.probation.map(|probation| u64::try_from(probation.as_millis()).unwrap_or(u64::MAX));
    let body = json!({ "plugin": plugin.hash, "dry_run": wish.dry_run, "probation_ms": probation_ms });
    let doing = if wish.dry_run { "trying" } else { "upgrading, until its probation is over:" };
    let working = Working::on(&format!("{}: {doing} {operator}", wish.job));
    let answer = client.post(&format!("{path}/operators/{operator}/upgrade"), &body)?;
    drop(working);
    show(&answer, wish.json, |upgraded: Upgraded| text(wish, &upgraded))
}

fn text(wish: &Wish<'_>, upgraded: &Upgraded) -> String {
    let Wish { job, operator, .. } = wish;
    let Upgraded { from, to, swapped_at, adopted_at, paused_ms, migrated_entries, report } = upgraded;
    let entries = count(*migrated_entries);
    if wish.dry_run {
        let report = report.as_ref().map(report_text).unwrap_or_default();
        return format!(
            "{operator} of {job} could be upgraded from {from:.12} to {to:.12}, with {entries} entries migrated\n\
             {report}nothing was changed\n"
        );
    }
    let at = |epoch: &Option<u64>| epoch.map_or("none".to_owned(), |epoch| epoch.to_string());
    let paused = paused_ms.map(|ms| format!("; it stood still for {ms:.1} ms")).unwrap_or_default();
    format!(
        "{operator} of {job} is upgraded from {from:.12} to {to:.12}\n\
         swapped at checkpoint {}, adopted with {}{paused}; {entries} entries migrated\n",
        at(swapped_at),
        at(adopted_at),
    )
}

fn report_text(report: &Report) -> String {
    let at = report.epoch.map_or("without state".to_owned(), |epoch| format!("tried on checkpoint {epoch}"));
    if report.tables.is_empty() {
        return format!("{at}; it has no tables\n");
    }
    use Side::{Left, Right};
    let mut table = Table::new(&[
        ("table", Left),
        ("version", Right),
        ("entries", Right),
        ("then", Right),
        ("size", Right),
        ("then", Right),
        ("took", Right),
    ]);
    for found in &report.tables {
        let version = match found.from_version {
            Some(from) if from != found.to_version => format!("{from} -> {}", found.to_version),
            Some(version) => version.to_string(),
            None => format!("new, {}", found.to_version),
        };
        table.row(vec![
            found.name.clone(),
            version,
            count(found.entries_before),
            count(found.entries_after),
            size(found.bytes_before),
            size(found.bytes_after),
            format!("{:.1} s", found.seconds),
        ]);
    }
    format!("{at}\n{}", table.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_says_from_what_to_what_and_at_which_checkpoints() {
        let upgraded = json!({ "from": "ab".repeat(32), "to": "cd".repeat(32), "swapped_at": 7, "adopted_at": 8,
            "paused_ms": 1.25, "migrated_entries": 1_000, "report": null });
        let mut wish = Wish {
            job: "words",
            operator: "count",
            wasm: Path::new("new.wasm"),
            dry_run: false,
            probation: None,
            json: false,
        };
        let upgraded: Upgraded = serde_json::from_value(upgraded).expect("an upgrade");
        let wanted = "count of words is upgraded from abababababab to cdcdcdcdcdcd\n\
                      swapped at checkpoint 7, adopted with 8; it stood still for 1.2 ms; 1,000 entries migrated\n";
        assert_eq!(text(&wish, &upgraded), wanted);
        wish.dry_run = true;
        let table = json!({ "name": "counts", "from_version": 1, "to_version": 2, "entries_before": 1_000,
            "entries_after": 999, "bytes_before": 9, "bytes_after": 2_048, "seconds": 0.25 });
        let report = json!({ "job": "words", "epoch": 7, "tables": [table] });
        let tried = json!({ "from": "ab".repeat(32), "to": "cd".repeat(32), "swapped_at": null, "adopted_at": null,
            "paused_ms": null, "migrated_entries": 1_000, "report": report });
        let wanted = "count of words could be upgraded from abababababab to cdcdcdcdcdcd, with 1,000 entries migrated\n\
                      tried on checkpoint 7\n\
                      table   version  entries  then  size     then   took\n\
                      counts   1 -> 2    1,000   999   9 B  2.0 KiB  0.2 s\n\
                      nothing was changed\n";
        assert_eq!(text(&wish, &serde_json::from_value(tried).expect("an upgrade")), wanted);
    }
}
