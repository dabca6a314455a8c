//! Bounded links between tasks, and the inputs of a task, each of which can be held back alone.
//!
//! Invariant: what is queued on a link stays within its [`Capacity`] and what one element of its sender became, because a task
//! begins an element only while all links out of it have room.

mod inputs;
mod link;

pub use inputs::{Inputs, Received};
pub use link::{Announce, Capacity, Closed, Receiver, Sender, link};
