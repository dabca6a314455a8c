//! The file sink: two-phase, one line per record.
//!
//! Below the output folder `path`:
//!
//! | path | what | written |
//! |---|---|---|
//! | `part-<epoch>-<subtask>[-<n>].<extension>` | committed output; never changes | renamed to here by a commit |
//! | `.lockgate/owner.json` | the job and sink that own the folder | once, create-if-absent |
//! | `.lockgate/committed.json` | the newest committed epoch | after the renames of a commit, by temp, fsync, rename, fsync |
//! | `.lockgate/staging/<attempt>/part-<subtask>-<n>` | output that isn't committed | by the writers, synced at each barrier |
//!
//! A record is its value and a line feed; bytes pass unchanged, so a value with line feeds in it is several lines. An epoch in
//! which a subtask was given nothing makes no file. Other files in the folder are allowed and never touched.
//!
//! What a crash leaves behind, and who finishes it: before the manifest is published, staged files, which
//! `discard_leftovers` of the next attempt removes; after it, staged files which the next attempt commits from the
//! committables in the manifest.
//!
//! Invariant: outside `.lockgate` this sink creates files by a rename that never overwrites, and changes and removes nothing.

mod claim;
mod committable;
mod committer;
mod durable;
mod layout;
mod preview;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Deserialize;

use super::BadOption;

pub use committer::FileCommitter;
pub use preview::preview;
pub use writer::FileSinkWriter;

/// `type = "file"` of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSinkOptions {
    /// The output folder. Made if it isn't there. It belongs to one sink of one job.
    pub path: PathBuf,
    /// What the names of part files end in.
    #[serde(default = "default_extension")]
    pub extension: String,
    /// Begin another file of the same epoch when one has this size. Without it, an epoch is one file per subtask.
    #[serde(default, deserialize_with = "some_size")]
    pub roll_size: Option<u64>,
    #[serde(default)]
    pub missing_value: MissingValue,
}

/// What becomes of a record without a value, which no line can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingValue {
    /// The job fails.
    #[default]
    Error,
    /// It is left out.
    Skip,
}

/// Rolled files are many files to sync at a barrier; smaller ones would make it slow.
const ROLL_SIZE_MIN: u64 = 64 << 10;

fn default_extension() -> String {
    "txt".to_owned()
}

fn some_size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    crate::units::size::deserialize(from).map(Some)
}

impl FileSinkOptions {
    pub(super) fn validate(&self) -> Result<(), BadOption> {
        if self.path.as_os_str().is_empty() {
            return Err(BadOption::new("path", "''", "name the output folder"));
        }
        if !committable::is_extension(&self.extension) {
            let reason = "it must be 1 to 16 letters, digits and single dots between them";
            return Err(BadOption::new("extension", format!("'{}'", self.extension), reason));
        }
        match self.roll_size {
            Some(bytes) if bytes < ROLL_SIZE_MIN => {
                Err(BadOption::new("roll_size", crate::units::size::format(bytes), "it must be at least 64KiB"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
