//! One job in this process, and its figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use lockgate_host::config::JobFile;
use lockgate_host::graph::Plan;
use lockgate_host::guest::{Compiler, Engine, OperatorFactory, default_cache_dir};
use lockgate_host::telemetry::{JobCounters, Reading};
use serde::{Deserialize, Serialize};

use crate::native;

/// The figures of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub records: u64,
    pub wall_s: f64,
    /// User and system time of the whole process.
    pub cpu_s: f64,
    pub checkpoints: u64,
    /// How long a checkpoint took in the mean, without the last, which is aligned in every mode.
    pub checkpoint_s: f64,
    pub uploaded_bytes: u64,
    pub peak_rss_bytes: u64,
}

impl Figures {
    pub fn cpu_ns_per_record(&self) -> f64 {
        self.cpu_s * 1e9 / self.records as f64
    }
}

/// Runs the job to its end and prints its figures as one line of JSON.
pub fn run(job_file: &Path, is_native: bool, without_deadlines: bool) -> anyhow::Result<()> {
    let file = JobFile::load(job_file)?;
    let graph = file.graph();
    let mut factories = BTreeMap::<_, Arc<dyn OperatorFactory>>::new();
    let cache = default_cache_dir();
    let engine =
        if without_deadlines { Engine::without_deadlines(cache) } else { Engine::new(cache, Compiler::InProcess) }?;
    for (name, operator) in &file.operators {
        let factory: Arc<dyn OperatorFactory> = if is_native {
            native::factory(name.as_str()).with_context(|| format!("no native operator '{name}'"))?
        } else {
            Arc::new(engine.load(name, operator.wasm.as_file().context("a file")?)?)
        };
        factories.insert(name.clone(), factory);
    }
    let facts = factories.iter().map(|(name, factory)| (name.clone(), factory.descriptor().facts()));
    let plan = Plan::new(&graph, &facts.collect())?;
    let sources = file.sources.keys().cloned().collect::<Vec<_>>();
    let job = file.into_job(plan, factories);
    let counters = Arc::new(JobCounters::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let started = Instant::now();
    let (_handle, requests) = lockgate_host::runtime::requests();
    runtime.block_on(lockgate_host::runtime::run(job, Arc::clone(&counters), requests))?;
    let figures = Figures {
        records: sources.iter().map(|name| counters.totals_of(name).records_out).sum(),
        wall_s: started.elapsed().as_secs_f64(),
        cpu_s: cpu_s()?,
        checkpoints: counters.checkpoints(),
        checkpoint_s: checkpoint_s(&counters.checkpoint_figures().read()),
        uploaded_bytes: counters.uploaded_bytes(),
        peak_rss_bytes: status_bytes("self", "VmHWM")?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn checkpoint_s(figures: &Reading) -> f64 {
    let (last_s, others) =
        (figures.newest.map_or(0.0, |newest| newest.took.as_secs_f64()), figures.count.saturating_sub(1));
    (figures.took.as_secs_f64() - last_s) / others.max(1) as f64
}

/// User and system time of this process: fields 14 and 15 of its stat, in hundredths of a second (`proc(5)`).
fn cpu_s() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / 100.0)
}

/// A size from a process's status, which has it in KiB.
pub fn status_bytes(process: &str, field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
    let kib = line.split_whitespace().nth(1).context("a size")?.parse::<u64>()?;
    Ok(kib * 1024)
}
