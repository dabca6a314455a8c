//! What a process does before an attempt runs: read, take over, decide, withdraw, commit again, adopt, discard, restore. A crash may
//! come at any step.
//!
//! Invariant: it knows only what it has read in the store, the two-phase sink's folder and the deciding sink's cluster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockgate_host::id::{Attempt as AttemptNumber, Epoch};
use lockgate_host::protocol::decision::{Decided, DeciderFacts, Published, resolve};
use lockgate_host::protocol::{CommitPermit, PublishReceipt};

use crate::attempt::{Attempt, Shared};
use crate::broker::{Decides, Handle};
use crate::cluster::place;
use crate::decision::{Decision, Lost, Progress, Request};
use crate::facts;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::take_over::{TakeOver, Taken};
use crate::world::World;

/// What is known of the attempt that is to run.
#[derive(Clone, Debug)]
pub struct Start {
    pub number: AttemptNumber,
    pub from: Option<Epoch>,
    /// The newest manifest's, which may have been withdrawn.
    pub newest: Option<Epoch>,
    withdraw: Option<Epoch>,
    adopt: bool,
    /// Of a job with a deciding sink.
    pub handles: Option<[Option<Handle>; 2]>,
}

/// How far a recovery is.
pub enum Recovery {
    Identify,
    Read,
    Claim { number: AttemptNumber },
    TakeOver { number: AttemptNumber, take_over: TakeOver },
    Decide { number: AttemptNumber, taken: Option<Taken> },
    Withdraw(Start),
    Recommit { start: Start, parts: VecDeque<String> },
    Adopt { start: Start, adoption: Decision },
    Discard { start: Start, leftovers: Option<VecDeque<String>> },
    Restore(Start),
}

impl Recovery {
    /// Does one thing. `Some` when the attempt can run.
    pub fn step(&mut self, shared: &mut Shared<'_>) -> Result<Option<Attempt>, Violation> {
        let mutation = shared.scenario.mutation;
        match self {
            Recovery::Identify => *self = Recovery::Read,
            Recovery::Read => *self = Recovery::Claim { number: facts::next_attempt(shared.world, shared.scenario) },
            &mut Recovery::Claim { number } => {
                if !shared.world.attempts.insert(number) && mutation != Some(Mutation::ReusesAttempt) {
                    return Err(Violation(format!("attempt {number} is claimed twice")));
                }
                *self = if shared.world.has_log {
                    Recovery::TakeOver { number, take_over: TakeOver::new(number, mutation) }
                } else {
                    Recovery::Decide { number, taken: None }
                };
            }
            Recovery::TakeOver { number, take_over } => {
                let uid = shared.world.uid.clone();
                if let taken @ Some(_) = take_over.step(shared.world, &uid, mutation) {
                    *self = Recovery::Decide { number: *number, taken };
                }
            }
            Recovery::Decide { number, taken } => {
                let Some(start) = decide(*number, taken.take(), shared)? else { return Ok(None) };
                (shared.trace)(&|| format!("       {start:?}"));
                *self = Recovery::Withdraw(start);
            }
            Recovery::Withdraw(start) => {
                let start = start.clone();
                if let Some(undecided) = start.withdraw.filter(|_| mutation != Some(Mutation::KeepsUndecided)) {
                    shared.world.withdraw(undecided)?;
                }
                *self = match mutation {
                    Some(Mutation::DiscardsBeforeRecommit) => Recovery::Discard { start, leftovers: None },
                    Some(_) | None => Recovery::recommit(start, shared),
                };
            }
            Recovery::Recommit { start, parts } => match parts.pop_front() {
                Some(part) => {
                    let epoch = start.from.expect("only a checkpoint has parts");
                    let digest = shared.world.manifests[&epoch].digest;
                    let permit = CommitPermit::new(PublishReceipt::for_published(epoch, digest));
                    shared.world.commit_part(&permit, &part)?;
                }
                None => {
                    let start = start.clone();
                    if let Some(epoch) = start.from.filter(|_| mutation != Some(Mutation::SkipsRecommit)) {
                        shared.world.files_committed = Some(epoch);
                        if mutation.is_none() {
                            shared.world.check_files(epoch, shared.scenario)?;
                        }
                    }
                    *self = match mutation {
                        Some(Mutation::DiscardsBeforeRecommit) => Recovery::Restore(start),
                        Some(_) | None => Recovery::adopt(start, shared),
                    };
                }
            },
            Recovery::Adopt { start, adoption } => {
                let blind = adoption.next == Request::Commit && shared.fault(shared.scenario.faults.decision_failure);
                if blind {
                    shared.world.oracle.unknown += 1;
                    let lost = *shared.rng.pick(&[Lost::Request, Lost::Answer, Lost::Underway]);
                    adoption.clone().commit_blindly(lost, shared.world)?;
                    *self = Recovery::Identify;
                    return Ok(None);
                }
                match adoption.step(shared.world, mutation)? {
                    Progress::Goes => {}
                    Progress::Done => *self = Recovery::Discard { start: start.clone(), leftovers: None },
                    Progress::Denied => *self = Recovery::Identify,
                }
            }
            Recovery::Discard { start, leftovers } => {
                let start = start.clone();
                let of_dead = |world: &World| -> VecDeque<String> {
                    let dead = world.parts.iter().filter(|(_, part)| part.attempt < start.number);
                    dead.map(|(name, _)| name.clone()).collect()
                };
                let leftovers = leftovers.get_or_insert_with(|| of_dead(shared.world));
                if mutation == Some(Mutation::KeepsLeftovers) {
                    leftovers.clear();
                }
                match leftovers.pop_front() {
                    Some(part) => drop(shared.world.parts.remove(&part)),
                    None if mutation == Some(Mutation::DiscardsBeforeRecommit) => {
                        *self = Recovery::recommit(start, shared);
                    }
                    None => *self = Recovery::Restore(start),
                }
            }
            Recovery::Restore(start) => {
                if let Some((part, _)) = shared.world.parts.iter().find(|(_, part)| part.attempt < start.number) {
                    return Err(Violation(format!("part {part} of a dead attempt is left over")));
                }
                return Attempt::start(start.clone(), shared).map(Some);
            }
        }
        Ok(None)
    }

