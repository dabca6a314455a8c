//! One subtask's instance of a component, and what happens around each call into it.
//!
//! Invariant: a call has a deadline before it starts, and what it staged takes effect only if it returned ok.

mod trial;

use serde::{Deserialize, Serialize};
use wasmtime::Store;

pub use trial::{Again, Facts, Made, Repeat, Trial, TrialCall, Tried};

use super::bindings::{Exports, ExportsPre, Guest, types};
use super::deadline::{Deadline, GuestClock};
use super::error::{Call, ErrorKind, Failure, Misuse, OperatorError};
use super::failure::failure;
use super::imports::{Counters, HostState, OutputRefused, Phase};
use super::limits::Limits;
use super::plugin::Plugin;
use super::wasi::HANDLES_MAX;
use super::{Clock, Emitted, FIRED_ROWS_MAX, Fired, OperatorInstance, RejectedTimer, Rejection};
use crate::element::{Batch, Column, NO_TIMESTAMP, WATERMARK_END};
use crate::id::{Epoch, Name, SubtaskId};
use crate::state::KeyedState;

/// What an instance is given.
pub struct InstanceContext {
    pub job: Name,
    pub subtask: SubtaskId,
    pub parallelism: u32,
    /// The operator's `config` table of the job file, as a JSON object.
    pub config_json: String,
    pub limits: Limits,
    /// Whether the operator may reject rows; if not, a bad record fails the call.
    pub rejections: bool,
    /// Needed if, and only if, the operator has tables or timers.
    pub state: Option<KeyedState>,
    pub counters: Counters,
}

/// Where an instance stands in its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub job: Name,
    pub subtask: SubtaskId,
    pub parallelism: u32,
    /// The operator's `config` table of the job file, as a JSON object.
    pub config_json: String,
    pub rejections: bool,
}

/// An instance that has been opened.
pub struct Instance {
    inner: Unopened,
    place: Place,
    /// The state that isn't keyed, as of the last snapshot or of what was restored.
    states: Vec<Vec<u8>>,
    /// The last watermark that isn't the end: behind the end, a job that is run again may still get more to read.
    last_watermark_ms: i64,
    /// How many calls in a row have set timers that were due at once.
    endless_rounds: u32,
    /// The plugin keeps the clock of deadlines alive.
    plugin: Plugin,
}

/// So many calls in a row that set timers which are due at once have no end.
const ENDLESS_ROUNDS_MAX: u32 = 10_000;

/// An instance that only knows what it is.
pub(super) struct Unopened {
    pub(super) store: Store<HostState>,
    exports: Exports,
    /// For exports that not every operator has.
    pub(super) exported: wasmtime::component::Instance,
    pub(super) subtask: SubtaskId,
    pub(super) limits: Limits,
}

impl Unopened {
    pub fn new(
        pre: &ExportsPre<HostState>,
        clock: GuestClock,
        job: Option<&Name>,
        subtask: SubtaskId,
        limits: Limits,
        counters: Counters,
    ) -> Result<Unopened, OperatorError> {
        let deadline = Deadline::new(clock, limits.deadline_ticks());
        let mut store = Store::new(pre.engine(), HostState::new(job, subtask.clone(), &limits, counters, deadline));
        store.limiter(|host| &mut host.limiter);
        store.set_max_component_handles(HANDLES_MAX);
        store.set_hostcall_fuel(limits.hostcall_bytes_max());
        store.set_epoch_deadline(limits.deadline_ticks());
        let instance = match pre.instance_pre().instantiate(&mut store) {
            Ok(instance) => instance,
            Err(error) => {
                let failure = failure(error, &limits, store.data_mut());
                return Err(OperatorError::new(subtask, Call::Instantiate, failure));
            }
        };
        match Exports::new(&mut store, &instance) {
            Ok(exports) => Ok(Unopened { store, exports, exported: instance, subtask, limits }),
            Err(error) => {
                let failure = Failure::Unfit { problem: format!("{error:#}") };
                Err(OperatorError::new(subtask, Call::Instantiate, failure))
            }
        }
    }

