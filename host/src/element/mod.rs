//! What travels a channel: columnar batches, watermarks, barriers, ends.
//!
//! Invariant: a [`Batch`] is well formed: offsets are monotone and within their bytes, every column has `rows` rows, headers can be
//! read. Whatever comes from outside passes [`Batch::check`] first.

mod batch;
mod column;
mod headers;
mod provenance;

use std::sync::Arc;

use crate::id::Epoch;

pub use batch::{Batch, Malformed, Row};
pub use column::Column;
pub use headers::{BadHeaders, Header, Headers};
pub use provenance::{Origin, Provenance};

/// The event time of a record that has none.
pub const NO_TIMESTAMP: i64 = i64::MIN;
/// The watermark after which no record comes.
pub const WATERMARK_END: i64 = i64::MAX;

/// What a channel carries.
#[derive(Clone, Debug)]
pub enum Element {
    Batch(Arc<Batch>),
    /// No record with an event time at or before this one (ms since the Unix epoch) is to come from this input.
    Watermark(i64),
    Barrier(Barrier),
    /// This input says nothing for a while and doesn't hold back the watermark.
    Idle,
    /// This input is back.
    Active,
    /// Nothing comes after this.
    End,
}

/// A cut through the stream: what is before it belongs to checkpoint `epoch`, what is after doesn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    pub epoch: Epoch,
    pub purpose: Purpose,
}

/// What follows a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The stream goes on.
    Continue,
    /// The job stops (or its input has ended): after the barrier only `End` follows.
    Last,
}
