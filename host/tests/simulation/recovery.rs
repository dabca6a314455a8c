//! What a process does before an attempt runs: read, decide, commit again, discard, restore. A crash may come at any step.
//!
//! Invariant: it knows only what it has read in the store and the sink's folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockgate_host::id::{Attempt as AttemptNumber, Epoch, JobUid, Name};
use lockgate_host::protocol::recovery::{
    self, EdgeFacts, ExpectedJob, ExpectedOperator, Identity, ManifestFacts, NewestManifest, OperatorFacts,
    RecoveryDecision, RecoveryFacts,
};
use lockgate_host::protocol::{CommitPermit, MaxParallelism, PublishReceipt};

use crate::attempt::{Attempt, Shared};
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::scenario::Scenario;
use crate::world::{Kind, Manifest, World};

/// How far a recovery is.
pub enum Recovery {
    Identify,
    Read,
    Claim { number: AttemptNumber, from: Option<Epoch> },
    Recommit { number: AttemptNumber, from: Option<Epoch>, parts: VecDeque<String> },
    Discard { number: AttemptNumber, from: Option<Epoch>, leftovers: Option<VecDeque<String>> },
    Restore { number: AttemptNumber, from: Option<Epoch> },
}

impl Recovery {
    /// Does one thing. `Some` when the attempt can run.
    pub fn step(&mut self, shared: &mut Shared<'_>) -> Result<Option<Attempt>, Violation> {
        let mutation = shared.scenario.mutation;
        match self {
            Recovery::Identify => {
                shared.world.has_identity = true;
                *self = Recovery::Read;
            }
            Recovery::Read => {
                let (number, from) = read(shared.world, shared.scenario)?;
                (shared.trace)(&|| format!("       attempt {number} starts from {from:?}"));
                *self = Recovery::Claim { number, from };
            }
            Recovery::Claim { number, from } => {
                let (number, from) = (*number, *from);
                if !shared.world.attempts.insert(number) && mutation != Some(Mutation::ReusesAttempt) {
                    return Err(Violation(format!("attempt {number} is claimed twice")));
                }
                *self = match mutation {
                    Some(Mutation::DiscardsBeforeRecommit) => Recovery::Discard { number, from, leftovers: None },
                    Some(_) | None => Recovery::recommit(number, from, shared),
                };
            }
            Recovery::Recommit { number, from, parts } => match parts.pop_front() {
                Some(part) => {
                    let epoch = from.expect("only a checkpoint has parts");
                    let permit = CommitPermit::new(PublishReceipt::for_published(epoch));
                    shared.world.commit_part(&permit, &part)?;
                }
                None => {
                    let (number, from) = (*number, *from);
                    *self = match mutation {
                        Some(Mutation::DiscardsBeforeRecommit) => Recovery::Restore { number, from },
                        Some(_) | None => Recovery::Discard { number, from, leftovers: None },
                    };
                }
            },
            Recovery::Discard { number, from, leftovers } => {
                let (number, from) = (*number, *from);
                let of_dead = |world: &World| -> VecDeque<String> {
                    let dead = world.parts.iter().filter(|(_, part)| part.attempt < number);
                    dead.map(|(name, _)| name.clone()).collect()
                };
                let leftovers = leftovers.get_or_insert_with(|| of_dead(shared.world));
                if mutation == Some(Mutation::KeepsLeftovers) {
                    leftovers.clear();
                }
                match leftovers.pop_front() {
                    Some(part) => drop(shared.world.parts.remove(&part)),
                    None if mutation == Some(Mutation::DiscardsBeforeRecommit) => {
                        *self = Recovery::recommit(number, from, shared);
                    }
                    None => *self = Recovery::Restore { number, from },
                }
            }
            Recovery::Restore { number, from } => {
                if let Some((part, _)) = shared.world.parts.iter().find(|(_, part)| part.attempt < *number) {
                    return Err(Violation(format!("part {part} of a dead attempt is left over")));
                }
                return Attempt::start(*number, *from, shared).map(Some);
            }
        }
        Ok(None)
    }

    fn recommit(number: AttemptNumber, from: Option<Epoch>, shared: &Shared<'_>) -> Recovery {
        let skips = shared.scenario.mutation == Some(Mutation::SkipsRecommit);
        let newest = from.filter(|_| !skips).map(|epoch| &shared.world.manifests[&epoch]);
        let parts = newest.map(|manifest| manifest.parts().into()).unwrap_or_default();
        Recovery::Recommit { number, from, parts }
    }
}

/// Reads the store and decides: the number of the attempt, and the epoch it starts from.
fn read(world: &World, scenario: &Scenario) -> Result<(AttemptNumber, Option<Epoch>), Violation> {
    let mut manifests = world.manifests.keys().copied().collect::<BTreeSet<_>>();
    if scenario.mutation == Some(Mutation::ResumesOlder) && manifests.len() > 1 {
        manifests.pop_last();
    }
    let newest = manifests.last().map(|epoch| NewestManifest::Valid(facts(*epoch, &world.manifests[epoch])));
    let uid = JobUid("uid".to_owned());
    let facts = RecoveryFacts {
        identity: Identity::Found { job: name("job"), uid },
        attempts: world.attempts.clone(),
        manifests,
        newest,
    };
    let tables = BTreeMap::from([("counts".to_owned(), 1)]);
    let job = ExpectedJob {
        name: name("job"),
        max_parallelism: key_groups(),
        operators: [
            (name("source"), ExpectedOperator::Source),
            (name("count"), ExpectedOperator::Operator { tables }),
            (name("sink"), ExpectedOperator::Sink),
        ]
        .into(),
        edges: [(name("count"), [edge("source")].into()), (name("sink"), [edge("count")].into())].into(),
    };
    let number = match scenario.mutation {
        Some(Mutation::ReusesAttempt) => AttemptNumber(1),
        Some(_) | None => recovery::next_attempt(&facts),
    };
    match recovery::decide(&facts, &job) {
        RecoveryDecision::Fresh => Ok((number, None)),
        RecoveryDecision::Resume { epoch } => Ok((number, Some(epoch))),
        RecoveryDecision::Refuse(refused) => Err(Violation(format!("a sound store is refused: {refused}"))),
    }
}

/// What a store would read out of a manifest.
fn facts(epoch: Epoch, manifest: &Manifest) -> ManifestFacts {
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
        uid: JobUid("uid".to_owned()),
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