    fn recommit(start: Start, shared: &Shared<'_>) -> Recovery {
        let skips = shared.scenario.mutation == Some(Mutation::SkipsRecommit);
        let newest = start.from.filter(|_| !skips).map(|epoch| &shared.world.manifests[&epoch]);
        let parts = newest.map(|manifest| manifest.parts().into()).unwrap_or_default();
        Recovery::Recommit { start, parts }
    }

    fn adopt(start: Start, shared: &Shared<'_>) -> Recovery {
        let forgets = shared.scenario.mutation == Some(Mutation::ForgetsAdoption);
        let Some(handle) = start.handles.and_then(|[first, _]| first).filter(|_| start.adopt && !forgets) else {
            return Recovery::Discard { start, leftovers: None };
        };
        let decided = start.from.map(|epoch| (epoch, shared.world.manifests[&epoch].digest));
        let decides = Decides { attempt: start.number, decided, follows: start.from, adopts: true };
        let uid = shared.world.uid.clone();
        Recovery::Adopt { start, adoption: Decision { handle, uid, decides, offsets: None, next: Request::Marker } }
    }

    /// What was asked of the cluster, if the process dies now.
    pub fn into_decision(self) -> Option<Decision> {
        match self {
            Recovery::Adopt { adoption, .. } if !matches!(adoption.next, Request::ReadBack { .. }) => Some(adoption),
            Recovery::Identify
            | Recovery::Read
            | Recovery::Claim { .. }
            | Recovery::TakeOver { .. }
            | Recovery::Decide { .. }
            | Recovery::Withdraw(_)
            | Recovery::Recommit { .. }
            | Recovery::Adopt { .. }
            | Recovery::Discard { .. }
            | Recovery::Restore(_) => None,
        }
    }
}

/// Decides where the attempt starts. `None`: the job can't go on, and it has lost something.
fn decide(number: AttemptNumber, taken: Option<Taken>, shared: &mut Shared<'_>) -> Result<Option<Start>, Violation> {
    let (world, mutation) = (&mut *shared.world, shared.scenario.mutation);
    let handles = taken.as_ref().map(|taken| taken.handles);
    let facts = taken.map(|taken| DeciderFacts { place: place(), marker: taken.marker });
    let newest = world.manifests.keys().next_back().copied();
    let decided = match resolve(&world.uid, &published(world, facts.as_ref()), facts.as_ref()) {
        Ok(decided) => decided,
        Err(refused) => {
            if !world.has_lost {
                return Err(Violation(format!("a sound world is refused: {refused}")));
            }
            world.refused = Some(refused.to_string());
            return Ok(None);
        }
    };
    let Decided { epoch: mut from, mut withdraw, adopt } = decided;
    match mutation {
        Some(Mutation::ResumesUndecided) => (from, withdraw) = (newest, None),
        Some(Mutation::ResumesOlder) if from == newest => {
            let older = world.manifests.keys().rev().nth(1).copied();
            from = older.or(from);
        }
        Some(_) | None => {}
    }
    if world.files_committed > from {
        let what = format!("the files have {:?}, and {from:?} was decided last", world.files_committed);
        if !world.has_lost {
            return Err(Violation(what));
        }
        world.refused = Some(what);
        return Ok(None);
    }
    if let Some(epoch) = from {
        facts::check_resumable(epoch, world)?;
    }
    world.settle_upgrade(from, mutation)?;
    Ok(Some(Start { number, from, newest, withdraw, adopt, handles }))
}

/// The newest two manifests, and that of the marker.
fn published(world: &World, facts: Option<&DeciderFacts>) -> BTreeMap<Epoch, Published> {
    let marked = facts.and_then(|facts| facts.marker.as_ref()?.decided).map(|(epoch, _)| epoch);
    let newest = world.manifests.keys().rev().take(2).copied().chain(marked).collect::<BTreeSet<_>>();
    let known = newest.into_iter().filter_map(|epoch| Some((epoch, world.manifests.get(&epoch)?)));
    known.map(|(epoch, of)| (epoch, Published { digest: of.digest, decision: of.decision.clone() })).collect()
}
