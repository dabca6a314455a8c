//! An operator under its policy for what it can't process: rejections are skipped or become dead letters, traps are isolated.
//!
//! Invariant: every row that is given to [`process`](OperatorInstance::process) has its effect, or is counted as rejected and, by
//! policy, put out as a dead letter; never both and never neither, unless the call fails and the attempt with it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Counters;
use super::dead_letter::{DeadLetter, DeadLetters, Subject};
use crate::element::{Batch, Row};
use crate::guest::{
    Clock, Emitted, ErrorKind, Failure, Fired, Instance, OperatorError, OperatorInstance, RejectedTimer, Rejection,
    TrialCall,
};
use crate::id::{Epoch, SubtaskId};
use crate::protocol::isolation::{Fingerprint, Poison, Watch};
use crate::replay::{Examiner, FailedCall, Looked, Outcome, Suspect, said_row};
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
    /// Keeps what is needed to see failures again.
    examiner: Option<Examiner>,
    /// Whether a record that traps comes again in the next attempt.
    is_replayed: bool,
    /// The records that have been taken one by one.
    came: Came,
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
        let (warnings, examiner, is_replayed) = (Warnings::default(), None, true);
        let came = Came::default();
        Guarded { inner, subtask, letters, watch, committed, counters, warnings, examiner, is_replayed, came }
    }

    /// With capsules of what is rejected or fails. `is_replayed`: whether a record that traps comes again in the next attempt,
    /// where it is left out.
    #[must_use]
    pub fn with_examiner(mut self, examiner: Option<Examiner>, is_replayed: bool) -> Guarded {
        (self.examiner, self.is_replayed) = (examiner, is_replayed);
        self
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
                for Rejection { row, message } in rejections {
                    let capsule = self.keep_row(port, batch, row, || Outcome::Rejected { message: message.clone() })?;
                    self.reject(&Subject::row(port, batch, row), BAD_RECORD, &message, capsule);
                }
                Ok(())
            }
            Err(mut error) => {
                let said = said_row(&error);
                let certain = said.or((batch.rows == 1).then_some(0)).filter(|row| *row < batch.rows);
                self.note_trap(&error, certain.map(|row| Fingerprint::of(port, batch, row as usize)));
                // Of a row that is left out when it comes again there is a capsule then, in just the state that it comes in.
                if !self.is_replayed || isolable(&error.failure).is_none() {
                    self.keep_call(&mut error, said, || Some(TrialCall::Process { port, rows: batch.clone() }));
                }
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
            // Of equal records the next attempt leaves out the first, and the state of this moment never comes again.
            let is_like_another = self.examiner.is_some() && !self.came.insert(fingerprint);
            let subject = Subject::row(port, batch, number);
            if let Some(Poison { kind, reason, .. }) = poison {
                let (call, message) = ("process".to_owned(), reason.clone());
                let failed = || Outcome::Failed { call, kind: kind.to_owned(), message };
                let capsule = self.keep_row(port, batch, number, failed)?;
                self.reject(&subject, kind, &reason, capsule);
                continue;
            }
            let mut alone = Batch::with_capacity(1, batch.value(number as usize).map_or(0, <[u8]>::len));
            alone.push_from(batch, number as usize);
            match self.inner.process(port, &alone, emitted) {
                Ok(rejections) => {
                    for Rejection { message, .. } in rejections {
                        let rejected = || Outcome::Rejected { message: message.clone() };
                        let capsule = self.keep_row(port, batch, number, rejected)?;
                        self.reject(&subject, BAD_RECORD, &message, capsule);
                    }
                }
                Err(mut error) => {
                    self.note_trap(&error, Some(fingerprint));
                    if is_like_another {
                        self.keep_call(&mut error, Some(number), || {
                            Some(TrialCall::Process { port, rows: batch.clone() })
                        });
                    }
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

    /// Makes a capsule of a row that has no effect. The instance is in the state before it, or behind its batch.
    fn keep_row(
        &mut self,
        port: u32,
        batch: &Batch,
        row: u32,
        seen: impl FnOnce() -> Outcome,
    ) -> Result<Option<PathBuf>, OperatorError> {
        let (Some(examiner), Some(instance)) = (&mut self.examiner, self.inner.wasm()) else { return Ok(None) };
        let epoch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).epoch();
        examiner.row(instance, Suspect::record(port, batch, row, epoch, seen()))
    }

    /// [`keep_row`](Self::keep_row) for a timer that has fired.
    fn keep_timer(
        &mut self,
        clock: Clock,
        timer: &RejectedTimer,
        message: &str,
    ) -> Result<Option<PathBuf>, OperatorError> {
        let (Some(examiner), Some(instance)) = (&mut self.examiner, self.inner.wasm()) else { return Ok(None) };
        let epoch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).epoch();
        let mut rows = Batch::default();
        rows.push(Row { key: Some(&timer.key), value: Some(&timer.tag), timestamp: timer.time_ms });
        let (call, seen) = (TrialCall::Timers { clock, rows }, Outcome::Rejected { message: message.to_owned() });
        examiner.row(instance, Suspect { epoch, call, seen, origin: None })
    }

    /// Makes a capsule of a call that has failed and ends the attempt.
    fn keep_call(&mut self, error: &mut OperatorError, certain: Option<u32>, call: impl FnOnce() -> Option<TrialCall>) {
        let (Some(examiner), Some(instance)) = (&mut self.examiner, self.inner.wasm()) else { return };
        let epoch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).epoch();
        let Some(call) = call() else { return };
        if let Looked::Kept(path) = examiner.failed(instance, &FailedCall { epoch, call, certain }, error) {
            error.capsule = Some(path);
        }
    }

    fn reject(&mut self, subject: &Subject<'_>, kind: &'static str, reason: &str, capsule: Option<PathBuf>) {
        self.counters.rejected(1);
        self.warnings.warn(&self.subtask, subject, kind, reason);
        if let Some(letters) = &mut self.letters {
            let epoch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).epoch();
            let capsule = capsule.as_deref();
            letters.add(&DeadLetter { subtask: &self.subtask, epoch, subject, kind, reason, capsule });
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
        Failure::Refused { kind: ErrorKind::Transient | ErrorKind::Fatal, .. }
        | Failure::Unfit { .. }
        | Failure::Migration(_)
        | Failure::Instances { .. }
        | Failure::StateSize { .. } => None,
        Failure::Deadline { .. } => Some("deadline"),
        Failure::Memory { .. } => Some("memory"),
        Failure::Output { .. } => Some("output"),
        Failure::Panic { .. } => Some("panic"),
        Failure::Tables { .. } => Some("tables"),
        Failure::Stack { .. } => Some("stack"),
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
        let Fired { rows, rejections } = match self.inner.fire_timers(clock, up_to_ms, emitted) {
            Ok(fired) => fired,
            Err(mut error) => {
                let rows = self.inner.wasm().and_then(|instance| instance.due_again(clock, up_to_ms));
                self.keep_call(&mut error, None, || Some(TrialCall::Timers { clock, rows: rows? }));
                return Err(error);
            }
        };
        for (Rejection { message, .. }, timer) in rejections {
            let capsule = self.keep_timer(clock, &timer, &message)?;
            let subject = Subject::timer(&timer.key, &timer.tag, timer.time_ms);
            self.reject(&subject, "timer", &message, capsule);
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
        self.inner.watermark(timestamp, emitted).map_err(|mut error| {
            self.keep_call(&mut error, None, || Some(TrialCall::Watermark { timestamp }));
            error
        })
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

    fn wasm(&mut self) -> Option<&mut Instance> {
        self.inner.wasm()
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        self.inner.into_state()
    }
}

/// Which records have come, as far as that is remembered.
#[derive(Debug, Default)]
struct Came(BTreeSet<Fingerprint>);

impl Came {
    /// More aren't remembered.
    const RECORDS_MAX: usize = 1 << 20;

    /// Whether it is the first one like this, for all that is known.
    fn insert(&mut self, record: Fingerprint) -> bool {
        if self.0.len() == Came::RECORDS_MAX { !self.0.contains(&record) } else { self.0.insert(record) }
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
