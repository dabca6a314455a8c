//! What a job says of the alignment of its barriers.
//!
//! Invariant: it is about exactly-once alone; a job that promises less holds an input behind the last barrier alone.

use std::time::Duration;

/// What becomes of an input that has delivered a barrier while others haven't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlignmentOptions {
    /// It is held until they have.
    #[default]
    Aligned,
    /// The same for this time; then the barrier overtakes what is queued, which becomes part of the checkpoint. With no time
    /// at all it overtakes at once.
    Unaligned { timeout: Duration },
}
