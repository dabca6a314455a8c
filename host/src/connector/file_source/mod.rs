//! The file source: every line of every file is a record.
//!
//! Which files: `path` is a file, a folder (with all below it) or a glob (`*` and `?` stay within a name, `**` crosses
//! folders). Names that begin with `.` or end in `~` or `.tmp`, and everything in folders whose name begins with `.`, are passed
//! over unless `path` is that very file. Symbolic links to files are followed, those to folders aren't; what is no regular
//! file is passed over with a warning. Write a file under such a name and rename it when it is complete. A name belongs to its file for ever:
//! replacing a file that was read, or reusing its name, is an error.
//!
//! What is a line: it ends with `\n`, `\r\n` or `\r`, which is not part of it; any bytes may be in it; an empty line is a
//! record. A last line without an end is one too: in bounded mode at the end of the file, in continuous mode when the file hasn't
//! grown for `settle`. If the file grows after that, a line end at that place ends that same line, and anything else begins
//! the next record. A record's value is the line; it has no key and no event time.
//!
//! A split is a file, named by its path below `path` with bytes that aren't UTF-8 (and `%`) as `%XX`. It belongs to subtask
//! XXH3-64(name) modulo parallelism. Its position is as in `position`.
//!
//! Event time waits for every file that is known of and not read to its end, unless the files are `ordered`: their lines may be of the
//! same time, and are given file by file.
//!
//! Invariant: a position is always the beginning of a line, and what is before it has been given in batches exactly once.

mod lines;
mod listing;
mod names;
mod open_file;
mod position;
mod preview;
mod reader;

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::BadOption;
use crate::units;

pub use preview::{preview, would_read};
pub use reader::FileReader;

/// `type = "file"` of a source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSourceOptions {
    /// A file, a folder or a glob.
    pub path: PathBuf,
    #[serde(default)]
    pub mode: FileMode,
    /// How often files are looked for that are new or have grown (continuous).
    #[serde(default = "default_discover_interval", with = "units::duration")]
    pub discover_interval: Duration,
    /// After this time without growth a last line without an end is a record (continuous).
    #[serde(default = "default_settle", with = "units::duration")]
    pub settle: Duration,
    /// Whether no event time in a file is before those of the files whose names come before its own, as in a log that is split by day.
    #[serde(default)]
    pub ordered: bool,
    /// A longer line, in bytes without its end, is an error.
    #[serde(default = "default_max_line", with = "units::size")]
    pub max_line: u64,
}

/// When the source ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileMode {
    /// When the files that were there at the start are read to the size they had when they were opened. The next run reads what
    /// has come since.
    #[default]
    Bounded,
    /// Never.
    Continuous,
}

fn default_discover_interval() -> Duration {
    Duration::from_secs(1)
}

fn default_settle() -> Duration {
    Duration::from_secs(2)
}

fn default_max_line() -> u64 {
    1 << 20
}

const MAX_LINE_MAX: u64 = 1 << 30;

impl FileSourceOptions {
    pub(super) fn validate(&self) -> Result<(), BadOption> {
        if self.path.as_os_str().is_empty() {
            return Err(BadOption::new("path", "''", "name a file, a folder or a glob"));
        }
        if !(1..=MAX_LINE_MAX).contains(&self.max_line) {
            let value = units::size::format(self.max_line);
            return Err(BadOption::new("max_line", value, "it must be 1B to 1GiB"));
        }
        Ok(())
    }

    pub(super) fn is_bounded(&self) -> bool {
        match self.mode {
            FileMode::Bounded => true,
            FileMode::Continuous => false,
        }
    }
}
