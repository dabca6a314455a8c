//! Which failures are worth another attempt.
//!
//! Worth it is what may pass by itself (a full disk, a busy machine, an operator that says so) and what a rollback may cure (a
//! trap, a panic). Not worth it is what stays true until somebody changes the job, its input or its store.
//!
//! Two of them are told from the rest: a cluster that is only slow to answer, and one that doesn't have what the job file names.
//!
//! Invariant: a failure that isn't worth it could never be cured by trying again; one that is in doubt is worth it.

use std::io;

use super::{CommitError, RunError, UploadError};
use crate::connector::ConnectorError;
use crate::guest::{ErrorKind, Failure, OperatorError};
use crate::state::StateError;
use crate::store::StoreError;
use crate::task::TaskError;

impl RunError {
    /// Whether the job may get further if it is tried again from its last checkpoint.
    pub fn is_worth_another_attempt(&self) -> bool {
        match self {
            RunError::Store { source, .. } | RunError::Publish { source, .. } => of_store(source),
            RunError::WorkFolder { source, .. } => of_io(source),
            RunError::Connector { source, .. } => of_connector(source),
            RunError::Commit { source, .. } => of_commit(source),
            RunError::Snapshot { source, .. } => of_upload(source),
            RunError::Task { source, .. } => of_task(source),
            RunError::Panicked { .. } | RunError::Stuck { .. } | RunError::Attempt(_) => true,
            RunError::Refused { .. }
            | RunError::Undecided { .. }
            | RunError::CheckpointMissing { .. }
            | RunError::Poison { .. }
            | RunError::GivenUp { .. } => false,
        }
    }

    /// Whether a cluster that is there gave no answer in time: then the job isn't wrong, and waiting may be all that it takes.
    pub fn is_silence(&self) -> bool {
        matches!(self.connector(), Some(ConnectorError::Silent { .. }))
    }

    /// Whether a cluster doesn't have or allow what the job file names, or has decided a checkpoint that the store hasn't. `check
    /// --connect` says the same.
    pub fn is_unfit(&self) -> bool {
        let is_older_store = matches!(self, RunError::Undecided { source, .. } if source.holds_for_any_marker());
        is_older_store || matches!(self.connector(), Some(ConnectorError::Unfit { .. }))
    }

    /// What a source or sink failed by, if one did.
    fn connector(&self) -> Option<&ConnectorError> {
        match self {
            RunError::Connector { source, .. } => Some(&**source),
            RunError::Task { source, .. } => match &**source {
                TaskError::Connector(source) => Some(source),
                TaskError::Operator(_)
                | TaskError::State { .. }
                | TaskError::Restore { .. }
                | TaskError::MissingKey { .. }
                | TaskError::InFlight { .. }
                | TaskError::Cancelled => None,
            },
            RunError::Store { .. }
            | RunError::Publish { .. }
            | RunError::WorkFolder { .. }
            | RunError::Commit { .. }
            | RunError::Snapshot { .. }
            | RunError::Panicked { .. }
            | RunError::Stuck { .. }
            | RunError::Attempt(_)
            | RunError::Refused { .. }
            | RunError::Undecided { .. }
            | RunError::CheckpointMissing { .. }
            | RunError::Poison { .. }
            | RunError::GivenUp { .. } => None,
        }
    }
}

fn of_task(error: &TaskError) -> bool {
    match error {
        TaskError::Connector(source) => of_connector(source),
        TaskError::Operator(source) => of_operator(source),
        TaskError::State { source, .. } => of_state(source),
        TaskError::Restore { source, .. } => of_store(source),
        // The same record, or file, comes again.
        TaskError::MissingKey { .. } | TaskError::InFlight { .. } => false,
        TaskError::Cancelled => true,
    }
}

fn of_operator(error: &OperatorError) -> bool {
    match &*error.failure {
        Failure::Refused { kind: ErrorKind::Transient, .. } => true,
        // It has said that the same will happen again.
        Failure::Refused { kind: ErrorKind::BadRecord | ErrorKind::Fatal, .. } => false,
        // What is too large is so again.
        Failure::Unfit { .. } | Failure::Migration(_) | Failure::StateSize { .. } => false,
        Failure::Deadline { .. }
        | Failure::Memory { .. }
        | Failure::Tables { .. }
        | Failure::Instances { .. }
        | Failure::Output { .. }
        | Failure::Panic { .. }
        | Failure::Stack { .. }
        | Failure::Trap { .. }
        | Failure::Misuse(_) => true,
        Failure::State(source) => source.is_guest_fault() || of_state(source),
    }
}

fn of_connector(error: &ConnectorError) -> bool {
    match error {
        ConnectorError::File { source, .. } => of_io(source),
        ConnectorError::Full { .. } | ConnectorError::Silent { .. } => true,
        ConnectorError::Kafka { may_pass, .. } => *may_pass,
        ConnectorError::Missing { .. }
        | ConnectorError::Refused { .. }
        | ConnectorError::Unfit { .. }
        | ConnectorError::Snapshot { .. }
        | ConnectorError::Commit { .. } => false,
    }
}

fn of_commit(error: &CommitError) -> bool {
    match error {
        CommitError::Decision { source } | CommitError::Sink { source, .. } => of_connector(source),
        CommitError::Note { source } => of_store(source),
    }
}

