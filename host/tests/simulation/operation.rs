//! What the runtime does in the background at the coordinator's word: publish, commit, retain.
//!
//! Invariant: one step changes one file, and each may fail before it has happened or after.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lockgate_host::id::{Attempt, Epoch};
use lockgate_host::protocol::Event;
use lockgate_host::protocol::retention::{self, RetentionFacts};

use crate::attempt::Shared;
use crate::commit::Commit;
use crate::decision::Decision;
use crate::log_sink::LogSink;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::world::{Manifest, TaskSnapshot};

pub enum Operation {
    Publish {
        epoch: Epoch,
        manifest: Manifest,
        /// Nobody has asked for it.
        answered: bool,
    },
    Commit(Commit),
    Retain(Retention),
}

/// A retention lists files, then manifests, then deletes one after the other.
pub enum Retention {
    ListFiles { committed: Epoch },
    ListManifests { committed: Epoch, files: BTreeMap<String, Attempt> },
    Delete { manifests: VecDeque<Epoch>, files: VecDeque<String> },
}

/// The answer to an operation that is over; `None` while it isn't.
pub type Answer = Option<Vec<Event<TaskSnapshot>>>;

impl Operation {
    pub fn retention(committed: Epoch) -> Operation {
        Operation::Retain(Retention::ListFiles { committed })
    }

    pub fn is_retention(&self) -> bool {
        matches!(self, Operation::Retain(_))
    }

    /// The decision that it is about.
    pub fn into_decision(self) -> Option<Decision> {
        match self {
            Operation::Commit(commit) => commit.into_decision(),
            Operation::Publish { .. } | Operation::Retain(_) => None,
        }
    }

    pub fn step(
        &mut self,
        attempt: Attempt,
        log: Option<(&mut LogSink, Duration)>,
        shared: &mut Shared<'_>,
    ) -> Result<Answer, Violation> {
        match self {
            Operation::Publish { epoch, manifest, answered } => {
                let answer = publish(*epoch, manifest, shared)?;
                Ok(answer.map(|events| if *answered { Vec::new() } else { events }))
            }
            Operation::Commit(commit) => commit.step(log, shared),
            Operation::Retain(retention) => retain(retention, attempt, shared),
        }
    }
}

fn publish(epoch: Epoch, manifest: &Manifest, shared: &mut Shared<'_>) -> Result<Answer, Violation> {
    let failed = |reason: &str| Ok(Some(vec![Event::PublishFailed { epoch, reason: reason.to_owned() }]));
    if shared.fault(shared.scenario.faults.publish_failure) {
        if shared.rng.one_in(2) {
            return failed("the store is away");
        }
        let _lost = shared.world.publish(epoch, manifest.clone(), shared.scenario)?;
        return failed("the answer is lost");
    }
    match shared.world.publish(epoch, manifest.clone(), shared.scenario)? {
        Some(receipt) => Ok(Some(vec![Event::Published(receipt)])),
        None => failed("there is a manifest of this epoch"),
    }
}

fn retain(retention: &mut Retention, attempt: Attempt, shared: &mut Shared<'_>) -> Result<Answer, Violation> {
    let mutation = shared.scenario.mutation;
    match retention {
        Retention::ListFiles { committed } => {
            let files = shared.world.files.iter().map(|(name, file)| (name.clone(), file.attempt)).collect();
            *retention = Retention::ListManifests { committed: *committed, files };
        }
        Retention::ListManifests { committed, files } => {
            let mut manifests = BTreeMap::<Epoch, BTreeSet<String>>::new();
            for (&epoch, manifest) in &shared.world.manifests {
                let mut names = manifest.files();
                if mutation == Some(Mutation::DeletesSharedFiles) {
                    let before = manifests.values().flatten().cloned().collect::<BTreeSet<_>>();
                    names.retain(|name| !before.contains(name));
                }
                manifests.insert(epoch, names);
            }
            let attempt = if mutation == Some(Mutation::DeletesUploads) { Attempt(attempt.0 + 1) } else { attempt };
            let files = std::mem::take(files);
            let facts = RetentionFacts { files, manifests, kept: BTreeSet::new(), committed: *committed, attempt };
            let deletions =
                retention::plan(&facts, shared.scenario.keep).map_err(|refused| Violation(refused.to_string()))?;
            *retention = Retention::Delete { manifests: deletions.manifests.into(), files: deletions.files.into() };
        }
        Retention::Delete { manifests, files } => {
            if let Some(epoch) = manifests.pop_front() {
                shared.world.delete_manifest(epoch, shared.scenario.keep.get())?;
            } else if let Some(file) = files.pop_front() {
                shared.world.delete_file(&file)?;
            } else {
                return shared.world.check_no_garbage(attempt).map(|()| Some(Vec::new()));
            }
        }
    }
    Ok(None)
}
