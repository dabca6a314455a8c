//! The verbs that ask a daemon: jobs and plugins of `lockgate serve`.
//!
//! Invariant: with `--json` a verb prints what the daemon has answered, and nothing else on standard output.

pub(super) mod control;
pub(super) mod jobs;
pub(super) mod plugin;
pub(super) mod savepoint;
pub(super) mod status;
pub(super) mod submit;
mod table;
pub(super) mod upgrade;
mod working;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::{CliError, print};
use crate::id::Name;

pub(super) use control::{DeleteArgs, RestartArgs, StopArgs};
pub(super) use jobs::ListArgs;
pub(super) use savepoint::SavepointArgs;
pub(super) use status::StatusArgs;
pub(super) use submit::SubmitArgs;

/// Prints an answer: as it came, or as a text that is made of it.
fn show<T: DeserializeOwned>(answer: &Value, json: bool, text: impl FnOnce(T) -> String) -> Result<(), CliError> {
    if json {
        let text = serde_json::to_string_pretty(answer);
        let text = text.map_err(|error| CliError::failed("cannot print").caused_by(&error))?;
        return print::out(&format!("{text}\n"));
    }
    print::out(&text(read(answer)?))
}

/// The part of an answer that a verb needs. An answer of a newer daemon may have more.
fn read<T: DeserializeOwned>(answer: &Value) -> Result<T, CliError> {
    T::deserialize(answer).map_err(|error| {
        let failed = CliError::failed("the daemon's answer isn't understood").caused_by(&error);
        failed.help("it may be of another version than this lockgate; --json prints what it says")
    })
}

/// The path of a job.
///
/// # Errors
/// If it is no name, so that no job has it.
fn job_path(job: &str) -> Result<String, CliError> {
    let name = Name::new(job).map_err(|error| {
        CliError::unusable(error.to_string())
            .help("name a job as lockgate list does; only submit and restart take a job file")
    })?;
    Ok(format!("/v1/jobs/{name}"))
}
