//! Capsules: files that hold all that it takes to see one call of an operator fail again, and what is done with them.
//!
//! A capsule is made by a trial: a fresh instance of the component is brought to the state of the one that failed, and makes the call
//! while everything that it asks its host is recorded. To replay it is to make the same trial with the recorded answers.
//!
//! Invariant: a capsule changes nothing of its job, neither when it is made nor when it can't be; and a capsule that is read is as
//! hostile as any file.

mod capsule;
mod codec;
mod error;
mod examiner;
mod folder;
mod rerun;
mod suspicion;
#[cfg(test)]
mod tests;
mod write_test;

pub use capsule::{Capsule, Component, Outcome, ReadFrom, StateOf, TableOf};
pub use codec::CAPSULE_VERSION;
pub use error::ReplayError;
pub use examiner::{Examiner, FailedCall, Looked, Suspect, said_row};
pub use folder::Capsules;
pub use rerun::{Rerun, rerun, rerun_with};
pub use suspicion::{Search, Step, Suspected, Suspicion};
pub use write_test::{TestSource, write_test};
