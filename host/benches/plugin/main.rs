//! What a plugin costs: to load, to instantiate, to keep, to limit, and whether all of it is given back.
//!
//! `cargo bench --profile dev --workspace --bench plugin [-- --cycles N | quotas]`; the latter measures quotas alone. The subject is a component of
//! about 100 KB; the quotas, and what an operator loses beside hostile ones, are measured with the example operators. Times are medians; what is
//! compared is measured in turn in one run.
//!
//! Instances are allocated on demand. From a pool they were ready in nine tenths of the time or more, and took more memory while idle.
//! On demand an instance takes a fifth of what is allowed, and there is one for each attempt of a subtask; that isn't worth the limits
//! which a pool sets for all jobs of the process together.

mod allocators;
mod hostile;
mod quotas;
mod subject;
#[path = "../../src/guest/tests/guest.rs"]
#[expect(dead_code, reason = "written for the tests of the room")]
mod wat_guest;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use subject::{Subject, resident_bytes};

const LOADS: usize = 200;
const INSTANCES: usize = 1000;
const CYCLES: u32 = 10_000;
/// Before memory is looked at, so that what allocators keep doesn't count.
const WARM_UP_CYCLES: u32 = 500;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// One figure, and what it has to be.
fn show(what: &str, figure: String, bound: &str, kept: bool) {
    println!("{what:<58} {figure:>12}   {bound:<14} {}", if kept { "kept" } else { "BROKEN" });
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn load(subject: &Subject) -> anyhow::Result<()> {
    let size = std::fs::metadata(&subject.wasm)?.len();
    let begin = Instant::now();
    subject.load()?;
    let compiled = begin.elapsed();
    let mut times = Vec::new();
    for _ in 0..LOADS {
        let begin = Instant::now();
        subject.load()?;
        times.push(begin.elapsed());
    }
    println!("the subject has {size} bytes; without a cache it was ready in {:.0} ms", ms(compiled));
    let ready = median(times);
    show("load a cached plugin", format!("{:.2} ms", ms(ready)), "< 5 ms", ready < Duration::from_millis(5));
    Ok(())
}

fn instantiate(subject: &Subject) -> anyhow::Result<()> {
    let plugin = subject.load()?;
    let mut times = Vec::new();
    for _ in 0..INSTANCES {
        let begin = Instant::now();
        let instance = subject.open(&plugin)?;
        times.push(begin.elapsed());
        drop(instance);
    }
    let time = median(times);
    let figure = format!("{:.1} µs", time.as_secs_f64() * 1e6);
    show("instantiate and open it", figure, "< 100 µs", time < Duration::from_micros(100));
    Ok(())
}

fn idle(subject: &Subject) -> anyhow::Result<()> {
    let plugin = subject.load()?;
    let before = resident_bytes()?;
    let instances = (0..INSTANCES).map(|_| subject.open(&plugin)).collect::<anyhow::Result<Vec<_>>>()?;
    let one_plugin = resident_bytes()?.saturating_sub(before);
    drop((instances, plugin));
    let show = |what: &str, bytes: u64| show(what, format!("{:.0} MiB", mib(bytes)), "< 1 GB", bytes < 1_000_000_000);
    show("1,000 idle instances of one plugin", one_plugin);

    let before = resident_bytes()?;
    let instances = (0..INSTANCES).map(|_| subject.open(&subject.load()?)).collect::<anyhow::Result<Vec<_>>>()?;
    show("1,000 idle instances of a plugin each", resident_bytes()?.saturating_sub(before));
    drop(instances);
    Ok(())
}

fn cycles(subject: &Subject, count: u32) -> anyhow::Result<()> {
    subject.cycle(WARM_UP_CYCLES)?;
    let (before, begin) = (resident_bytes()?, Instant::now());
    subject.cycle(count)?;
    let (grown, each) = (resident_bytes()?.saturating_sub(before), begin.elapsed() / count);
    let what = format!("left of {count} plugins loaded and dropped ({:.2} ms each)", ms(each));
    show(&what, format!("{:.2} MiB", mib(grown)), "< 8 MiB", grown < 8 << 20);
    Ok(())
}

/// What is to be measured.
enum Wanted {
    Everything { cycles: u32 },
    Quotas,
}

fn wanted() -> anyhow::Result<Wanted> {
    // `cargo bench` adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match arguments.next().as_deref() {
        None => Ok(Wanted::Everything { cycles: CYCLES }),
        Some("--cycles") => {
            Ok(Wanted::Everything { cycles: arguments.next().context("--cycles needs a number")?.parse()? })
        }
        Some("quotas") => Ok(Wanted::Quotas),
        Some(other) => anyhow::bail!("unknown option {other}; there are --cycles N, and quotas"),
    }
}

fn measure() -> anyhow::Result<()> {
    let count = match wanted()? {
        Wanted::Everything { cycles } => cycles,
        Wanted::Quotas => return quotas::compare(),
    };
    let subject = Subject::new()?;
    load(&subject)?;
    instantiate(&subject)?;
    idle(&subject)?;
    cycles(&subject, count.max(1))?;
    allocators::compare(&subject)?;
    quotas::compare()?;
    hostile::compare()
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
