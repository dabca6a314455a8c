//! The host from outside: how long until it puts something out, how much memory it takes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use crate::case::{Bench, LOCKGATE};
use crate::child::status_bytes;
use crate::report::{Spread, line};

/// A process that doesn't outlive the benchmark.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_host(job: &Path) -> anyhow::Result<Host> {
    let child = Command::new(LOCKGATE)
        .arg("run")
        .arg(job)
        .env("LOCKGATE_LOG", "warn")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Host(child))
}

fn part_files(output: &Path) -> usize {
    let parts = std::fs::read_dir(output).into_iter().flatten().flatten();
    parts.filter(|part| part.file_name().to_string_lossy().starts_with("part-")).count()
}

/// Waits until there are more than `before` part files and gives the time since `since`.
fn next_output(output: &Path, before: usize, since: Instant) -> anyhow::Result<f64> {
    while part_files(output) <= before {
        if since.elapsed() > Duration::from_secs(60) {
            bail!("no output after a minute");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(since.elapsed().as_secs_f64())
}

/// From process start, and from SIGKILL, to the first committed output, with a checkpoint every 100 ms.
pub fn start(rounds: usize) -> anyhow::Result<()> {
    println!("start: an endless keyed count into files, a checkpoint every 100 ms, {rounds} rounds");
    let bench = Bench::new(&["count"])?;
    let job = bench.path("start.toml");
    std::fs::write(
        &job,
        "[job]\nname = 'start'\n[checkpoint]\ninterval = '100ms'\n[source.records]\ntype = 'generator'\nkind = 'csv'\nkeys = 100000\n\
         rate = 100000\n[operator.count]\nwasm = 'count.wasm'\ninput = 'records'\n[sink.out]\ntype = 'file'\npath = 'out'\n\
         input = 'count'\n",
    )?;
    let output = bench.path("out");
    let (mut from_start, mut from_kill) = (Vec::new(), Vec::new());
    // The first round fills the cache of compiled code.
    for round in 0..=rounds {
        for folder in ["start.state", "out"].map(|name| bench.path(name)).iter().filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(folder)?;
        }
        let started = Instant::now();
        let mut host = start_host(&job)?;
        let first = next_output(&output, 0, started)?;
        next_output(&output, 5, started)?;
        let killed = Instant::now();
        host.0.kill()?;
        host.0.wait()?;
        let before = part_files(&output);
        let _again = start_host(&job)?;
        // The first new part may be one that the killed process had published; the second is of new records for certain.
        let again = next_output(&output, before + 1, killed)?;
        if round > 0 {
            from_start.push(first);
            from_kill.push(again);
        }
    }
    line("process start to first committed output", &Spread::of(from_start), "s", "under 0.5");
    line("SIGKILL to first new committed output", &Spread::of(from_kill), "s", "under 1");
    Ok(())
}

/// Resident memory of an idle host, and the peak of a count over more and more input.
pub fn memory(records: u64) -> anyhow::Result<()> {
    println!("memory");
    let bench = Bench::new(&["count"])?;
    std::fs::create_dir(bench.path("in"))?;
    std::fs::write(bench.path("in/one.txt"), "one line\n")?;
    let job = bench.path("idle.toml");
    std::fs::write(
        &job,
        "[job]\nname = 'idle'\n[checkpoint]\ninterval = '100ms'\n[source.records]\ntype = 'generator'\nkind = 'csv'\nrate = 10\n\
         [operator.count]\nwasm = 'count.wasm'\ninput = 'records'\n[sink.out]\ntype = 'file'\npath = 'out'\ninput = 'count'\n",
    )?;
    let started = Instant::now();
    let mut host = start_host(&job)?;
    next_output(&bench.path("out"), 10, started)?;
    let idle = status_bytes(&host.0.id().to_string(), "VmRSS")?;
    ensure!(host.0.try_wait()?.is_none(), "the idle job is still there");
    drop(host);
    line("idle host with one job", &Spread::of([idle as f64 / 1048576.0]), "MiB", "under 64");
    let mut peaks = Vec::new();
    for size in [records / 10, records, records * 4] {
        let figures = crate::case::count_once(&bench, size)?;
        line(
            &format!("peak of a count over {size} records"),
            &Spread::of([figures.peak_rss_bytes as f64 / 1048576.0]),
            "MiB",
            "",
        );
        peaks.push(figures.peak_rss_bytes as f64);
    }
    line("peak, last / second", &Spread::of([peaks[2] / peaks[1]]), "times", "about 1");
    Ok(())
}
