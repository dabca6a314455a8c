//! Runs a job in this process and asks it for what its arguments say, in their order: what a daemon does, without one.
//!
//! Each answer is a line of JSON on standard output, and so is the end of the job.
//!
//! Invariant: what is first is asked before the job runs, everything else when what was before it is answered or has come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use lockgate_host::config::JobFile;
use lockgate_host::graph::Plan;
use lockgate_host::guest::{Compiler, Engine, OperatorFactory, Plugin, default_cache_dir};
use lockgate_host::id::Name;
use lockgate_host::runtime::{Finished, Job, JobHandle, UpgradeFailed, UpgradeRequest, Upgraded, requests, run};
use lockgate_host::telemetry::JobCounters;
use serde_json::{Value, json};

/// How long the answers may take when the job has ended.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Arguments {
    job_file: PathBuf,
    /// An upgrade that may have been interrupted: OPERATOR=NEW.wasm
    #[arg(long)]
    candidate: Option<Replacement>,
    /// How long an upgrade is tried
    #[arg(long, default_value_t = 0)]
    probation_ms: u64,
    /// `checkpoint`, `stop`, `cancel`, `upgrade:OPERATOR=NEW.wasm`, or the same with `start:`, which doesn't wait for the answer.
    /// `add:FILE` moves a file of the folder `later` to `input`. `read:N` and `committed:N` wait until so many records are read, or
    /// until that epoch is committed; `rate:N` says how fast the next N records are read
    steps: Vec<Step>,
}

/// Another component for an operator.
#[derive(Clone)]
struct Replacement {
    operator: Name,
    wasm: PathBuf,
}

impl std::str::FromStr for Replacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Replacement, String> {
        let (operator, wasm) = text.split_once('=').ok_or("OPERATOR=NEW.wasm is wanted")?;
        let operator = Name::new(operator).map_err(|error| error.to_string())?;
        Ok(Replacement { operator, wasm: wasm.into() })
    }
}

#[derive(Clone)]
enum Step {
    Checkpoint,
    Stop,
    Cancel,
    Upgrade(Replacement),
    Start(Replacement),
    Add(String),
    Read(u64),
    Rate(u64),
    Committed(u64),
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        match text.split_once(':').unwrap_or((text, "")) {
            ("checkpoint", "") => Ok(Step::Checkpoint),
            ("stop", "") => Ok(Step::Stop),
            ("cancel", "") => Ok(Step::Cancel),
            ("upgrade", replacement) => replacement.parse().map(Step::Upgrade),
            ("start", replacement) => replacement.parse().map(Step::Start),
            ("add", file) => Ok(Step::Add(file.to_owned())),
            ("read", records) => number(records).map(Step::Read),
            ("rate", records) => number(records).map(Step::Rate),
            ("committed", epoch) => number(epoch).map(Step::Committed),
            _ => Err("no such step".to_owned()),
        }
    }
}

