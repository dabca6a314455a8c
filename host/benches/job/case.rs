//! The jobs that are compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::child::Figures;
use crate::flink;
use crate::report::{Spread, line};

/// The binary under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate");

/// A folder for job files, state and output that goes with the value, and the operators in it.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// Compiles operators from `examples`.
    pub fn new(operators: &[&str]) -> anyhow::Result<Bench> {
        let bench = Bench { folder: tempfile::tempdir()? };
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for name in operators {
            let build = Command::new(LOCKGATE)
                .arg("build")
                .arg(examples.join(name))
                .arg("--out")
                .arg(bench.path(&format!("{name}.wasm")))
                .output()?;
            ensure!(build.status.success(), "lockgate build {name}: {}", String::from_utf8_lossy(&build.stderr));
        }
        Ok(bench)
    }

    /// Compiles operators of one crate, each by the feature of its name; `crate_folder` is seen from the repository's root.
    pub fn build_features(&self, crate_folder: &str, features: &[String]) -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_folder);
        for feature in features {
            let build = Command::new(LOCKGATE)
                .arg("build")
                .arg(&folder)
                .args(["--features", feature])
                .arg("--out")
                .arg(self.path(&format!("{feature}.wasm")))
                .output()?;
            ensure!(build.status.success(), "lockgate build {feature}: {}", String::from_utf8_lossy(&build.stderr));
        }
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a job file: generated records through one operator into a null sink, with new state.
    fn job(&self, name: &str, operator: &str, source: &str, interval: &str) -> anyhow::Result<PathBuf> {
        let text = format!(
            "[job]\nname = '{name}'\n[checkpoint]\ninterval = '{interval}'\n[source.records]\ntype = 'generator'\n{source}\n\
             [operator.{operator}]\nwasm = '{operator}.wasm'\ninput = 'records'\n[sink.none]\ntype = 'null'\ninput = '{operator}'\n"
        );
        let path = self.path(&format!("{name}.toml"));
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Forgets the state of a job.
    pub fn clear(&self, name: &str) -> anyhow::Result<()> {
        let state = self.path(&format!("{name}.state"));
        if state.exists() {
            std::fs::remove_dir_all(state)?;
        }
        Ok(())
    }
}

/// Runs a job in a process of its own.
pub fn run(job: &Path, native: bool) -> anyhow::Result<Figures> {
    run_with(job, native.then_some("--native"))
}

fn run_with(job: &Path, option: Option<&str>) -> anyhow::Result<Figures> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg("--child").arg(job).args(option).env("LOCKGATE_LOG", "warn").output()?;
    ensure!(output.status.success(), "{}: {}", job.display(), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("the figures of a run")
}

/// Wasm and native runs of one job in turn, each from nothing; the first pair warms up and isn't counted.
fn wasm_and_native(bench: &Bench, name: &str, job: &Path, pairs: usize) -> anyhow::Result<Vec<(Figures, Figures)>> {
    let mut figures = Vec::new();
    for pair in 0..=pairs {
        bench.clear(name)?;
        let wasm = run(job, false)?;
        bench.clear(name)?;
        let native = run(job, true)?;
        ensure!(wasm.records == native.records, "both read the same");
        if pair > 0 {
            figures.push((wasm, native));
        }
    }
    Ok(figures)
}

fn report(figures: &[(Figures, Figures)], ratio_max: f64) -> f64 {
    let wasm = Spread::of(figures.iter().map(|(wasm, _)| wasm.cpu_ns_per_record()));
    let native = Spread::of(figures.iter().map(|(_, native)| native.cpu_ns_per_record()));
    let ratio = Spread::of(figures.iter().map(|(wasm, native)| wasm.cpu_s / native.cpu_s));
    let rate = Spread::of(figures.iter().map(|(wasm, _)| wasm.records as f64 / wasm.wall_s / 1e6));
    line("Wasm, CPU per record", &wasm, "ns", "");
    line("native, CPU per record", &native, "ns", "");
    line("Wasm / native, CPU", &ratio, "times", &format!("at most {ratio_max}"));
    let per_core = Spread::of(figures.iter().map(|(wasm, _)| wasm.records as f64 / wasm.cpu_s / 1e6));
    line("Wasm, records per second", &rate, "million", "");
    line("Wasm, records per CPU second", &per_core, "million", "at least 1");
    wasm.median
}

fn against_flink(
    folder: Option<&Path>,
    ours_ns: f64,
    tag: &str,
    options: &[&str],
    share_max: f64,
) -> anyhow::Result<()> {
    let Some(folder) = folder else {
        println!("  Flink: not compared, since --flink names no folder");
        return Ok(());
    };
    let theirs_ns = flink::cpu_s_per_million(folder, tag, options)? * 1000.0;
    line(&format!("Flink {tag}, CPU per record"), &Spread::of([theirs_ns]), "ns", "");
    line("Wasm / Flink, CPU", &Spread::of([ours_ns / theirs_ns]), "times", &format!("at most {share_max}"));
    Ok(())
}

