//! Whether the folders and files that a job names can be used, found out without making anything.
//!
//! Invariant: nothing is changed, and nothing is refused that a run would accept.

use std::error::Error;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::apart::check_outputs_apart;
use super::loops::check_loops;
use crate::cli::CliError;
use crate::cli::checkpoint::block_on;
use crate::config::JobFile;
use crate::connector::{
    ConnectorContext, ConnectorError, SinkOptions, SourceOptions, preview_sink, preview_source, would_read,
};
use crate::id::{Attempt, JobUid};
use crate::store::{CheckpointStore, StoreError};

/// # Errors
/// The first source that can't be read, or folder that can't be made or isn't this job's.
pub(in crate::cli) fn check_places(file: &JobFile) -> Result<(), CliError> {
    check_apart(file)?;
    check_outputs_apart(file)?;
    check_loops(file)?;
    check_folder("the state directory", &file.state_dir, "state_dir of [job]")?;
    check_folder("the checkpoint store", &file.checkpoint.store, "store of [checkpoint]")?;
    let History { job_uid, has_checkpoint, .. } = history(file)?;
    for (name, source) in &file.sources {
        match preview_source(&source.options, name) {
            // What was read to its end may be gone, and only the source knows how far it has read.
            Err(ConnectorError::Missing { .. }) if has_checkpoint => {}
            previewed => previewed.map_err(|error| refused(&error))?,
        }
    }
    for (name, sink) in &file.sinks {
        match &sink.options {
            SinkOptions::File(options) => {
                check_folder("the output folder", &options.path, &format!("path of [sink.{name}]"))?;
            }
            SinkOptions::Kafka(_) | SinkOptions::Null(_) => {}
        }
        let context = ConnectorContext {
            job: file.job.clone(),
            job_uid: job_uid.clone(),
            attempt: Attempt(0),
            name: name.clone(),
            parallelism: sink.parallelism,
        };
        preview_sink(&sink.options, &context, file.guarantee).map_err(|error| refused(&error))?;
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
fn check_apart(file: &JobFile) -> Result<(), CliError> {
    let sinks = file.sinks.iter().filter_map(|(name, sink)| match &sink.options {
        SinkOptions::File(options) => {
            let part = format!("part-1-0.{}", options.extension);
            Some((format!("path of [sink.{name}]"), options.path.clone(), vec![part]))
        }
        SinkOptions::Kafka(_) | SinkOptions::Null(_) => None,
    });
    // Files at every depth that state has.
    let of_state =
        || ["lock", "a/job.json", "a/b/lock", "a/b/c/d", "a/b/c/d/e", "a/b/c/d/e/f"].map(str::to_owned).to_vec();
    let state = [
        ("state_dir of [job]".to_owned(), file.state_dir.clone(), of_state()),
        ("store of [checkpoint]".to_owned(), file.checkpoint.store.clone(), of_state()),
    ];
    let written = sinks.chain(state).collect::<Vec<_>>();
    for (name, source) in &file.sources {
        let SourceOptions::File(options) = &source.options else { continue };
        for (key, path, files) in &written {
            let folder = resolved(path);
            if files.iter().any(|file| would_read(&options.path, &folder.join(file))) {
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
pub(super) fn resolved(path: &Path) -> PathBuf {
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        if let (Ok(real), Ok(rest)) = (place.canonicalize(), path.strip_prefix(place)) {
            return real.join(rest);
        }
    }
    std::env::current_dir().map_or_else(|_| path.to_owned(), |here| here.join(path))
}

/// The job that the checkpoint store belongs to; `None`: it is nobody's yet.
///
/// # Errors
/// If the store can't be read.
pub(super) fn own_uid(file: &JobFile) -> Result<Option<JobUid>, CliError> {
    Ok(history(file)?.own_uid)
}

/// What earlier runs of the job have left.
struct History {
    /// For a job that has never run, one that nothing belongs to.
    job_uid: JobUid,
    /// As `job_uid`, if it has run.
    own_uid: Option<JobUid>,
    has_checkpoint: bool,
}

fn history(file: &JobFile) -> Result<History, CliError> {
    block_on(async {
        match CheckpointStore::open_existing(&file.checkpoint.store, &file.job, 0).await {
            Ok(store) => {
                let has_checkpoint = !store.epochs().await?.is_empty();
                Ok(History { job_uid: store.job_uid().clone(), own_uid: Some(store.job_uid().clone()), has_checkpoint })
            }
            Err(StoreError::NoJob { .. }) => {
                Ok(History { job_uid: JobUid("none yet".to_owned()), own_uid: None, has_checkpoint: false })
            }
            Err(error) => Err(error),
        }
    })
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
