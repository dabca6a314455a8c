//! Hands the state of an operator over to another component of it, in the middle of the stream.
//!
//! Invariant: what the new component finds is what it would find if it were restored from a snapshot that is taken at this place.

use super::error::StateError;
use super::keyed::KeyedState;
use super::tables::Tables;
use super::timers::TimerQueue;
use crate::store::TableRef;

impl KeyedState {
    /// Makes it the state of a component that declares these tables, as [`StateOptions::tables`](super::StateOptions::tables) does;
    /// some may have to be migrated then. To be called behind a snapshot, which has the watermark that the operator has come to.
    ///
    /// # Errors
    /// If the component can't have the tables that there are, or the timers can't be read.
    ///
    /// # Panics
    /// If there are staged writes.
    pub fn hand_over(&mut self, declared: &[TableRef]) -> Result<(), StateError> {
        assert!(!self.current.has_staged(), "state is handed over between two calls");
        self.migrated.clear();
        self.restored_watermark_ms = self.written_watermark_ms;
        if self.space.tables.declared_tables() == declared {
            return Ok(());
        }
        self.space.tables = Tables::assign(&self.space.subtask, declared, Some(self.space.tables.stored()))?;
        match (self.space.tables.timers(), &self.timers) {
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(_)) => self.timers = None,
            (Some(_), None) => {
                self.timers = Some(TimerQueue::new(self.space.key_groups, true));
                self.settle_timers()?;
            }
        }
        Ok(())
    }
}
