//! Why a daemon can't do what it is asked.
//!
//! Invariant: every error has a kind, by which whoever asked knows whether to ask otherwise, later, or not at all.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use crate::graph::GraphError;
use crate::guest::GuestError;
use crate::id::{Epoch, Name, PluginHash};
use crate::runtime::RunError;
use crate::store::StoreError;
use crate::units;

/// What whoever asked can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Ask for something else: what was given can't be used.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// It can't be now, as things are: in use, running, or the name is taken.
    Conflict,
    /// It is larger than the daemon takes.
    TooLarge,
    /// There are as many as the daemon takes, or it is shutting down.
    Busy,
    /// The daemon's own trouble, such as a full disk.
    Failed,
}

/// Why a request wasn't done, or the daemon can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("cannot {action} {}", path.display())]
    Folder { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the data folder {} is in use by another daemon ({process})", path.display())]
    Locked { path: PathBuf, process: String },
    #[error("{} is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("cannot start a thread: {source}")]
    Thread { source: io::Error },

    #[error("'{given}' is not the hash of a plugin")]
    BadHash { given: String },
    #[error("there is no plugin {hash}")]
    NoPlugin { hash: PluginHash },
    #[error("plugin {hash} is used by {}", named(.jobs))]
    PluginInUse { hash: PluginHash, jobs: Vec<Name> },
    #[error("the component is larger than {}, the most that this daemon takes", units::size::format(*.limit_bytes))]
    PluginTooLarge { limit_bytes: u64 },
    #[error("there are {plugins_max} plugins, the most that this daemon keeps")]
    TooManyPlugins { plugins_max: usize },
    #[error("{uploads_max} uploads are under way, the most at a time")]
    TooManyUploads { uploads_max: usize },
    #[error(transparent)]
    Plugin { source: GuestError },

    #[error("'{given}' is not the name of a job")]
    BadName { given: String },
    #[error("there is no job '{job}'")]
    NoJob { job: Name },
    #[error("there is a job '{job}' already")]
    JobExists { job: Name },
    #[error("there are {jobs_max} jobs, the most that this daemon keeps")]
    TooManyJobs { jobs_max: usize },
    #[error("the job file is larger than {}", units::size::format(*.limit_bytes))]
    JobFileTooLarge { limit_bytes: u64 },
    #[error(transparent)]
    JobFile { source: Box<ConfigError> },
    #[error("the job '{job}' can't be planned: {source}")]
    Graph { job: Name, source: Box<GraphError> },
    #[error("base_dir '{}' is not an absolute path", base_dir.display())]
    BaseDir { base_dir: PathBuf },
    #[error("{key} is '{}', a relative path, and no base_dir says what it is relative to", path.display())]
    RelativePath { key: String, path: PathBuf },
    #[error("{message}")]
    Unfit { message: String, help: Option<String> },
    #[error("the changed job file is of the job '{found}', not of '{job}'")]
    OtherName { job: Name, found: Name },
    #[error("the job '{job}' can't continue from its newest checkpoint")]
    CannotContinue { job: Name, source: Box<RunError> },
    #[error("the job '{job}' is {status}")]
    WrongStatus { job: Name, status: &'static str, help: &'static str },
    #[error("another request is changing the job '{job}'")]
    Changing { job: Name },
    #[error("the job '{job}' was stopped meanwhile")]
    StoppedMeanwhile { job: Name },
    #[error("the job '{job}' has no checkpoint to keep")]
    NothingToKeep { job: Name },
    #[error("cannot take a checkpoint of the job '{job}': {problem}")]
    NoCheckpoint { job: Name, problem: String },
    #[error("the job '{job}' has {}", savepoints(.epochs))]
    HasSavepoints { job: Name, epochs: Vec<Epoch> },
    #[error("checkpoint {epoch} of the job '{job}' is no savepoint")]
    NoSavepoint { job: Name, epoch: Epoch },
    #[error(transparent)]
    Store { source: StoreError },

    #[error("the job '{job}' has no operator '{operator}'")]
    NoOperator { job: Name, operator: String, known: Vec<Name> },
    #[error("probation_ms is {given}; {limit} is the most")]
    Probation { given: u64, limit: u64 },
    #[error("operator '{operator}' of the job '{job}' was not upgraded: {why}")]
    UpgradeRefused { job: Name, operator: Name, why: String },
    #[error("the new component of operator '{operator}' of the job '{job}' failed, and the old one is back: {why}")]
    UpgradeReverted { job: Name, operator: Name, why: String },
    #[error("the job '{job}' ended before the new component of operator '{operator}' was adopted")]
    UpgradeStopped { job: Name, operator: Name },
    #[error("it isn't known yet what became of an earlier upgrade of operator '{operator}' of the job '{job}'")]
    UpgradeOpen { job: Name, operator: Name },
}

