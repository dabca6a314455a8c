//! Counters that get other components while they run: what is noted of it, how a process finds out which one is in force, and what must
//! be true of the output.
//!
//! Invariant: a component's rows are visible only in epochs from the one that adopted it on, and those of a component that was
//! reverted never.

use std::collections::BTreeSet;

use lockgate_host::id::Epoch;
use lockgate_host::protocol::Alignment;
use lockgate_host::protocol::upgrade::{InForce, Stored, in_force, in_force_by_store};

use crate::attempt::Attempt;
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::scenario::Scenario;
use crate::task::{Surroundings, Task};
use crate::world::{Manifest, Row, World};

/// Numbers grow: each upgrade brings a component that there never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component(pub u64);

impl Component {
    fn name(self) -> String {
        format!("component-{}", self.0)
    }
}

/// What is durably noted of a job's components, beside its checkpoints.
#[derive(Debug)]
pub struct Noted {
    pub in_force: Component,
    /// What it is to be upgraded to.
    pub candidate: Option<Component>,
    newest: Component,
    /// Which ones a decided checkpoint has named.
    named: BTreeSet<Component>,
}

impl Default for Noted {
    fn default() -> Noted {
        let first = Component(1);
        Noted { in_force: first, candidate: None, newest: first, named: BTreeSet::from([first]) }
    }
}

impl Noted {
    /// Notes that there is to be another component.
    pub fn request(&mut self) {
        self.newest = Component(self.newest.0 + 1);
        self.candidate = Some(self.newest);
    }

    pub fn adopted(&mut self) {
        self.in_force = self.candidate.take().expect("only what was asked for is adopted");
    }
}

impl World {
    /// A process has found out from which checkpoint it starts, and so which component is in force. What was not decided is still
    /// there.
    pub fn settle_upgrade(&mut self, from: Option<Epoch>, mutation: Option<Mutation>) -> Result<(), Violation> {
        let Some(candidate) = self.noted.candidate.take() else { return Ok(()) };
        let decided = from.map(|epoch| self.manifests[&epoch].component);
        let named =
            |component: Option<Component>| in_force(&candidate.name(), component.map(Component::name).as_deref());
        let found = match mutation {
            Some(Mutation::KeepsNewAfterFailure) => InForce::New,
            Some(Mutation::RevertsThoughDecided) => InForce::Old,
            Some(_) | None => named(decided),
        };
        let told = self.told_by_store(candidate);
        if mutation.is_none() && !self.has_lost && told.is_some_and(|told| told != found) {
            return Err(Violation(format!("the store alone says {told:?}, and the decided checkpoint {found:?}")));
        }
        self.oracle.told_by_store += u64::from(told.is_some());
        self.oracle.told_at_recovery += u64::from(told.is_none());
        match found {
            InForce::New => {
                self.noted.in_force = candidate;
                self.oracle.upgraded_late += 1;
            }
            InForce::Old => self.oracle.reverted += 1,
        }
        Ok(())
    }

    /// What a daemon makes of it that only looks at the store: that which was decided last it may not know yet.
    fn told_by_store(&self, candidate: Component) -> Option<InForce> {
        let newest = self.manifests.keys().next_back();
        let stored =
            self.manifests.iter().rev().map(|(epoch, manifest)| {
                (manifest.component.name(), manifest.decision.is_none() || Some(epoch) != newest)
            });
        let stored = stored.collect::<Vec<_>>();
        let stored = stored
            .iter()
            .map(|(component, is_decided)| Stored { component: Some(component.as_str()), is_decided: *is_decided });
        in_force_by_store(&candidate.name(), stored)
    }

    /// An attempt starts from a checkpoint with the component that has taken it.
    pub fn check_in_force(&self, from: Option<Epoch>) -> Result<(), Violation> {
        let decided = from.map_or(Component(1), |epoch| self.manifests[&epoch].component);
        if self.noted.in_force == decided || self.has_lost {
            return Ok(());
        }
        Err(Violation(format!("{:?} goes on from {from:?}, which {decided:?} has taken", self.noted.in_force)))
    }

    /// The rows that a manifest makes visible are those of its component. Where barriers overtake rows, those of components before it
    /// may be among them, but of none that was reverted.
    pub fn check_components(
        &mut self,
        epoch: Epoch,
        manifest: &Manifest,
        scenario: &Scenario,
    ) -> Result<(), Violation> {
        let overtakes = scenario.alignment.overtakes();
        if scenario.alignment == Alignment::AtLeastOnce {
            return Ok(());
        }
        let parts = manifest.parts();
        let rows = parts.iter().filter_map(|part| self.parts.get(part)).flat_map(|part| &part.rows);
        for row in rows {
            let Row::Counted { record, component, .. } = row else { continue };
            let before = overtakes && *component < manifest.component && self.noted.named.contains(component);
            if *component != manifest.component && !before {
                let of = manifest.component;
                return Err(Violation(format!(
                    "epoch {epoch} is of {of:?}, and has record {} by {component:?}",
                    record.id
                )));
            }
        }
        self.noted.named.insert(manifest.component);
        Ok(())
    }
}

impl Attempt {
    /// The component that takes the snapshots of an epoch.
    pub fn component_at(&self, epoch: Epoch, mutation: Option<Mutation>) -> Component {
        let names_early = mutation == Some(Mutation::NamesNewAtSwap);
        match self.swap {
            Some((swap, new)) if swap < epoch || (names_early && swap == epoch) => new,
            Some(_) | None => self.component,
        }
    }
}

impl Task {
    /// Behind a barrier that it has passed on, a counter gets the other component if that is ordered.
    pub fn swap(&mut self, at: &mut Surroundings<'_>, epoch: Epoch) {
        let (Some((swap, new)), Some(counter)) = (at.swap, &mut self.counter) else { return };
        let comes = match at.scenario.mutation {
            Some(Mutation::SwapsLate) => swap.next() == epoch,
            Some(Mutation::SwapsFirstAlone) => swap == epoch && counter.is_first(),
            Some(_) | None => swap == epoch,
        };
        if comes {
            counter.swap(new, at.scenario.mutation == Some(Mutation::LosesStateAtSwap));
        }
    }
}
