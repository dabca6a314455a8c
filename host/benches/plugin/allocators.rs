//! Instances on demand next to instances from a pool, by the engine alone.
//!
//! Invariant: both sides run the same component with the same settings but for the allocator.

use std::time::Instant;

use anyhow::Context;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use crate::subject::{Subject, resident_bytes};
use crate::{INSTANCES, median, mib};

const ROUNDS: usize = 5;

struct Side {
    name: &'static str,
    pre: InstancePre<()>,
    micros: Vec<f64>,
    idle_bytes: Vec<u64>,
}

impl Side {
    fn new(name: &'static str, allocation: Option<InstanceAllocationStrategy>, wasm: &[u8]) -> anyhow::Result<Side> {
        let mut config = Config::new();
        config.concurrency_support(false).epoch_interruption(true);
        if let Some(allocation) = allocation {
            config.allocation_strategy(allocation);
        }
        let engine = Engine::new(&config).map_err(said)?;
        let component = Component::from_binary(&engine, wasm).map_err(said)?;
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component).map_err(said)?;
        let pre = linker.instantiate_pre(&component).map_err(said)?;
        Ok(Side { name, pre, micros: Vec::new(), idle_bytes: Vec::new() })
    }

    fn instance(&self) -> anyhow::Result<Store<()>> {
        let mut store = Store::new(self.pre.engine(), ());
        store.set_epoch_deadline(1_000_000);
        self.pre.instantiate(&mut store).map_err(said)?;
        Ok(store)
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for _ in 0..INSTANCES {
            let begin = Instant::now();
            let store = self.instance()?;
            times.push(begin.elapsed());
            drop(store);
        }
        self.micros.push(median(times).as_secs_f64() * 1e6);
        let before = resident_bytes()?;
        let stores = (0..INSTANCES).map(|_| self.instance()).collect::<anyhow::Result<Vec<_>>>()?;
        self.idle_bytes.push(resident_bytes()?.saturating_sub(before));
        drop(stores);
        Ok(())
    }
}

/// The engine's errors aren't those of `anyhow`.
fn said(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

/// Instances of the pool, each with its parts.
fn pool() -> PoolingAllocationConfig {
    let count = u32::try_from(INSTANCES).expect("a small number") + 8;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(count)
        .total_core_instances(4 * count)
        .total_memories(count)
        .total_tables(4 * count)
        .max_memory_size(4 << 30);
    pool
}

pub fn compare(subject: &Subject) -> anyhow::Result<()> {
    let wasm = std::fs::read(&subject.wasm).context("the subject")?;
    let mut sides = [
        Side::new("on demand", None, &wasm)?,
        Side::new("from a pool", Some(InstanceAllocationStrategy::Pooling(pool())), &wasm)?,
    ];
    for _ in 0..ROUNDS {
        sides.iter_mut().try_for_each(Side::round)?;
    }
    println!("\nallocators, the engine alone: {INSTANCES} instances, {ROUNDS} rounds in turn (the best)");
    for Side { name, micros, idle_bytes, .. } in &sides {
        let micros = micros.iter().copied().fold(f64::INFINITY, f64::min);
        let idle = idle_bytes.iter().min().copied().unwrap_or(0);
        println!("  {name:<12} instantiate {micros:>6.1} µs   idle {:>6.1} MiB", mib(idle));
    }
    Ok(())
}