fn named(jobs: &[Name]) -> String {
    let names = jobs.iter().map(|job| format!("'{job}'")).collect::<Vec<_>>().join(", ");
    if jobs.len() == 1 { format!("the job {names}") } else { format!("the jobs {names}") }
}

fn savepoints(epochs: &[Epoch]) -> String {
    let numbers = epochs.iter().map(Epoch::to_string).collect::<Vec<_>>().join(", ");
    if epochs.len() == 1 { format!("a savepoint: {numbers}") } else { format!("savepoints: {numbers}") }
}

impl ServeError {
    pub(super) fn folder(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServeError {
        let path = path.to_owned();
        move |source| ServeError::Folder { action, path, source }
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            ServeError::BadHash { .. }
            | ServeError::BadName { .. }
            | ServeError::Plugin { .. }
            | ServeError::JobFile { .. }
            | ServeError::Graph { .. }
            | ServeError::BaseDir { .. }
            | ServeError::RelativePath { .. }
            | ServeError::Unfit { .. }
            | ServeError::OtherName { .. }
            | ServeError::Probation { .. } => ErrorKind::Invalid,
            ServeError::NoPlugin { .. }
            | ServeError::NoJob { .. }
            | ServeError::NoSavepoint { .. }
            | ServeError::NoOperator { .. } => ErrorKind::NotFound,
            ServeError::Locked { .. }
            | ServeError::PluginInUse { .. }
            | ServeError::JobExists { .. }
            | ServeError::CannotContinue { .. }
            | ServeError::WrongStatus { .. }
            | ServeError::Changing { .. }
            | ServeError::StoppedMeanwhile { .. }
            | ServeError::NothingToKeep { .. }
            | ServeError::NoCheckpoint { .. }
            | ServeError::HasSavepoints { .. }
            | ServeError::UpgradeRefused { .. }
            | ServeError::UpgradeReverted { .. }
            | ServeError::UpgradeStopped { .. }
            | ServeError::UpgradeOpen { .. } => ErrorKind::Conflict,
            ServeError::PluginTooLarge { .. } | ServeError::JobFileTooLarge { .. } => ErrorKind::TooLarge,
            ServeError::TooManyPlugins { .. }
            | ServeError::TooManyUploads { .. }
            | ServeError::TooManyJobs { .. }
            | ServeError::ShuttingDown => ErrorKind::Busy,
            ServeError::Folder { .. } | ServeError::Damaged { .. } | ServeError::Thread { .. } => ErrorKind::Failed,
            ServeError::Store { source: StoreError::NoJob { .. } | StoreError::NoCheckpoint { .. } } => {
                ErrorKind::NotFound
            }
            ServeError::Store { source: StoreError::Running { .. } | StoreError::OtherRuns { .. } } => {
                ErrorKind::Conflict
            }
            ServeError::Store { .. } => ErrorKind::Failed,
        }
    }

