//! Manifests and stores for tests.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    CheckpointStore, EdgeRef, FileRef, InFlightSnapshot, KeyedSnapshot, MANIFEST_VERSION, Manifest, OperatorCheckpoint,
    SubtaskSnapshot, TableRef,
};
use crate::connector::SplitState;
use crate::graph::Exchange;
use crate::id::{Attempt, Epoch, JobUid, KeyGroup, Name, SubtaskId};
use crate::protocol::decision::DecisionPlace;
use crate::protocol::{KeyGroupRange, MaxParallelism};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A manifest that uses every field. The fixture of version 1 holds it: don't change it, add another.
pub(crate) fn manifest(epoch: Epoch) -> Manifest {
    let source = SubtaskSnapshot {
        splits: vec![
            SplitState {
                split: "input/a b.txt".to_owned(),
                position: json!({ "offset": 18_446_744_073_709_551_615_u64 }),
            },
            SplitState { split: "ünï".to_owned(), position: json!({ "offset": 0, "inode": null }) },
        ],
        ..SubtaskSnapshot::default()
    };
    let file = |path: &str| FileRef { path: path.to_owned(), size_bytes: 1 << 40, xxh3: "0123456789abcdef".to_owned() };
    let count = SubtaskSnapshot {
        operator_state: Some(file("files/count/0/3-operator-7")),
        keyed: Some(KeyedSnapshot {
            key_groups: KeyGroupRange { first: KeyGroup(0), last: KeyGroup(127) },
            tables: vec![
                TableRef { name: "counts".to_owned(), version: 1 },
                TableRef { name: "seen".to_owned(), version: 2 },
            ],
            base: BTreeMap::from([
                ("CURRENT".to_owned(), file("files/count/0/2-CURRENT.5")),
                ("000012.sst".to_owned(), file("files/count/0/2-000012.sst")),
            ]),
            deltas: vec![file("files/count/0/2-delta-6"), file("files/count/0/3-delta-7")],
        }),
        ..SubtaskSnapshot::default()
    };
    let sink = SubtaskSnapshot { committable: vec![0, 15, 255], ..SubtaskSnapshot::default() };
    let operators = [("text", source), ("count", count), ("out", sink)];
    Manifest {
        version: MANIFEST_VERSION,
        job: name("word-count"),
        job_uid: JobUid("00112233445566778899aabbccddeeff".to_owned()),
        slot: 0,
        epoch,
        attempt: Attempt(3),
        created_ms: 1_764_000_000_000,
        ended: false,
        max_parallelism: MaxParallelism::new(128).expect("in range"),
        decision: None,
        operators: operators
            .map(|(name, subtask)| (self::name(name), OperatorCheckpoint { subtasks: vec![subtask], component: None }))
            .into(),
    }
}

/// A manifest that uses every field of version 2 too, whose fixture holds it: don't change it either.
pub(crate) fn manifest_in_flight(epoch: Epoch) -> Manifest {
    let mut manifest = manifest(epoch);
    let path = "files/out/0/3-in-flight-7".to_owned();
    let edge = EdgeRef { from: name("count"), output: "out".to_owned(), input: 0, exchange: Exchange::Rebalance };
    let file = FileRef { path, size_bytes: 1 << 20, xxh3: "fedcba9876543210".to_owned() };
    let out = manifest.operators.get_mut(&name("out")).expect("the manifest has it");
    out.subtasks[0].in_flight = Some(InFlightSnapshot { edges: vec![edge], file });
    manifest
}

/// A manifest that uses every field of version 3 too, whose fixture holds it: don't change it either.
pub(crate) fn manifest_decided_elsewhere(epoch: Epoch) -> Manifest {
    let decision = DecisionPlace {
        kind: "kafka".to_owned(),
        cluster: "c-1".to_owned(),
        topic: "lockgate-word-count-marker".to_owned(),
        key: "word-count/0".to_owned(),
    };
    Manifest { decision: Some(decision), ..manifest_in_flight(epoch) }
}

/// A manifest that uses every field of version 4 too, whose fixture holds it: don't change it either.
pub(crate) fn manifest_of_component(epoch: Epoch) -> Manifest {
    let mut manifest = manifest_decided_elsewhere(epoch);
    let count = manifest.operators.get_mut(&name("count")).expect("the manifest has it");
    count.component = Some("0123456789abcdef".repeat(4));
    manifest
}

/// A store of the job of [`manifest`] in a folder of its own, which goes with it.
pub(crate) async fn store() -> (tempfile::TempDir, CheckpointStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = CheckpointStore::open(folder.path(), &name("word-count"), 0).await.expect("a store");
    (folder, store)
}

/// A checkpoint of one subtask that needs these files.
pub(crate) fn checkpoint(store: &CheckpointStore, epoch: u64, attempt: Attempt, deltas: &[&FileRef]) -> Manifest {
    let keyed = KeyedSnapshot {
        key_groups: KeyGroupRange { first: KeyGroup(0), last: KeyGroup(127) },
        tables: Vec::new(),
        base: BTreeMap::new(),
        deltas: deltas.iter().map(|file| (*file).clone()).collect(),
    };
    let subtask = SubtaskSnapshot { keyed: Some(keyed), ..SubtaskSnapshot::default() };
    Manifest {
        job_uid: store.job_uid().clone(),
        epoch: Epoch(epoch),
        attempt,
        operators: BTreeMap::from([(name("count"), OperatorCheckpoint { subtasks: vec![subtask], component: None })]),
        ..manifest(Epoch(epoch))
    }
}

pub(crate) fn subtask() -> SubtaskId {
    SubtaskId { operator: name("count"), index: 0 }
}
