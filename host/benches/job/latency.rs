//! How long it takes from a record's arrival until it can be read in a committed part file.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};

use crate::case::{Bench, LOCKGATE};
use crate::report::{Spread, line};

const RATE: u64 = 50_000;
const SECONDS: u64 = 10;
/// Until then the job starts and the machine warms up.
const WARM_UP_MS: u64 = 1_000;

/// The operator, which is chained to the source, puts the time of day at which it gets a record into it. A record has
/// come out when a part file with it is in the output folder, which is looked at every millisecond.
pub fn latency(rounds: usize) -> anyhow::Result<()> {
    println!("latency: {RATE} records a second for {SECONDS} s into files, a checkpoint every 100 ms, {rounds} rounds");
    let bench = Bench::new(&[])?;
    bench.build_features("tests/blocks", &["stamp".to_owned()])?;
    let job = bench.path("latency.toml");
    std::fs::write(
        &job,
        format!(
            "[job]\nname = 'latency'\n[checkpoint]\ninterval = '100ms'\n[source.records]\ntype = 'generator'\n\
             kind = 'sequence'\nkeyed = false\nrate = {RATE}\ncount = {}\n[operator.stamp]\nwasm = 'stamp.wasm'\n\
             input = 'records'\n[sink.out]\ntype = 'file'\npath = 'out'\ninput = 'stamp'\n",
            RATE * SECONDS
        ),
    )?;
    let (mut medians, mut p99s, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        for folder in ["latency.state", "out"].map(|name| bench.path(name)).iter().filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(folder)?;
        }
        let mut latencies = one_run(&bench, &job)?;
        latencies.sort_unstable();
        let share = |share: usize| latencies[(latencies.len() - 1) * share / 100] as f64;
        medians.push(share(50));
        p99s.push(share(99));
        worst.push(share(100));
    }
    line("arrival to committed output, median", &Spread::of(medians), "ms", "");
    line("arrival to committed output, p99", &Spread::of(p99s), "ms", "under 300");
    line("arrival to committed output, longest", &Spread::of(worst), "ms", "");
    Ok(())
}

fn now_ms() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

/// The latencies in milliseconds of all records of one run.
fn one_run(bench: &Bench, job: &Path) -> anyhow::Result<Vec<u64>> {
    let mut host = Command::new(LOCKGATE)
        .arg("run")
        .arg(job)
        .env("LOCKGATE_LOG", "warn")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut appeared = Vec::new();
    let mut known = BTreeSet::new();
    let mut ended = None;
    // Once more after the end, for what came between the last look and it.
    while ended.is_none() {
        ended = host.try_wait()?;
        let now = now_ms()?;
        for part in std::fs::read_dir(bench.path("out")).into_iter().flatten().flatten() {
            let name = part.file_name();
            if name.to_string_lossy().starts_with("part-") && known.insert(name) {
                appeared.push((part.path(), now));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ensure!(ended.is_some_and(|status| status.success()), "the job has failed: {:?}", host.wait_with_output()?);
    let mut stamps = Vec::new();
    for (part, at) in appeared {
        let text = std::fs::read_to_string(&part)?;
        for stamp in text.lines() {
            stamps.push((stamp.parse::<u64>().context("a time")?, at));
        }
    }
    ensure!(stamps.len() as u64 == RATE * SECONDS, "{} records have come out", stamps.len());
    let start = stamps.iter().map(|(stamp, _)| *stamp).min().context("records")? + WARM_UP_MS;
    let measured = stamps.into_iter().filter(|(stamp, _)| *stamp >= start);
    Ok(measured.map(|(stamp, at)| at.saturating_sub(stamp)).collect())
}
