//! An operator gets another component while the job runs: when it is swapped, how long it is tried, and which of the two is in force.
//!
//! **The swap.** At the barrier of one epoch every subtask of the operator takes its snapshot with the old component, hands the state
//! to an instance of the new one, and goes on. So that checkpoint, N, is the old component's, and what comes behind its barrier is the
//! new one's.
//!
//! **Probation.** The next barrier, N + 1, isn't injected before N has been committed and the probation is over. With the commit of
//! N + 1 the upgrade is adopted. The last barrier of a job doesn't wait: all that there was to try has been tried by then.
//!
//! **Why this is exactly once.** Nothing that the new component does is visible before N + 1 is decided. If anything fails before, the
//! next attempt starts from the newest decided checkpoint as ever. Each manifest names the component that took its snapshots; that
//! of the decided one is [`in_force`]. So a failure between the decision and its commit adopts, every one before it reverts to the old
//! component and its own state, and a new process comes to the same answer without having been told anything.
//!
//! Invariant: at most one upgrade is on trial. From its swap on no barrier is injected but the last one until probation is over.

use std::time::Duration;

use crate::element::{Barrier, Purpose};
use crate::id::Epoch;

/// An upgrade that is in force for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The last epoch of the old component.
    pub swapped_at: Epoch,
    /// The first one of the new component.
    pub adopted_at: Epoch,
}

/// How far the upgrade of an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trial {
    /// There is none.
    #[default]
    None,
    /// The next barrier swaps, unless it is the last.
    Requested { probation: Duration },
    /// The barrier that swaps is on its way, or its checkpoint is.
    Swapping { swap: Epoch, probation: Duration },
    /// That checkpoint is committed.
    OnProbation { swap: Epoch, until: Duration },
    /// The first barrier behind the swap is on its way, or its checkpoint is.
    Proving { swap: Epoch, proof: Epoch },
}

/// When the next barrier may be injected, unless it is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextBarrier {
    AsEver,
    /// From this time on, and then at once.
    From(Duration),
    /// Not before something has happened.
    Held,
}

/// What a checkpoint is to an upgrade. Those of one are always published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    None,
    Swap,
    Proof,
}

impl Trial {
    /// An upgrade is wanted.
    ///
    /// # Panics
    /// If another one is on trial.
    pub fn request(&mut self, probation: Duration) {
        assert_eq!(*self, Trial::None, "one upgrade after the other");
        *self = Trial::Requested { probation };
    }

    pub fn next_barrier(&self) -> NextBarrier {
        match *self {
            Trial::None | Trial::Proving { .. } => NextBarrier::AsEver,
            Trial::Requested { .. } => NextBarrier::From(Duration::ZERO),
            Trial::Swapping { .. } => NextBarrier::Held,
            Trial::OnProbation { until, .. } => NextBarrier::From(until),
        }
    }

    /// A barrier is injected.
    pub fn injected(&mut self, barrier: Barrier) -> Role {
        match (*self, barrier.purpose) {
            // Behind the last barrier there is nothing that a new component could do.
            (Trial::None | Trial::Proving { .. }, _) | (Trial::Requested { .. }, Purpose::Last) => Role::None,
            (Trial::Requested { probation }, Purpose::Continue) => {
                *self = Trial::Swapping { swap: barrier.epoch, probation };
                Role::Swap
            }
            (Trial::Swapping { .. }, Purpose::Continue) => panic!("epoch {} waits for the probation", barrier.epoch),
            (Trial::Swapping { swap, .. } | Trial::OnProbation { swap, .. }, _) => {
                *self = Trial::Proving { swap, proof: barrier.epoch };
                Role::Proof
            }
        }
    }

    /// A checkpoint is committed.
    pub fn committed(&mut self, epoch: Epoch, now: Duration) -> Option<Adopted> {
        match *self {
            Trial::Swapping { swap, probation } if swap == epoch => {
                *self = Trial::OnProbation { swap, until: now.saturating_add(probation) };
                None
            }
            Trial::Proving { swap, proof } if proof == epoch => {
                *self = Trial::None;
                Some(Adopted { swapped_at: swap, adopted_at: proof })
            }
            Trial::None
            | Trial::Requested { .. }
            | Trial::Swapping { .. }
            | Trial::OnProbation { .. }
            | Trial::Proving { .. } => None,
        }
    }
}

/// Which of an operator's two components a job goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce {
    Old,
    New,
}

/// Which component a job goes on with whose upgrade was interrupted: `new` is its component, `decided` the one that the newest
/// decided manifest names for the operator. Where that names none, or there is no manifest, the new one has never been in force.
pub fn in_force(new: &str, decided: Option<&str>) -> InForce {
    if decided == Some(new) { InForce::New } else { InForce::Old }
}

/// What a checkpoint store says of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The component that its manifest names for the operator.
    pub component: Option<&'a str>,
    /// Whether the store knows that it is decided. Where sinks decide, it may not know yet.
    pub is_decided: bool,
}

/// [`in_force`], as far as the checkpoint store alone can tell. `None`: that hangs on whether a checkpoint was decided, and only the
/// next recovery of the job finds out.
pub fn in_force_by_store<'a>(new: &str, newest_first: impl IntoIterator<Item = Stored<'a>>) -> Option<InForce> {
    let mut possible = None;
    for Stored { component, is_decided } in newest_first {
        let found = in_force(new, component);
        if possible.replace(found).is_some_and(|other| other != found) {
            return None;
        }
        if is_decided {
            return possible;
        }
    }
    // It may have to begin again.
    let from_nothing = in_force(new, None);
    possible.is_none_or(|found| found == from_nothing).then_some(from_nothing)
}

#[cfg(test)]
mod tests;
