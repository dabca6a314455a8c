//! Swaps an operator of a running chain: the order, on a board that all tasks of an attempt see, and how a slot follows it.
//!
//! Invariant: the order is on the board before its barrier is injected, so no task passes that barrier without seeing it. The new
//! instance has the state of the snapshot that was taken at the barrier, and the old one is gone before it is opened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::meter::now_ms;
use super::{OperatorSlot, TaskError};
use crate::crash;
use crate::guest::{OperatorFactory, OperatorInstance};
use crate::id::{Epoch, Name};
use crate::state::KeyedState;

/// That an operator is to be swapped.
#[derive(Clone)]
pub struct SwapOrder {
    /// Behind its snapshot of this epoch.
    pub epoch: Epoch,
    pub operator: Name,
    /// What makes the new instances.
    pub factory: Arc<dyn OperatorFactory>,
}

/// What has come of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapFigures {
    /// Those that are swapped.
    pub subtasks: u32,
    /// Of the subtask that took longest: from the barrier to the new instance that is ready.
    pub paused_max: Duration,
    /// Entries of keyed state that were brought to a newer version.
    pub migrated_entries: u64,
}

/// Where the runtime leaves the order, and finds what has come of it.
#[derive(Clone, Default)]
pub struct SwapBoard(Arc<Mutex<Posted>>);

#[derive(Default)]
struct Posted {
    order: Option<SwapOrder>,
    figures: SwapFigures,
}

impl SwapBoard {
    /// Takes the place of the order before, which every task has followed.
    pub fn post(&self, order: SwapOrder) {
        *self.posted() = Posted { order: Some(order), figures: SwapFigures::default() };
    }

    /// What has come of the newest order so far.
    pub fn figures(&self) -> SwapFigures {
        self.posted().figures
    }

    /// What makes the new instances of an operator, if it is to be swapped behind its snapshot of this epoch.
    pub(super) fn ordered(&self, epoch: Epoch, operator: &Name) -> Option<Arc<dyn OperatorFactory>> {
        let posted = self.posted();
        let order = posted.order.as_ref().filter(|order| order.epoch == epoch && order.operator == *operator)?;
        Some(Arc::clone(&order.factory))
    }

    fn swapped(&self, paused: Duration, migrated_entries: u64) {
        let figures = &mut self.posted().figures;
        figures.subtasks += 1;
        figures.paused_max = figures.paused_max.max(paused);
        figures.migrated_entries += migrated_entries;
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance of another component, over the state of the one before.
pub struct Reopened {
    pub instance: Box<dyn OperatorInstance>,
    pub migrated_entries: u64,
}

/// Opens an instance of another component for a subtask, over its state.
pub type Reopen = Box<dyn Fn(&dyn OperatorFactory, Option<KeyedState>) -> Result<Reopened, TaskError> + Send>;

/// How an operator of a chain comes by another component.
pub struct Swaps {
    pub board: SwapBoard,
    pub reopen: Reopen,
}

impl OperatorSlot {
    /// The same with an instance of another component, which has what the snapshot before holds. `cut_at`: when its barrier came.
    ///
    /// # Errors
    /// If that can't be opened, or refuses the state.
    pub(super) fn swapped(self, factory: &dyn OperatorFactory, cut_at: Instant) -> Result<OperatorSlot, TaskError> {
        crash::point("upgrade.swap.before");
        let OperatorSlot { instance: old, mut pace, operator_state, swaps, .. } = self;
        // Not closed: that is for the end of a job, and what an operator does then may take as long as any call.
        let state = old.into_state();
        let Reopened { mut instance, migrated_entries } = (swaps.reopen)(factory, state)?;
        if !operator_state.is_empty() {
            instance.restore(std::slice::from_ref(&operator_state))?;
        }
        instance.set_now(now_ms());
        swaps.board.swapped(cut_at.elapsed(), migrated_entries);
        crash::point("upgrade.swap.after");
        pace.begin_again();
        Ok(OperatorSlot { instance, pace, operator_state, swaps, ..self })
    }
}

#[cfg(test)]
mod tests;