/// Parse and filter on 100-byte records: generator, operator, null sink.
pub fn filter(records: u64, pairs: usize, flink: Option<&Path>) -> anyhow::Result<()> {
    println!("filter: {records} records of 100 bytes, {pairs} pairs");
    let bench = Bench::new(&["filter"])?;
    let job = bench.job("filter", "filter", &format!("kind = 'csv'\ncount = {records}"), "1s")?;
    let ours = report(&wasm_and_native(&bench, "filter", &job, pairs)?, 1.6);
    against_flink(flink, ours, "J1", &["job=J1", "p=1", "reuse=1", "n=2000000000", "dur=24"], 0.5)
}

/// A count per key, behind an exchange.
pub fn count(records: u64, keys: u64, pairs: usize, flink: Option<&Path>) -> anyhow::Result<()> {
    println!("count: {records} records of 100 bytes, {keys} keys, a checkpoint each second, {pairs} pairs");
    let bench = Bench::new(&["count"])?;
    let source = format!("kind = 'csv'\ncount = {records}\nkeys = {keys}");
    let job = bench.job("count", "count", &source, "1s")?;
    let ours = report(&wasm_and_native(&bench, "count", &job, pairs)?, 2.0);
    against_flink(flink, ours, "J2", &["job=J2", "p=1", "reuse=1", "n=2000000000", "dur=64", "warm=40"], 0.1)
}

/// What exactly-once costs: the keyed count with a checkpoint each second, and with none before the last.
pub fn checkpoints(records: u64, keys: u64, pairs: usize) -> anyhow::Result<()> {
    println!("checkpoints: {records} records, {keys} keys, {pairs} pairs");
    let bench = Bench::new(&["count"])?;
    let source = format!("kind = 'csv'\ncount = {records}\nkeys = {keys}");
    let on = bench.job("on", "count", &source, "1s")?;
    let off = bench.job("off", "count", &source, "1h")?;
    let mut figures = Vec::new();
    for pair in 0..=pairs {
        bench.clear("on")?;
        bench.clear("off")?;
        let both = (run(&on, false)?, run(&off, false)?);
        if pair > 0 {
            figures.push(both);
        }
    }
    let rate = |figures: &Figures| figures.records as f64 / figures.wall_s;
    line("checkpoints taken", &Spread::of(figures.iter().map(|(on, _)| on.checkpoints as f64)), "", "");
    line(
        "on / off, throughput",
        &Spread::of(figures.iter().map(|(on, off)| rate(on) / rate(off))),
        "times",
        "at least 0.95",
    );
    line("on / off, CPU", &Spread::of(figures.iter().map(|(on, off)| on.cpu_s / off.cpu_s)), "times", "");
    Ok(())
}

/// What limits cost: filter and keyed count with a deadline for each call, and without any.
pub fn quotas(records: u64, keys: u64, pairs: usize) -> anyhow::Result<()> {
    println!("quotas: {records} records, {keys} keys, {pairs} pairs");
    let bench = Bench::new(&["filter", "count"])?;
    for (operator, source) in [("filter", String::new()), ("count", format!("\nkeys = {keys}"))] {
        let job = bench.job(operator, operator, &format!("kind = 'csv'\ncount = {records}{source}"), "1s")?;
        let mut figures = Vec::new();
        for pair in 0..=pairs {
            bench.clear(operator)?;
            let on = run(&job, false)?;
            bench.clear(operator)?;
            let off = run_with(&job, Some("--without-deadlines"))?;
            ensure!(on.records == off.records, "both read the same");
            if pair > 0 {
                figures.push((on, off));
            }
        }
        let cpu = Spread::of(figures.iter().map(|(on, off)| on.cpu_s / off.cpu_s));
        line(&format!("{operator}: on / off, CPU"), &cpu, "times", "at most 1.05");
        let wall = Spread::of(figures.iter().map(|(on, off)| off.wall_s / on.wall_s));
        line(&format!("{operator}: on / off, throughput"), &wall, "times", "at least 0.95");
    }
    Ok(())
}

/// What a checkpoint uploads after 1 % of a large state was touched.
pub fn incremental(entries: u64) -> anyhow::Result<()> {
    println!("incremental: {entries} entries with values of 100 bytes");
    let bench = Bench::new(&["changes"])?;
    // A run of `keys` records touches every key once, so the records after the first `entries` touch other entries again.
    let source = |count: u64| format!("kind = 'csv'\nkeys = {entries}\nkey_order = 'permuted'\ncount = {count}");
    let first = run(&bench.job("state", "changes", &source(entries), "1h")?, false)?;
    let touched = entries / 100;
    let second = run(&bench.job("state", "changes", &source(entries + touched), "1h")?, false)?;
    ensure!(second.records == touched, "the second run continues: it read {} records", second.records);
    line("first checkpoint", &Spread::of([first.uploaded_bytes as f64 / 1e6]), "MB", "");
    line("checkpoint after 1 % was touched", &Spread::of([second.uploaded_bytes as f64 / 1e6]), "MB", "");
    let share = second.uploaded_bytes as f64 / first.uploaded_bytes as f64;
    line("second / first", &Spread::of([share]), "times", "at most 0.05");
    Ok(())
}

/// One run of the keyed count from nothing.
pub fn count_once(bench: &Bench, records: u64) -> anyhow::Result<Figures> {
    bench.clear("once")?;
    run(&bench.job("once", "count", &format!("kind = 'csv'\ncount = {records}\nkeys = 100000"), "1s")?, false)
}
