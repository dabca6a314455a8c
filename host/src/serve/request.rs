//! What a daemon is asked.
//!
//! Invariant: nothing here has been checked yet; the daemon does.

use std::path::PathBuf;

use serde::Deserialize;

use crate::guest::Compiler;

/// How a daemon is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonOptions {
    /// Where plugins and jobs are kept; made if it isn't there. One daemon has it at a time.
    pub data_dir: PathBuf,
    /// The largest component that is taken in.
    pub plugin_bytes_max: u64,
    /// How many plugins there may be.
    pub plugins_max: usize,
    /// How many jobs there may be, running or not.
    pub jobs_max: usize,
    /// Compiles plugins.
    pub compiler: Compiler,
}

/// A job file, or a changed one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The text of the job file. `wasm = "sha256:HEX"` names a plugin of the daemon; the component at any other path is read and
    /// taken in.
    pub job_toml: String,
    /// What relative paths in it are relative to: an absolute path on the daemon's machine. Without it there may be none.
    #[serde(default)]
    pub base_dir: Option<PathBuf>,
}

/// How a job is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMode {
    /// With a last checkpoint.
    #[default]
    Checkpoint,
    /// With a last checkpoint that is kept until somebody deletes it.
    Savepoint,
    /// At once; what was read since the last checkpoint is read again when it goes on.
    Now,
}

/// An operator's new component.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeSpec {
    /// The hash of a plugin of the daemon, with or without `sha256:` before it.
    pub plugin: String,
    /// Only try it on the newest checkpoint, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// How long the new one must run without a failure before the old one is given up. Without it, see
    /// [`PROBATION_MS_DEFAULT`].
    #[serde(default)]
    pub probation_ms: Option<u64>,
}

/// Ten seconds.
pub const PROBATION_MS_DEFAULT: u64 = 10_000;
/// An hour: checkpoints wait for so long at most.
pub const PROBATION_MS_MAX: u64 = 3_600_000;