    /// Opens the instance for a job, and brings its state to the versions of its tables.
    ///
    /// # Errors
    /// If the operator refuses its configuration or its state, traps or breaks a limit.
    pub fn open(mut self, plugin: Plugin, mut context: InstanceContext) -> Result<Instance, OperatorError> {
        let descriptor = plugin.descriptor();
        assert_eq!(context.state.is_some(), descriptor.is_keyed(), "state if, and only if, there are tables or timers");
        if let Some(state) = &mut context.state {
            let taken = state.hand_over(&descriptor.stored_tables());
            taken.map_err(|error| OperatorError::new(self.subtask.clone(), Call::Open, Failure::State(error)))?;
        }
        let host = self.store.data_mut();
        host.outputs = descriptor.outputs.len() as u32;
        host.watermark_ms = context.state.as_ref().map_or(NO_TIMESTAMP, KeyedState::restored_watermark);
        let last_watermark_ms = host.watermark_ms;
        host.state = context.state.map(Box::new);
        let InstanceContext { job, subtask, parallelism, config_json, rejections, .. } = context;
        let place = Place { job, subtask, parallelism, config_json, rejections };
        self.call_open(&place)?;
        self.migrate(plugin.interface().migrates())?;
        Ok(Instance { inner: self, place, states: Vec::new(), last_watermark_ms, endless_rounds: 0, plugin })
    }

    fn call_open(&mut self, place: &Place) -> Result<(), OperatorError> {
        self.call(Call::Open, Phase::Silent, |guest, store| {
            guest.call_open(
                store,
                types::Context {
                    job: place.job.as_str(),
                    operator: place.subtask.operator.as_str(),
                    subtask: place.subtask.index,
                    parallelism: place.parallelism,
                    config: &place.config_json,
                    rejections: place.rejections,
                },
            )
        })
    }

