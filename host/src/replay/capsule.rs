//! What a capsule holds.
//!
//! Invariant: a [`Capsule`] that was decoded passed [`Capsule::check`]: nothing in it can make the host panic or exceed what a job
//! file may ask for.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::element::Column;
use crate::guest::{Draws, Effects, Entry, Failure, Limits, OperatorError, Place, Read, Rejection, Trial, TrialCall};
use crate::id::{Epoch, Name};
use crate::protocol::MaxParallelism;
use crate::protocol::isolation::Fingerprint;
use crate::state::Clock;

/// One call at which an operator has failed, and all that it takes to make it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capsule {
    /// Of the host that wrote it.
    pub host_version: String,
    /// When it was written, in milliseconds since the Unix epoch. For people.
    pub taken_ms: u64,
    /// The checkpoint that the call would have been part of.
    pub epoch: Epoch,
    pub place: Place,
    pub max_parallelism: MaxParallelism,
    /// By their names in the job file, in bytes and milliseconds.
    pub limits: Vec<(String, u64)>,
    /// Its inputs and tables, by their numbers in `trial`, `reads` and `entries`.
    pub inputs: Vec<Name>,
    pub tables: Vec<TableOf>,
    pub component: Component,
    /// The call has one record, one timer, or is a watermark.
    pub trial: Trial,
    /// Where the record was read, where that is known.
    pub origin: Option<ReadFrom>,
    pub state_of: StateOf,
    pub reads: Vec<Read>,
    /// What was found in keyed state.
    pub entries: Vec<Entry>,
    /// What came of the call in the job, and of the trial.
    pub seen: Outcome,
    pub tried: Outcome,
    pub effects: Effects,
    /// Which random numbers the trial has had. `None` in a capsule of version 1.
    pub draws: Option<Draws>,
}

/// A table as its operator has declared it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableOf {
    pub name: Name,
    pub version: u32,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// As the component says.
    pub name: String,
    pub version: String,
    pub sha256: String,
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (sha256 {}, {} bytes)", self.name, self.version, self.sha256, self.bytes.len())
    }
}

/// Where a record was read: as in a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFrom {
    pub split: String,
    pub offset: u64,
    pub record: u32,
}

/// Of when the state is that the trial was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateOf {
    /// Of the moment before the call.
    Call,
    /// Of the last snapshot before it, with what has reached the host since, and the rows of the same batch before it.
    Snapshot,
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Passed,
    Rejected {
        message: String,
    },
    Failed {
        call: String,
        /// A word: `panic`, `deadline` and so on.
        kind: String,
        message: String,
    },
}

/// Kinds of failures whose messages say how much of something was used when it was too much.
const MEASURED: [&str; 5] = ["deadline", "memory", "output", "stack", "tables"];

impl Outcome {
    pub fn of(tried: &Result<Vec<Rejection>, OperatorError>) -> Outcome {
        match tried {
            Ok(rejections) => match rejections.first() {
                Some(rejection) => Outcome::Rejected { message: rejection.message.clone() },
                None => Outcome::Passed,
            },
            Err(error) => Outcome::of_error(error),
        }
    }

    pub fn of_error(error: &OperatorError) -> Outcome {
        // Which row of its batch it was is no part of what happened.
        let message = match &*error.failure {
            Failure::Refused { message, .. } => message.clone(),
            failure => failure.to_string(),
        };
        Outcome::Failed { call: word_of(&error.call).to_owned(), kind: error.failure.word().to_owned(), message }
    }

