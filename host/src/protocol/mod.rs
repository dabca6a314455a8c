//! The protocol: pure decisions over events and time.
//!
//! Invariant: nothing here knows a file, clock, thread, random number, async or guest. Maps iterate in a fixed order.

mod key_group;

pub use key_group::{KeyGroupRange, MaxParallelism};
