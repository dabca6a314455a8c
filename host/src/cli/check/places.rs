//! Whether the folders and files that a job names can be used, found out without making anything.
//!
//! Invariant: nothing is changed, and nothing is refused that a run would accept.

use std::error::Error;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::cli::CliError;
use crate::cli::checkpoint::block_on;
use crate::config::JobFile;
use crate::connector::{ConnectorContext, ConnectorError, SinkOptions, SourceOptions, preview_sink, preview_source};
use crate::id::{Attempt, JobUid};
use crate::store::{CheckpointStore, StoreError};

/// # Errors
/// The first source that can't be read, or folder that can't be made or isn't this job's.
pub(super) fn check_places(file: &JobFile) -> Result<(), CliError> {
    check_apart(file)?;
    for (name, source) in &file.sources {
        preview_source(&source.options, name).map_err(|error| refused(&error))?;
    }
    check_folder("the state directory", &file.state_dir, "state_dir of [job]")?;
    check_folder("the checkpoint store", &file.checkpoint.store, "store of [checkpoint]")?;
    let job_uid = identity(file)?;
    for (name, sink) in &file.sinks {
        match &sink.options {
            SinkOptions::File(options) => {
                check_folder("the output folder", &options.path, &format!("path of [sink.{name}]"))?;
            }
            SinkOptions::Null(_) => {}
        }
        let context = ConnectorContext {
            job: file.job.clone(),
            job_uid: job_uid.clone(),
            attempt: Attempt(0),
            name: name.clone(),
            parallelism: sink.parallelism,
        };
        preview_sink(&sink.options, &context).map_err(|error| refused(&error))?;
    }
    Ok(())
}

fn refused(error: &ConnectorError) -> CliError {
    let refused = CliError::unusable(error.to_string()).help(error.help());
    error.source().map_or(refused.clone(), |cause| refused.caused_by(cause))
}

/// Whether what the job writes stays out of the folders that it reads: else it would read its own output.
///
/// # Errors
/// The first folder that doesn't.
pub(in crate::cli) fn check_apart(file: &JobFile) -> Result<(), CliError> {
    let sinks = file.sinks.iter().filter_map(|(name, sink)| match &sink.options {
        SinkOptions::File(options) => Some((format!("path of [sink.{name}]"), options.path.clone())),
        SinkOptions::Null(_) => None,
    });
    let state = [
        ("state_dir of [job]".to_owned(), file.state_dir.clone()),
        ("store of [checkpoint]".to_owned(), file.checkpoint.store.clone()),
    ];
    let written = sinks.chain(state).collect::<Vec<_>>();
    for (name, source) in &file.sources {
        let SourceOptions::File(options) = &source.options else { continue };
        let Ok(read) = options.path.canonicalize() else { continue };
        for (key, path) in &written {
            if read.is_dir() && resolved(path).starts_with(&read) {
                let (path, read) = (path.display(), options.path.display());
                let refused = format!("{key} is {path}, within {read}, which source '{name}' reads");
                return Err(
                    CliError::unusable(refused).help("keep what a job reads and what it writes in folders apart")
                );
            }
        }
    }
    Ok(())
}

/// A path without links and `..`, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        if let (Ok(real), Ok(rest)) = (place.canonicalize(), path.strip_prefix(place)) {
            return real.join(rest);
        }
    }
    std::env::current_dir().map_or_else(|_| path.to_owned(), |here| here.join(path))
}

/// The job's uid, or for a job that has never run one that nothing belongs to.
fn identity(file: &JobFile) -> Result<JobUid, CliError> {
    let store = block_on(async {
        match CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await {
            Ok(store) => Ok(Some(store.job_uid().clone())),
            Err(StoreError::NoJob { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    });
    store.map(|uid| uid.unwrap_or_else(|| JobUid("none yet".to_owned())))
}

/// Whether a folder is there and can be written to, or can be made.
fn check_folder(what: &str, path: &Path, key: &str) -> Result<(), CliError> {
    let shown = path.display();
    let help = |refused: CliError| refused.help(format!("set {key} to another folder, or change that one"));
    for place in path.ancestors() {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        match std::fs::metadata(place) {
            Ok(found) if found.is_dir() => {
                let allowed = access(place, Access::WRITE_OK | Access::EXEC_OK);
                return allowed.map_err(|error| {
                    let refused = format!("cannot write to {what} {shown}");
                    help(CliError::unusable(refused).caused_by(&std::io::Error::from(error)))
                });
            }
            Ok(_) if place == path => return Err(help(CliError::unusable(format!("{what} {shown} is not a folder")))),
            Ok(_) => {
                let refused = format!("cannot make {what} {shown}: {} is not a folder", place.display());
                return Err(help(CliError::unusable(refused)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // What stands above it is the one to name.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(error) => {
                return Err(help(CliError::unusable(format!("cannot look at {what} {shown}")).caused_by(&error)));
            }
        }
    }
    Ok(())
}
