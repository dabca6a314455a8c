//! Where a new attempt starts, decided from what was found in the checkpoint store.
//!
//! What the caller does with the answer, in this order:
//! 1. claims [`next_attempt`];
//! 2. for `Resume`, commits the manifest's committables again, since the attempt before may have died between its publish
//!    and its commit;
//! 3. for `Fresh` too, lets every sink discard its leftovers: only now, since before they may have been those committables;
//! 4. for `Resume`, restores the state into a new folder and hands the sources their positions.
//!
//! Each step may be repeated after a crash.
//!
//! Invariant: an attempt starts from the newest manifest or not at all. An older one never will do: the output of the
//! newest may already be visible.

use std::collections::{BTreeMap, BTreeSet};

use super::key_group::{KeyGroupRange, MaxParallelism};
use crate::id::{Attempt, Epoch, JobUid, Name};

/// What was found in the store.
#[derive(Clone, Debug)]
pub struct RecoveryFacts {
    pub identity: Identity,
    /// All attempts that were ever claimed.
    pub attempts: BTreeSet<Attempt>,
    /// The epochs of all manifests.
    pub manifests: BTreeSet<Epoch>,
    /// What reading the newest of them gave; `None` if there is none.
    pub newest: Option<NewestManifest>,
}

/// Whose store it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Absent,
    Found { job: Name, uid: JobUid },
    Unreadable { problem: String },
}

/// The outcome of reading the newest manifest and looking at the files it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewestManifest {
    Valid(ManifestFacts),
    /// Truncated, not what its checksum says, or not of a layout that this host reads.
    Corrupt {
        problem: String,
    },
    /// A file that it names is missing or isn't as it was written.
    FileCorrupt {
        file: String,
        problem: String,
    },
}

/// What of a manifest decides whether the job can take it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFacts {
    pub job: Name,
    pub uid: JobUid,
    pub epoch: Epoch,
    pub attempt: Attempt,
    pub max_parallelism: MaxParallelism,
    pub operators: BTreeMap<Name, OperatorFacts>,
}

/// What a manifest holds of one source, operator or sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorFacts {
    /// It has positions of splits.
    pub splits: bool,
    /// It has state that isn't keyed.
    pub operator_state: bool,
    /// It has output to be committed.
    pub committables: bool,
    /// The key groups of each subtask; empty if it has no keyed state.
    pub key_groups: Vec<KeyGroupRange>,
    /// Its tables of keyed state with their versions.
    pub tables: BTreeMap<String, u32>,
    /// The edges on which records were in flight to it.
    pub in_flight: BTreeSet<EdgeFacts>,
}

/// What an edge into an operator or sink is told apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeFacts {
    pub from: Name,
    /// The name of the output; empty for a source.
    pub output: String,
    /// The number of the reader's input.
    pub input: u32,
}

/// The job that is to run.
#[derive(Clone, Debug)]
pub struct ExpectedJob {
    pub name: Name,
    pub max_parallelism: MaxParallelism,
    pub operators: BTreeMap<Name, ExpectedOperator>,
    /// By reader: what it reads.
    pub edges: BTreeMap<Name, BTreeSet<EdgeFacts>>,
}

/// What the job says of one source, operator or sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedOperator {
    Source,
    /// With its tables of keyed state and their versions, and whether it can bring older ones to them.
    Operator {
        tables: BTreeMap<String, u32>,
        migrates: bool,
    },
    Sink,
}

/// Where the attempt starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryDecision {
    /// From the beginning: no checkpoint was ever published.
    Fresh,
    /// From the newest manifest.
    Resume {
        epoch: Epoch,
    },
    Refuse(RecoveryRefused),
}