    /// Whether both are the same failure, which one of them may have met after other calls.
    pub fn is_like(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Passed, Outcome::Passed) => true,
            (Outcome::Rejected { message: a }, Outcome::Rejected { message: b }) => a == b,
            (Outcome::Failed { kind: a, message: x, .. }, Outcome::Failed { kind: b, message: y, .. }) => {
                a == b && (x == y || MEASURED.contains(&a.as_str()) || x.ends_with(y.as_str()))
            }
            (Outcome::Passed | Outcome::Rejected { .. } | Outcome::Failed { .. }, _) => false,
        }
    }

    /// Whether what was done until then may differ, though the failure is the same: it is a matter of time.
    pub fn is_timed(&self) -> bool {
        matches!(self, Outcome::Failed { kind, .. } if kind == "deadline")
    }

    fn word(&self) -> &str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Rejected { .. } => "rejected",
            Outcome::Failed { kind, .. } => kind,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("processed"),
            Outcome::Rejected { message } => write!(f, "rejected: {message}"),
            Outcome::Failed { call, kind, message } => write!(f, "failed in {call} ({kind}): {message}"),
        }
    }
}

fn word_of(call: &crate::guest::Call) -> &'static str {
    use crate::guest::Call;
    match call {
        Call::Describe => "describe",
        Call::Instantiate => "instantiate",
        Call::Open => "open",
        Call::Restore => "restore",
        Call::Process { .. } => "process",
        Call::Timers { .. } => "timers",
        Call::Watermark { .. } => "watermark",
        Call::Snapshot { .. } => "snapshot",
        Call::Trim => "trim",
        Call::Close => "close",
        Call::Prepare { .. } | Call::Migrate { .. } | Call::Merge { .. } => "migration",
    }
}

/// By what a failure is known again: component, call and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity(pub u128);

impl Identity {
    /// Of a call with one row, or none.
    pub fn of(component_sha256: &str, call: &TrialCall, outcome: &Outcome) -> Identity {
        let (kind, number, rows) = match call {
            TrialCall::Process { port, rows } => (0, i64::from(*port), Some(rows)),
            TrialCall::Timers { clock: Clock::EventTime, rows } => (1, 0, Some(rows)),
            TrialCall::Timers { clock: Clock::ProcessingTime, rows } => (2, 0, Some(rows)),
            TrialCall::Watermark { timestamp } => (3, *timestamp, None),
        };
        let mut hash = Xxh3::new();
        hash.update(component_sha256.as_bytes());
        hash.update(&[kind]);
        hash.update(&number.to_le_bytes());
        hash.update(&rows.map_or(0, |rows| Fingerprint::of(0, rows, 0).bits()).to_le_bytes());
        hash.update(outcome.word().as_bytes());
        Identity(hash.digest128())
    }
}

/// Names of limits, as in the job file.
const MEMORY: &str = "memory";
const CALL_MS: &str = "call_ms";
const OUTPUT: &str = "output";
const STATE_MEMORY: &str = "state_memory";
const TABLES: &str = "tables";
const INSTANCES: &str = "instances";
const STACK: &str = "stack";
/// The least and the most of each that a job file takes.
const RANGES: [(&str, u64, u64); 7] = [
    (MEMORY, 1 << 20, 4 << 30),
    (CALL_MS, 10, 86_400_000),
    (OUTPUT, 1 << 10, 4 << 30),
    (STATE_MEMORY, 64 << 10, 2 << 30),
    (TABLES, 1, Limits::TABLE_ELEMENTS_MAX as u64),
    (INSTANCES, 1, Limits::CORE_INSTANCES_MAX as u64),
    (STACK, 64 << 10, 1 << 20),
];

