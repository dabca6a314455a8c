//! `lockgate run`: runs a job to the end of its input, or until it is told to stop.
//!
//! Invariant: however it ends, what was committed stays committed and the next run continues from there.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::cli::check::places::check_places;
use crate::cli::compiler::CompilerArgs;
use crate::cli::load::load;
use crate::cli::metrics::{MetricsAddress, MetricsServer};
use crate::cli::progress::{Progress, count};
use crate::cli::signals::{StopSignals, at_signals};
use crate::cli::{CliError, Exit, print};
use crate::id::Name;
use crate::runtime::{Finished, Job, JobHandle, Requests, RunError, preview, requests};
use crate::telemetry::JobCounters;

/// Run a job. It continues from its newest checkpoint if there is one, shows progress on standard error, and ends when its
/// input does. SIGTERM or SIGINT (Ctrl-C) stops it with a last checkpoint; a second one stops it at once, and loses nothing
/// either
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate run job.toml
  lockgate run job.toml --json | jq .records_read
  lockgate run job.toml --metrics :9464          then: curl http://127.0.0.1:9464/metrics

Exit codes: 0 the input has ended or the job was stopped, and its output is committed; 1 it failed; 2 it can't be run as it is
written, or not on this Kafka cluster, or not with this checkpoint store and this marker together; 128 + N it was stopped at once by a second signal N (130 by Ctrl-C, 143 by SIGTERM)")]
pub struct Args {
    /// The job file
    #[arg(value_name = "JOB.TOML")]
    job_file: PathBuf,
    /// Print the outcome, or the error, as JSON
    #[arg(long)]
    pub json: bool,
    /// Serve metrics for Prometheus over HTTP at /metrics of this HOST:PORT; `:9464` is this machine's own, port 0 a free one
    #[arg(long, value_name = "ADDR")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    compiler: CompilerArgs,
}

/// # Errors
/// If the job can't be run, or fails.
pub fn run(args: &Args) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot start threads").caused_by(&error))?;
    // From the first moment on: who stops it soon is to find it stopped as well as who stops it late.
    let (ready, readied) = oneshot::channel();
    let signals = at_signals(|signals| stop_at_signal(signals, readied))?;
    let loaded = load(&args.job_file, args.compiler.compiler())?;
    check_places(&loaded.file)?;
    for warning in loaded.warnings() {
        print::err(&format!("warning: {warning}\n"));
    }
    let started = Instant::now();
    let counters = Arc::new(JobCounters::default());
    let name = loaded.file.job.clone();
    let metrics = args.metrics.as_ref().map(|address| MetricsServer::start(address, &name, &counters)).transpose()?;
    if let Some(metrics) = &metrics {
        print::err(&format!("metrics: {metrics}\n"));
    }
    let sources = loaded.file.sources.keys().cloned().collect::<Vec<_>>();
    let operators = loaded.file.operators.keys().cloned().collect::<Vec<_>>();
    let sinks = loaded.file.sinks.keys().cloned().collect::<Vec<_>>();
    let job = loaded.into_job();
    let (handle, requests) = requests();
    // Whoever waits for it is there for as long as the signals are listened for.
    let _ = ready.send(handle);
    let finished = runtime.block_on(drive(job, &counters, requests, &sources, &sinks))?;
    drop(signals);
    let total = |names: &[Name], of: fn(crate::telemetry::Totals) -> u64| {
        names.iter().map(|name| of(counters.totals_of(name))).sum::<u64>()
    };
    let outcome = Outcome {
        outcome: if finished.ended { "ended" } else { "stopped" },
        job: name,
        records_read: total(&sources, |totals| totals.records_out),
        records_written: total(&sinks, |totals| totals.records_in),
        resumed_from: finished.resumed_from.map(|epoch| epoch.0),
        checkpoint: finished.epoch.map(|epoch| epoch.0),
        restarts: counters.restarts(),
        records_rejected: total(&operators, |totals| totals.records_rejected),
        between_attempts: finished.between_attempts,
        seconds: started.elapsed().as_secs_f64(),
    };
    print::out(&if args.json { outcome.json() } else { outcome.text() })
}

/// Runs the job with progress beside it.
async fn drive(
    job: Job,
    counters: &Arc<JobCounters>,
    requests: Requests,
    sources: &[Name],
    sinks: &[Name],
) -> Result<Finished, CliError> {
    let progress = Progress::new(Arc::clone(counters), sources.to_vec(), sinks.to_vec());
    let run = async {
        // Recovery would say these as well, but only when it has made the output folder.
        if let Err(error @ (RunError::Commit { .. } | RunError::CheckpointMissing { .. })) = preview(&job).await {
            return Err(failed(&error, Exit::Failed));
        }
        let outcome = crate::runtime::run(job, Arc::clone(counters), requests).await;
        outcome.map_err(|error| failed(&error, exit_of(&error, counters, sources)))
    };
    tokio::select! {
        outcome = run => outcome,
        never = progress.show() => match never {},
    }
}

