//! The protocol: pure decisions over events and time.
//!
//! Invariant: nothing here knows a file, clock, thread, random number, async or guest. Maps iterate in a fixed order.

mod aligner;
mod alignment_options;
mod commit;
mod coordinator;
pub mod decision;
mod guarantee;
pub mod in_flight;
pub mod isolation;
mod key_group;
mod on_error;
pub mod recovery;
pub mod restart;
pub mod retention;
pub mod transactions;
pub mod upgrade;
mod watermark;
mod watermark_strategy;

pub use aligner::{Aligner, Alignment, Input, Verdict};
pub use alignment_options::AlignmentOptions;
pub use commit::{CommitPermit, PublishReceipt};
pub use coordinator::{Action, Coordinator, CoordinatorOptions, Event, FailReason};
pub use guarantee::Guarantee;
pub use key_group::{KeyGroupRange, MaxParallelism};
pub use on_error::OnError;
pub use watermark::{Progress, Watermarks};
pub use watermark_strategy::{Change, SourceWatermarks, WatermarkOptions, WatermarkStrategy};
