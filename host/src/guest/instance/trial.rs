//! Trials: a call that is made again by a fresh instance in the state of another one, to see what it does.
//!
//! A trial has the random numbers that its call has had in the job: they follow from which call of its instance it was, and how many the
//! rows before have taken. (Which of them a rejected row has had of its batch nobody knows: it gets those of the first.)
//!
//! Invariant: a trial changes nothing. What it writes is dropped, what it puts out goes nowhere, and the state that it looks at is
//! that of the instance again when it is over.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Instance, OperatorInstance, Place, Unopened};
use crate::element::Batch;
use crate::guest::imports::Counters;
use crate::guest::recording::{Read, Recorded, Recording};
use crate::guest::{Draws, Limits, OperatorError, Plugin, Rejection};
use crate::id::Epoch;
use crate::state::{Clock, KeyedState};

/// A call of an operator that can be made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrialCall {
    Process {
        port: u32,
        rows: Batch,
    },
    /// Key, tag as the value, time as the timestamp.
    Timers {
        clock: Clock,
        rows: Batch,
    },
    Watermark {
        timestamp: i64,
    },
}

impl TrialCall {
    /// Its records or timers; a watermark has none.
    pub fn rows(&self) -> Option<&Batch> {
        match self {
            TrialCall::Process { rows, .. } | TrialCall::Timers { rows, .. } => Some(rows),
            TrialCall::Watermark { .. } => None,
        }
    }

    /// The same call with some of its rows.
    fn part(&self, range: std::ops::Range<u32>) -> TrialCall {
        let of = |rows: &Batch| {
            let mut part = Batch::with_capacity(range.len(), 0);
            range.clone().for_each(|row| part.push_from(rows, row as usize));
            part
        };
        match self {
            TrialCall::Process { port, rows } => TrialCall::Process { port: *port, rows: of(rows) },
            TrialCall::Timers { clock, rows } => TrialCall::Timers { clock: *clock, rows: of(rows) },
            TrialCall::Watermark { timestamp } => TrialCall::Watermark { timestamp: *timestamp },
        }
    }
}

/// A call, and how a fresh instance comes to where it is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The state that isn't keyed, to be restored; none: nothing is restored.
    pub states: Vec<Vec<u8>>,
    /// The time of day. An instance learns it after it was opened and has restored.
    pub now_ms: i64,
    /// The watermark, from `open` on.
    pub watermark_ms: i64,
    pub call: TrialCall,
}

/// What came of a trial.
pub struct Tried {
    pub outcome: Result<Vec<Rejection>, OperatorError>,
    pub recorded: Recorded,
}

/// A trial and what came of it.
pub struct Again {
    pub trial: Trial,
    pub draws: Draws,
    pub tried: Tried,
}

/// Whether an instance has made the call that is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was the last one with records, timers or a watermark.
    Last,
    /// It would be the next one.
    NotYet,
}

/// A trial that was made before, to be made again.
pub struct Repeat<'a> {
    pub trial: &'a Trial,
    /// `None`: older hosts didn't know. Then the time is that of the call from `open` on, as it was with them.
    pub draws: Option<Draws>,
    /// The answers to its look-ups.
    pub reads: Vec<Read>,
}

/// What an instance was made of.
pub struct Facts<'a> {
    pub plugin: &'a Plugin,
    pub place: &'a Place,
    pub limits: &'a Limits,
}

impl Plugin {
    /// Makes a trial on a fresh instance. Its look-ups are answered as they were as long as they are the same, and else out
    /// of the state.
    ///
    /// # Panics
    /// If the operator is keyed and there is no state.
    pub fn repeat(&self, place: &Place, limits: Limits, state: Option<KeyedState>, repeat: Repeat<'_>) -> Tried {
        assert_eq!(state.is_some(), self.descriptor().is_keyed(), "state if, and only if, there are tables or timers");
        let mut bench = Bench { plugin: self, place, limits, state: state.map(Box::new) };
        let Repeat { trial, draws, reads } = repeat;
        bench.make(trial, draws, Recording::repeating(reads))
    }
}

