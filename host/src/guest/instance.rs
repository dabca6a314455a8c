//! One subtask's instance of a component, and what happens around each call into it.
//!
//! Invariant: a call has a deadline before it starts, and what it staged takes effect only if it returned ok.

use wasmtime::Store;

use super::bindings::{Exports, ExportsPre, Guest, types};
use super::error::{Call, ErrorKind, Failure, Misuse, OperatorError};
use super::failure::failure;
use super::imports::{Counters, HostState, Phase};
use super::limits::Limits;
use super::plugin::Plugin;
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

/// An instance that has been opened.
pub struct Instance {
    inner: Unopened,
    rejections: bool,
    /// The last watermark that isn't the end: behind the end, a job that is run again may still get more to read.
    last_watermark_ms: i64,
    /// How many calls in a row have set timers that were due at once.
    endless_rounds: u32,
    /// The plugin keeps the clock of deadlines alive.
    _plugin: Plugin,
}

/// So many calls in a row that set timers which are due at once have no end.
const ENDLESS_ROUNDS_MAX: u32 = 10_000;

/// An instance that only knows what it is.
pub(super) struct Unopened {
    store: Store<HostState>,
    exports: Exports,
    subtask: SubtaskId,
    limits: Limits,
}

impl Unopened {
    pub fn new(
        pre: &ExportsPre<HostState>,
        subtask: SubtaskId,
        limits: Limits,
        counters: Counters,
    ) -> Result<Unopened, OperatorError> {
        let mut store = Store::new(pre.engine(), HostState::new(subtask.clone(), &limits, counters));
        store.limiter(|host| &mut host.limiter);
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
            Ok(exports) => Ok(Unopened { store, exports, subtask, limits }),
            Err(error) => {
                let failure = Failure::Unfit { problem: format!("{error:#}") };
                Err(OperatorError::new(subtask, Call::Instantiate, failure))
            }
        }
    }

    /// Opens the instance for a job.
    ///
    /// # Errors
    /// If the operator refuses its configuration, traps or breaks a limit.
    pub fn open(mut self, plugin: Plugin, context: InstanceContext) -> Result<Instance, OperatorError> {
        let descriptor = plugin.descriptor();
        assert_eq!(context.state.is_some(), descriptor.is_keyed(), "state if, and only if, there are tables or timers");
        let host = self.store.data_mut();
        host.outputs = descriptor.outputs.len() as u32;
        host.watermark_ms = context.state.as_ref().map_or(NO_TIMESTAMP, KeyedState::restored_watermark);
        let last_watermark_ms = host.watermark_ms;
        host.state = context.state.map(Box::new);
        self.call(Call::Open, Phase::Silent, |guest, store| {
            let operator = context.subtask.operator.as_str();
            guest.call_open(
                store,
                types::Context {
                    job: context.job.as_str(),
                    operator,
                    subtask: context.subtask.index,
                    parallelism: context.parallelism,
                    config: &context.config_json,
                    rejections: context.rejections,
                },
            )
        })?;
        let rejections = context.rejections;
        Ok(Instance { inner: self, rejections, last_watermark_ms, endless_rounds: 0, _plugin: plugin })
    }

    /// Calls an export that can return an error, then lets go of what the call wrote, or forgets it.
    fn call<R>(
        &mut self,
        call: Call,
        phase: Phase,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<Result<R, types::OpError>>,
    ) -> Result<R, OperatorError> {
        let returned = self.infallible(call, phase, export)?;
        let state = self.store.data_mut().state.as_deref_mut();
        let settled = match (state, phase, returned) {
            (None, _, Ok(value)) => Ok(value),
            (None, _, Err(refusal)) => Err(refused(refusal)),
            (Some(state), Phase::Silent | Phase::Streaming, Ok(value)) => {
                state.accept().map(|()| value).map_err(Failure::State)
            }
            (Some(state), Phase::Describing | Phase::Closing, Ok(value)) => {
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

    /// Calls an export under its deadline; a trap becomes an error that says what broke.
    pub fn infallible<R>(
        &mut self,
        call: Call,
        phase: Phase,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, OperatorError> {
        self.store.data_mut().begin(phase);
        self.store.set_epoch_deadline(self.limits.deadline_ticks());
        let guest = self.exports.lockgate_operator_operator();
        export(guest, &mut self.store).map_err(|error| {
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

    fn stream<R>(
        &mut self,
        call: Call,
        emitted: &mut Emitted,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<Result<R, types::OpError>>,
    ) -> Result<R, OperatorError> {
        let returned = self.inner.call(call, Phase::Streaming, export)?;
        emitted.append(&mut self.inner.store.data_mut().emitted);
        Ok(returned)
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
        let states = states.iter().map(Vec::as_slice).collect::<Vec<_>>();
        self.inner.call(Call::Restore, Phase::Silent, |guest, store| guest.call_restore(store, &states))
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        let call = Call::Process { port, rows: batch.rows };
        let (rows, allowed) = (batch.rows, self.rejections);
        self.stream(call, emitted, |guest, store| {
            checked(guest.call_process(store, port, lowered(batch, &batch.ext()))?, rows, allowed)
        })
    }

    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError> {
        let wit_clock = match clock {
            Clock::EventTime => {
                self.come_to(up_to_ms);
                types::Clock::EventTime
            }
            Clock::ProcessingTime => types::Clock::ProcessingTime,
        };
        let Some(due) = self.take_due(clock, up_to_ms)? else { return Ok(Fired::default()) };
        let call = Call::Timers { clock, rows: due.rows };
        let (rows, allowed) = (due.rows, self.rejections);
        let rejections = self.stream(call, emitted, |guest, store| {
            checked(guest.call_timers(store, wit_clock, lowered(&due, &due.ext()))?, rows, allowed)
        })?;
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
        let call = Call::Watermark { timestamp };
        self.stream(call, emitted, |guest, store| guest.call_watermark(store, timestamp))
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let call = Call::Snapshot { epoch };
        if let Some(state) = self.inner.store.data_mut().state.as_deref_mut() {
            let written = state.write_watermark(self.last_watermark_ms);
            written.map_err(|error| OperatorError::new(self.inner.subtask.clone(), call, Failure::State(error)))?;
        }
        let state = self.inner.call(call, Phase::Silent, |guest, store| guest.call_snapshot(store, epoch.0))?;
        let limit_bytes = self.inner.limits.output_bytes_max;
        if state.len() > limit_bytes {
            return Err(OperatorError::new(self.inner.subtask.clone(), call, Failure::Output { limit_bytes }));
        }
        Ok(state)
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        self.inner.call(Call::Close, Phase::Closing, |guest, store| guest.call_close(store))
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        self.inner.store.data_mut().state.as_deref_mut()
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
