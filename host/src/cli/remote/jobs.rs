//! `lockgate list`: the jobs of a daemon, a line for each.
//!
//! Invariant: a job that has failed or waits for its next attempt says why.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::show;
use super::table::{Side, Table, or_dash, span};
use crate::cli::CliError;
use crate::cli::client::{Client, ServerArgs};
use crate::cli::progress::count;
use crate::telemetry::printable;

/// How much of a reason is shown.
const REASON_BYTES_MAX: usize = 110;

/// List the jobs of a daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate list
  lockgate list --json | jq '.jobs[] | select(.status == \"failed\")'

Exit codes: 0 done; 1 no daemon answers; 2 the command line can't be used")]
pub struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<Job>,
}

/// What this verb and its likes need to know of a job.
#[derive(Deserialize)]
pub(super) struct Job {
    pub name: String,
    pub status: String,
    pub failure: Option<Failure>,
    pub retry: Option<Retry>,
    pub uptime_ms: Option<u64>,
    pub restarts: u64,
    pub checkpoint: Option<Newest>,
    pub parts: BTreeMap<String, Part>,
    pub warnings: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Failure {
    pub error: String,
    pub help: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Retry {
    pub cause: String,
    pub in_ms: u64,
}

#[derive(Deserialize)]
pub(super) struct Newest {
    pub epoch: u64,
    pub age_ms: u64,
    pub took_ms: u64,
    pub size_bytes: u64,
}

#[derive(Deserialize)]
pub(super) struct Part {
    pub kind: String,
    pub parallelism: u32,
    pub records_in: u64,
    pub records_out: u64,
    pub records_rejected: u64,
    pub records_in_per_s: f64,
    pub records_out_per_s: f64,
    pub lag_records: Option<u64>,
    pub watermark_lag_ms: Option<u64>,
    pub state_bytes: Option<u64>,
}

/// # Errors
/// If no daemon answers.
pub fn run(args: &ListArgs) -> Result<(), CliError> {
    let answer = Client::new(&args.server)?.get("/v1/jobs")?;
    show(&answer, args.json, |Jobs { jobs }| text(&jobs))
}

fn text(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no jobs yet; submit one with: lockgate submit job.toml\n".to_owned();
    }
    use Side::{Left, Right};
    let mut table = Table::new(&[
        ("job", Left),
        ("status", Left),
        ("uptime", Right),
        ("read/s", Right),
        ("written/s", Right),
        ("left to read", Right),
        ("checkpoint", Right),
        ("age", Right),
        ("restarts", Right),
    ]);
    for job in jobs {
        let of = |kind: &'static str| job.parts.values().filter(move |part| part.kind == kind);
        let read = of("source").map(|part| part.records_out_per_s).sum::<f64>();
        let written = of("sink").map(|part| part.records_in_per_s).sum::<f64>();
        let lag = of("source").filter_map(|part| part.lag_records).reduce(u64::saturating_add);
        table.row(vec![
            job.name.clone(),
            job.status.clone(),
            or_dash(job.uptime_ms, span),
            count(read.round() as u64),
            count(written.round() as u64),
            or_dash(lag, count),
            or_dash(job.checkpoint.as_ref(), |newest| newest.epoch.to_string()),
            or_dash(job.checkpoint.as_ref(), |newest| span(newest.age_ms)),
            count(job.restarts),
        ]);
    }
    let mut text = table.text();
    for job in jobs {
        if let Some(reason) = job.reason() {
            text += &format!("{}: {reason}\n", printable(&job.name, REASON_BYTES_MAX));
        }
    }
    text
}

impl Job {
    /// Why it doesn't run as it should.
    pub fn reason(&self) -> Option<String> {
        let failed = self.failure.as_ref().map(|failure| printable(&failure.error, REASON_BYTES_MAX));
        let retried = || {
            let retry = self.retry.as_ref()?;
            Some(format!("{}; again in {}", printable(&retry.cause, REASON_BYTES_MAX), span(retry.in_ms)))
        };
        failed.or_else(retried)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobs(value: serde_json::Value) -> Vec<Job> {
        serde_json::from_value(value).expect("jobs")
    }

    #[test]
    fn each_job_has_a_line_and_one_that_failed_says_why() {
        let part = |kind: &str| {
            json!({ "kind": kind, "parallelism": 1, "records_in": 5, "records_out": 5, "records_rejected": 0,
                    "records_in_per_s": 12.4, "records_out_per_s": 1234.5, "lag_records": 7, "watermark_lag_ms": null,
                    "state_bytes": null })
        };
        let runs = json!({ "name": "words", "status": "running", "failure": null, "retry": null, "uptime_ms": 61_000,
            "restarts": 2, "checkpoint": { "epoch": 42, "age_ms": 500, "took_ms": 3, "size_bytes": 9 },
            "parts": { "text": part("source"), "out": part("sink") }, "warnings": [], "a newer field": 1 });
        let failed = json!({ "name": "other", "status": "failed", "failure": { "error": "no such file", "help": null },
            "retry": null, "uptime_ms": null, "restarts": 0, "checkpoint": null, "parts": {}, "warnings": [] });
        let text = text(&jobs(json!([runs, failed])));
        let wanted = "\
job    status   uptime  read/s  written/s  left to read  checkpoint     age  restarts
words  running   1 min   1,235         12             7          42  500 ms         2
other  failed        -       0          0             -           -       -         0
other: no such file
";
        assert_eq!(text, wanted);
    }
}
