//! A daemon: plugins and jobs in a data folder, kept over restarts, run and watched over.
//!
//! Invariant: what a request was answered with is durable before the answer, and a kill at any moment leaves every job as the last
//! answer said or as the next one would have.

mod checked;
mod daemon;
mod durable;
mod error;
mod folder;
mod info;
mod job;
mod plugin_requests;
mod plugins;
mod request;
mod run;
mod savepoints;
mod settle;
mod spec;
mod status;
mod stop;
mod submit;
mod supervise;
#[cfg(test)]
mod tests;
mod upgrade;
mod upload;

pub use checked::{JOB_TOML_BYTES_MAX, JobCheck, Unfit};
pub use daemon::Daemon;
pub use error::{ErrorKind, ServeError};
pub use info::{
    CheckpointInfo, FailureInfo, InputInfo, JobInfo, JobStatus, NewestCheckpoint, PartInfo, PartKind, PluginFacts,
    PluginInfo, RetryInfo, TableInfo, UpgradeInfo, UpgradingInfo,
};
pub use plugin_requests::{Upload, Uploaded};
pub use request::{DaemonOptions, PROBATION_MS_DEFAULT, PROBATION_MS_MAX, StopMode, Submission, UpgradeSpec};
