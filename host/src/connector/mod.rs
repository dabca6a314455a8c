//! What a job is connected to: sources that can be replayed, sinks that commit.
//!
//! A source or sink is driven from the one thread of its task and may block for a few milliseconds, not more.
//!
//! Invariant: what a sink has written is invisible to its readers until the [`SinkCommitter`] has been given a
//! [`CommitPermit`](crate::protocol::CommitPermit).

mod event_time;
mod file_sink;
mod file_source;
mod generator;
mod id_blocks;
pub mod kafka;
mod kafka_sink;
mod kafka_source;
mod nexmark;
mod null_sink;
mod numbered;
mod options;
mod rate;
mod sinks;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::element::Batch;
use crate::id::{Attempt, Epoch, JobUid, Name, SplitId, SubtaskId};
use crate::protocol::CommitPermit;
use crate::protocol::decision::{DecisionPlace, Digest, Marker};

pub use event_time::{EventTimeOptions, OnMissing, Pointer, TimeFrom, TimeUnit};
pub use file_sink::{FileSinkOptions, MissingValue};
pub use file_source::{FileMode, FileSourceOptions, would_read};
pub use generator::{EventTime, GeneratorKind, GeneratorOptions, KeyOrder, words_line};
pub use kafka_sink::{KafkaSinkOptions, Partition, marker_place, peek_marker};
pub use kafka_source::{
    Isolation, KafkaMode, KafkaSourceOptions, Start, bad_starts, deleted_advice, lost_positions, topics_of,
};
pub use nexmark::NexmarkOptions;
pub use null_sink::{NullSinkOptions, NullSinkWriter};
pub use options::{
    BadOption, SinkOptions, SourceOptions, check_sink, check_source, open_reporter, open_source, preview_sink,
    preview_source,
};
pub use sinks::{OpenSinks, SinkToOpen};

/// Where a split of a source stands: everything before is part of the checkpoint, everything from here on will be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitState {
    /// The split's name, unique within its source and stable over restarts and changes of parallelism.
    pub split: String,
    /// The source's own record of its position, as JSON.
    pub position: serde_json::Value,
}

/// What a source has to give at the moment.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is a batch nearly always, and moves a few times at most")]
pub enum Polled {
    /// Records of one split. The first of them is at `first_offset`: what that counts is the source's own.
    Batch { split: SplitId, first_offset: u64, batch: Batch },
    /// Nothing now; ask again after this time.
    Idle(Duration),
    /// Nothing ever again (a bounded source). Asked again, it says so again.
    Ended,
}

/// Records that a client of a source or sink holds, beside those that are in channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    pub records: u64,
    pub bytes: u64,
}

/// What has happened to a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChange {
    /// It has something to give, now or when it is its turn: event time waits for it until it has.
    Begins,
    /// It has nothing more for now.
    Rests,
    /// It will never have anything again.
    Ended,
}

/// One subtask of a source. Splits are dealt to subtasks by a hash of their name, so that every subtask can tell which are
/// its own without asking.
pub trait SourceReader: Send {
    /// Takes up the positions of a checkpoint: those of all subtasks, of which this one takes its own splits. Called once,
    /// before the first `poll`, and only if there is a checkpoint.
    ///
    /// # Errors
    /// If a split can't be replayed from there any more.
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError>;
    /// # Errors
    /// If the source can't be read.
    fn poll(&mut self) -> Result<Polled, ConnectorError>;
    /// The positions of this subtask's splits after the last batch that `poll` gave; before the first `poll`, those that it was
    /// restored from. Not asked while it [`is_ahead`](Self::is_ahead).
    fn snapshot(&self) -> Vec<SplitState>;
    /// Whether its positions are ahead of what it has given, or aren't certain yet: then `poll` is to be called before a barrier
    /// until they are neither.
    fn is_ahead(&self) -> bool {
        false
    }
    /// The splits that were begun before this attempt and will go on. Asked once, before the first `poll`.
    fn begun_splits(&self) -> Vec<SplitId> {
        Vec::new()
    }
    /// What has happened to splits since this was asked last, in its order; to be asked after each `poll`.
    fn split_changes(&mut self) -> Vec<(SplitId, SplitChange)> {
        Vec::new()
    }
    /// Whether it gives the records of all its splits in one order, so that no split can be behind another one.
    fn merges_splits(&self) -> bool {
        false
    }
    /// How many records there are between what it has given and the end of its splits, if that is known.
    fn lag(&self) -> Option<u64> {
        None
    }
    /// What it holds of records that were fetched and not given yet, if it holds any at all.
    fn queued(&self) -> Option<Queued> {
        None
    }
}

