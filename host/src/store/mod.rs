//! The checkpoint store.

mod manifest;

pub use manifest::{FileRef, KeyedSnapshot, MANIFEST_VERSION, Manifest, OperatorCheckpoint, SubtaskSnapshot, TableRef};
