//! What the host offers to a guest: output, keyed state, timers, time, logging and metrics.
//!
//! Invariant: whatever a guest passes, an import gives an answer or an error that ends the call; it never panics, and holds no
//! more of the guest's data than the limits allow.

mod log;
mod output;
mod runtime;
mod state;
mod timers;

pub use log::Line;
pub(super) use log::{Output, printable};
pub(super) use output::OutputRefused;
pub use runtime::Counters;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmList};

use super::deadline::Deadline;
use super::error::Misuse;
use super::huge_pages;
use super::limits::{Limiter, Limits};
use super::recording::Recording;
use super::wasi::{Draws, Randomness, Wasi};
use super::world::WORLD;
use crate::element::{Column, NO_TIMESTAMP};
use crate::guest::Emitted;
use crate::id::{Name, SubtaskId};
use crate::state::KeyedState;
use log::GuestLog;

/// To look at the size of the state takes a moment, which small calls can't afford each time.
const STATE_LOOK_BYTES: usize = 64 * 1024;

/// Which imports the running call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `describe`: only the log.
    Describing,
    /// `prepare`, `migrate`, `merge`: only the log.
    Migrating,
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
    /// Of the running call.
    pub deadline: Deadline,
    pub phase: Phase,
    pub outputs: u32,
    /// What the running call has emitted.
    pub emitted: Emitted,
    /// What is left of the running call's limit.
    pub output_bytes_left: usize,
    output_bytes_max: usize,
    pub state: Option<Box<KeyedState>>,
    /// What has been written to it since its size was last looked at.
    state_bytes_unseen: usize,
    /// What `now-ms` says.
    pub now_ms: i64,
    /// What `watermark-ms` says.
    pub watermark_ms: i64,
    /// The earliest time of a timer that the running call has set; the largest i64 if there is none.
    pub earliest_set_ms: i64,
    /// How many calls there have been, the running one included.
    pub calls: u64,
    /// Which of them was the last that was given records, timers or a watermark.
    pub streaming_call: u64,
    /// The place of the next call among the random numbers, if it isn't simply behind the last one.
    pub next_draws: Option<Draws>,
    pub log: GuestLog,
    pub wasi: Wasi,
    /// Of an instance that is on trial.
    pub recording: Option<Box<Recording>>,
    counters: runtime::InstanceCounters,
}

impl HostState {
    /// For an operator that hasn't said yet what it is: no outputs, no state. Without a job it is only asked that.
    pub fn new(
        job: Option<&Name>,
        subtask: SubtaskId,
        limits: &Limits,
        counters: Counters,
        deadline: Deadline,
    ) -> HostState {
        HostState {
            limiter: Limiter::new(limits, Counters::clone(&counters)),
            deadline,
            phase: Phase::Describing,
            outputs: 0,
            emitted: Vec::new(),
            output_bytes_left: 0,
            output_bytes_max: limits.output_bytes_max,
            state: None,
            state_bytes_unseen: 0,
            now_ms: 0,
            watermark_ms: NO_TIMESTAMP,
            earliest_set_ms: i64::MAX,
            calls: 0,
            streaming_call: 0,
            next_draws: None,
            wasi: Wasi::new(Randomness::new(job, &subtask)),
            log: GuestLog::new(subtask, limits.log_lines_per_second_max),
            recording: None,
            counters: runtime::InstanceCounters::new(counters),
        }
    }

    /// Forgets the last call. The next one has so many ticks.
    pub fn begin(&mut self, phase: Phase, ticks: u64) {
        self.phase = phase;
        self.deadline.begin(ticks);
        self.emitted.clear();
        self.earliest_set_ms = i64::MAX;
        self.output_bytes_left = self.output_bytes_max;
        let draws = self.next_draws.take().unwrap_or(Draws { call: self.calls + 1, taken: 0 });
        self.calls = draws.call;
        if phase == Phase::Streaming {
            self.streaming_call = self.calls;
        }
        self.log.begin();
        self.wasi.randomness.begin(draws.taken);
    }

    /// The size of the keyed state, in memory and on disk together, if it is beyond `bytes_max`. It is looked at again whenever
    /// [`STATE_LOOK_BYTES`] have been written, so that is how far it can go beyond.
    pub fn state_too_large(&mut self, bytes_max: u64) -> Option<u64> {
        if self.state_bytes_unseen < STATE_LOOK_BYTES {
            return None;
        }
        self.state_bytes_unseen = 0;
        let size = self.state.as_deref()?.metrics();
        let bytes = size.disk_bytes.saturating_add(size.memory_bytes as u64);
        (bytes > bytes_max).then_some(bytes)
    }

    /// A call has written to the keyed state.
    fn note_written<const N: usize>(&mut self, columns: [&Column; N]) {
        let bytes = columns.iter().map(|column| column.data.len().saturating_add(column.offsets.len())).sum::<usize>();
        self.state_bytes_unseen = self.state_bytes_unseen.saturating_add(bytes);
    }

    /// Whether the running call may use what isn't the log.
    fn may_ask(&self) -> wasmtime::Result<()> {
        self.deadline.check()?;
        match self.phase {
            Phase::Describing => Err(Misuse::ImportInDescribe.into()),
            Phase::Migrating => Err(Misuse::ImportInMigration.into()),
            Phase::Silent | Phase::Streaming | Phase::Closing => Ok(()),
        }
    }
}

/// Takes note of where the guest's memory is: the engine doesn't tell, so a list of the guest's does, when memory has become large.
fn note_place(store: &mut StoreContextMut<'_, HostState>, list: &WasmList<u8>) {
    if store.data_mut().limiter.has_become_large() {
        huge_pages::advise(list.as_le_slice(&*store));
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