/// Why a job isn't started. [`help`](RecoveryRefused::help) says what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryRefused {
    #[error("the checkpoint store belongs to job '{found}', not to '{expected}'")]
    OtherJob { found: Name, expected: Name },
    #[error("the checkpoint store's job.json cannot be read: {problem}")]
    IdentityUnreadable { problem: String },
    #[error("the checkpoint store has checkpoints but no job.json, so it isn't known whose they are")]
    IdentityMissing,
    #[error("the newest checkpoint, epoch {epoch}, is of job '{job}' ({uid}), which isn't the job of job.json")]
    OtherJobsManifest { epoch: Epoch, job: Name, uid: JobUid },
    #[error("the newest checkpoint, epoch {epoch}, is corrupt: {problem}")]
    ManifestCorrupt { epoch: Epoch, problem: String },
    #[error("file '{file}' of the newest checkpoint, epoch {epoch}, is corrupt: {problem}")]
    FileCorrupt { epoch: Epoch, file: String, problem: String },
    #[error("the checkpoint of epoch {epoch} was taken with max_parallelism = {found}, and the job says {expected}")]
    MaxParallelismChanged { epoch: Epoch, found: u32, expected: u32 },
    #[error("the checkpoint of epoch {epoch} has {what} of '{operator}', which the job no longer has")]
    OperatorGone { epoch: Epoch, operator: Name, what: Part },
    #[error("the checkpoint of epoch {epoch} has {what} of '{operator}', which is now {now}")]
    KindChanged { epoch: Epoch, operator: Name, what: Part, now: &'static str },
    #[error(
        "the checkpoint of epoch {epoch} has table '{table}' of operator '{operator}', which its component no longer \
         declares"
    )]
    TableGone { epoch: Epoch, operator: Name, table: String },
    #[error(
        "the checkpoint of epoch {epoch} has version {found} of table '{table}' of operator '{operator}', and its component \
         declares version {expected}; state can't be brought back to an older version"
    )]
    TableNewer { epoch: Epoch, operator: Name, table: String, found: u32, expected: u32 },
    #[error(
        "the checkpoint of epoch {epoch} has version {found} of table '{table}' of operator '{operator}', and its component \
         declares version {expected} and exports no migration"
    )]
    TableNotMigrated { epoch: Epoch, operator: Name, table: String, found: u32, expected: u32 },
    #[error(
        "the checkpoint of epoch {epoch} has records in flight from '{from}'{} to input {input} of '{operator}', which no longer \
         reads there",
        if .output.is_empty() { String::new() } else { format!(":{output}") }
    )]
    EdgeGone { epoch: Epoch, operator: Name, from: Name, output: String, input: u32 },
    #[error(
        "the checkpoint of epoch {epoch} doesn't hold every key group of operator '{operator}' exactly once: look at key \
         group {key_group}"
    )]
    KeyGroupsTorn { epoch: Epoch, operator: Name, key_group: u16 },
}

impl RecoveryRefused {
    /// What the user can do.
    pub fn help(&self) -> String {
        match self {
            Self::OtherJob { found, .. } => {
                format!("give this job its own checkpoint.store, or name it '{found}' if it is that job")
            }
            Self::IdentityUnreadable { .. } | Self::IdentityMissing => {
                "put back job.json from a backup, or move the store away to start the job anew with new outputs".into()
            }
            Self::OtherJobsManifest { .. } => "two stores were mixed: put back the folder of one job".into(),
            Self::ManifestCorrupt { .. } | Self::FileCorrupt { .. } => {
                "restore it from a backup, or start the job under a new name with new outputs; an older checkpoint is never \
                 taken, since what came after it has already been given out"
                    .into()
            }
            Self::MaxParallelismChanged { found, .. } => {
                format!("set job.max_parallelism = {found}: it is fixed for the life of a job's state")
            }
            Self::OperatorGone { operator, .. } => {
                format!("put '{operator}' back, or start the job under a new name to leave that behind")
            }
            Self::KindChanged { operator, .. } => {
                format!("give what is new another name, and put '{operator}' back as it was")
            }
            Self::EdgeGone { operator, .. } => format!(
                "let '{operator}' read it again, and stop the job before you change that: the checkpoint of a stop has no \
                 records in flight"
            ),
            Self::TableGone { .. } => "use a component that declares it, or start the job under a new name".into(),
            Self::TableNewer { found, .. } => {
                format!("use a component that declares version {found} or a later one, or start the job under a new name")
            }
            Self::TableNotMigrated { found, .. } => format!(
                "use a component that can migrate (one of the `lockgate` SDK says how in `Operator::migrate`) or that declares \
                 version {found}, or start the job under a new name"
            ),
            Self::KeyGroupsTorn { .. } => "this is a fault of the host that wrote it; please report it".into(),
        }
    }
}

