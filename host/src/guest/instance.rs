//! One subtask's instance of a component, and what happens around each call into it.
//!
//! Invariant: a call has a deadline before it starts, and what it staged takes effect only if it returned ok.

use wasmtime::Store;

use super::bindings::{Exports, ExportsPre, Guest, types};
use super::error::{Call, ErrorKind, Failure, OperatorError};
use super::failure::failure;
use super::imports::{Counters, HostState, Phase};
use super::limits::Limits;
use super::plugin::Plugin;
use super::{Emitted, OperatorInstance};
use crate::element::{Batch, Column};
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
    /// Needed if, and only if, the operator declares tables.
    pub state: Option<KeyedState>,
    pub counters: Counters,
}

/// An instance that has been opened.
pub struct Instance {
    inner: Unopened,
    /// The plugin keeps the clock of deadlines alive.
    _plugin: Plugin,
}

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
        assert_eq!(context.state.is_some(), descriptor.is_keyed(), "keyed state if, and only if, there are tables");
        let host = self.store.data_mut();
        host.outputs = descriptor.outputs.len() as u32;
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
                },
            )
        })?;
        Ok(Instance { inner: self, _plugin: plugin })
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

    fn stream(
        &mut self,
        call: Call,
        emitted: &mut Emitted,
        export: impl FnOnce(&Guest, &mut Store<HostState>) -> wasmtime::Result<Result<(), types::OpError>>,
    ) -> Result<(), OperatorError> {
        self.inner.call(call, Phase::Streaming, export)?;
        emitted.append(&mut self.inner.store.data_mut().emitted);
        Ok(())
    }
}

impl OperatorInstance for Instance {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        let states = states.iter().map(Vec::as_slice).collect::<Vec<_>>();
        self.inner.call(Call::Restore, Phase::Silent, |guest, store| guest.call_restore(store, &states))
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<(), OperatorError> {
        let call = Call::Process { port, rows: batch.rows };
        self.stream(call, emitted, |guest, store| guest.call_process(store, port, lowered(batch)))
    }

    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError> {
        let call = Call::Watermark { timestamp };
        self.stream(call, emitted, |guest, store| guest.call_watermark(store, timestamp))
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let call = Call::Snapshot { epoch };
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

/// A batch as the call takes it: borrowed, so that its bytes are copied only into the guest's memory.
fn lowered(batch: &Batch) -> types::Batch<'_> {
    types::Batch {
        rows: batch.rows,
        keys: lowered_column(&batch.keys),
        values: lowered_column(&batch.values),
        timestamps: &batch.timestamps,
        nulls: &batch.nulls,
        ext: &batch.ext,
    }
}

fn lowered_column(column: &Column) -> types::Column<'_> {
    types::Column { data: &column.data, offsets: &column.offsets }
}
