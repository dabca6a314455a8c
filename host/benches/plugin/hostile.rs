//! Throughput of an operator alone, next to its throughput while another thread runs operators that do nothing but harm.
//!
//! Invariant: what is compared is the same instance with the same batches, in turn; beside it there is always one that fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lockgate_host::element::Batch;
use lockgate_host::guest::{
    Compiler, Counters, Emitted, Engine, Instance, InstanceContext, Limits, OperatorInstance, Plugin, default_cache_dir,
};
use lockgate_host::id::{Name, SubtaskId};

use crate::quotas::{ROUND_RECORDS, batches, component, median, open, round};
use crate::wat_guest::Guest;

const OPERATORS: [&str; 2] = ["filter", "count"];
const PAIRS: usize = 11;
/// Of calls, in each half of a pair.
const ROUNDS: usize = 8;

/// Operators that loop, grow, recurse and trap, whatever they are given.
fn harmful(engine: &Engine, folder: &std::path::Path) -> anyhow::Result<Vec<Plugin>> {
    let name = Name::new("harm").context("a name")?;
    let faults = [
        "(loop $spin (br $spin))",
        "(loop $more (drop (memory.grow (i32.const 1))) (br $more))",
        "(call $dig)",
        "unreachable",
    ];
    let extra = "(func $dig (call $dig) (call $dig))".to_owned();
    let load = |(number, fault): (usize, &str)| {
        let guest = Guest { process: fault.to_owned(), extra: extra.clone(), ..Guest::default() };
        let wasm = folder.join(format!("harm-{number}.wasm"));
        std::fs::write(&wasm, guest.component())?;
        Ok(engine.load(&name, &wasm)?)
    };
    faults.into_iter().enumerate().map(load).collect()
}

/// Has each of them fail, one after the other, until it is told to stop; gives how often they have.
fn do_harm(plugins: &[Plugin], batch: &Batch, stop: &AtomicBool, begun: &mpsc::Sender<()>) -> anyhow::Result<u64> {
    let name = Name::new("harm").context("a name")?;
    let mut failed = 0;
    for plugin in plugins.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut instance = plugin.instantiate(InstanceContext {
            job: name.clone(),
            subtask: SubtaskId { operator: name.clone(), index: 0 },
            parallelism: 1,
            config_json: "{}".to_owned(),
            limits: Limits { call_timeout: Duration::from_millis(20), ..Limits::default() },
            rejections: false,
            state: None,
            counters: Counters::default(),
        })?;
        ensure!(instance.process(0, batch, &mut Emitted::new()).is_err(), "it does harm");
        failed += 1;
        // Nobody listens but to the first.
        let _ = begun.send(());
    }
    Ok(failed)
}

/// Millions of records a second.
fn rate(instance: &mut Instance, batches: &[Batch]) -> anyhow::Result<f64> {
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        round(instance, batches)?;
    }
    Ok(ROUNDS as f64 * f64::from(ROUND_RECORDS) / begin.elapsed().as_secs_f64() / 1e6)
}

pub fn compare() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::new(default_cache_dir(), Compiler::InProcess)?;
    let (batches, harmful) = (batches(), harmful(&engine, folder.path())?);
    println!("\nbeside a thread of operators that loop, grow, recurse and trap (medians of {PAIRS} pairs in turn)");
    for operator in OPERATORS {
        let name = Name::new(operator).context("a name")?;
        let plugin = engine.load(&name, &component(operator, folder.path())?)?;
        let mut instance = open(&plugin, &name, &folder.path().join(operator))?;
        rate(&mut instance, &batches)?;
        let (mut pairs, mut failed) = (Vec::new(), 0);
        for _ in 0..PAIRS {
            let alone = rate(&mut instance, &batches)?;
            let stop = AtomicBool::new(false);
            let beside = std::thread::scope(|scope| {
                let (begun, has_begun) = mpsc::channel();
                let (harmful, batch, stop) = (&harmful, &batches[0], &stop);
                let harm = scope.spawn(move || do_harm(harmful, batch, stop, &begun));
                has_begun.recv().context("somebody does harm")?;
                let beside = rate(&mut instance, &batches);
                stop.store(true, Ordering::Relaxed);
                failed += harm.join().expect("it doesn't panic")?;
                beside
            })?;
            pairs.push((alone, beside));
        }
        let middle = |of: fn(&(f64, f64)) -> f64| median(pairs.iter().map(of).collect());
        let (alone, beside) = (middle(|pair| pair.0), middle(|pair| pair.1));
        let lost = (1.0 - middle(|pair| pair.1 / pair.0)) * 100.0;
        let what = format!("{operator}: {alone:.2} M records/s, beside {failed} failures {beside:.2}");
        crate::show(&what, format!("{lost:.1} % less"), "< 5 %", lost < 5.0);
    }
    Ok(())
}