/// A part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Splits,
    OperatorState,
    KeyedState,
    Committables,
    InFlight,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Part::Splits => "the positions",
            Part::OperatorState => "the state",
            Part::KeyedState => "the keyed state",
            Part::Committables => "the uncommitted output",
            Part::InFlight => "the records in flight",
        })
    }
}

/// The number to claim for a new attempt: above all that were claimed, and above that of the newest manifest, so that the
/// files of two attempts never share a name.
pub fn next_attempt(facts: &RecoveryFacts) -> Attempt {
    let of_manifest = match &facts.newest {
        Some(NewestManifest::Valid(manifest)) => Some(manifest.attempt),
        Some(NewestManifest::Corrupt { .. } | NewestManifest::FileCorrupt { .. }) | None => None,
    };
    let newest = facts.attempts.last().copied().max(of_manifest);
    newest.map_or(Attempt(1), |attempt| Attempt(attempt.0 + 1))
}

/// Decides where a new attempt starts.
///
/// # Panics
/// If `newest` isn't what reading the last of `manifests` gave.
pub fn decide(facts: &RecoveryFacts, job: &ExpectedJob) -> RecoveryDecision {
    match check(facts, job) {
        Ok(decision) => decision,
        Err(refused) => RecoveryDecision::Refuse(refused),
    }
}

fn check(facts: &RecoveryFacts, job: &ExpectedJob) -> Result<RecoveryDecision, RecoveryRefused> {
    let uid = match &facts.identity {
        Identity::Unreadable { problem } => {
            return Err(RecoveryRefused::IdentityUnreadable { problem: problem.clone() });
        }
        Identity::Absent if facts.manifests.is_empty() => return Ok(RecoveryDecision::Fresh),
        Identity::Absent => return Err(RecoveryRefused::IdentityMissing),
        Identity::Found { job: found, .. } if *found != job.name => {
            return Err(RecoveryRefused::OtherJob { found: found.clone(), expected: job.name.clone() });
        }
        Identity::Found { uid, .. } => uid,
    };
    let Some(&epoch) = facts.manifests.last() else {
        assert!(facts.newest.is_none(), "nothing was read where no manifest is listed");
        return Ok(RecoveryDecision::Fresh);
    };
    let manifest = match facts.newest.as_ref().expect("the newest of the listed manifests was read") {
        NewestManifest::Valid(manifest) => manifest,
        NewestManifest::Corrupt { problem } => {
            return Err(RecoveryRefused::ManifestCorrupt { epoch, problem: problem.clone() });
        }
        NewestManifest::FileCorrupt { file, problem } => {
            return Err(RecoveryRefused::FileCorrupt { epoch, file: file.clone(), problem: problem.clone() });
        }
    };
    if manifest.epoch != epoch {
        let problem = format!("it says that it is of epoch {}", manifest.epoch);
        return Err(RecoveryRefused::ManifestCorrupt { epoch, problem });
    }
    if manifest.job != job.name || manifest.uid != *uid {
        return Err(RecoveryRefused::OtherJobsManifest { epoch, job: manifest.job.clone(), uid: manifest.uid.clone() });
    }
    if manifest.max_parallelism != job.max_parallelism {
        let (found, expected) = (manifest.max_parallelism.key_groups(), job.max_parallelism.key_groups());
        return Err(RecoveryRefused::MaxParallelismChanged { epoch, found, expected });
    }
    for (name, operator) in &manifest.operators {
        check_operator(epoch, name, operator, job)?;
    }
    Ok(RecoveryDecision::Resume { epoch })
}