    /// What to do about it, where there is more to say than the error itself does.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            ServeError::Folder { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free space on that disk and ask again; nothing was changed"
            }
            ServeError::Folder { .. } => "check that folder's permissions and disk, then ask again",
            ServeError::Locked { .. } => "stop that daemon first, or give this one another data folder",
            ServeError::Damaged { .. } => "put that file back from a backup",
            ServeError::ShuttingDown => "ask again when it has started",
            ServeError::Thread { .. } => "raise the limit of threads of this user, or stop some jobs",
            ServeError::BadHash { .. } => "a hash is 64 hexadecimal digits, with or without 'sha256:' before them",
            ServeError::NoPlugin { .. } => "list the plugins, or upload it first",
            ServeError::PluginInUse { .. } => "delete those jobs first, or upgrade them to another plugin",
            ServeError::PluginTooLarge { .. } => "build the component without debug information",
            ServeError::TooManyPlugins { .. } => "remove plugins that no job uses",
            ServeError::TooManyUploads { .. } => "ask again when one of them has ended",
            ServeError::Plugin { source } => return Some(source.help()),
            ServeError::BadName { .. } => "a name is 1 to 64 letters, digits, '_' or '-'",
            ServeError::NoJob { .. } => "list the jobs to see which there are",
            ServeError::JobExists { .. } => "restart it with the changed job file, delete it, or take another name",
            ServeError::TooManyJobs { .. } => "delete jobs that are stopped",
            ServeError::JobFileTooLarge { .. } => "a job file is a TOML text of some lines",
            ServeError::JobFile { source } => {
                return source.help().or_else(|| Some("correct the job file and submit it again".to_owned()));
            }
            ServeError::Graph { source, .. } => return Some(source.help()),
            ServeError::BaseDir { .. } => "give the whole path of the folder on the daemon's machine",
            ServeError::RelativePath { .. } => "give base_dir, or make the path absolute",
            ServeError::Unfit { help, .. } => return help.clone(),
            ServeError::OtherName { .. } => "submit it as a job of its own",
            ServeError::CannotContinue { source, .. } => return source.help(),
            ServeError::WrongStatus { help, .. } => help,
            ServeError::Changing { .. } => "ask again when it is done",
            ServeError::StoppedMeanwhile { .. } => "restart it if it is to run",
            ServeError::NothingToKeep { .. } => "a job has one as soon as it has run for a while",
            ServeError::NoCheckpoint { .. } => "look at the job's status, then ask again",
            ServeError::HasSavepoints { .. } => "delete them first: they are yours, and go with the job",
            ServeError::NoSavepoint { .. } => "list its checkpoints to see which are kept",
            ServeError::Store { source } => return source.help(),
            ServeError::NoOperator { known, .. } => {
                let known = known.iter().map(Name::to_string).collect::<Vec<_>>().join(", ");
                return Some(format!("its operators are: {known}"));
            }
            ServeError::Probation { .. } => "while it lasts no checkpoint is taken: seconds are enough",
            ServeError::UpgradeRefused { .. } => "nothing was touched; see the reasons",
            ServeError::UpgradeReverted { .. } => "nothing was lost or doubled; correct the component and try again",
            ServeError::UpgradeStopped { .. } => {
                "nothing was lost; the job's plugins say which component it has, or its next run finds out"
            }
            ServeError::UpgradeOpen { .. } => "ask again when the job runs: it finds out before it reads anything",
        };
        Some(help.to_owned())
    }

    /// What caused it, from the nearest to the farthest.
    pub fn causes(&self) -> Vec<String> {
        causes_of(self)
    }
}

/// What caused an error, each said once.
pub(super) fn causes_of(error: &dyn Error) -> Vec<String> {
    let (mut causes, mut said, mut cause) = (Vec::new(), error.to_string(), error.source());
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            causes.push(text.clone());
            said = text;
        }
        cause = error.source();
    }
    causes
}

/// An error and all that caused it, on one line.
pub(super) fn with_causes(error: &dyn Error) -> String {
    std::iter::once(error.to_string()).chain(causes_of(error)).collect::<Vec<_>>().join(": ")
}

impl From<StoreError> for ServeError {
    fn from(source: StoreError) -> ServeError {
        ServeError::Store { source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_to_be_one_and_is_the_daemons_own_trouble() {
        let error = ServeError::folder("write", Path::new("/data/x"))(io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.to_string().contains("/data/x"), "{error}");
        assert!(error.help().is_some_and(|help| help.contains("nothing was changed")));
        assert_eq!(error.causes(), ["no storage space"]);
    }

    #[test]
    fn jobs_and_savepoints_in_the_way_are_all_named() {
        let name = |name| Name::new(name).expect("a name");
        let hash = PluginHash::new(&"a".repeat(64)).expect("a hash");
        let error = ServeError::PluginInUse { hash, jobs: vec![name("a"), name("b")] };
        assert!(error.to_string().ends_with("is used by the jobs 'a', 'b'"), "{error}");
        let error = ServeError::HasSavepoints { job: name("a"), epochs: vec![Epoch(3), Epoch(9)] };
        assert_eq!(error.to_string(), "the job 'a' has savepoints: 3, 9");
    }
}
