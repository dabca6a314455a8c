//! The `runtime` import: time, log lines and counters.
//!
//! Invariant: a guest can't flood the metrics: the number of counters is bounded.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmStr};

use super::HostState;
use super::log::{Level, printable};
use crate::guest::world::WORLD;
use crate::telemetry::{GUEST_COUNTERS_MAX, GuestFigures};

/// The figures of one instance, shared with whoever shows them.
pub type Counters = Arc<GuestFigures>;

pub(super) struct InstanceCounters {
    counters: Counters,
    complained: bool,
}

impl InstanceCounters {
    pub fn new(counters: Counters) -> InstanceCounters {
        InstanceCounters { counters, complained: false }
    }
}

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut runtime = linker.instance(&WORLD.interface("runtime"))?;
    runtime.func_wrap("now-ms", |store, ()| time(&store, |host| host.now_ms))?;
    runtime.func_wrap("watermark-ms", |store, ()| time(&store, |host| host.watermark_ms))?;
    runtime.func_wrap("log", |store, (level, message): (Level, WasmStr)| log(store, level, &message))?;
    runtime.func_wrap("counter-add", |store, (name, delta): (WasmStr, u64)| counter_add(store, &name, delta))
}

/// What the running call may know of time.
fn time(store: &StoreContextMut<'_, HostState>, of: impl FnOnce(&HostState) -> i64) -> wasmtime::Result<(i64,)> {
    store.data().may_ask()?;
    Ok((of(store.data()),))
}

fn log(mut store: StoreContextMut<'_, HostState>, level: Level, message: &WasmStr) -> wasmtime::Result<()> {
    store.data().deadline.check()?;
    let line = printable(&message.to_str(&store)?);
    store.data_mut().log.write(level, line, Instant::now());
    Ok(())
}

fn counter_add(mut store: StoreContextMut<'_, HostState>, name: &WasmStr, delta: u64) -> wasmtime::Result<()> {
    store.data().may_ask()?;
    let counters = store.data().counters.counters.clone();
    let name = name.to_str(&store)?;
    if counters.add(&name, delta) {
        return Ok(());
    }
    let name = printable(&name);
    let host = store.data_mut();
    if !std::mem::replace(&mut host.counters.complained, true) {
        let line = format!(
            "counter '{name}' and maybe others are not counted: {GUEST_COUNTERS_MAX} usable names are the most"
        );
        host.log.write(Level::Warn, line, Instant::now());
    }
    Ok(())
}
