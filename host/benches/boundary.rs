//! What a record costs on its way to an operator and back: WebAssembly next to native, by the size of the batch.
//!
//! `cargo bench --profile dev --workspace --bench boundary`. Both sides are the same source and get the same batches, in turn; the
//! times are CPU time of the calling thread, medians of all rounds, and the ratio is taken round by round. `identity` does nothing,
//! so its cost is that of the layout and the boundary; `filter` parses each record.

#[path = "job/native.rs"]
mod native;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use lockgate_host::element::{Batch, NO_TIMESTAMP, Row};
use lockgate_host::guest::{
    Compiler, Counters, Emitted, Engine, InstanceContext, Limits, OperatorFactory, OperatorInstance, default_cache_dir,
};
use lockgate_host::id::{Name, SubtaskId};
use rustix::time::ClockId;

const OPERATORS: [&str; 2] = ["identity", "filter"];
const BATCH_ROWS: [u32; 3] = [64, 1024, 4096];
/// Records that each side takes in one round.
const ROUND_RECORDS: u32 = 1 << 18;
/// The first isn't counted.
const ROUNDS: usize = 16;

/// Lines of 100 bytes with their key, of which `filter` passes on half.
fn batch(rows: u32) -> Batch {
    let mut batch = Batch::with_capacity(rows as usize, 110 * rows as usize);
    for id in 0..rows {
        let key = format!("{:010}", id.wrapping_mul(2_654_435_761) % 100_000);
        let value = format!("{id:012},{key},{:04},{:71}", id % 2_000, "");
        batch.push(Row { key: Some(key.as_bytes()), value: Some(value.as_bytes()), timestamp: NO_TIMESTAMP });
    }
    batch
}

fn component(operator: &str, folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let wasm = folder.join(format!("{operator}.wasm"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(operator);
    let built =
        Command::new(env!("CARGO_BIN_EXE_lockgate")).arg("build").arg(source).arg("--out").arg(&wasm).output()?;
    ensure!(built.status.success(), "lockgate build {operator}: {}", String::from_utf8_lossy(&built.stderr));
    Ok(wasm)
}

fn open(factory: &dyn OperatorFactory, operator: &Name) -> anyhow::Result<Box<dyn OperatorInstance>> {
    let context = InstanceContext {
        job: operator.clone(),
        subtask: SubtaskId { operator: operator.clone(), index: 0 },
        parallelism: 1,
        config_json: "{}".to_owned(),
        limits: Limits::default(),
        rejections: false,
        state: None,
        counters: Counters::default(),
    };
    Ok(factory.open(context)?)
}

/// Nanoseconds of CPU a record for one round of calls, and how many rows came out.
fn round(instance: &mut dyn OperatorInstance, batch: &Batch) -> anyhow::Result<(f64, u64)> {
    let calls = ROUND_RECORDS / batch.rows;
    let mut emitted = Emitted::new();
    let mut rows = 0;
    let before = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    for _ in 0..calls {
        instance.process(0, batch, &mut emitted)?;
        rows += emitted.drain(..).map(|(_, batch)| u64::from(batch.rows)).sum::<u64>();
    }
    let after = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let took_ns = (after.tv_sec - before.tv_sec) as f64 * 1e9 + (after.tv_nsec - before.tv_nsec) as f64;
    Ok((took_ns / f64::from(calls * batch.rows), rows))
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures = figures.collect::<Vec<_>>();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::new(default_cache_dir(), Compiler::InProcess)?;
    println!("{:<10} {:>6}  {:>11}  {:>11}  {:>12}", "operator", "rows", "Wasm", "native", "Wasm / native");
    for operator in OPERATORS {
        let name = Name::new(operator).context("a name")?;
        let plugin = engine.load(&name, &component(operator, folder.path())?)?;
        let native = native::factory(operator).context("its native form")?;
        for rows in BATCH_ROWS {
            let batch = batch(rows);
            let (mut wasm, mut native) = (open(&plugin, &name)?, open(&*native, &name)?);
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let (theirs, ours) = (round(&mut *wasm, &batch)?, round(&mut *native, &batch)?);
                ensure!(theirs.1 == ours.1 && ours.1 > 0, "both put out the same");
                rounds.push((theirs.0, ours.0));
            }
            let counted = &rounds[1..];
            let (wasm, native) = (median(counted.iter().map(|pair| pair.0)), median(counted.iter().map(|pair| pair.1)));
            let ratio = median(counted.iter().map(|pair| pair.0 / pair.1));
            println!("{operator:<10} {rows:>6}  {wasm:>8.1} ns  {native:>8.1} ns  {ratio:>12.2}  (a record)");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
