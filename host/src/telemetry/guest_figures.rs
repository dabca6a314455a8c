//! What an instance of an operator counts of itself, and how much memory it has.
//!
//! Invariant: however many names a guest makes up, only so many are kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::id::Name;

/// Counters of one instance.
pub const GUEST_COUNTERS_MAX: usize = 64;

/// Kept by the instance, read by whoever shows them.
#[derive(Debug, Default)]
pub struct GuestFigures {
    counters: Mutex<BTreeMap<Name, u64>>,
    memory_bytes: AtomicU64,
}

impl GuestFigures {
    /// What has been counted so far.
    pub fn read(&self) -> BTreeMap<Name, u64> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it was counted: an unusable name or one too many isn't.
    pub fn add(&self, name: &str, delta: u64) -> bool {
        let Ok(name) = Name::new(name) else { return false };
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counters.get_mut(&name) {
            *count = count.saturating_add(delta);
            return true;
        }
        let room = counters.len() < GUEST_COUNTERS_MAX;
        if room {
            counters.insert(name, delta);
        }
        room
    }

    /// All linear memories of the instance together.
    pub fn set_memory(&self, bytes: usize) {
        self.memory_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// `None` where there is no instance.
    pub fn memory_bytes(&self) -> Option<u64> {
        let bytes = self.memory_bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up_and_their_number_is_bounded() {
        let figures = GuestFigures::default();
        assert!(figures.add("late", 2) && figures.add("late", 3));
        assert!(!figures.add("no name", 1) && !figures.add("", 1));
        let counted = (0..1000).filter(|index| figures.add(&format!("c{index}"), 1)).count();
        assert_eq!(counted, GUEST_COUNTERS_MAX - 1);
        assert_eq!(figures.read()[&Name::new("late").expect("a name")], 5);
        assert!(figures.add("late", u64::MAX) && figures.read().values().any(|count| *count == u64::MAX));
    }
}
