//! What becomes of a record that an operator can't process.
//!
//! Invariant: whatever is chosen, a record that failed has had no effect.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The policy of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The attempt ends.
    #[default]
    Fail,
    /// It is dropped and counted.
    Skip,
    /// It goes to the operator's output `dead-letters`, with what went wrong.
    DeadLetter,
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnError::Fail => "fail",
            OnError::Skip => "skip",
            OnError::DeadLetter => "dead-letter",
        })
    }
}
