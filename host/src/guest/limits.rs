//! What one instance of an operator may use.
//!
//! Invariant: no memory or table of a guest grows past its limit, whatever the guest asks for.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::ResourceLimiter;

use super::huge_pages::LARGE_BYTES_MIN;
use crate::telemetry::GuestFigures;

/// How often the engine's clock ticks; a deadline is kept to about this.
pub(super) const TICK: Duration = Duration::from_millis(10);

const TABLES_MAX: usize = 32;
const MEMORIES_MAX: usize = 4;

/// The limits of one instance. Breaking one ends the instance with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of all the instance's memories together. Default 256 MiB.
    pub memory_bytes_max: usize,
    /// Elements of all the instance's tables together. Default 200,000.
    pub table_elements_max: usize,
    /// Core modules that the component instantiates. Default 100.
    pub core_instances_max: usize,
    /// What calls within the guest may take of the thread's stack, 64 KiB to 1 MiB, rounded up to 64 KiB. Default 512 KiB.
    pub stack_bytes_max: usize,
    /// Wall time of one call, of instantiation as well. Default 10 s.
    pub call_timeout: Duration,
    /// What one call may emit, or `snapshot` may return. Default 64 MiB.
    pub output_bytes_max: usize,
    /// Lines that reach the log in a second, printed ones included. Default 100.
    pub log_lines_per_second_max: u32,
    /// What the keyed state of a subtask may take, in memory and on disk together. Default 64 GiB.
    pub state_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes_max: 256 * 1024 * 1024,
            table_elements_max: 200_000,
            core_instances_max: 100,
            stack_bytes_max: 512 * 1024,
            call_timeout: Duration::from_secs(10),
            output_bytes_max: 64 * 1024 * 1024,
            log_lines_per_second_max: 100,
            state_bytes_max: 64 << 30,
        }
    }
}

impl Limits {
    /// The largest stack. A thread has two megabytes unless it is told otherwise, and the host needs some of it.
    pub const STACK_BYTES_MAX: usize = 1024 * 1024;
    /// The smallest, and the step from one size to the next.
    pub const STACK_BYTES_STEP: usize = 64 * 1024;

    /// The most elements of tables that a job file may allow.
    pub const TABLE_ELEMENTS_MAX: u32 = 10_000_000;
    /// The most core modules that it may allow.
    pub const CORE_INSTANCES_MAX: u32 = 10_000;

    /// Those of a component without a job, which is only started and asked what it is. Of tables and core modules it may have as much as
    /// a job file may allow, so that none is refused for what a job could give it; of memory, which nobody has granted yet, 1 GiB; of
    /// stack and time as much as usual.
    pub fn of_inspection() -> Limits {
        Limits {
            memory_bytes_max: 1 << 30,
            table_elements_max: Limits::TABLE_ELEMENTS_MAX as usize,
            core_instances_max: Limits::CORE_INSTANCES_MAX as usize,
            ..Limits::default()
        }
    }

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

    /// The stack that an engine is to give.
    pub(super) fn stack(&self) -> StackSize {
        StackSize::at_least(self.stack_bytes_max)
    }
}

/// A size of stack that there is an engine for. There are few, so that there are few engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StackSize(usize);

impl StackSize {
    fn at_least(bytes: usize) -> StackSize {
        let bytes = bytes.clamp(1, Limits::STACK_BYTES_MAX);
        StackSize(bytes.next_multiple_of(Limits::STACK_BYTES_STEP))
    }

    pub fn bytes(self) -> usize {
        self.0
    }
}

/// A guest asked for more memory than it may have.
#[derive(Debug, thiserror::Error)]
#[error("it wanted {wanted_bytes} bytes of memory and may have {limit_bytes}")]
pub(super) struct MemoryRefused {
    pub wanted_bytes: usize,
    pub limit_bytes: usize,
}

/// A guest asked for more table elements than it may have.
#[derive(Debug, thiserror::Error)]
#[error("it wanted {wanted_elements} table elements and may have {limit_elements}")]
pub(super) struct TableRefused {
    pub wanted_elements: usize,
    pub limit_elements: usize,
}

/// Refuses growth past the limits by a trap, so that the error says what happened.
pub(super) struct Limiter {
    memory_bytes_max: usize,
    memory_bytes: usize,
    /// Whether it has been said that memory is large.
    said_large: bool,
    table_elements_max: usize,
    table_elements: usize,
    core_instances_max: usize,
    figures: Arc<GuestFigures>,
}

