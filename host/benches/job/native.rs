//! The example operators as native code inside the host: the baseline for Wasm.
//!
//! They are the same sources, compiled for this machine, over the same keyed state. What crosses is copied as little as the
//! interface allows: batches are lent, emitted ones are copied once.

use std::sync::Arc;

use lockgate::host::{BatchRef, ColumnRef, Entries, Host, Level, Page};
use lockgate::{Declaration, Instance, Operator, Place};
use lockgate_host::element::{Batch, Column};
use lockgate_host::guest::{
    Call, Clock, Declared, Descriptor, Emitted, FIRED_ROWS_MAX, Failure, Fired, InstanceContext, OperatorError,
    OperatorFactory, OperatorInstance, Redistribution, RejectedTimer, Rejection, TableKind,
};
use lockgate_host::id::{Epoch, SubtaskId};
use lockgate_host::state::KeyedState;

/// The operator that an operator of a job is the native form of.
pub fn factory(name: &str) -> Option<Arc<dyn OperatorFactory>> {
    match name {
        "count" => Some(Arc::new(NativeFactory::new::<lockgate_example_count::Count>())),
        "filter" => Some(Arc::new(NativeFactory::new::<lockgate_example_filter::Filter>())),
        "identity" => Some(Arc::new(NativeFactory::new::<lockgate_example_identity::Identity>())),
        "changes" => Some(Arc::new(NativeFactory::new::<lockgate_example_changes::Changes>())),
        _ => None,
    }
}

struct NativeFactory {
    descriptor: Descriptor,
    open: fn(InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError>,
}

impl NativeFactory {
    fn new<Op: Operator + Send + 'static>() -> NativeFactory {
        let declaration = Declaration::of::<Op>();
        let kind = |kind| match kind {
            lockgate::TableKind::Value => TableKind::Value,
            lockgate::TableKind::Map => TableKind::Map,
            lockgate::TableKind::List => TableKind::List,
        };
        let tables = declaration.tables().iter().map(|table| (table.name, kind(table.kind), table.version));
        let inputs = declaration.inputs().iter().map(|input| (input.name, input.broadcast)).collect::<Vec<_>>();
        let descriptor = Descriptor::new(Declared {
            name: "native",
            version: "0",
            inputs: &inputs,
            outputs: declaration.outputs(),
            tables: &tables.collect::<Vec<_>>(),
            timers: declaration.uses_timers(),
            redistribution: match declaration.redistribution_of_state() {
                lockgate::Redistribution::Split => Redistribution::Split,
                lockgate::Redistribution::Union => Redistribution::Union,
                lockgate::Redistribution::Broadcast => Redistribution::Broadcast,
            },
        });
        NativeFactory { descriptor: descriptor.expect("a good declaration"), open: open::<Op> }
    }
}

impl OperatorFactory for NativeFactory {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn open(&self, context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
        (self.open)(context)
    }
}

fn open<Op: Operator + Send + 'static>(context: InstanceContext) -> Result<Box<dyn OperatorInstance>, OperatorError> {
    let place = Place {
        job: context.job.to_string(),
        operator: context.subtask.operator.to_string(),
        subtask: context.subtask.index,
        parallelism: context.parallelism,
        config: context.config_json,
        rejections: context.rejections,
    };
    let mut imports = Imports { emitted: Emitted::new(), state: context.state, now_ms: 0, watermark_ms: i64::MIN };
    let subtask = context.subtask;
    match Instance::<Op>::open(&place, &mut imports) {
        Ok(instance) => Ok(Box::new(Native { subtask, instance, imports })),
        Err(error) => Err(failed(&subtask, Call::Open, &error)),
    }
}

fn failed(subtask: &SubtaskId, call: Call, error: &lockgate::Error) -> OperatorError {
    OperatorError::new(subtask.clone(), call, Failure::Panic { message: error.to_string() })
}

/// What an operator's imports reach.
struct Imports {
    emitted: Emitted,
    state: Option<KeyedState>,
    now_ms: i64,
    watermark_ms: i64,
}

struct Native<Op> {
    subtask: SubtaskId,
    instance: Instance<Op>,
    imports: Imports,
}

impl<Op: Operator> Native<Op> {
    /// What a call staged takes effect if it succeeded.
    fn ended<R>(
        &mut self,
        call: Call,
        outcome: Result<R, lockgate::Error>,
        emitted: &mut Emitted,
    ) -> Result<R, OperatorError> {
        let returned = outcome.map_err(|error| failed(&self.subtask, call, &error))?;
        emitted.append(&mut self.imports.emitted);
        if let Some(state) = &mut self.imports.state {
            let accepted = state.accept();
            accepted.map_err(|error| OperatorError::new(self.subtask.clone(), call, Failure::State(error)))?;
        }
        Ok(returned)
    }
}