    fn call_restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        let states = states.iter().map(Vec::as_slice).collect::<Vec<_>>();
        self.call(Call::Restore, Phase::Silent, |guest, store| guest.call_restore(store, &states))
    }

    fn call_process(&mut self, port: u32, batch: &Batch, allowed: bool) -> Result<Vec<Rejection>, OperatorError> {
        let rows = batch.rows;
        self.call(Call::Process { port, rows }, Phase::Streaming, |guest, store| {
            checked(guest.call_process(store, port, lowered(batch, &batch.ext()))?, rows, allowed)
        })
    }

    fn call_timers(&mut self, clock: Clock, due: &Batch, allowed: bool) -> Result<Vec<Rejection>, OperatorError> {
        let rows = due.rows;
        let wit_clock = match clock {
            Clock::EventTime => types::Clock::EventTime,
            Clock::ProcessingTime => types::Clock::ProcessingTime,
        };
        self.call(Call::Timers { clock, rows }, Phase::Streaming, |guest, store| {
            checked(guest.call_timers(store, wit_clock, lowered(due, &due.ext()))?, rows, allowed)
        })
    }

    fn call_watermark(&mut self, timestamp: i64) -> Result<(), OperatorError> {
        let call = Call::Watermark { timestamp };
        self.call(call, Phase::Streaming, |guest, store| guest.call_watermark(store, timestamp))
    }

    fn call_snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let limit_bytes = self.limits.output_bytes_max;
        self.call(Call::Snapshot { epoch }, Phase::Silent, |guest, store| {
            let returned = guest.call_snapshot(store, epoch.0)?;
            // Refused in here, so that what it wrote is forgotten with it.
            match &returned {
                Ok(state) if state.len() > limit_bytes => Err(OutputRefused.into()),
                Ok(_) | Err(_) => Ok(returned),
            }
        })
    }

    /// Calls an export that can return an error, then lets go of what the call wrote, or forgets it.
    fn call<R>(
        &mut self,
        call: Call,
        phase: Phase,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<Result<R, types::OpError>>,
    ) -> Result<R, OperatorError> {
        let returned = self.infallible(call, phase, export)?;
        let host = self.store.data_mut();
        let on_trial = host.recording.is_some();
        let too_large = if on_trial { None } else { host.state_too_large(self.limits.state_bytes_max) };
        let state = host.state.as_deref_mut();
        let settled = match (state, phase, returned) {
            (None, _, Ok(value)) => Ok(value),
            (None, _, Err(refusal)) => Err(refused(refusal)),
            // What is written on trial stays staged, until it is dropped.
            (Some(_), Phase::Silent | Phase::Streaming, Ok(value)) if on_trial => Ok(value),
            (Some(state), Phase::Silent | Phase::Streaming, Ok(value)) => match too_large {
                Some(bytes) => {
                    state.discard();
                    Err(Failure::StateSize { bytes, limit_bytes: self.limits.state_bytes_max })
                }
                None => state.accept().map(|()| value).map_err(Failure::State),
            },
            (Some(state), Phase::Describing | Phase::Migrating | Phase::Closing, Ok(value)) => {
                state.discard();
                Ok(value)
            }
            (Some(state), _, Err(refusal)) => {
                state.discard();
                Err(refused(refusal))
            }
        };
        settled.map_err(|failure| OperatorError::new(self.subtask.clone(), call, failure))
    }

    /// Calls an export of every operator that can't return an error.
    ///
    /// # Errors
    /// If it traps or breaks a limit.
    pub fn infallible<R>(
        &mut self,
        call: Call,
        phase: Phase,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, OperatorError> {
        self.guarded(call, phase, |exports, store| export(exports.lockgate_operator_operator(), store))
    }

    /// Calls an export under its deadline; a trap becomes an error that says what broke.
    pub(super) fn guarded<R>(
        &mut self,
        call: Call,
        phase: Phase,
        export: impl FnOnce(&Exports, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, OperatorError> {
        let ticks = self.limits.deadline_ticks();
        self.store.data_mut().begin(phase, ticks);
        self.store.set_epoch_deadline(ticks);
        export(&self.exports, &mut self.store).map_err(|error| {
            let host = self.store.data_mut();
            if let Some(state) = &mut host.state {
                state.discard();
            }
            OperatorError::new(self.subtask.clone(), call, failure(error, &self.limits, host))
        })
    }
}

/// An operator's own error, with its message made fit for a log.
fn refused(refusal: types::OpError) -> Failure {
    let kind = match refusal.kind {
        types::ErrorKind::Transient => ErrorKind::Transient,
        types::ErrorKind::BadRecord => ErrorKind::BadRecord,
        types::ErrorKind::Fatal => ErrorKind::Fatal,
    };
    Failure::Refused { kind, row: refusal.row, message: super::imports::printable(&refusal.message) }
}

impl Instance {
    /// Writes changed keyed state out and frees memory until caches use about `target_bytes`.
    ///
    /// # Errors
    /// As [`OperatorInstance::process`].
    pub fn trim(&mut self, target_bytes: u64) -> Result<(), OperatorError> {
        self.inner.call(Call::Trim, Phase::Silent, |guest, store| guest.call_trim(store, target_bytes))
    }

    /// Hands over what the last call has emitted.
    fn give(&mut self, emitted: &mut Emitted) {
        emitted.append(&mut self.inner.store.data_mut().emitted);
    }

    /// The watermark never goes back.
    fn come_to(&mut self, watermark_ms: i64) {
        let host = self.inner.store.data_mut();
        host.watermark_ms = host.watermark_ms.max(watermark_ms);
        if watermark_ms != WATERMARK_END {
            self.last_watermark_ms = self.last_watermark_ms.max(watermark_ms);
        }
    }

    /// Takes the earliest timers that are due out of the state, for a call that is to come.
    fn take_due(&mut self, clock: Clock, up_to_ms: i64) -> Result<Option<Batch>, OperatorError> {
        let Some(state) = self.inner.store.data_mut().state.as_deref_mut() else { return Ok(None) };
        if state.next_timer(clock).is_none_or(|next_ms| next_ms > up_to_ms) {
            self.endless_rounds = 0;
            return Ok(None);
        }
        let taken = state.take_timers(clock, up_to_ms, FIRED_ROWS_MAX);
        taken.map(Some).map_err(|error| {
            state.discard();
            let call = Call::Timers { clock, rows: 0 };
            OperatorError::new(self.inner.subtask.clone(), call, Failure::State(error))
        })
    }

    /// Ends an operator whose timers set timers that are due at once, without an end.
    fn check_endless(&mut self, call: Call, fired_ms: i64) -> Result<(), OperatorError> {
        if self.inner.store.data().earliest_set_ms > fired_ms {
            return Ok(());
        }
        self.endless_rounds += 1;
        if self.endless_rounds < ENDLESS_ROUNDS_MAX {
            return Ok(());
        }
        let misuse = Misuse::EndlessTimers { rounds: self.endless_rounds };
        Err(OperatorError::new(self.inner.subtask.clone(), call, Failure::Misuse(misuse)))
    }
}

impl OperatorInstance for Instance {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        self.inner.call_restore(states)?;
        self.states = states.to_vec();
        Ok(())
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        let rejections = self.inner.call_process(port, batch, self.place.rejections)?;
        self.give(emitted);
        Ok(rejections)
    }

    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError> {
        if clock == Clock::EventTime {
            self.come_to(up_to_ms);
        }
        let Some(due) = self.take_due(clock, up_to_ms)? else { return Ok(Fired::default()) };
        let rejections = self.inner.call_timers(clock, &due, self.place.rejections)?;
        self.give(emitted);
        let call = Call::Timers { clock, rows: due.rows };
        self.check_endless(call, due.timestamp(due.rows as usize - 1))?;
        let timer = |rejection: Rejection| {
            let row = rejection.row as usize;
            let (key, tag) = (due.keys.get(row).to_vec(), due.values.get(row).to_vec());
            (rejection, RejectedTimer { key, tag, time_ms: due.timestamp(row) })
        };
        Ok(Fired { rows: due.rows, rejections: rejections.into_iter().map(timer).collect() })
    }

    fn next_timer(&self, clock: Clock) -> Option<i64> {
        self.inner.store.data().state.as_deref().and_then(|state| state.next_timer(clock))
    }

    fn set_now(&mut self, now_ms: i64) {
        self.inner.store.data_mut().now_ms = now_ms;
    }

    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError> {
        self.come_to(timestamp);
        self.inner.call_watermark(timestamp)?;
        self.give(emitted);
        Ok(())
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let call = Call::Snapshot { epoch };
        if let Some(state) = self.inner.store.data_mut().state.as_deref_mut() {
            let written = state.write_watermark(self.last_watermark_ms);
            written.map_err(|error| OperatorError::new(self.inner.subtask.clone(), call, Failure::State(error)))?;
        }
        let state = self.inner.call_snapshot(epoch)?;
        self.states = vec![state.clone()];
        Ok(state)
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        self.inner.call(Call::Close, Phase::Closing, |guest, store| guest.call_close(store))
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        self.inner.store.data_mut().state.as_deref_mut()
    }

    fn wasm(&mut self) -> Option<&mut Instance> {
        Some(self)
    }

    fn into_state(mut self: Box<Self>) -> Option<KeyedState> {
        self.inner.store.data_mut().state.take().map(|state| *state)
    }

    fn migrated_entries(&self) -> u64 {
        let migrated = self.inner.store.data().state.as_deref().map_or(&[][..], KeyedState::migrated);
        migrated.iter().map(|table| table.before.entries).sum()
    }
}

/// What a call has returned, if the rows that it rejects are rows of its batch, in order, and it may reject any.
fn checked(
    returned: Result<Vec<types::Rejection>, types::OpError>,
    rows: u32,
    allowed: bool,
) -> wasmtime::Result<Result<Vec<Rejection>, types::OpError>> {
    let said = match returned {
        Ok(said) => said,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if !said.is_empty() && !allowed {
        return Err(Misuse::RejectionForbidden.into());
    }
    let mut next = 0;
    for rejection in &said {
        if !(next..rows).contains(&rejection.row) {
            return Err(Misuse::RejectedRow { row: rejection.row, rows }.into());
        }
        next = rejection.row + 1;
    }
    let rejection = |said: types::Rejection| {
        let message = super::imports::printable(&said.message);
        Rejection { row: said.row, message }
    };
    Ok(Ok(said.into_iter().map(rejection).collect()))
}

/// A batch as the call takes it: borrowed, so that its bytes are copied only into the guest's memory.
fn lowered<'a>(batch: &'a Batch, ext: &'a [u8]) -> types::Batch<'a> {
    types::Batch {
        rows: batch.rows,
        keys: lowered_column(&batch.keys),
        values: lowered_column(&batch.values),
        timestamps: &batch.timestamps,
        nulls: &batch.nulls,
        ext,
    }
}

fn lowered_column(column: &Column) -> types::Column<'_> {
    types::Column { data: &column.data, offsets: &column.offsets }
}