/// What a capsule says of limits. That of the log and that of the whole state don't concern one call.
pub fn named_limits(limits: &Limits, state_memory_bytes_max: usize) -> Vec<(String, u64)> {
    let call_ms = u64::try_from(limits.call_timeout.as_millis()).unwrap_or(u64::MAX);
    let named = [
        (MEMORY, limits.memory_bytes_max as u64),
        (CALL_MS, call_ms),
        (OUTPUT, limits.output_bytes_max as u64),
        (STATE_MEMORY, state_memory_bytes_max as u64),
        (TABLES, limits.table_elements_max as u64),
        (INSTANCES, limits.core_instances_max as u64),
        (STACK, limits.stack_bytes_max as u64),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

impl Capsule {
    pub fn identity(&self) -> Identity {
        Identity::of(&self.component.sha256, &self.trial.call, &self.seen)
    }

    fn limit(&self, name: &str) -> Option<usize> {
        let (_, value) = self.limits.iter().find(|(known, _)| known == name)?;
        usize::try_from(*value).ok()
    }

    /// Its limits; what it doesn't say is as usual.
    pub fn limits(&self) -> Limits {
        let usual = Limits::default();
        let wanted = |name, usual| self.limit(name).unwrap_or(usual);
        let call_ms = self.limit(CALL_MS).map(|call_ms| Duration::from_millis(call_ms as u64));
        Limits {
            memory_bytes_max: wanted(MEMORY, usual.memory_bytes_max),
            table_elements_max: wanted(TABLES, usual.table_elements_max),
            core_instances_max: wanted(INSTANCES, usual.core_instances_max),
            stack_bytes_max: wanted(STACK, usual.stack_bytes_max),
            call_timeout: call_ms.unwrap_or(usual.call_timeout),
            output_bytes_max: wanted(OUTPUT, usual.output_bytes_max),
            ..usual
        }
    }

    /// Changed keyed state that it may hold in memory.
    pub fn state_memory_bytes_max(&self) -> usize {
        const USUAL: usize = 128 << 20;
        self.limit(STATE_MEMORY).unwrap_or(USUAL)
    }

    /// What decoding can't see.
    ///
    /// # Errors
    /// What no host writes.
    pub fn check(&self) -> Result<(), String> {
        let key_groups = self.max_parallelism.key_groups();
        if MaxParallelism::new(key_groups).is_none() {
            return Err(format!("{key_groups} key groups"));
        }
        let Place { subtask, parallelism, .. } = &self.place;
        if !(1..=key_groups).contains(parallelism) || subtask.index >= *parallelism {
            return Err(format!("subtask {} of {parallelism}, of at most {key_groups}", subtask.index));
        }
        for (name, value) in &self.limits {
            if let Some((_, least, most)) = RANGES.iter().find(|(known, ..)| known == name)
                && !(least..=most).contains(&value)
            {
                return Err(format!("{value} as the limit '{name}', which is from {least} to {most}"));
            }
        }
        if let Some(rows) = self.trial.call.rows() {
            rows.check().map_err(|problem| format!("its record is malformed: {problem}"))?;
            if rows.rows != 1 {
                return Err(format!("{} records and not one", rows.rows));
            }
        }
        if let TrialCall::Process { port, .. } = self.trial.call
            && port as usize >= self.inputs.len()
        {
            return Err(format!("input {port} of {}", self.inputs.len()));
        }
        if let Some(Draws { taken, .. }) = self.draws.filter(|draws| draws.call == 0 || draws.taken > Draws::TAKEN_MAX)
        {
            return Err(format!("{taken} random numbers before the call, or no call"));
        }
        self.reads.iter().try_for_each(check_read)?;
        match self.entries.iter().find(|entry| entry.table as usize >= self.tables.len()) {
            Some(entry) => Err(format!("an entry of table {} of {}", entry.table, self.tables.len())),
            None => Ok(()),
        }
    }
}

fn check_read(read: &Read) -> Result<(), String> {
    let well_formed = |column: &Column, rows: usize| {
        column.check(rows).map_err(|problem| format!("what was read is malformed: {problem}"))
    };
    match read {
        Read::Get { keys, user_keys, values, found, .. } => {
            let rows = keys.rows();
            well_formed(keys, rows)?;
            well_formed(values, rows)?;
            if *user_keys != Column::default() {
                well_formed(user_keys, rows)?;
            }
            if found.len() == rows.div_ceil(8) {
                Ok(())
            } else {
                Err(format!("{} bytes of found entries", found.len()))
            }
        }
        Read::Scan { user_keys, values, .. } => {
            let rows = user_keys.rows();
            well_formed(user_keys, rows)?;
            well_formed(values, rows)
        }
    }
}
