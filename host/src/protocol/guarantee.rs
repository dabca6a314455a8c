//! What a job promises of its output, whatever fails.
//!
//! Invariant: they are ordered by how much is asked of the parts of the job.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How often the effect of a record is in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Never twice; what a failure interrupts is lost.
    AtMostOnce,
    /// Never lost; after a failure some come again.
    AtLeastOnce,
    /// Once.
    #[default]
    ExactlyOnce,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::AtMostOnce => "at-most-once",
            Guarantee::AtLeastOnce => "at-least-once",
            Guarantee::ExactlyOnce => "exactly-once",
        })
    }
}
