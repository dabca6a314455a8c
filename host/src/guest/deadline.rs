//! The clock of deadlines, and the deadline of the running call as imports see it.
//!
//! The engine looks at its clock where a guest enters a function or goes round a loop. A guest that does neither and calls the host
//! again and again, or asks it for what takes long, is ended by the host.
//!
//! Invariant: both go by the same ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ticks since the engines were started. Clones are the same clock.
#[derive(Clone, Default)]
pub(super) struct GuestClock(Arc<AtomicU64>);

impl GuestClock {
    pub fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn ticks(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When the running call has to be over.
pub(super) struct Deadline {
    clock: GuestClock,
    at_ticks: u64,
}

impl Deadline {
    pub fn new(clock: GuestClock, ticks: u64) -> Deadline {
        let mut deadline = Deadline { clock, at_ticks: 0 };
        deadline.begin(ticks);
        deadline
    }

    /// A call begins, and has so many ticks.
    pub fn begin(&mut self, ticks: u64) {
        self.at_ticks = self.clock.ticks().saturating_add(ticks);
    }

    pub fn has_passed(&self) -> bool {
        self.clock.ticks() >= self.at_ticks
    }

    /// # Errors
    /// If it has passed.
    pub fn check(&self) -> Result<(), DeadlinePassed> {
        if self.has_passed() { Err(DeadlinePassed) } else { Ok(()) }
    }
}

/// The running call has used up its time.
#[derive(Debug, thiserror::Error)]
#[error("the deadline of the call has passed")]
pub(super) struct DeadlinePassed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_with_the_last_of_its_ticks_and_each_call_has_its_own() {
        let clock = GuestClock::default();
        let mut deadline = Deadline::new(clock.clone(), 2);
        clock.tick();
        deadline.check().expect("one is left");
        clock.tick();
        deadline.check().expect_err("none is left");
        deadline.begin(1);
        deadline.check().expect("another call");
        deadline.begin(u64::MAX);
        assert!(!deadline.has_passed());
    }
}
