//! Upgrades of a job's operators, from the request over the attempts to the answer.
//!
//! Invariant: a request has one answer. Which component is in force is told by the decided manifest, whenever an attempt has ended
//! with one on trial.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::requests::Components;
use super::{Job, Operator};
use crate::crash;
use crate::guest::OperatorFactory;
use crate::id::{Epoch, Name};
use crate::protocol::upgrade::{Adopted, InForce, in_force};
use crate::store::Manifest;
use crate::task::{SwapFigures, SwapOrder};
use crate::telemetry::{OperatorSwapped, UpgradeAdopted, UpgradeReverted};

pub(super) mod fits;

/// The longest probation. No checkpoint is taken meanwhile.
pub const PROBATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What is wanted.
pub struct UpgradeRequest {
    pub operator: Name,
    /// What makes instances of the new component: it is checked and compiled.
    pub factory: Arc<dyn OperatorFactory>,
    /// How long it is tried before the checkpoint with which it is adopted, from the commit of the one at which it was swapped. At most
    /// [`PROBATION_MAX`].
    pub probation: Duration,
}

/// An upgrade that is in force for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The last epoch of the old component.
    pub swapped_at: Epoch,
    /// The first of the new one that was committed.
    pub adopted_at: Epoch,
    /// How long the subtask paused that paused longest: from the barrier to the new instance that is ready.
    pub paused: Duration,
    /// Entries of keyed state that were brought to a newer version.
    pub migrated_entries: u64,
}

/// Why an operator has the component that it had before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeFailed {
    #[error("the upgrade was refused, and nothing was touched: {why}")]
    Refused { why: String },
    #[error("the upgrade was reverted; the old component goes on, and nothing is lost or doubled: {why}")]
    Reverted { why: String },
    #[error("the job ended before the upgrade was adopted; the old component stays")]
    Stopped,
}

impl UpgradeFailed {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            UpgradeFailed::Refused { .. } => {
                "mend the component; a change that can't be made while the job runs is made by a stop and a restart"
            }
            UpgradeFailed::Reverted { .. } => "mend the component and upgrade again",
            UpgradeFailed::Stopped => "start the job again, and upgrade it then or before",
        }
    }
}

type Reply = oneshot::Sender<Result<Upgraded, UpgradeFailed>>;

/// An upgrade that was taken and has no answer yet.
struct Ongoing {
    operator: Name,
    factory: Arc<dyn OperatorFactory>,
    /// The component's hash.
    component: String,
    probation: Duration,
    reply: Reply,
    /// Since then it is on trial.
    swapped_at: Option<Epoch>,
    /// How the attempt has failed that it was on trial in, and what it had done by then.
    failed: Option<(String, SwapFigures)>,
}

/// An operator that the running attempt has swapped.
struct Swapped {
    epoch: Epoch,
    operator: Name,
    factory: Arc<dyn OperatorFactory>,
}

/// The upgrades of one job.
#[derive(Default)]
pub struct Upgrades {
    ongoing: Option<Ongoing>,
    /// Of the running attempt, oldest first.
    swapped: Vec<Swapped>,
}

impl Upgrades {
    /// Takes a request, or refuses it. Gives the probation of one that was taken.
    pub fn request(&mut self, job: &Job, request: UpgradeRequest, reply: Reply) -> Option<Duration> {
        let UpgradeRequest { operator, factory, probation } = request;
        let fits = self.fits(job, &operator, &*factory).and_then(|component| {
            let too_long = || format!("its probation is longer than {} h", PROBATION_MAX.as_secs() / 3_600);
            (probation <= PROBATION_MAX).then_some(component).ok_or_else(too_long)
        });
        match fits {
            Ok(component) => {
                let (swapped_at, failed) = (None, None);
                let ongoing = Ongoing { operator, factory, component, probation, reply, swapped_at, failed };
                self.ongoing = Some(ongoing);
                Some(probation)
            }
            Err(why) => {
                // Who doesn't wait any more needs no answer, here and everywhere below.
                let _ = reply.send(Err(UpgradeFailed::Refused { why }));
                None
            }
        }
    }

