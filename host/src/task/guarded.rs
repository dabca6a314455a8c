//! An operator under its policy for what it can't process: rejections are skipped or become dead letters, traps are isolated.
//!
//! Invariant: every row that is given to [`process`](OperatorInstance::process) has its effect, or is counted as rejected and, by
//! policy, put out as a dead letter; never both and never neither, unless the call fails and the attempt with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Counters;
use super::dead_letter::{DeadLetter, DeadLetters, Subject};
use crate::element::Batch;
use crate::guest::{Clock, Emitted, ErrorKind, Failure, Fired, OperatorError, OperatorInstance, Rejection};
use crate::id::{Epoch, SubtaskId};
use crate::protocol::isolation::{Fingerprint, Poison, Watch};
use crate::state::KeyedState;

/// What one subtask has been given in an attempt, read by the runtime when the attempt has ended.
pub type SharedWatch = Arc<Mutex<Watch>>;

/// The newest epoch that the attempt has committed, 0 for none; set by the runtime.
#[derive(Clone, Debug, Default)]
pub struct CommittedEpoch(Arc<AtomicU64>);

impl CommittedEpoch {
    pub fn set(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Epoch> {
        Some(Epoch(self.0.load(Ordering::Relaxed))).filter(|epoch| epoch.0 > 0)
    }
}

/// How often the log tells of rejections, at most.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// An operator whose rejections don't end the attempt.
pub struct Guarded {
    inner: Box<dyn OperatorInstance>,
    subtask: SubtaskId,
    /// `None`: what is rejected is skipped.
    letters: Option<DeadLetters>,
    watch: SharedWatch,
    committed: CommittedEpoch,
    counters: Counters,
    warnings: Warnings,
}

impl Guarded {
    pub fn new(
        inner: Box<dyn OperatorInstance>,
        subtask: SubtaskId,
        letters: Option<DeadLetters>,
        watch: SharedWatch,
        committed: CommittedEpoch,
        counters: Counters,
    ) -> Guarded {
        Guarded { inner, subtask, letters, watch, committed, counters, warnings: Warnings::default() }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns how far commits are, and whether rows are to be taken one by one.
    fn is_careful(&self) -> bool {
        let mut watch = self.watch();
        if let Some(epoch) = self.committed.get() {
            watch.committed(epoch);
        }
        watch.is_careful()
    }

    fn in_batches(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<(), OperatorError> {
        self.watch().takes(batch.rows);
        match self.inner.process(port, batch, emitted) {
            Ok(rejections) => {
                for rejection in rejections {
                    self.reject(&Subject::row(port, batch, rejection.row), BAD_RECORD, &rejection.message);
                }
                Ok(())
            }
            Err(error) => {
                let said = if let Failure::Refused { row, .. } = &*error.failure { *row } else { None };
                let certain = said.or((batch.rows == 1).then_some(0)).filter(|row| *row < batch.rows);
                self.note_trap(&error, certain.map(|row| Fingerprint::of(port, batch, row as usize)));
                Err(error)
            }
        }
    }

    fn row_by_row(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<(), OperatorError> {
        for number in 0..batch.rows {
            let fingerprint = Fingerprint::of(port, batch, number as usize);
            let poison = {
                let mut watch = self.watch();
                watch.takes(1);
                watch.poison(fingerprint).cloned()
            };
            let subject = Subject::row(port, batch, number);
            if let Some(poison) = poison {
                self.reject(&subject, poison.kind, &poison.reason);
                continue;
            }
            let mut alone = Batch::with_capacity(1, batch.value(number as usize).map_or(0, <[u8]>::len));
            alone.push_from(batch, number as usize);
            match self.inner.process(port, &alone, emitted) {
                Ok(rejections) => {
                    for rejection in rejections {
                        self.reject(&subject, BAD_RECORD, &rejection.message);
                    }
                }
                Err(error) => {
                    self.note_trap(&error, Some(fingerprint));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Remembers a failure that a rollback can isolate.
    fn note_trap(&self, error: &OperatorError, row: Option<Fingerprint>) {
        let Some(kind) = isolable(&error.failure) else { return };
        let poison = row.map(|fingerprint| Poison { fingerprint, kind, reason: error.failure.to_string() });
        self.watch().trapped(poison);
    }

    fn reject(&mut self, subject: &Subject<'_>, kind: &'static str, reason: &str) {
        self.counters.rejected(1);
        self.warnings.warn(&self.subtask, subject, kind, reason);
        if let Some(letters) = &mut self.letters {
            let epoch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).epoch();
            letters.add(&DeadLetter { subtask: &self.subtask, epoch, subject, kind, reason });
        }
    }

    /// Puts the dead letters of a call out behind what the operator has emitted.
    fn put_out(&mut self, emitted: &mut Emitted) {
        if let Some(letters) = &mut self.letters {
            emitted.extend(letters.take());
        }
    }
}

const BAD_RECORD: &str = "bad-record";

/// A word for a failure of one call that may be the fault of one of its rows; `None` if it can't be.
fn isolable(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Refused { kind: ErrorKind::BadRecord, .. } => Some(BAD_RECORD),
        Failure::Refused { kind: ErrorKind::Transient | ErrorKind::Fatal, .. } | Failure::Unfit { .. } => None,
        Failure::Deadline { .. } => Some("deadline"),
        Failure::Memory { .. } => Some("memory"),
        Failure::Output { .. } => Some("output"),
        Failure::Panic { .. } => Some("panic"),
        Failure::Stack => Some("stack"),
        Failure::Trap { .. } => Some("trap"),
        Failure::Misuse(_) => Some("misuse"),
        Failure::State(error) => error.is_guest_fault().then_some("state"),
    }
}

impl OperatorInstance for Guarded {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        self.inner.restore(states)
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        if self.is_careful() {
            self.row_by_row(port, batch, emitted)?;
        } else {
            self.in_batches(port, batch, emitted)?;
        }
        self.put_out(emitted);
        Ok(Vec::new())
    }

    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError> {
        let Fired { rows, rejections } = self.inner.fire_timers(clock, up_to_ms, emitted)?;
        for (rejection, timer) in rejections {
            let subject = Subject::timer(&timer.key, &timer.tag, timer.time_ms);
            self.reject(&subject, "timer", &rejection.message);
        }
        self.put_out(emitted);
        Ok(Fired { rows, rejections: Vec::new() })
    }

    fn next_timer(&self, clock: Clock) -> Option<i64> {
        self.inner.next_timer(clock)
    }

    fn set_now(&mut self, now_ms: i64) {
        self.inner.set_now(now_ms);
    }

    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError> {
        self.inner.watermark(timestamp, emitted)
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let state = self.inner.snapshot(epoch)?;
        self.watch().cut(epoch);
        Ok(state)
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        self.inner.close()
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        self.inner.keyed_state()
    }
}

/// Says now and then what was rejected.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Instant>,
    untold: u64,
}

impl Warnings {
    fn warn(&mut self, subtask: &SubtaskId, subject: &Subject<'_>, kind: &str, reason: &str) {
        if self.last.is_some_and(|last| last.elapsed() < WARN_EVERY) {
            self.untold += 1;
            return;
        }
        self.last = Some(Instant::now());
        let untold = std::mem::take(&mut self.untold);
        // As part of the message, which isn't quoted: a reason of a guest is fit for a line already.
        tracing::warn!(operator = %subtask, row = %subject, kind, untold, "a record was rejected: {reason}");
    }
}

#[cfg(test)]
mod tests;