impl Instance {
    pub fn facts(&self) -> Facts<'_> {
        Facts { plugin: &self.plugin, place: &self.place, limits: &self.inner.limits }
    }

    /// Makes a call on a fresh instance that is in this one's state, which a snapshot brings out. This one is as it was.
    ///
    /// # Errors
    /// If this instance fails in its snapshot. Then it is only dropped.
    pub fn again(&mut self, epoch: Epoch, call: TrialCall, made: Made) -> Result<Again, OperatorError> {
        let states = Vec::from([self.snapshot(epoch)?]);
        let host = self.inner.store.data();
        let draws = match made {
            Made::Last => Draws { call: host.streaming_call.max(1), taken: 0 },
            Made::NotYet => Draws { call: host.calls + 1, taken: 0 },
        };
        Ok(self.bench(|bench, now_ms, watermark_ms| {
            let trial = Trial { states: restorable(states), now_ms, watermark_ms, call };
            let tried = bench.make(&trial, Some(draws), Recording::of_reads());
            Again { trial, draws, tried }
        }))
    }

    /// After a call has failed: looks on fresh instances for the row at which it fails, and makes the call with that row alone.
    /// They begin with the state of the last snapshot, and with what has reached the keyed state since; the rows before are
    /// processed first. `certain`: which row it was, where the operator has said so. No row is begun after `until`.
    ///
    /// `None`: from there no row fails, or none was found in time.
    pub fn look_back(&mut self, call: &TrialCall, certain: Option<u32>, until: Instant) -> Option<Again> {
        let states = restorable(self.states.clone());
        let number = self.inner.store.data().streaming_call.max(1);
        self.bench(|bench, now_ms, watermark_ms| {
            let from = Trial { states, now_ms, watermark_ms, call: call.clone() };
            let rows = call.rows().map_or(1, |rows| rows.rows);
            let row = match certain.filter(|row| *row < rows) {
                Some(row) => row,
                None if rows == 1 => 0,
                None => bench.first_failing(&from, number, rows, until)?,
            };
            let (states, taken) = if row == 0 { (from.states, 0) } else { bench.pass(&from, number, row)? };
            let draws = Draws { call: number, taken: taken.min(Draws::TAKEN_MAX) };
            let trial = Trial { states, now_ms, watermark_ms, call: call.part(row..row + 1) };
            let tried = bench.make(&trial, Some(draws), Recording::of_reads());
            tried.outcome.is_err().then_some(Again { trial, draws, tried })
        })
    }

    /// After a call for timers has failed: those that it was given.
    pub fn due_again(&mut self, clock: Clock, up_to_ms: i64) -> Option<Batch> {
        let state = self.inner.store.data_mut().state.as_deref_mut().filter(|state| state.has_timers())?;
        let due = state.take_timers(clock, up_to_ms, crate::guest::FIRED_ROWS_MAX).ok();
        state.discard();
        due.filter(|due| !due.is_empty())
    }

    /// Lends the state, and says what time it is.
    fn bench<R>(&mut self, trials: impl FnOnce(&mut Bench<'_>, i64, i64) -> R) -> R {
        let host = self.inner.store.data_mut();
        let (now_ms, watermark_ms, state) = (host.now_ms, host.watermark_ms, host.state.take());
        let mut bench = Bench { plugin: &self.plugin, place: &self.place, limits: self.inner.limits, state };
        let result = trials(&mut bench, now_ms, watermark_ms);
        let mut state = bench.state;
        if let Some(state) = &mut state {
            state.discard();
        }
        self.inner.store.data_mut().state = state;
        result
    }
}

/// A checkpoint holds no empty ones, so that nothing is restored from them.
fn restorable(states: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    states.into_iter().filter(|state| !state.is_empty()).collect()
}

/// Where trials are made, one after the other.
struct Bench<'a> {
    plugin: &'a Plugin,
    place: &'a Place,
    limits: Limits,
    /// `None` while an instance has it.
    state: Option<Box<KeyedState>>,
}

