//! An operator whose failures end the attempt, with a capsule of the record or timer that it was.
//!
//! Invariant: what comes of the records is what the operator makes of them. All that is added to its calls is a snapshot before a
//! record that is known to fail; trials are made by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::element::Batch;
use crate::guest::{Clock, Emitted, Fired, Instance, OperatorError, OperatorInstance, Rejection, TrialCall};
use crate::id::{Epoch, SubtaskId};
use crate::replay::{Examiner, FailedCall, Looked, Search, Step, Suspect, said_row};
use crate::state::KeyedState;

/// An operator under the policy to fail.
pub struct Examined {
    inner: Box<dyn OperatorInstance>,
    subtask: SubtaskId,
    examiner: Examiner,
    search: Search,
    epoch: SharedEpoch,
}

/// The epoch that what comes now belongs to: an instance that takes the place of another goes on with that one's.
#[derive(Clone, Debug)]
pub struct SharedEpoch(Arc<AtomicU64>);

impl SharedEpoch {
    /// That behind the checkpoint that an attempt starts from.
    pub fn behind(restored: Option<Epoch>) -> SharedEpoch {
        SharedEpoch(Arc::new(AtomicU64::new(restored.map_or(Epoch(1), Epoch::next).0)))
    }

    fn get(&self) -> Epoch {
        Epoch(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Relaxed);
    }
}

impl Examined {
    pub fn new(
        inner: Box<dyn OperatorInstance>,
        subtask: SubtaskId,
        examiner: Examiner,
        epoch: SharedEpoch,
    ) -> Examined {
        let search = examiner.search(&subtask);
        Examined { inner, subtask, examiner, search, epoch }
    }

    /// Processes rows in one call: those of the batch at hand from `first` on.
    fn rows(&mut self, port: u32, batch: &Batch, first: u32, emitted: &mut Emitted) -> Result<(), OperatorError> {
        let error = match self.inner.process(port, batch, emitted) {
            Ok(rejections) => {
                assert!(rejections.is_empty(), "rejections aren't allowed");
                return Ok(());
            }
            Err(error) => error,
        };
        let certain = said_row(&error);
        let (error, looked) = self.look(error, certain, |_| Some(TrialCall::Process { port, rows: batch.clone() }));
        match looked {
            Looked::NotAgain(seen) => {
                let suspicion = self.search.failed(port, batch, first, certain, seen);
                self.examiner.suspect(&self.subtask, Some(&suspicion));
            }
            Looked::Kept(_) => self.examiner.suspect(&self.subtask, None),
            Looked::Unwanted => {}
        }
        Err(error)
    }

    /// Makes a capsule of a row at which it is known to fail, in the state that it fails in.
    fn suspect(&mut self, suspect: Suspect<'_>) -> Result<(), OperatorError> {
        self.examiner.suspect(&self.subtask, None);
        match self.inner.wasm() {
            Some(instance) => self.examiner.row(instance, suspect).map(drop),
            None => Ok(()),
        }
    }

    /// Looks at a call that has failed.
    fn look(
        &mut self,
        mut error: OperatorError,
        certain: Option<u32>,
        call: impl FnOnce(&mut Instance) -> Option<TrialCall>,
    ) -> (OperatorError, Looked) {
        let Some(instance) = self.inner.wasm() else { return (error, Looked::Unwanted) };
        let Some(call) = call(instance) else { return (error, Looked::Unwanted) };
        let looked = self.examiner.failed(instance, &FailedCall { epoch: self.epoch.get(), call, certain }, &error);
        if let Looked::Kept(path) = &looked {
            error.capsule = Some(path.clone());
        }
        (error, looked)
    }
}

impl OperatorInstance for Examined {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        self.inner.restore(states)
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        for step in self.search.steps(port, batch) {
            match step {
                Step::Rows(range) if range == (0..batch.rows) => self.rows(port, batch, 0, emitted)?,
                Step::Rows(range) => self.rows(port, &batch.part(range.clone()), range.start, emitted)?,
                Step::Suspect(row, seen) => self.suspect(Suspect::record(port, batch, row, self.epoch.get(), seen))?,
            }
        }
        if self.search.is_over() {
            self.examiner.suspect(&self.subtask, None);
        }
        Ok(Vec::new())
    }

    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError> {
        let fired = self.inner.fire_timers(clock, up_to_ms, emitted);
        let due = |instance: &mut Instance| instance.due_again(clock, up_to_ms);
        fired.map_err(|error| {
            self.look(error, None, |instance| Some(TrialCall::Timers { clock, rows: due(instance)? })).0
        })
    }

    fn next_timer(&self, clock: Clock) -> Option<i64> {
        self.inner.next_timer(clock)
    }

    fn set_now(&mut self, now_ms: i64) {
        self.inner.set_now(now_ms);
    }

    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError> {
        let told = self.inner.watermark(timestamp, emitted);
        told.map_err(|error| self.look(error, None, |_| Some(TrialCall::Watermark { timestamp })).0)
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let state = self.inner.snapshot(epoch)?;
        self.epoch.set(epoch.next());
        self.search.cut();
        Ok(state)
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        self.inner.close()
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        self.inner.keyed_state()
    }

    fn wasm(&mut self) -> Option<&mut Instance> {
        self.inner.wasm()
    }

    fn migrated_entries(&self) -> u64 {
        self.inner.migrated_entries()
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        self.inner.into_state()
    }
}
