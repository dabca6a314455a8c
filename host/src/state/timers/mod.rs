//! Which timers are set, and which of them are the earliest.
//!
//! Timers are entries of a table that no operator sees, [`TIMERS_TABLE`]: in each key group the entries of an empty key, with
//! empty values and [user keys](key) that are ordered by time. So they are staged, kept in snapshots and moved by key group like
//! all keyed state.
//!
//! Invariant: what a [`TimerQueue`] holds in memory has a bounded size, however many timers are set.

mod head;
mod key;
mod keyed;
mod queue;

use serde::{Deserialize, Serialize};

pub use queue::TimerQueue;

/// The name of the table; no table of an operator can have it.
pub const TIMERS_TABLE: &str = "$timers";
/// The longest tag of a timer.
pub const TAG_BYTES_MAX: usize = 64 << 10;

/// What a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The watermark.
    EventTime,
    /// The time of day.
    ProcessingTime,
}

impl Clock {
    pub fn as_str(self) -> &'static str {
        match self {
            Clock::EventTime => "event time",
            Clock::ProcessingTime => "processing time",
        }
    }

    fn index(self) -> usize {
        match self {
            Clock::EventTime => 0,
            Clock::ProcessingTime => 1,
        }
    }
}