fn main() -> ExitCode {
    match drive(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &Arguments) -> anyhow::Result<()> {
    let engine = Engine::new(default_cache_dir(), Compiler::InProcess)?;
    let mut job = load(&engine, &arguments.job_file)?;
    if let Some(Replacement { operator, wasm }) = &arguments.candidate {
        let new = Arc::new(engine.load(operator, wasm)?);
        job.operators.get_mut(operator).context("no such operator")?.candidate = Some(new);
    }
    // All that may be asked is compiled before the job runs, so that it is asked in its midst.
    let mut plugins = BTreeMap::new();
    for step in &arguments.steps {
        if let Step::Upgrade(Replacement { operator, wasm }) | Step::Start(Replacement { operator, wasm }) = step {
            plugins.insert(wasm.clone(), engine.load(operator, wasm)?);
        }
    }
    let (handle, requests) = requests();
    let counters = Arc::new(JobCounters::default());
    let probation = Duration::from_millis(arguments.probation_ms);
    let folder = arguments.job_file.parent().context("a file is in a folder")?.to_owned();
    let asker = Asker { handle, counters: Arc::clone(&counters), plugins, probation, folder };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let finished = runtime.block_on(async {
        let running = run(job, Arc::clone(&counters), requests);
        let asking = asker.take(&arguments.steps);
        let mut asking = std::pin::pin!(asking);
        let mut running = std::pin::pin!(running);
        tokio::select! {
            biased;
            asked = &mut asking => asked.and(running.as_mut().await.map_err(anyhow::Error::from)),
            // What still waits for something to come waits in vain, but answers come.
            finished = &mut running => {
                let patience = tokio::time::timeout(PATIENCE, &mut asking).await;
                patience.unwrap_or(Ok(())).and(finished.map_err(anyhow::Error::from))
            }
        }
    })?;
    let Finished { ended, cancelled, resumed_from, epoch, .. } = finished;
    let (resumed_from, epoch) = (resumed_from.map(|epoch| epoch.0), epoch.map(|epoch| epoch.0));
    let restarts = counters.restarts();
    say(
        &json!({ "ended": ended, "cancelled": cancelled, "resumed_from": resumed_from, "epoch": epoch, "restarts": restarts }),
    );
    Ok(())
}

/// A job file as `lockgate run` takes it.
fn load(engine: &Engine, path: &Path) -> anyhow::Result<Job> {
    let file = JobFile::load(path)?;
    let mut factories = BTreeMap::<_, Arc<dyn OperatorFactory>>::new();
    for (name, operator) in &file.operators {
        factories.insert(
            name.clone(),
            Arc::new(engine.load(name, operator.wasm.as_file().context("a component in a file")?)?),
        );
    }
    let facts = factories.iter().map(|(name, factory)| (name.clone(), factory.descriptor().facts()));
    let plan = Plan::new(&file.graph(), &facts.collect())?;
    Ok(file.into_job(plan, factories))
}

/// Asks, and says what is answered.
#[derive(Clone)]
struct Asker {
    handle: JobHandle,
    counters: Arc<JobCounters>,
    plugins: BTreeMap<PathBuf, Plugin>,
    probation: Duration,
    /// That of the job file.
    folder: PathBuf,
}

/// How often it looks whether something has come.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Asker {
    async fn take(&self, steps: &[Step]) -> anyhow::Result<()> {
        let mut started = Vec::new();
        for step in steps {
            match step {
                Step::Checkpoint => self.checkpoint().await,
                Step::Stop => self.handle.stop(),
                Step::Cancel => self.handle.cancel(),
                Step::Upgrade(replacement) => self.upgrade(replacement).await,
                Step::Start(replacement) => {
                    let (asker, replacement) = (self.clone(), replacement.clone());
                    started.push(tokio::spawn(async move { asker.upgrade(&replacement).await }));
                }
                Step::Add(file) => {
                    std::fs::rename(self.folder.join("later").join(file), self.folder.join("input").join(file))?
                }
                Step::Read(records) => self.wait_until(|| self.records_read() >= *records).await,
                Step::Rate(records) => self.rate(*records).await,
                Step::Committed(epoch) => {
                    self.wait_until(|| self.counters.committed_epoch().is_some_and(|newest| newest.0 >= *epoch)).await;
                }
            }
        }
        for upgrade in started {
            upgrade.await?;
        }
        Ok(())
    }

    async fn wait_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn rate(&self, records: u64) {
        let (asked, before) = (Instant::now(), self.records_read());
        self.wait_until(|| self.records_read() >= before + records).await;
        self.say(json!({ "rate": per_second(self.records_read() - before, asked.elapsed()) }), asked);
    }

    async fn checkpoint(&self) {
        let asked = Instant::now();
        let answer = match self.handle.checkpoint().await {
            Ok(epoch) => json!({ "checkpoint": epoch.0 }),
            Err(refused) => json!({ "checkpoint_refused": refused.to_string() }),
        };
        self.say(answer, asked);
    }

    async fn upgrade(&self, Replacement { operator, wasm }: &Replacement) {
        let (asked, before) = (Instant::now(), self.records_read());
        let factory = Arc::new(self.plugins[wasm].clone());
        let request = UpgradeRequest { operator: operator.clone(), factory, probation: self.probation };
        let mut answer = match self.handle.upgrade(request).await {
            Ok(Upgraded { swapped_at, adopted_at, paused, migrated_entries }) => json!({
                "upgraded": { "swapped_at": swapped_at.0, "adopted_at": adopted_at.0, "migrated_entries": migrated_entries },
                "paused_us": paused.as_micros() as u64,
            }),
            Err(UpgradeFailed::Refused { why }) => json!({ "upgrade_refused": why }),
            Err(UpgradeFailed::Reverted { why }) => json!({ "reverted": why }),
            Err(failed) => json!({ "not_upgraded": failed.to_string() }),
        };
        answer["rate_meanwhile"] = per_second(self.records_read() - before, asked.elapsed()).into();
        self.say(answer, asked);
    }

    fn say(&self, mut answer: Value, asked: Instant) {
        answer["took_us"] = (asked.elapsed().as_micros() as u64).into();
        answer["read"] = self.records_read().into();
        say(&answer);
    }

    /// Of the source that these tests have.
    fn records_read(&self) -> u64 {
        Name::new("text").map_or(0, |source| self.counters.totals_of(&source).records_out)
    }
}

fn per_second(records: u64, took: Duration) -> u64 {
    (records as f64 / took.as_secs_f64()) as u64
}

fn say(answer: &Value) {
    println!("{answer}");
}