fn of_upload(error: &UploadError) -> bool {
    match error {
        UploadError::State { source, .. } => of_state(source),
        UploadError::Store { source, .. } | UploadError::InFlight { source, .. } => of_store(source),
        UploadError::Sink { source, .. } => of_connector(source),
        UploadError::Panicked { .. } => true,
    }
}

fn of_state(error: &StateError) -> bool {
    match error {
        StateError::Fetch { source, .. } | StateError::Upload { source, .. } => {
            source.downcast_ref::<StoreError>().is_none_or(of_store)
        }
        StateError::Background { source, .. } => of_state(source),
        StateError::File { source, .. } => of_io(source),
        StateError::Rocks { .. } | StateError::Stopped { .. } | StateError::WorkDirUsed { .. } => true,
        StateError::NoSuchTable { .. }
        | StateError::Malformed { .. }
        | StateError::Bitmap { .. }
        | StateError::ForeignKey { .. }
        | StateError::KeyTooLong { .. }
        | StateError::TooLong { .. }
        | StateError::Times { .. }
        | StateError::Timers { .. }
        | StateError::StagedTooMuch { .. }
        | StateError::ReadTooMuch { .. }
        | StateError::GivenUp { .. }
        | StateError::TableTwice { .. }
        | StateError::TooManyTables { .. }
        | StateError::TableVersion { .. }
        | StateError::NotMigrated { .. }
        | StateError::OldEntry { .. }
        | StateError::TablesDiffer { .. }
        | StateError::KeyGroups { .. }
        | StateError::FileName { .. }
        | StateError::Corrupt { .. } => false,
    }
}

fn of_store(error: &StoreError) -> bool {
    match error {
        StoreError::Full { .. } | StoreError::Io { .. } => true,
        StoreError::ReadOnly { .. }
        | StoreError::Denied { .. }
        | StoreError::Missing { .. }
        | StoreError::Damaged { .. }
        | StoreError::IdentityDamaged { .. }
        | StoreError::TooNew { .. }
        | StoreError::OtherJob { .. }
        | StoreError::OtherIdentity { .. }
        | StoreError::NoIdentity { .. }
        | StoreError::NoJob { .. }
        | StoreError::NoCheckpoint { .. }
        | StoreError::NotKept { .. }
        | StoreError::UnsafePath { .. }
        | StoreError::Exists { .. }
        | StoreError::Overtaken { .. }
        | StoreError::Fenced { .. }
        | StoreError::Retention(_)
        | StoreError::Running { .. }
        | StoreError::OtherRuns { .. } => false,
    }
}

/// A path that is wrong or closed to this user stays so.
fn of_io(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidFilename
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Call;
    use crate::id::{Name, SubtaskId};

    fn of_failure(failure: Failure) -> bool {
        let subtask = SubtaskId { operator: Name::new("op").expect("a name"), index: 0 };
        let source = TaskError::Operator(OperatorError::new(subtask, Call::Process { port: 0, rows: 1 }, failure));
        RunError::Task { chain: "op[0]".to_owned(), source: Box::new(source) }.is_worth_another_attempt()
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_the_operator_rules_out_is_not() {
        let refused = |kind| of_failure(Failure::Refused { kind, row: None, message: String::new() });
        assert!(refused(ErrorKind::Transient));
        assert!(!refused(ErrorKind::BadRecord) && !refused(ErrorKind::Fatal));
        assert!(of_failure(Failure::Trap { trap: "unreachable".to_owned() }));
        assert!(of_failure(Failure::Deadline { limit: std::time::Duration::from_secs(1) }));
    }

    #[test]
    fn a_cluster_that_is_slow_is_tried_again_and_one_without_what_the_job_names_is_not() {
        let name = || Name::new("in").expect("a name");
        let silent =
            || ConnectorError::Silent { name: name(), problem: "no answer".to_owned(), advice: "wait".to_owned() };
        let unfit =
            || ConnectorError::Unfit { name: name(), problem: "no topic".to_owned(), advice: "make it".to_owned() };
        let setup = |source| RunError::Connector { job: name(), source: Box::new(source) };
        let task = |source| RunError::Task { chain: "in".to_owned(), source: Box::new(TaskError::Connector(source)) };
        for error in [setup(silent()), task(silent())] {
            assert!(error.is_worth_another_attempt() && error.is_silence() && !error.is_unfit(), "{error}");
        }
        for error in [setup(unfit()), task(unfit())] {
            assert!(!error.is_worth_another_attempt() && !error.is_silence() && error.is_unfit(), "{error}");
        }
    }

    #[test]
    fn a_full_disk_is_tried_again_and_a_wrong_path_is_not() {
        let file = |kind: io::ErrorKind| {
            let name = Name::new("text").expect("a name");
            let source = ConnectorError::File { name, action: "read", path: "x".into(), source: kind.into() };
            of_task(&TaskError::Connector(source))
        };
        assert!(file(io::ErrorKind::Other) && !file(io::ErrorKind::NotFound) && !file(io::ErrorKind::PermissionDenied));
        let full = StoreError::Full { action: "write", path: "x".into(), source: io::ErrorKind::StorageFull.into() };
        let subtask = SubtaskId { operator: Name::new("op").expect("a name"), index: 0 };
        let state = StateError::Upload { subtask, name: "delta-1".to_owned(), source: Box::new(full) };
        assert!(of_state(&state), "also through the box in which it comes");
    }
}
