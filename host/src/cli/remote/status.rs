//! `lockgate status`: all about one job of a daemon.
//!
//! Invariant: what is wrong comes first.

use std::fmt::Write as _;

use super::jobs::Job;
use super::table::{Side, Table, or_dash, span};
use super::{job_path, show};
use crate::cli::CliError;
use crate::cli::checkpoint::size;
use crate::cli::client::{Client, ServerArgs};
use crate::cli::progress::count;
use crate::telemetry::printable;

const TEXT_BYTES_MAX: usize = 4 << 10;

/// Show how a job of a daemon is doing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate status words
  lockgate status words --json | jq .checkpoint

Exit codes: 0 done, however the job is; 1 no daemon answers; 2 there is no such job")]
pub struct StatusArgs {
    /// The job's name
    job: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If no daemon answers, or it has no such job.
pub fn run(args: &StatusArgs) -> Result<(), CliError> {
    let answer = Client::new(&args.server)?.get(&job_path(&args.job)?)?;
    show(&answer, args.json, |job: Job| text(&job))
}

fn text(job: &Job) -> String {
    let mut text = format!("{}: {}", printable(&job.name, TEXT_BYTES_MAX), printable(&job.status, TEXT_BYTES_MAX));
    if let Some(uptime_ms) = job.uptime_ms {
        text += &format!(" for {}", span(uptime_ms));
    }
    if job.restarts > 0 {
        text += &format!(", after {} restarts", count(job.restarts));
    }
    text.push('\n');
    write(&mut text, job).expect("a string takes all");
    text
}

fn write(text: &mut String, job: &Job) -> std::fmt::Result {
    if let Some(failure) = &job.failure {
        writeln!(text, "error: {}", printable(&failure.error, TEXT_BYTES_MAX))?;
        if let Some(help) = &failure.help {
            writeln!(text, "help: {}", printable(help, TEXT_BYTES_MAX))?;
        }
    }
    if let Some(retry) = &job.retry {
        writeln!(text, "failed: {}; again in {}", printable(&retry.cause, TEXT_BYTES_MAX), span(retry.in_ms))?;
    }
    for warning in &job.warnings {
        writeln!(text, "warning: {}", printable(warning, TEXT_BYTES_MAX))?;
    }
    match &job.checkpoint {
        None => writeln!(text, "no checkpoint since it was started")?,
        Some(newest) => {
            let (age, took, size) = (span(newest.age_ms), newest.took_ms, size(newest.size_bytes));
            writeln!(text, "checkpoint {}, {age} ago: took {took} ms, {size}", newest.epoch)?;
        }
    }
    if job.parts.is_empty() {
        return Ok(());
    }
    use Side::{Left, Right};
    let mut table = Table::new(&[
        ("part", Left),
        ("kind", Left),
        ("subtasks", Right),
        ("in", Right),
        ("in/s", Right),
        ("out", Right),
        ("out/s", Right),
        ("rejected", Right),
        ("left", Right),
        ("behind", Right),
        ("state", Right),
    ]);
    for (name, part) in &job.parts {
        table.row(vec![
            name.clone(),
            part.kind.clone(),
            part.parallelism.to_string(),
            count(part.records_in),
            count(part.records_in_per_s.round() as u64),
            count(part.records_out),
            count(part.records_out_per_s.round() as u64),
            count(part.records_rejected),
            or_dash(part.lag_records, count),
            or_dash(part.watermark_lag_ms, span),
            or_dash(part.state_bytes, size),
        ]);
    }
    write!(text, "\n{}", table.text())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_that_failed_says_why_and_what_to_do_before_its_figures() {
        let part = json!({ "kind": "source", "parallelism": 2, "records_in": 0, "records_out": 1_000_000,
            "records_rejected": 0, "records_in_per_s": 0.0, "records_out_per_s": 10.0, "lag_records": null,
            "watermark_lag_ms": 1_500, "state_bytes": null });
        let job = json!({ "name": "words", "status": "failed", "failure": { "error": "no such file", "help": "make it" },
            "retry": null, "uptime_ms": null, "restarts": 2, "checkpoint": null, "parts": { "text": part },
            "warnings": ["odd"] });
        let text = text(&serde_json::from_value(job).expect("a job"));
        let wanted = "\
words: failed, after 2 restarts
error: no such file
help: make it
warning: odd
no checkpoint since it was started

part  kind    subtasks  in  in/s        out  out/s  rejected  left  behind  state
text  source         2   0     0  1,000,000     10         0     -     1 s      -
";
        assert_eq!(text, wanted);
    }
}