impl Limiter {
    pub fn new(limits: &Limits, figures: Arc<GuestFigures>) -> Limiter {
        Limiter {
            memory_bytes_max: limits.memory_bytes_max,
            memory_bytes: 0,
            said_large: false,
            table_elements_max: limits.table_elements_max,
            table_elements: 0,
            core_instances_max: limits.core_instances_max,
            figures,
        }
    }

    /// Whether memory has become large since this was asked last: true once.
    pub fn has_become_large(&mut self) -> bool {
        let now = !self.said_large && self.memory_bytes >= LARGE_BYTES_MIN;
        self.said_large |= now;
        now
    }
}

/// Whether a guest asks for more than its own declaration allows: it is told no, and nothing has grown.
fn beyond_own(desired: usize, maximum: Option<usize>) -> bool {
    maximum.is_some_and(|maximum| desired > maximum)
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if beyond_own(desired, maximum) {
            return Ok(false);
        }
        let wanted_bytes = self.memory_bytes.saturating_add(desired.saturating_sub(current));
        if wanted_bytes > self.memory_bytes_max {
            return Err(MemoryRefused { wanted_bytes, limit_bytes: self.memory_bytes_max }.into());
        }
        self.memory_bytes = wanted_bytes;
        self.figures.set_memory(wanted_bytes);
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if beyond_own(desired, maximum) {
            return Ok(false);
        }
        let wanted_elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if wanted_elements > self.table_elements_max {
            return Err(TableRefused { wanted_elements, limit_elements: self.table_elements_max }.into());
        }
        self.table_elements = wanted_elements;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.core_instances_max
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_come_in_few_sizes_and_never_too_large_for_a_thread() {
        let bytes = |wanted| StackSize::at_least(wanted).bytes();
        assert_eq!([bytes(0), bytes(1), bytes(64 * 1024)], [64 * 1024; 3]);
        assert_eq!(bytes(64 * 1024 + 1), 128 * 1024);
        assert_eq!(bytes(usize::MAX), Limits::STACK_BYTES_MAX);
        assert_eq!(Limits::default().stack().bytes(), Limits::default().stack_bytes_max);
    }

    #[test]
    fn growth_that_the_guest_has_forbidden_itself_counts_for_nothing() {
        let limits = Limits { memory_bytes_max: 100, table_elements_max: 100, ..Limits::default() };
        let mut limiter = Limiter::new(&limits, Arc::default());
        for _ in 0..10 {
            assert!(!limiter.memory_growing(0, 60, Some(50)).expect("no trap"));
            assert!(!limiter.table_growing(0, 60, Some(50)).expect("no trap"));
        }
        assert!(
            limiter.memory_growing(0, 60, None).expect("fits") && limiter.memory_growing(0, 40, None).expect("fits")
        );
        limiter.memory_growing(0, 1, None).expect_err("both memories together");
        assert!(
            limiter.table_growing(0, 60, None).expect("fits") && limiter.table_growing(60, 100, None).expect("fits")
        );
        limiter.table_growing(0, 1, None).expect_err("both tables together");
    }

    #[test]
    fn memory_becomes_large_once() {
        let mut limiter = Limiter::new(&Limits::default(), Arc::default());
        assert!(limiter.memory_growing(0, LARGE_BYTES_MIN - 1, None).expect("fits") && !limiter.has_become_large());
        assert!(limiter.memory_growing(LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, None).expect("fits"));
        assert!(limiter.has_become_large() && !limiter.has_become_large());
    }

    #[test]
    fn what_a_guest_holds_and_may_hand_over_is_known() {
        let limits = Limits { memory_bytes_max: 100, output_bytes_max: 300, ..Limits::default() };
        let figures = Arc::<GuestFigures>::default();
        let mut limiter = Limiter::new(&limits, Arc::clone(&figures));
        assert!(
            limiter.memory_growing(0, 40, None).expect("fits") && limiter.memory_growing(40, 70, None).expect("fits")
        );
        assert_eq!(figures.memory_bytes(), Some(70));
        assert!((300..300 + (1 << 20)).contains(&limits.hostcall_bytes_max()), "the larger one, and some names");
    }
}
