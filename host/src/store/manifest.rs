//! The durable record of a checkpoint.
//!
//! On disk: one line of JSON, then one line `xxh3:` and the 16 hexadecimal digits of the XXH3-64 of the first line without
//! its line feed. Invariant: a manifest that was read has been compared with its checksum. A field that this host doesn't know
//! is refused: what it can't restore it must not drop.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::in_flight::InFlightSnapshot;
use crate::connector::SplitState;
use crate::id::{Attempt, Epoch, JobUid, Name};
use crate::protocol::decision::DecisionPlace;
use crate::protocol::{KeyGroupRange, MaxParallelism};

/// The layout that this host writes. It reads this and older ones. Since version 2 there may be records in flight, since
/// version 3 a place where the checkpoint is decided, since version 4 the component of each operator.
pub const MANIFEST_VERSION: u32 = 4;

/// All that a job needs to continue from one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub version: u32,
    pub job: Name,
    pub job_uid: JobUid,
    /// Which process of the job; 0 where there is one.
    pub slot: u32,
    pub epoch: Epoch,
    pub attempt: Attempt,
    /// For people: milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Whether the job's bounded input had ended.
    pub ended: bool,
    pub max_parallelism: MaxParallelism,
    /// Where a sink decides whether this checkpoint counts. Without one it does as soon as it is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionPlace>,
    /// By name: sources, operators and sinks alike.
    pub operators: BTreeMap<Name, OperatorCheckpoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorCheckpoint {
    /// In order of their index; as many as the parallelism was.
    pub subtasks: Vec<SubtaskSnapshot>,
    /// Of an operator: the SHA-256 of the component that took the snapshots, 64 hexadecimal digits. After an upgrade that was
    /// interrupted it says which of the two is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
}

/// One subtask's part. What doesn't apply to its kind is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubtaskSnapshot {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<SplitState>,
    /// State that isn't keyed, from the operator's `snapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_state: Option<FileRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyed: Option<KeyedSnapshot>,
    /// From which any process can commit what this sink subtask prepared. Empty: nothing to commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "hex_bytes")]
    pub committable: Vec<u8>,
    /// Records that the barrier has overtaken on their way to this subtask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlightSnapshot>,
}

/// The keyed state of one subtask: a base of RocksDB files with deltas over it, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedSnapshot {
    pub key_groups: KeyGroupRange,
    /// A table's number in the stored keys is its place here. Tables are only ever added.
    pub tables: Vec<TableRef>,
    /// The files of a RocksDB checkpoint, by the name they have in its folder; empty if there is none yet.
    pub base: BTreeMap<String, FileRef>,
    pub deltas: Vec<FileRef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRef {
    pub name: String,
    pub version: u32,
}

/// A file in the checkpoint store. Immutable once written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRef {
    /// Relative to the job's slot in the store.
    pub path: String,
    pub size_bytes: u64,
    /// XXH3-64 of the content, 16 hexadecimal digits.
    pub xxh3: String,
}

impl Manifest {
    /// The component that took the snapshots of an operator.
    pub fn component(&self, operator: &Name) -> Option<&str> {
        self.operators.get(operator)?.component.as_deref()
    }

    /// Every file that this checkpoint needs.
    pub fn files(&self) -> impl Iterator<Item = &FileRef> {
        self.operators.values().flat_map(|operator| &operator.subtasks).flat_map(|subtask| {
            let keyed = subtask.keyed.iter().flat_map(|keyed| keyed.base.values().chain(&keyed.deltas));
            let in_flight = subtask.in_flight.iter().map(|in_flight| &in_flight.file);
            subtask.operator_state.iter().chain(keyed).chain(in_flight)
        })
    }
}

/// The sum of sizes that manifests say. One that no host wrote may say what is larger than all disks.
pub(super) fn total<'a>(sizes: impl Iterator<Item = &'a u64>) -> u64 {
    sizes.fold(0, |sum: u64, size| sum.saturating_add(*size))
}

/// Bytes as hexadecimal digits in JSON.
mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        to.serialize_str(&digits)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(from)?;
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes = digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>();
        bytes.ok_or_else(|| serde::de::Error::custom("not an even number of hexadecimal digits"))
    }
}
