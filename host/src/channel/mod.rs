//! Bounded links between tasks, and the inputs of a task, each of which can be held back alone.
//!
//! Invariant: what is queued on a link never exceeds its [`Capacity`], in batches and in bytes, except that one batch larger
//! than the whole byte capacity may pass alone.

mod inputs;
mod link;

pub use inputs::{Inputs, Received};
pub use link::{Capacity, Closed, Receiver, Sender, link};