    /// The hash of the new component, if it can take the operator's place.
    fn fits(&self, job: &Job, name: &Name, new: &dyn OperatorFactory) -> Result<String, String> {
        if let Some(ongoing) = &self.ongoing {
            return Err(format!("the upgrade of operator '{}' is under way", ongoing.operator));
        }
        let Some(operator) = job.operators.get(name) else {
            return Err(format!("job '{}' has no operator '{name}'", job.name));
        };
        let old = self.current(name).unwrap_or(&operator.factory);
        let component = new.component().ok_or("the new one is no component")?;
        if old.component() == Some(component) {
            return Err(format!("operator '{name}' has this component already"));
        }
        let node = job.plan.nodes.iter().find(|node| node.name == *name).expect("the plan has every operator");
        let place = fits::Place { parallelism: node.parallelism, on_error: operator.on_error };
        let mut misfits = fits::misfits(place, old.descriptor(), new.descriptor());
        if !new.migrates() {
            misfits.extend(fits::newer_tables(old.descriptor(), new.descriptor()));
        }
        if misfits.is_empty() { Ok(component.to_owned()) } else { Err(misfits.join("; ")) }
    }

    /// What the running attempt has made of an operator.
    fn current(&self, operator: &Name) -> Option<&Arc<dyn OperatorFactory>> {
        let swapped = self.swapped.iter().rev().find(|swapped| swapped.operator == *operator);
        swapped.map(|swapped| &swapped.factory)
    }

    /// An attempt begins. Gives the probation of an upgrade that is still to come.
    pub fn begin_attempt(&self) -> Option<Duration> {
        assert!(self.swapped.is_empty(), "the attempt before is settled");
        self.ongoing.as_ref().map(|ongoing| ongoing.probation)
    }

    /// The next barrier is that of the swap.
    ///
    /// # Panics
    /// If no upgrade is wanted.
    pub fn swap(&mut self, job: &Job, epoch: Epoch) -> SwapOrder {
        let ongoing = self.ongoing.as_mut().expect("an upgrade is wanted");
        ongoing.swapped_at = Some(epoch);
        let (operator, factory) = (ongoing.operator.clone(), Arc::clone(&ongoing.factory));
        self.swapped.push(Swapped { epoch, operator: operator.clone(), factory: Arc::clone(&factory) });
        OperatorSwapped { job: &job.name, operator: &operator, component: &ongoing.component, epoch }.emit();
        SwapOrder { epoch, operator, factory }
    }

    /// A checkpoint is committed.
    pub fn committed(&self, epoch: Epoch) {
        if self.ongoing.as_ref().is_some_and(|ongoing| ongoing.swapped_at == Some(epoch)) {
            crash::point("upgrade.probation");
        }
    }

    /// The one on trial is in force for good.
    ///
    /// # Panics
    /// If there is none.
    pub fn adopt(&mut self, job: &Job, adopted: Adopted, figures: SwapFigures) {
        let ongoing = self.ongoing.take().expect("an upgrade is on trial");
        let Adopted { swapped_at, adopted_at } = adopted;
        let (operator, component) = (&ongoing.operator, ongoing.component.as_str());
        UpgradeAdopted { job: &job.name, operator, component, epoch: adopted_at }.emit();
        let SwapFigures { paused_max: paused, migrated_entries, .. } = figures;
        let _ = ongoing.reply.send(Ok(Upgraded { swapped_at, adopted_at, paused, migrated_entries }));
    }

    /// The component that takes the snapshots of an operator for an epoch of the running attempt.
    pub fn component(&self, job: &Job, name: &Name, epoch: Epoch) -> Option<String> {
        let swapped = self.swapped.iter().rev().find(|swapped| swapped.operator == *name && swapped.epoch < epoch);
        let factory = swapped.map(|swapped| &swapped.factory);
        factory.or(job.operators.get(name).map(|operator| &operator.factory))?.component().map(str::to_owned)
    }

