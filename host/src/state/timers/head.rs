//! The earliest timers of one key group, in memory.
//!
//! Invariant: of the timers that are set, all up to `more_after` are here, and none behind it. (Those that the running call sets
//! or deletes come only when it has succeeded.)

use std::collections::BTreeSet;

use super::key;

/// What a timer takes beside its user key.
const OVERHEAD_BYTES: usize = 48;

#[derive(Debug, Default)]
pub struct Head {
    timers: BTreeSet<Box<[u8]>>,
    bytes: usize,
    /// `None`: there are no others.
    more_after: Option<Box<[u8]>>,
}

impl Head {
    /// Of a group of which nothing is known.
    pub fn unread(before_all: Box<[u8]>) -> Head {
        Head { more_after: Some(before_all), ..Head::default() }
    }

    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// No timer is earlier; `None` if there is none at all.
    pub fn earliest_ms(&self) -> Option<i64> {
        match (self.timers.first(), &self.more_after) {
            (Some(first), _) => Some(key::time_of(first)),
            // Before all that a clock has, there is no time yet.
            (None, Some(after)) => Some(key::parse(after).map_or(i64::MIN, |(time_ms, ..)| time_ms)),
            (None, None) => None,
        }
    }

    /// Behind what to read on, if that must be done to know the earliest.
    pub fn must_read_after(&self) -> Option<&[u8]> {
        if self.timers.is_empty() { self.more_after.as_deref() } else { None }
    }

    pub fn pop(&mut self) -> Option<Box<[u8]>> {
        let first = self.timers.pop_first()?;
        self.bytes -= first.len() + OVERHEAD_BYTES;
        Some(first)
    }

    /// A timer has been set.
    pub fn insert(&mut self, user_key: Box<[u8]>, bytes_max: usize) {
        if self.more_after.as_ref().is_some_and(|after| user_key > *after) {
            return;
        }
        self.push(user_key);
        if self.bytes > bytes_max {
            self.shrink(bytes_max / 2);
        }
    }

    /// A timer has been deleted.
    pub fn remove(&mut self, user_key: &[u8]) {
        if self.timers.remove(user_key) {
            self.bytes -= user_key.len() + OVERHEAD_BYTES;
        }
    }

    /// Whether a timer is known to be set.
    pub fn contains(&self, user_key: &[u8]) -> bool {
        self.timers.contains(user_key)
    }

    /// Takes up the timers that were read behind `more_after`.
    pub fn read_on<'k>(&mut self, user_keys: impl Iterator<Item = &'k [u8]>, more: bool) {
        for user_key in user_keys {
            self.push(user_key.into());
        }
        if !more {
            self.more_after = None;
        } else if let Some(last) = self.timers.last() {
            self.more_after = Some(last.clone());
        }
    }

    fn push(&mut self, user_key: Box<[u8]>) {
        let bytes = user_key.len() + OVERHEAD_BYTES;
        if self.timers.insert(user_key) {
            self.bytes += bytes;
        }
    }

    /// Forgets the latest ones, but never the first.
    fn shrink(&mut self, bytes_target: usize) {
        while self.bytes > bytes_target && self.timers.len() > 1 {
            if let Some(last) = self.timers.pop_last() {
                self.bytes -= last.len() + OVERHEAD_BYTES;
            }
        }
        self.more_after = self.timers.last().cloned();
    }
}
