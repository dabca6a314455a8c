//! What the host offers to a guest: output, keyed state, timers, time, logging and metrics.
//!
//! Invariant: whatever a guest passes, an import gives an answer or an error that ends the call; it never panics, and holds no
//! more of the guest's data than the limits allow.

mod output;
mod runtime;
mod state;
mod timers;

pub(super) use output::OutputRefused;
pub use runtime::Counters;
pub(super) use runtime::printable;

use wasmtime::component::{ComponentType, Lift, Linker, WasmList};

use super::error::Misuse;
use super::limits::{Limiter, Limits};
use super::world::WORLD;
use crate::element::NO_TIMESTAMP;
use crate::guest::Emitted;
use crate::id::SubtaskId;
use crate::state::KeyedState;
use runtime::GuestLog;

/// Which imports the running call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `describe`: only the log.
    Describing,
    /// `open`, `restore`, `snapshot`, `trim`: all but output.
    Silent,
    /// `process`, `timers`, `watermark`.
    Streaming,
    /// `close`: output is accepted and forgotten.
    Closing,
}

/// What belongs to one instance on the host's side.
pub(super) struct HostState {
    pub limiter: Limiter,
    pub phase: Phase,
    pub outputs: u32,
    /// What the running call has emitted.
    pub emitted: Emitted,
    /// What is left of the running call's limit.
    pub output_bytes_left: usize,
    output_bytes_max: usize,
    pub state: Option<Box<KeyedState>>,
    /// What `now-ms` says.
    pub now_ms: i64,
    /// What `watermark-ms` says.
    pub watermark_ms: i64,
    /// The earliest time of a timer that the running call has set; the largest i64 if there is none.
    pub earliest_set_ms: i64,
    pub log: GuestLog,
    counters: runtime::InstanceCounters,
}

impl HostState {
    /// For an operator that hasn't said yet what it is: no outputs, no state.
    pub fn new(subtask: SubtaskId, limits: &Limits, counters: Counters) -> HostState {
        HostState {
            limiter: Limiter::new(limits, Counters::clone(&counters)),
            phase: Phase::Describing,
            outputs: 0,
            emitted: Vec::new(),
            output_bytes_left: 0,
            output_bytes_max: limits.output_bytes_max,
            state: None,
            now_ms: 0,
            watermark_ms: NO_TIMESTAMP,
            earliest_set_ms: i64::MAX,
            log: GuestLog::new(subtask),
            counters: runtime::InstanceCounters::new(counters),
        }
    }

    /// Forgets the last call.
    pub fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.emitted.clear();
        self.earliest_set_ms = i64::MAX;
        self.output_bytes_left = self.output_bytes_max;
        self.log.begin();
    }

    fn not_describing(&self) -> Result<(), Misuse> {
        match self.phase {
            Phase::Describing => Err(Misuse::ImportInDescribe),
            Phase::Silent | Phase::Streaming | Phase::Closing => Ok(()),
        }
    }
}

/// A column where it lies in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
struct ColumnList {
    data: WasmList<u8>,
    offsets: WasmList<u8>,
}

/// Links everything that a component may import.
pub(super) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    linker.instance(&WORLD.interface("types"))?;
    output::link(&mut linker)?;
    state::link(&mut linker)?;
    timers::link(&mut linker)?;
    runtime::link(&mut linker)?;
    Ok(linker)
}
