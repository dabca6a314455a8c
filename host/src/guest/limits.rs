//! What one instance of an operator may use.
//!
//! Invariant: no memory or table of a guest grows past its limit, whatever the guest asks for.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::telemetry::GuestFigures;

/// How often the engine's clock ticks; a deadline is kept to about this.
pub(super) const TICK: Duration = Duration::from_millis(10);

const TABLE_ELEMENTS_MAX: usize = 100_000;
const TABLES_MAX: usize = 16;
const MEMORIES_MAX: usize = 4;
const CORE_INSTANCES_MAX: usize = 32;

/// The limits of one instance. Breaking one ends the instance with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of all the instance's memories together. Default 256 MiB.
    pub memory_bytes_max: usize,
    /// Wall time of one call, of instantiation as well. Default 10 s.
    pub call_timeout: Duration,
    /// What one call may emit, or `snapshot` may return. Default 64 MiB.
    pub output_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes_max: 256 * 1024 * 1024,
            call_timeout: Duration::from_secs(10),
            output_bytes_max: 64 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// Ticks of the engine's clock until the deadline of a call that starts now; never less than two, so that a call gets at
    /// least one whole tick.
    pub(super) fn deadline_ticks(&self) -> u64 {
        let ticks = self.call_timeout.as_millis().div_ceil(TICK.as_millis());
        u64::try_from(ticks).unwrap_or(u64::MAX / 2).saturating_add(1).max(2)
    }

    /// The most that a guest can hand over in one go: no more than its memory holds, and no more than it may emit.
    pub(super) fn hostcall_bytes_max(&self) -> usize {
        const ROOM_FOR_NAMES: usize = 64 * 1024;
        self.memory_bytes_max.max(self.output_bytes_max).saturating_add(ROOM_FOR_NAMES)
    }
}

/// A guest asked for more than it may have.
#[derive(Debug, thiserror::Error)]
#[error("it wanted {wanted_bytes} bytes of memory and may have {limit_bytes}")]
pub(super) struct MemoryRefused {
    pub wanted_bytes: usize,
    pub limit_bytes: usize,
}

/// Refuses growth past the limits by a trap, so that the error says what happened.
pub(super) struct Limiter {
    memory_bytes_max: usize,
    memory_bytes: usize,
    figures: Arc<GuestFigures>,
}

impl Limiter {
    pub fn new(limits: &Limits, figures: Arc<GuestFigures>) -> Limiter {
        Limiter { memory_bytes_max: limits.memory_bytes_max, memory_bytes: 0, figures }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted_bytes = self.memory_bytes.saturating_add(desired.saturating_sub(current));
        if wanted_bytes > self.memory_bytes_max {
            return Err(MemoryRefused { wanted_bytes, limit_bytes: self.memory_bytes_max }.into());
        }
        self.memory_bytes = wanted_bytes;
        self.figures.set_memory(wanted_bytes);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}
