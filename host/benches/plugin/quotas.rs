//! Throughput with limits next to throughput without: deadlines on every call, or none.
//!
//! Invariant: both sides run the same operator over the same batches, in turn, and put out the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use lockgate_host::element::{Batch, NO_TIMESTAMP, Row};
use lockgate_host::guest::{
    Compiler, Counters, Emitted, Engine, Instance, InstanceContext, Limits, OperatorInstance, Plugin, default_cache_dir,
};
use lockgate_host::id::{Attempt, Name, SubtaskId};
use lockgate_host::protocol::MaxParallelism;
use lockgate_host::state::{BlockCache, KeyedState, StateOptions};
use lockgate_host::store::TableRef;
use rustix::time::ClockId;

const OPERATORS: [&str; 3] = ["identity", "filter", "count"];
const BATCH_ROWS: u32 = 1024;
/// Records that each side takes in one round.
pub const ROUND_RECORDS: u32 = 1 << 18;
/// The first isn't counted.
const ROUNDS: usize = 25;
const KEYS: u32 = 10_000;

/// Lines of 100 bytes with their key, of which `filter` passes on half.
pub fn batches() -> Vec<Batch> {
    let batch = |number: u32| {
        let mut batch = Batch::with_capacity(BATCH_ROWS as usize, 110 * BATCH_ROWS as usize);
        for row in 0..BATCH_ROWS {
            let id = number * BATCH_ROWS + row;
            let key = format!("{:010}", id.wrapping_mul(2_654_435_761) % KEYS);
            let value = format!("{id:012},{key},{:04},{:71}", id % 2_000, "");
            batch.push(Row { key: Some(key.as_bytes()), value: Some(value.as_bytes()), timestamp: NO_TIMESTAMP });
        }
        batch
    };
    (0..16).map(batch).collect()
}

pub fn component(operator: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let wasm = folder.join(format!("{operator}.wasm"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(operator);
    let built =
        Command::new(env!("CARGO_BIN_EXE_lockgate")).arg("build").arg(source).arg("--out").arg(&wasm).output()?;
    ensure!(built.status.success(), "lockgate build {operator}: {}", String::from_utf8_lossy(&built.stderr));
    Ok(wasm)
}

pub fn open(plugin: &Plugin, operator: &Name, work_dir: &Path) -> anyhow::Result<Instance> {
    let subtask = SubtaskId { operator: operator.clone(), index: 0 };
    let max_parallelism = MaxParallelism::new(128).context("in range")?;
    let tables = plugin.descriptor().tables.iter();
    let tables = tables.map(|table| TableRef { name: table.name.to_string(), version: table.version });
    let options = StateOptions {
        work_dir: work_dir.to_owned(),
        subtask: subtask.clone(),
        key_groups: max_parallelism.range(0, 1),
        max_parallelism,
        attempt: Attempt(1),
        tables: tables.collect(),
        memory_bytes_max: 128 << 20,
        block_cache: BlockCache::new(64 << 20),
    };
    let is_keyed = plugin.descriptor().is_keyed();
    let state = is_keyed.then(|| KeyedState::open(options, &[], &|_, _| Ok(()))).transpose()?;
    Ok(plugin.instantiate(InstanceContext {
        job: operator.clone(),
        subtask,
        parallelism: 1,
        config_json: "{}".to_owned(),
        limits: Limits::default(),
        rejections: false,
        state,
        counters: Counters::default(),
    })?)
}

/// Nanoseconds of CPU a record for one round of calls, and how many rows came out.
pub fn round(instance: &mut Instance, batches: &[Batch]) -> anyhow::Result<(f64, u64)> {
    let calls = ROUND_RECORDS / BATCH_ROWS;
    let mut emitted = Emitted::new();
    let mut rows = 0;
    let before = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    for batch in batches.iter().cycle().take(calls as usize) {
        instance.process(0, batch, &mut emitted)?;
        rows += emitted.drain(..).map(|(_, batch)| u64::from(batch.rows)).sum::<u64>();
    }
    let after = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let took_ns = (after.tv_sec - before.tv_sec) as f64 * 1e9 + (after.tv_nsec - before.tv_nsec) as f64;
    Ok((took_ns / f64::from(ROUND_RECORDS), rows))
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub fn compare() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (with, without) =
        (Engine::new(default_cache_dir(), Compiler::InProcess)?, Engine::without_deadlines(default_cache_dir())?);
    let batches = batches();
    println!("\nquotas, CPU of calls of {BATCH_ROWS} records (medians of {} rounds in turn)", ROUNDS - 1);
    for operator in OPERATORS {
        let name = Name::new(operator).context("a name")?;
        let wasm = component(operator, folder.path())?;
        let sides = [&with, &without].map(|engine| engine.load(&name, &wasm));
        let [on, off] = sides;
        let (on, off) = (on?, off?);
        let mut on = open(&on, &name, &folder.path().join(format!("{operator}-on")))?;
        let mut off = open(&off, &name, &folder.path().join(format!("{operator}-off")))?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (limited, free) = (round(&mut on, &batches)?, round(&mut off, &batches)?);
            ensure!(limited.1 == free.1 && free.1 > 0, "both put out the same");
            rounds.push((limited.0, free.0));
        }
        let counted = &rounds[1..];
        let (limited, free) =
            (median(counted.iter().map(|pair| pair.0).collect()), median(counted.iter().map(|pair| pair.1).collect()));
        let mut ratios = counted.iter().map(|pair| pair.0 / pair.1).collect::<Vec<_>>();
        let ratio = median(ratios.clone());
        ratios.sort_by(f64::total_cmp);
        let share = (ratio - 1.0) * 100.0;
        let what = format!("{operator}: {limited:.1} ns a record, without {free:.1} ns");
        crate::show(&what, format!("{share:+.1} %"), "< 5 %", share < 5.0);
        // From the quarter to three quarters of the pairs.
        let [low, high] = [1, 3].map(|quarter| ratios[ratios.len() * quarter / 4]);
        println!("  on/off: median {ratio:.3} of {} pairs, half of them from {low:.3} to {high:.3}", ratios.len());
    }
    Ok(())
}