impl Bench<'_> {
    /// Makes a trial, and drops what it has written.
    fn make(&mut self, trial: &Trial, draws: Option<Draws>, recording: Recording) -> Tried {
        match self.begin(trial, recording) {
            Ok(mut instance) => {
                if draws.is_none() {
                    instance.store.data_mut().now_ms = trial.now_ms;
                }
                let outcome = prepare(&mut instance, self.place, trial).and_then(|()| {
                    instance.store.data_mut().next_draws = draws;
                    call(&mut instance, self.place, &trial.call)
                });
                let recorded = self.end(instance);
                self.discard();
                Tried { outcome, recorded }
            }
            Err(error) => Tried { outcome: Err(error), recorded: Recorded::default() },
        }
    }

    /// The first row that fails, one after the other. `number`: which call of the instance they were given in.
    fn first_failing(&mut self, trial: &Trial, number: u64, rows: u32, until: Instant) -> Option<u32> {
        let mut instance = self.begin(trial, Recording::of_nothing()).ok()?;
        let is_prepared = prepare(&mut instance, self.place, trial).is_ok();
        let mut in_time = (0..rows).take_while(|_| is_prepared && Instant::now() < until);
        let mut taken = 0;
        let failing = in_time.find(|row| {
            instance.store.data_mut().next_draws = Some(Draws { call: number, taken });
            let is_failing = call(&mut instance, self.place, &trial.call.part(*row..row + 1)).is_err();
            taken = Draws::TAKEN_MAX.min(taken + instance.store.data().wasi.randomness.taken());
            is_failing
        });
        self.end(instance);
        self.discard();
        failing
    }

    /// Lets an instance process the rows before `row`, and gives its state, and how many random numbers that took. What it has written
    /// can be read from here on.
    fn pass(&mut self, trial: &Trial, number: u64, row: u32) -> Option<(Vec<Vec<u8>>, u64)> {
        let mut instance = self.begin(trial, Recording::of_nothing()).ok()?;
        let passed = prepare(&mut instance, self.place, trial).and_then(|()| {
            instance.store.data_mut().next_draws = Some(Draws { call: number, taken: 0 });
            call(&mut instance, self.place, &trial.call.part(0..row))?;
            let taken = instance.store.data().wasi.randomness.taken();
            // No checkpoint has this number.
            Ok((restorable(vec![instance.call_snapshot(Epoch(0))?]), taken))
        });
        self.end(instance);
        passed.ok()
    }

    fn begin(&mut self, trial: &Trial, recording: Recording) -> Result<Unopened, OperatorError> {
        let Place { job, subtask, .. } = self.place;
        // Figures of its own, which nobody sees.
        let mut instance = self.plugin.unopened(job, subtask, self.limits, Counters::default())?;
        let host = instance.store.data_mut();
        host.outputs = self.plugin.descriptor().outputs.len() as u32;
        host.state = self.state.take();
        host.watermark_ms = trial.watermark_ms;
        host.recording = Some(Box::new(recording));
        host.log.keep();
        Ok(instance)
    }

    fn end(&mut self, mut instance: Unopened) -> Recorded {
        let host = instance.store.data_mut();
        self.state = host.state.take();
        let recorded = host.recording.take().map_or_else(Recorded::default, |recording| recording.end());
        Recorded { lines: host.log.take_kept(), ..recorded }
    }

    fn discard(&mut self) {
        if let Some(state) = &mut self.state {
            state.discard();
        }
    }
}

/// Opens an instance and restores its state; then it learns what time it is.
fn prepare(instance: &mut Unopened, place: &Place, trial: &Trial) -> Result<(), OperatorError> {
    instance.call_open(place)?;
    if !trial.states.is_empty() {
        instance.call_restore(&trial.states)?;
    }
    instance.store.data_mut().now_ms = trial.now_ms;
    Ok(())
}

fn call(instance: &mut Unopened, place: &Place, call: &TrialCall) -> Result<Vec<Rejection>, OperatorError> {
    match call {
        TrialCall::Process { port, rows } => instance.call_process(*port, rows, place.rejections),
        TrialCall::Timers { clock, rows } => instance.call_timers(*clock, rows, place.rejections),
        TrialCall::Watermark { timestamp } => instance.call_watermark(*timestamp).map(|()| Vec::new()),
    }
}
