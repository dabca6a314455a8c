//! What a store says of its manifests, for the real recovery to judge.
//!
//! Invariant: a fact is read from the store as it is now.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::{Attempt, Epoch, Name};
use lockgate_host::protocol::MaxParallelism;
use lockgate_host::protocol::recovery::{
    self, EdgeFacts, ExpectedJob, ExpectedOperator, Identity, ManifestFacts, NewestManifest, OperatorFacts,
    RecoveryDecision, RecoveryFacts,
};

use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::scenario::Scenario;
use crate::world::{Kind, Manifest, World};

/// Of the manifests up to one, or of all.
fn read(world: &World, newest: Option<Epoch>) -> RecoveryFacts {
    let listed = world.manifests.keys().filter(|epoch| newest.is_none_or(|newest| **epoch <= newest));
    let manifests = listed.copied().collect::<BTreeSet<_>>();
    let newest = manifests.last().map(|epoch| NewestManifest::Valid(facts(*epoch, &world.manifests[epoch], world)));
    let identity = Identity::Found { job: name("job"), uid: world.uid.clone() };
    RecoveryFacts { identity, attempts: world.attempts.clone(), manifests, newest }
}

pub fn next_attempt(world: &World, scenario: &Scenario) -> Attempt {
    match scenario.mutation {
        Some(Mutation::ReusesAttempt) => Attempt(1),
        Some(_) | None => recovery::next_attempt(&read(world, None)),
    }
}

/// Whether the job can go on from a checkpoint, as it always can here.
pub fn check_resumable(epoch: Epoch, world: &World) -> Result<(), Violation> {
    match recovery::decide(&read(world, Some(epoch)), &job()) {
        RecoveryDecision::Resume { epoch: resumed } if resumed == epoch => Ok(()),
        RecoveryDecision::Resume { epoch: other } => Err(Violation(format!("{other} is resumed and not {epoch}"))),
        RecoveryDecision::Fresh => Err(Violation(format!("{epoch} isn't resumed"))),
        RecoveryDecision::Refuse(refused) => Err(Violation(format!("a sound store is refused: {refused}"))),
    }
}

fn job() -> ExpectedJob {
    let tables = BTreeMap::from([("counts".to_owned(), 1)]);
    ExpectedJob {
        name: name("job"),
        max_parallelism: key_groups(),
        operators: [
            (name("source"), ExpectedOperator::Source),
            (name("count"), ExpectedOperator::Operator { tables, migrates: false }),
            (name("sink"), ExpectedOperator::Sink),
        ]
        .into(),
        edges: [(name("count"), [edge("source")].into()), (name("sink"), [edge("count")].into())].into(),
    }
}

/// What a store would read out of a manifest.
fn facts(epoch: Epoch, manifest: &Manifest, world: &World) -> ManifestFacts {
    let splits = manifest.tasks.values().any(|task| !task.positions.is_empty());
    let source = OperatorFacts { splits, ..OperatorFacts::default() };
    let counters = manifest.shape.counters;
    let in_flight = |kind: Kind, from: &str| {
        let snapshots = manifest.of(kind);
        let overtaken = snapshots.iter().filter(|snapshot| snapshot.in_flight.is_some());
        overtaken.map(|_| edge(from)).collect::<BTreeSet<_>>()
    };
    let count = OperatorFacts {
        key_groups: (0..counters).map(|index| key_groups().range(index, counters)).collect(),
        tables: [("counts".to_owned(), 1)].into(),
        in_flight: in_flight(Kind::Counter, "source"),
        ..OperatorFacts::default()
    };
    let sink = OperatorFacts {
        committables: !manifest.parts().is_empty(),
        in_flight: in_flight(Kind::Sink, "count"),
        ..OperatorFacts::default()
    };
    ManifestFacts {
        job: name("job"),
        uid: world.uid.clone(),
        epoch,
        attempt: manifest.attempt,
        max_parallelism: key_groups(),
        operators: [(name("source"), source), (name("count"), count), (name("sink"), sink)].into(),
    }
}

fn edge(from: &str) -> EdgeFacts {
    EdgeFacts { from: name(from), output: String::new(), input: 0 }
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a usable name")
}

fn key_groups() -> MaxParallelism {
    MaxParallelism::new(Scenario::KEY_GROUPS).expect("in range")
}
