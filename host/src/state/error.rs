//! What can go wrong with keyed state, and whose fault it is.

use std::path::PathBuf;
use std::sync::Arc;

use crate::element::Malformed;
use crate::id::{KeyGroup, SubtaskId};

/// An error of the one who moves files between this room and the checkpoint store.
pub type TransferError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call on keyed state failed. After one, the call's writes are to be discarded; after one that isn't the guest's
/// fault the attempt is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("{subtask}: there is no table {table}; the operator declares {tables}")]
    NoSuchTable { subtask: SubtaskId, table: u32, tables: usize },
    #[error("{subtask}: the operator handed over malformed {what}: {source}")]
    Malformed { subtask: SubtaskId, what: &'static str, source: Malformed },
    #[error("{subtask}: the operator handed over a bitmap of {bytes} bytes for {rows} rows, which need {}", .rows.div_ceil(8))]
    Bitmap { subtask: SubtaskId, rows: usize, bytes: usize },
    #[error(
        "{subtask}: the operator touched a key of key group {}, but this subtask owns only {first} to {last}; \
         an operator may only touch the keys of the records it is given", .group.0
    )]
    ForeignKey { subtask: SubtaskId, group: KeyGroup, first: u16, last: u16 },
    #[error(
        "{subtask}: the key of a record has {bytes} bytes, and keyed state takes keys of at most {bytes_max}; it is the one \
         that begins with '{begins}'"
    )]
    KeyTooLong { subtask: SubtaskId, bytes: usize, bytes_max: usize, begins: String },
    #[error("{subtask}: a {what} of {bytes} bytes is longer than the {bytes_max} that keyed state takes")]
    TooLong { subtask: SubtaskId, what: &'static str, bytes: usize, bytes_max: usize },
    #[error("{subtask}: the operator handed over {bytes} bytes of times for {rows} timers, which need {}", .rows * 8)]
    Times { subtask: SubtaskId, rows: usize, bytes: usize },
    #[error("{subtask}: the timers of the restored checkpoint are malformed; the checkpoint is corrupt")]
    Timers { subtask: SubtaskId },
    #[error(
        "{subtask}: one call of the operator wrote {bytes} bytes of keyed state, and only {bytes_max} fit into memory; \
         let it write in smaller parts, or raise `state_memory` of its limits"
    )]
    StagedTooMuch { subtask: SubtaskId, bytes: usize, bytes_max: usize },
    #[error(
        "{subtask}: the operator asked for more than {bytes_max} bytes of values in one call; let it ask for fewer keys"
    )]
    ReadTooMuch { subtask: SubtaskId, bytes_max: usize },
    #[error(
        "{subtask}: the operator asked for more than can be read in the time of its call; let it ask for less at once"
    )]
    GivenUp { subtask: SubtaskId },

    #[error("{subtask}: the operator declares the table '{table}' twice")]
    TableTwice { subtask: SubtaskId, table: String },
    #[error("{subtask}: the operator and its snapshot have {tables} tables, more than {tables_max}")]
    TooManyTables { subtask: SubtaskId, tables: usize, tables_max: usize },
    #[error(
        "{subtask}: the checkpoint holds version {snapshot} of the table '{table}', and this operator knows no newer one than \
         version {operator}; state can't be brought back to an older version"
    )]
    TableVersion { subtask: SubtaskId, table: String, snapshot: u32, operator: u32 },
    #[error("{subtask}: the table '{table}' is still in version {from} and was not brought to version {to}")]
    NotMigrated { subtask: SubtaskId, table: String, from: u32, to: u32 },
    #[error(
        "{subtask}: an entry of the table '{table}' in the restored checkpoint is malformed; the checkpoint is corrupt"
    )]
    OldEntry { subtask: SubtaskId, table: String },
    #[error(
        "{subtask}: the snapshots of this operator's subtasks disagree about its tables; the checkpoint is corrupt"
    )]
    TablesDiffer { subtask: SubtaskId },
    #[error(
        "{subtask}: the snapshots don't hold each of the key groups {first} to {last} exactly once; the checkpoint is \
         corrupt, or the job's max_parallelism was changed"
    )]
    KeyGroups { subtask: SubtaskId, first: u16, last: u16 },
    #[error(
        "{subtask}: the checkpoint names a state file '{name}', which is no name of such a file; the checkpoint is corrupt"
    )]
    FileName { subtask: SubtaskId, name: String },
    #[error("{subtask}: the snapshot file {path} is corrupt: {problem}")]
    Corrupt { subtask: SubtaskId, path: String, problem: Corruption },
    #[error("{subtask}: cannot fetch {path} from the checkpoint store")]
    Fetch { subtask: SubtaskId, path: String, source: TransferError },
    #[error("{subtask}: cannot bring {name} to the checkpoint store")]
    Upload { subtask: SubtaskId, name: String, source: TransferError },

    #[error("{subtask}: the folder {path} for live state isn't empty; each attempt needs a new one")]
    WorkDirUsed { subtask: SubtaskId, path: PathBuf },
    #[error("{subtask}: cannot {action} {path}: {source}")]
    File { subtask: SubtaskId, action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{subtask}: RocksDB cannot {action} in {path}: {source}")]
    Rocks { subtask: SubtaskId, action: &'static str, path: PathBuf, source: rocksdb::Error },
    #[error("{subtask}: state could not be moved from memory to disk")]
    Background { subtask: SubtaskId, source: Arc<StateError> },
    #[error("{subtask}: the thread that moves state to disk has ended before its work was done")]
    Stopped { subtask: SubtaskId },
}

impl StateError {
    /// What to do about it. Where a file could not be moved, the mover's own error says more.
    pub fn help(&self) -> String {
        let help = match self {
            StateError::KeyTooLong { .. } => {
                "nothing is lost: give that record a shorter key before it reaches this operator (a hash of the long one, \
                 say), or leave it out; then run the job again"
            }
            StateError::NoSuchTable { .. }
            | StateError::Malformed { .. }
            | StateError::Bitmap { .. }
            | StateError::ForeignKey { .. }
            | StateError::TooLong { .. }
            | StateError::Times { .. }
            | StateError::StagedTooMuch { .. }
            | StateError::ReadTooMuch { .. }
            | StateError::GivenUp { .. }
            | StateError::TableTwice { .. } => {
                "this is the operator's fault; nothing is lost: correct it and run the job again"
            }
            StateError::TableVersion { .. } | StateError::TooManyTables { .. } => {
                "nothing is lost: take the operator that wrote the checkpoint, or start the job under a new name"
            }
            StateError::NotMigrated { .. } => {
                "nothing is lost: take a component that migrates the table (one of the `lockgate` SDK says how in \
                 `Operator::migrate`), or the one that wrote the checkpoint"
            }
            StateError::OldEntry { .. }
            | StateError::TablesDiffer { .. }
            | StateError::Timers { .. }
            | StateError::KeyGroups { .. }
            | StateError::FileName { .. }
            | StateError::Corrupt { .. } => {
                "restore the checkpoint store from a backup; `lockgate checkpoint verify` lists which checkpoints are whole"
            }
            StateError::Fetch { .. }
            | StateError::Upload { .. }
            | StateError::File { .. }
            | StateError::Rocks { .. }
            | StateError::Background { .. }
            | StateError::Stopped { .. }
            | StateError::WorkDirUsed { .. } => {
                "check the disk under the job's state_dir, then run the job again: it continues from its last checkpoint"
            }
        };
        help.to_owned()
    }

    /// Whether the operator or a record that it was given caused it, and not the host, the disk or the checkpoint.
    pub fn is_guest_fault(&self) -> bool {
        match self {
            StateError::NoSuchTable { .. }
            | StateError::Malformed { .. }
            | StateError::Bitmap { .. }
            | StateError::ForeignKey { .. }
            | StateError::KeyTooLong { .. }
            | StateError::TooLong { .. }
            | StateError::Times { .. }
            | StateError::StagedTooMuch { .. }
            | StateError::ReadTooMuch { .. }
            | StateError::GivenUp { .. }
            | StateError::TableTwice { .. } => true,
            StateError::TooManyTables { .. }
            | StateError::TableVersion { .. }
            | StateError::NotMigrated { .. }
            | StateError::OldEntry { .. }
            | StateError::TablesDiffer { .. }
            | StateError::Timers { .. }
            | StateError::KeyGroups { .. }
            | StateError::FileName { .. }
            | StateError::Corrupt { .. }
            | StateError::Fetch { .. }
            | StateError::Upload { .. }
            | StateError::WorkDirUsed { .. }
            | StateError::File { .. }
            | StateError::Rocks { .. }
            | StateError::Background { .. }
            | StateError::Stopped { .. } => false,
        }
    }
}

/// What is wrong with the content of a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    #[error("it doesn't begin like a delta file")]
    Magic,
    #[error("it has layout version {0}, which this host doesn't know")]
    Version(u32),
    #[error("it has {bytes} bytes instead of {expected}")]
    Length { bytes: u64, expected: u64 },
    #[error("its checksum doesn't match")]
    Checksum,
    #[error("entry {0} is malformed")]
    Entry(u64),
    #[error("it holds an entry of key group {0} or a table that don't belong to this snapshot")]
    Foreign(u16),
}
