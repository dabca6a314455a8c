//! The protocol: pure decisions over events and time.
//!
//! Invariant: nothing here knows a file, clock, thread, random number, async or guest. Maps iterate in a fixed order.

mod aligner;
mod commit;
mod coordinator;
mod key_group;
pub mod recovery;
pub mod retention;
mod watermark;

pub use aligner::{Aligner, Alignment, Input};
pub use commit::{CommitPermit, PublishReceipt};
pub use coordinator::{Action, Coordinator, CoordinatorOptions, Event, FailReason};
pub use key_group::{KeyGroupRange, MaxParallelism};
pub use watermark::{Progress, Watermarks};