/// Tells others how far a source has got, once that is committed. Nothing depends on it.
pub trait ProgressReporter: Send + Sync {
    /// `splits`: of all subtasks.
    ///
    /// # Errors
    /// If it could not be told; the job goes on.
    fn committed(&self, splits: &[SplitState]) -> Result<(), ConnectorError>;
}

/// The work that makes a prepared epoch durable, done off the stream's path; gives the committable.
pub type Prepare = Box<dyn FnOnce() -> Result<Vec<u8>, ConnectorError> + Send>;

/// One subtask of a sink.
pub trait SinkWriter: Send {
    /// # Errors
    /// If the output can't be written; the attempt ends.
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError>;
    /// For how long it can't take the next batch, or how soon to ask again. It isn't given one before. Asked after each `write` and
    /// `prepare`, and when the time is over.
    fn busy_for(&mut self) -> Duration {
        Duration::ZERO
    }
    /// What it holds of records that were written and are not acknowledged yet, if it holds any at all.
    fn queued(&self) -> Option<Queued> {
        None
    }
    /// Cuts the output at a barrier. What was written before belongs to `epoch`; the returned work makes it durable and still
    /// invisible, and gives bytes (empty if there is nothing to commit) from which another process can commit it.
    ///
    /// # Errors
    /// If the output can't be cut; the attempt ends.
    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare, ConnectorError>;
}

/// The commit side of a sink, one for all its subtasks.
pub trait SinkCommitter: Send + Sync {
    /// The newest epoch that is known to be committed, if the sink remembers any. A job that would continue from an older
    /// checkpoint is refused, since it would put out again what its readers have already.
    fn committed(&self) -> Option<Epoch>;
    /// Makes an epoch's output visible. Idempotent: a committable that was committed before, by this process or another one,
    /// is no error.
    ///
    /// # Errors
    /// If the outcome isn't certain or output is lost. The attempt ends; the next one tries again.
    fn commit(&self, permit: &CommitPermit, committables: &[Vec<u8>]) -> Result<(), ConnectorError>;
    /// Removes what attempts before this one left and no checkpoint will commit. Called once, after the committables of the
    /// restored checkpoint (if there is one) are committed and before the first `write`.
    ///
    /// # Errors
    /// If the leftovers can't be listed or removed.
    fn discard_leftovers(&self) -> Result<(), ConnectorError>;
    /// The attempt has failed: work that its writers have prepared, and that waits for others, ends soon with an error. What is
    /// committed stays so.
    fn give_up(&self) {}
}

/// Those sinks of a job that can't prepare their output and make it visible later, but have one transaction whose commit is the
/// decision over a checkpoint: it holds their output, and a marker that says which checkpoint it is. At most one of a job.
pub trait Decider: Send + Sync {
    /// Where its marker is.
    fn place(&self) -> &DecisionPlace;
    /// Whether there is anything at all in which there could be a marker. Changes nothing.
    ///
    /// # Errors
    /// If nobody says.
    fn has_marker_topic(&self) -> Result<bool, ConnectorError>;
    /// The marker that can be read at the moment, which may not be the newest. Shuts out nobody and changes nothing. `None`: there is
    /// none, or nothing in which there could be one.
    ///
    /// # Errors
    /// If it can't be read.
    fn peek(&self) -> Result<Option<Marker>, ConnectorError>;
    /// Shuts out all other processes that would decide for this job: what they had open is aborted, what they were committing is
    /// waited for. Then reads what was decided last; `None`: there is no marker. Called once, before all others.
    ///
    /// # Errors
    /// If that isn't certain, or the marker is of another job: then nobody was shut out.
    fn take_over(&self) -> Result<Option<Marker>, ConnectorError>;
    /// Makes this the marker, without any output.
    ///
    /// # Errors
    /// If that isn't certain.
    fn adopt(&self, decided: Option<(Epoch, Digest)>) -> Result<(), ConnectorError>;
    /// Commits the output of the permit's epoch with its marker, and with the positions of those sources that it
    /// [`covers`](Self::covers). On return the marker has been read back.
    ///
    /// # Errors
    /// If it isn't certain that it is decided. The attempt ends; the next one takes over and asks.
    fn decide(&self, permit: &CommitPermit, positions: &BTreeMap<Name, Vec<SplitState>>) -> Result<(), ConnectorError>;
    /// The checkpoint of this epoch is over without a decision, since nothing had changed: no subtask has written anything.
    fn discarded(&self, epoch: Epoch);
    /// Whether it commits the positions of this source.
    fn covers(&self, source: &Name) -> bool;
    /// The attempt is over: aborts what is open, as well as that goes in a second.
    fn close(&self);
}

/// What a connector is told about the job it serves.
#[derive(Clone, Debug)]
pub struct ConnectorContext {
    pub job: Name,
    pub job_uid: JobUid,
    pub attempt: Attempt,
    /// The source or sink.
    pub name: Name,
    pub parallelism: u32,
}

