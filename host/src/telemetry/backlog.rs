//! What is between a subtask and the system that it reads from or writes to: records to be read, records in the client's queue.
//!
//! Invariant: what isn't known is no number.

use std::sync::atomic::{AtomicU64, Ordering};

const UNKNOWN: u64 = u64::MAX;

/// That of one subtask of a source or sink, as it was last told.
#[derive(Debug)]
pub struct Backlog {
    lag_records: AtomicU64,
    queued_records: AtomicU64,
    queued_bytes: AtomicU64,
}

impl Default for Backlog {
    fn default() -> Backlog {
        let unknown = || AtomicU64::new(UNKNOWN);
        Backlog { lag_records: unknown(), queued_records: unknown(), queued_bytes: unknown() }
    }
}

impl Backlog {
    /// So many records are between what a source has given and the end.
    pub fn lag(&self, records: Option<u64>) {
        self.lag_records.store(records.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// A client holds so many records, of so many bytes.
    pub fn queued(&self, records: u64, bytes: u64) {
        self.queued_records.store(records, Ordering::Relaxed);
        self.queued_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn lag_records(&self) -> Option<u64> {
        known(&self.lag_records)
    }

    pub fn queued_records(&self) -> Option<u64> {
        known(&self.queued_records)
    }

    pub fn queued_bytes(&self) -> Option<u64> {
        known(&self.queued_bytes)
    }
}

fn known(number: &AtomicU64) -> Option<u64> {
    Some(number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_told_or_is_no_longer_known_is_none() {
        let backlog = Backlog::default();
        assert_eq!((backlog.lag_records(), backlog.queued_records(), backlog.queued_bytes()), (None, None, None));
        backlog.lag(Some(5));
        backlog.queued(0, 0);
        assert_eq!(
            (backlog.lag_records(), backlog.queued_records(), backlog.queued_bytes()),
            (Some(5), Some(0), Some(0))
        );
        backlog.lag(None);
        assert_eq!(backlog.lag_records(), None);
    }
}