    /// The components that are in force, with that which was adopted last.
    pub fn components(&self, job: &Job) -> Components {
        let trial = self.ongoing.as_ref().and_then(|ongoing| ongoing.swapped_at);
        let in_force = |(name, operator): (&Name, &Operator)| {
            let adopted = |swapped: &&Swapped| swapped.operator == *name && Some(swapped.epoch) != trial;
            let newest = self.swapped.iter().rev().find(adopted);
            let factory = newest.map_or(&operator.factory, |newest| &newest.factory);
            Some((name.clone(), factory.component()?.to_owned()))
        };
        job.operators.iter().filter_map(in_force).collect()
    }

    /// The operator whose new component is on trial, and the epoch at which it was swapped.
    pub fn on_trial(&self) -> Option<(&Name, Epoch)> {
        let ongoing = self.ongoing.as_ref()?;
        Some((&ongoing.operator, ongoing.swapped_at?))
    }

    /// The attempt has ended. What it has adopted is the job's; what was on trial when it failed has to be asked of the manifest.
    pub fn attempt_ended(&mut self, job: &mut Job, failure: Option<&str>, figures: SwapFigures) {
        for Swapped { epoch, operator, factory } in std::mem::take(&mut self.swapped) {
            let operator = job.operators.get_mut(&operator).expect("only operators of the job are swapped");
            if self.ongoing.as_ref().is_some_and(|ongoing| ongoing.swapped_at == Some(epoch)) {
                operator.candidate = Some(factory);
            } else {
                operator.factory = factory;
            }
        }
        if let (Some(ongoing), Some(failure)) = (&mut self.ongoing, failure)
            && ongoing.swapped_at.is_some()
        {
            ongoing.failed = Some((failure.to_owned(), figures));
        }
    }

    /// It is known from which checkpoint the next attempt starts, and so which component is in force.
    pub fn settle(&mut self, job: &mut Job, decided: Option<&Manifest>) {
        for (name, operator) in &mut job.operators {
            let Some(candidate) = operator.candidate.take() else { continue };
            let ongoing = self.ongoing.take_if(|ongoing| ongoing.operator == *name && ongoing.swapped_at.is_some());
            let component = candidate.component().unwrap_or_default().to_owned();
            let (job, named) = (&job.name, decided.and_then(|manifest| manifest.component(name)));
            match in_force(&component, named) {
                InForce::New => {
                    let epoch = decided.expect("a manifest names the component").epoch;
                    operator.factory = candidate;
                    UpgradeAdopted { job, operator: name, component: &component, epoch }.emit();
                    if let Some(ongoing) = ongoing {
                        ongoing.answer(Some(epoch));
                    }
                }
                InForce::Old => {
                    let failure = ongoing.as_ref().and_then(|ongoing| ongoing.failed.as_ref());
                    let cause =
                        failure.map_or("the process ended before it was adopted", |(failure, _)| failure.as_str());
                    UpgradeReverted { job, operator: name, component: &component, cause }.emit();
                    if let Some(ongoing) = ongoing {
                        ongoing.answer(None);
                    }
                    crash::point("upgrade.reverted");
                }
            }
        }
    }
}

impl Ongoing {
    /// Answers after a failed attempt; `adopted_at`: in spite of that it was decided.
    fn answer(self, adopted_at: Option<Epoch>) {
        let (why, figures) = self.failed.unwrap_or_default();
        let swapped_at = self.swapped_at.expect("only what was on trial is settled");
        let SwapFigures { paused_max: paused, migrated_entries, .. } = figures;
        let upgraded = |adopted_at| Upgraded { swapped_at, adopted_at, paused, migrated_entries };
        let _ = self.reply.send(adopted_at.map(upgraded).ok_or(UpgradeFailed::Reverted { why }));
    }
}

impl Operator {
    /// Its factory at a checkpoint.
    pub(super) fn at(&self, name: &Name, manifest: Option<&Manifest>) -> &Arc<dyn OperatorFactory> {
        let named = manifest.and_then(|manifest| manifest.component(name));
        let is_new = |new: &&Arc<dyn OperatorFactory>| {
            new.component().is_some_and(|component| in_force(component, named) == InForce::New)
        };
        self.candidate.as_ref().filter(is_new).unwrap_or(&self.factory)
    }
}

#[cfg(test)]
mod tests;