/// What can go wrong at the edges of a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    #[error("{name}: cannot {action} {}", path.display())]
    File { name: Name, action: &'static str, path: PathBuf, source: io::Error },
    /// Nothing is lost by it: what isn't committed is replayed.
    #[error("{name}: cannot {action} {}: the disk is full", path.display())]
    Full { name: Name, action: &'static str, path: PathBuf, source: io::Error },
    /// The one file or folder that a source is to read isn't there.
    #[error("{name}: cannot find {}: there is no such file or folder", path.display())]
    Missing { name: Name, path: PathBuf },
    /// What the user gave can't be used. `advice` says what to do.
    #[error("{name}: {problem}")]
    Refused { name: Name, problem: String, advice: String },
    /// A checkpoint's position or committable can't be used.
    #[error("{subtask}: cannot take up '{what}' from the checkpoint: {problem}")]
    Snapshot { subtask: SubtaskId, what: String, problem: String },
    /// A Kafka cluster doesn't have, or doesn't allow, what the job file names or its checkpoint goes on from: the job can't run on it. `advice` says what to do.
    #[error("{name}: {problem}")]
    Unfit { name: Name, problem: String, advice: String },
    /// A Kafka cluster that is there gives no answer in time. Nothing is lost by it, and asking again may be all that it takes.
    #[error("{name}: {problem}")]
    Silent { name: Name, problem: String, advice: String },
    /// A Kafka cluster, or what it said. `may_pass`: whether trying again from the last checkpoint may help.
    #[error("{name}: {problem}")]
    Kafka { name: Name, problem: String, advice: String, may_pass: bool },
    /// A published epoch can't be made visible as it was prepared. Nothing was overwritten. `advice` says what to do.
    #[error("{name}: cannot commit epoch {epoch}: {problem}")]
    Commit { name: Name, epoch: Epoch, problem: String, advice: String },
}

impl ConnectorError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            ConnectorError::File { .. } => {
                "check the path, its permissions and the disk, then run the job again: it continues from its last \
                 checkpoint and nothing is lost"
                    .to_owned()
            }
            ConnectorError::Full { .. } => {
                "free some space and run the job again: it continues from its last checkpoint and nothing is lost"
                    .to_owned()
            }
            ConnectorError::Missing { name, .. } => {
                format!("put it there, or correct path of [source.{name}]; nothing is lost")
            }
            ConnectorError::Refused { advice, .. }
            | ConnectorError::Commit { advice, .. }
            | ConnectorError::Unfit { advice, .. }
            | ConnectorError::Silent { advice, .. }
            | ConnectorError::Kafka { advice, .. } => advice.clone(),
            ConnectorError::Snapshot { .. } => {
                "give the source the settings that it had when the checkpoint was taken, or start the job under a new \
                 name"
                    .to_owned()
            }
        }
    }

    /// As text without the name of the source or sink, for where that has been said already.
    pub fn without_name(&self) -> String {
        let text = self.to_string();
        let name = match self {
            ConnectorError::File { name, .. }
            | ConnectorError::Full { name, .. }
            | ConnectorError::Missing { name, .. }
            | ConnectorError::Refused { name, .. }
            | ConnectorError::Unfit { name, .. }
            | ConnectorError::Silent { name, .. }
            | ConnectorError::Kafka { name, .. }
            | ConnectorError::Commit { name, .. } => name,
            ConnectorError::Snapshot { .. } => return text,
        };
        text.strip_prefix(&format!("{name}: ")).map_or(text.clone(), str::to_owned)
    }

    /// An operation on a file that failed; a full disk is told from the rest.
    fn file(name: &Name, action: &'static str, path: &Path, source: io::Error) -> ConnectorError {
        let (name, path) = (name.clone(), path.to_owned());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ConnectorError::Full { name, action, path, source }
            }
            _ => ConnectorError::File { name, action, path, source },
        }
    }
}

/// The null bitmaps of a batch in which every key is missing and no value.
fn missing_keys(rows: usize) -> Vec<u8> {
    let bitmap = rows.div_ceil(8);
    let mut nulls = vec![0; bitmap * 2];
    nulls[..bitmap].fill(0xff);
    if !rows.is_multiple_of(8) {
        nulls[rows / 8] = (1u8 << (rows % 8)) - 1;
    }
    nulls
}

/// An error with its advice, as a user sees it.
#[cfg(test)]
fn said(error: &ConnectorError) -> String {
    format!("{error}; {}", error.help())
}

#[cfg(test)]
fn test_ctx(name: &str, parallelism: u32) -> ConnectorContext {
    ConnectorContext {
        job: Name::new("job").expect("a name"),
        job_uid: JobUid("uid-1".to_owned()),
        attempt: Attempt(1),
        name: Name::new(name).expect("a name"),
        parallelism,
    }
}