fn check_operator(epoch: Epoch, name: &Name, found: &OperatorFacts, job: &ExpectedJob) -> Result<(), RecoveryRefused> {
    let operator = || name.clone();
    // What has nothing in the checkpoint may go, and may become anything else.
    let Some(expected) = job.operators.get(name) else {
        let part = found.parts().next();
        return part.map_or(Ok(()), |what| Err(RecoveryRefused::OperatorGone { epoch, operator: operator(), what }));
    };
    let (now, tables, migrates) = match expected {
        ExpectedOperator::Source => ("a source", None, false),
        ExpectedOperator::Operator { tables, migrates } => ("an operator", Some(tables), *migrates),
        ExpectedOperator::Sink => ("a sink", None, false),
    };
    let fits = |part: &Part| match part {
        Part::Splits => matches!(expected, ExpectedOperator::Source),
        Part::OperatorState | Part::KeyedState => matches!(expected, ExpectedOperator::Operator { .. }),
        Part::Committables => matches!(expected, ExpectedOperator::Sink),
        Part::InFlight => !matches!(expected, ExpectedOperator::Source),
    };
    if let Some(what) = found.parts().find(|part| !fits(part)) {
        return Err(RecoveryRefused::KindChanged { epoch, operator: operator(), what, now });
    }
    for (table, &found) in &found.tables {
        let (operator, table, expected) = (operator(), table.clone(), tables.and_then(|tables| tables.get(table)));
        let Some(&expected) = expected else {
            return Err(RecoveryRefused::TableGone { epoch, operator, table });
        };
        if found > expected {
            return Err(RecoveryRefused::TableNewer { epoch, operator, table, found, expected });
        }
        if found < expected && !migrates {
            return Err(RecoveryRefused::TableNotMigrated { epoch, operator, table, found, expected });
        }
    }
    let edges = job.edges.get(name);
    if let Some(edge) = found.in_flight.iter().find(|edge| !edges.is_some_and(|edges| edges.contains(edge))) {
        let EdgeFacts { from, output, input } = edge.clone();
        return Err(RecoveryRefused::EdgeGone { epoch, operator: operator(), from, output, input });
    }
    check_key_groups(epoch, name, &found.key_groups, job.max_parallelism)
}

/// Whether the subtasks hold every key group exactly once between them.
fn check_key_groups(
    epoch: Epoch,
    name: &Name,
    ranges: &[KeyGroupRange],
    max: MaxParallelism,
) -> Result<(), RecoveryRefused> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.first);
    let torn =
        |key_group: u32| RecoveryRefused::KeyGroupsTorn { epoch, operator: name.clone(), key_group: key_group as u16 };
    let mut next = 0u32;
    for range in &sorted {
        if u32::from(range.first.0) != next || range.last < range.first {
            return Err(torn(next));
        }
        next = u32::from(range.last.0) + 1;
    }
    let whole = ranges.is_empty() || next == max.key_groups();
    if whole { Ok(()) } else { Err(torn(next)) }
}

impl OperatorFacts {
    fn parts(&self) -> impl Iterator<Item = Part> {
        let keyed = !self.key_groups.is_empty() || !self.tables.is_empty();
        let parts = [
            (self.splits, Part::Splits),
            (self.operator_state, Part::OperatorState),
            (keyed, Part::KeyedState),
            (self.committables, Part::Committables),
            (!self.in_flight.is_empty(), Part::InFlight),
        ];
        parts.into_iter().filter_map(|(has, part)| has.then_some(part))
    }
}

#[cfg(test)]
mod tests;
