//! The checkpoint store: a job's identity, attempts, uploaded files and manifests, on `object_store`.
//!
//! The durable steps of a run, and what a crash after each leaves:
//!
//! | step | crash point | left behind | who deals with it |
//! | --- | --- | --- | --- |
//! | create `job.json` | `store.identity` | an identity without checkpoints | the next run takes it up |
//! | claim an attempt | `store.claim` | a number that nobody uses | the next claim is greater |
//! | upload a file | `store.upload` | a file that no manifest reaches, or a part of one (`#1`) | retention of the next attempt |
//! | record progress (at-most-once) | `store.progress` | a record that nothing follows, or half of one | the next attempt goes on from there; the half is written anew |
//! | publish a manifest | `store.publish` | a checkpoint that isn't committed | the next run commits it |
//! | mark a checkpoint as kept | `store.keep` | a checkpoint that stays though nobody was told so | whoever lists them, and deletes it |
//! | remove such a mark | `store.release` | the mark, or not | the same, or the next retention |
//! | delete a manifest | `store.retain-manifest` | files that no manifest reaches | retention of the next attempt |
//! | delete a file | `store.retain-file` | more of them | the same |
//!
//! Each step has the crash points `<name>.before` and `<name>.after`. A file is written under a name of its own
//! (`<name>#1`), synced, given its name by a link or rename, and then its folder is synced: a crash in between leaves the old
//! state or the new one, and a power cut can't take back what was reported as done.
//!
//! Invariant: nothing here decides what to restore, commit or keep; `protocol` does.

mod checkpoints;
mod codec;
mod disk;
mod error;
mod fetch;
mod identity;
pub mod in_flight;
mod keep;
mod layout;
mod listing;
mod lock;
mod manifest;
mod progress;
mod retain;
#[cfg(test)]
pub(crate) mod sample;
mod sealed;
#[cfg(test)]
pub(crate) mod tests;
mod upload;

pub use checkpoints::CheckpointStore;
pub use codec::ManifestError;
pub use error::StoreError;
pub use fetch::VerifyReport;
pub use in_flight::{EdgeRef, InFlightSnapshot};
pub use listing::{CheckpointContent, ListedCheckpoint};
pub use lock::JobLock;
pub use manifest::{FileRef, KeyedSnapshot, MANIFEST_VERSION, Manifest, OperatorCheckpoint, SubtaskSnapshot, TableRef};
pub use progress::{ProgressLog, ProgressOf, take_up_progress};
pub use retain::Retained;
pub use sealed::{Damage, seal, unseal};
pub use upload::FileUploader;