/// What `check --connect` calls unusable is so here, too, as long as the job has done nothing.
fn exit_of(error: &RunError, counters: &JobCounters, sources: &[Name]) -> Exit {
    let has_read = sources.iter().any(|name| counters.totals_of(name).records_out > 0);
    let is_untouched = counters.restarts() == 0 && counters.committed_epoch().is_none() && !has_read;
    let is_unusable = error.is_unfit() || matches!(error, RunError::Undecided { .. });
    if is_unusable && is_untouched { Exit::Unusable } else { Exit::Failed }
}

fn failed(error: &RunError, exit: Exit) -> CliError {
    let failed = match exit {
        Exit::Failed => CliError::failed(error.to_string()),
        Exit::Unusable => CliError::unusable(error.to_string()),
    };
    let failed = error.source().map_or(failed.clone(), |cause| failed.caused_by(cause));
    error.help().map_or(failed.clone(), |help| failed.help(help))
}

/// The first signal asks for an orderly stop, the second ends the process, which is as safe as any crash. While the job is made ready,
/// a first one is kept for it.
async fn stop_at_signal(mut signals: StopSignals, mut ready: oneshot::Receiver<JobHandle>) {
    signals.next().await;
    let job = match ready.try_recv() {
        Ok(job) => job,
        // It couldn't be made ready, so it ends anyway.
        Err(TryRecvError::Closed) => return,
        Err(TryRecvError::Empty) => {
            print::err("stopping as soon as the job has begun; a second signal stops at once\n");
            tokio::select! {
                Ok(job) = &mut ready => job,
                number = signals.next() => std::process::exit(128 + number),
            }
        }
    };
    print::err("stopping with a checkpoint; a second signal stops at once\n");
    job.stop();
    let number = signals.next().await;
    print::err("stopped at once; the next run continues from the last checkpoint\n");
    std::process::exit(128 + number)
}

/// What is printed at the end.
#[derive(serde::Serialize)]
struct Outcome {
    job: Name,
    outcome: &'static str,
    records_read: u64,
    records_written: u64,
    /// The checkpoint that the run started from.
    resumed_from: Option<u64>,
    /// The last one that it took; none if nothing had changed.
    checkpoint: Option<u64>,
    /// How often it was started again after a failure. Records that were read again are counted again.
    restarts: u64,
    /// Records that were skipped or became dead letters.
    records_rejected: u64,
    /// It was stopped while it waited for its next attempt.
    #[serde(skip)]
    between_attempts: bool,
    seconds: f64,
}

impl Outcome {
    fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }

    fn text(&self) -> String {
        let name = &self.job;
        let how = match self.outcome {
            "ended" => "its input has ended",
            _ => "stopped",
        };
        if self.between_attempts {
            let from = self.checkpoint.or(self.resumed_from);
            let from = from.map_or("the beginning".to_owned(), |epoch| format!("checkpoint {epoch}"));
            return format!(
                "{name}: stopped between two attempts; the next run continues from {from}, and nothing is lost\n"
            );
        }
        let restarts = match self.restarts {
            0 => String::new(),
            1 => ", after 1 restart".to_owned(),
            restarts => format!(", after {restarts} restarts"),
        };
        // What was read since the last checkpoint was read again, and is in both numbers twice.
        let again = if self.restarts > 0 { " (counting again what was done again)" } else { "" };
        let rejected = match self.records_rejected {
            0 => String::new(),
            rejected => format!(", {} rejected", count(rejected)),
        };
        match (self.checkpoint, self.resumed_from) {
            (None, Some(epoch)) if self.records_read == 0 => {
                format!("{name}: nothing new since checkpoint {epoch}; {how}\n")
            }
            (None, _) => format!("{name}: nothing to do; {how}\n"),
            (Some(epoch), resumed_from) => {
                let from = resumed_from.map(|epoch| format!(", from checkpoint {epoch} on")).unwrap_or_default();
                format!(
                    "{name}: {how}{restarts}; {} records read{from}, {} written{again}{rejected} in {:.1} s; all of it is committed with checkpoint {epoch}\n",
                    count(self.records_read),
                    count(self.records_written),
                    self.seconds,
                )
            }
        }
    }
}