impl<Op: Operator + Send> OperatorInstance for Native<Op> {
    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), OperatorError> {
        let outcome = self.instance.restore(states);
        self.ended(Call::Restore, outcome, &mut Emitted::new())
    }

    fn process(&mut self, port: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        let outcome = self.instance.process(&mut self.imports, port, lent_batch(batch, &batch.ext()));
        let rejections = self.ended(Call::Process { port, rows: batch.rows }, outcome, emitted)?;
        Ok(rejections.into_iter().map(rejection).collect())
    }

    fn fire_timers(&mut self, clock: Clock, up_to_ms: i64, emitted: &mut Emitted) -> Result<Fired, OperatorError> {
        let own_clock = match clock {
            Clock::EventTime => {
                self.imports.watermark_ms = self.imports.watermark_ms.max(up_to_ms);
                lockgate::Clock::EventTime
            }
            Clock::ProcessingTime => lockgate::Clock::ProcessingTime,
        };
        if self.next_timer(clock).is_none_or(|next_ms| next_ms > up_to_ms) {
            return Ok(Fired::default());
        }
        let due = self.imports.state().take_timers(clock, up_to_ms, FIRED_ROWS_MAX).expect("readable state");
        let outcome = self.instance.timers(&mut self.imports, own_clock, lent_batch(&due, &due.ext()));
        let rejections = self.ended(Call::Timers { clock, rows: due.rows }, outcome, emitted)?;
        let timer = |said: lockgate::Rejection| {
            let row = said.row as usize;
            let (key, tag) = (due.keys.get(row).to_vec(), due.values.get(row).to_vec());
            (rejection(said), RejectedTimer { key, tag, time_ms: due.timestamp(row) })
        };
        Ok(Fired { rows: due.rows, rejections: rejections.into_iter().map(timer).collect() })
    }

    fn next_timer(&self, clock: Clock) -> Option<i64> {
        self.imports.state.as_ref().and_then(|state| state.next_timer(clock))
    }

    fn set_now(&mut self, now_ms: i64) {
        self.imports.now_ms = now_ms;
    }

    fn watermark(&mut self, timestamp: i64, emitted: &mut Emitted) -> Result<(), OperatorError> {
        self.imports.watermark_ms = self.imports.watermark_ms.max(timestamp);
        let outcome = self.instance.watermark(&mut self.imports, timestamp);
        self.ended(Call::Watermark { timestamp }, outcome, emitted)
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<Vec<u8>, OperatorError> {
        let mut operator_state = Vec::new();
        let outcome = self.instance.snapshot(&mut self.imports).map(|state| operator_state = state);
        self.ended(Call::Snapshot { epoch }, outcome, &mut Emitted::new())?;
        Ok(operator_state)
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        let outcome = self.instance.close();
        self.ended(Call::Close, outcome, &mut Emitted::new())
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        self.imports.state.as_mut()
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        self.imports.state
    }
}

fn rejection(said: lockgate::Rejection) -> Rejection {
    Rejection { row: said.row, message: said.message }
}

fn lent_batch<'a>(batch: &'a Batch, ext: &'a [u8]) -> BatchRef<'a> {
    BatchRef {
        rows: batch.rows,
        keys: lent(&batch.keys),
        values: lent(&batch.values),
        timestamps: &batch.timestamps,
        nulls: &batch.nulls,
        ext,
    }
}

fn lent(column: &Column) -> ColumnRef<'_> {
    ColumnRef { data: &column.data, offsets: &column.offsets }
}

fn owned(column: ColumnRef<'_>) -> Column {
    Column { data: column.data.to_vec(), offsets: column.offsets.to_vec() }
}

fn given(column: Column) -> lockgate::host::Column {
    lockgate::host::Column { data: column.data, offsets: column.offsets }
}

impl Imports {
    fn state(&mut self) -> &mut KeyedState {
        self.state.as_mut().expect("an operator with tables has state")
    }
}

impl Host for Imports {
    fn emit(&mut self, port: u32, rows: BatchRef<'_>) {
        let batch = Batch {
            rows: rows.rows,
            keys: owned(rows.keys),
            values: owned(rows.values),
            timestamps: rows.timestamps.to_vec(),
            nulls: rows.nulls.to_vec(),
            headers: Batch::headers_of(rows.rows, rows.ext).expect("headers as the SDK writes them"),
            provenance: None,
        };
        self.emitted.push((port, batch));
    }

    fn get_many(&mut self, table: u32, keys: ColumnRef<'_>, user_keys: ColumnRef<'_>) -> Entries {
        let read = self.state().get_many(table, &owned(keys), &owned(user_keys));
        let (values, found) = read.expect("readable state");
        Entries { values: given(values), found }
    }

    fn write_many(
        &mut self,
        table: u32,
        keys: ColumnRef<'_>,
        user_keys: ColumnRef<'_>,
        values: ColumnRef<'_>,
        deletes: &[u8],
    ) {
        let written = self.state().write_many(table, &owned(keys), &owned(user_keys), &owned(values), deletes);
        written.expect("writable state");
    }

    fn scan(&mut self, table: u32, key: &[u8], after: Option<&[u8]>, max_bytes: u32) -> Page {
        let page = self.state().scan(table, key, after, max_bytes).expect("readable state");
        Page { user_keys: given(page.user_keys), values: given(page.values), more: page.more }
    }

    fn write_timers(
        &mut self,
        clock: lockgate::Clock,
        keys: ColumnRef<'_>,
        tags: ColumnRef<'_>,
        times: &[u8],
        deletes: &[u8],
    ) {
        let clock = match clock {
            lockgate::Clock::EventTime => Clock::EventTime,
            lockgate::Clock::ProcessingTime => Clock::ProcessingTime,
        };
        let written = self.state().write_timers(clock, &owned(keys), &owned(tags), times, deletes);
        written.expect("writable state");
    }

    fn now_ms(&mut self) -> i64 {
        self.now_ms
    }

    fn watermark_ms(&mut self) -> i64 {
        self.watermark_ms
    }

    fn log(&mut self, _level: Level, message: &str) {
        eprintln!("{message}");
    }

    fn counter_add(&mut self, _name: &str, _delta: u64) {}
}
