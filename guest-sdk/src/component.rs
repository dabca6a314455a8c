//! An operator as a component: the exports of `wit/operator.wit` over an [`Instance`], its imports as a [`Host`].
//!
//! Invariant: `describe` calls no import but `log`, and that only to say why it panics.

use std::cell::RefCell;

use crate::error::{Error, ErrorKind};
use crate::host::{BatchRef, Clock, Column, ColumnRef, Entries, Host, Level, Page, TableEntries, TableEntriesRef};
use crate::instance::{Instance, Rejection};
use crate::migration::Keys;
use crate::open_context::Place;
use crate::operator::{Declaration, Operator, Redistribution, TableKind};

#[allow(unsafe_code, missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "migrating-operator",
        ownership: Borrowing { duplicate_if_necessary: true },
        pub_export_macro: true,
        export_macro_name: "export_operator",
        default_bindings_module: "lockgate::component::bindings",
    });
}

use bindings::exports::lockgate::operator::migration;
pub use bindings::exports::lockgate::operator::migration::Guest as MigrationGuest;
pub use bindings::exports::lockgate::operator::operator::Guest;
use bindings::lockgate::operator::{output, runtime, state, timers, types};

/// The place of the one instance of a component.
pub struct Cell<Op>(RefCell<Option<Instance<Op>>>);

impl<Op: Operator> Cell<Op> {
    #[allow(clippy::new_without_default, reason = "made by the export macro only")]
    pub const fn new() -> Cell<Op> {
        Cell(RefCell::new(None))
    }

    pub fn describe(name: &str, version: &str) -> types::Descriptor {
        report_panics();
        let declaration = Declaration::of::<Op>();
        let tables = declaration.tables().iter().map(|table| types::Table {
            name: table.name.to_owned(),
            kind: match table.kind {
                TableKind::Value => types::TableKind::Value,
                TableKind::Map => types::TableKind::Map,
                TableKind::List => types::TableKind::List,
            },
            version: table.version,
        });
        types::Descriptor {
            name: name.to_owned(),
            version: version.to_owned(),
            inputs: declaration.inputs().iter().map(input).collect(),
            outputs: declaration.outputs().iter().map(|&output| output.to_owned()).collect(),
            tables: tables.collect(),
            timers: declaration.uses_timers(),
            redistribution: match declaration.redistribution_of_state() {
                Redistribution::Split => types::Redistribution::Split,
                Redistribution::Union => types::Redistribution::Union,
                Redistribution::Broadcast => types::Redistribution::Broadcast,
            },
        }
    }

    pub fn open(&self, context: types::Context) -> Result<(), types::OpError> {
        report_panics();
        let types::Context { job, operator, subtask, parallelism, config, rejections } = context;
        let place = Place { job, operator, subtask, parallelism, config, rejections };
        let instance = Instance::open(&place, &mut Imports).map_err(op_error)?;
        *self.0.borrow_mut() = Some(instance);
        Ok(())
    }

    pub fn prepare(&self, table: u32, from_version: u32) -> Result<migration::Keys, types::OpError> {
        let keys = self.with(|instance| instance.prepare_migration(table, from_version))?;
        Ok(match keys {
            Keys::Kept => migration::Keys::Kept,
            Keys::Changed => migration::Keys::Changed,
        })
    }

    pub fn migrate(
        &self,
        table: u32,
        from_version: u32,
        entries: migration::Entries,
    ) -> Result<migration::Entries, types::OpError> {
        let TableEntries { keys, user_keys, values } =
            self.with(|instance| instance.migrate(table, from_version, table_entries(&entries)))?;
        let [keys, user_keys, values] = [keys, user_keys, values].map(column_result);
        Ok(migration::Entries { keys, user_keys, values })
    }

    pub fn merge(
        &self,
        table: u32,
        from_version: u32,
        entries: migration::Entries,
        others: types::ColumnResult,
    ) -> Result<types::ColumnResult, types::OpError> {
        let merged =
            self.with(|instance| instance.merge(table, from_version, table_entries(&entries), column_ref(&others)))?;
        Ok(column_result(merged))
    }

    pub fn restore(&self, states: Vec<Vec<u8>>) -> Result<(), types::OpError> {
        self.with(|instance| instance.restore(&states))
    }

    pub fn process(&self, port: u32, rows: types::BatchResult) -> Result<Vec<types::Rejection>, types::OpError> {
        let rejections = self.with(|instance| instance.process(&mut Imports, port, batch(&rows)))?;
        Ok(rejections.into_iter().map(rejection).collect())
    }

    pub fn timers(
        &self,
        clock: types::Clock,
        rows: types::BatchResult,
    ) -> Result<Vec<types::Rejection>, types::OpError> {
        let clock = match clock {
            types::Clock::EventTime => Clock::EventTime,
            types::Clock::ProcessingTime => Clock::ProcessingTime,
        };
        let rejections = self.with(|instance| instance.timers(&mut Imports, clock, batch(&rows)))?;
        Ok(rejections.into_iter().map(rejection).collect())
    }

    pub fn watermark(&self, timestamp: i64) -> Result<(), types::OpError> {
        self.with(|instance| instance.watermark(&mut Imports, timestamp))
    }

    pub fn snapshot(&self) -> Result<Vec<u8>, types::OpError> {
        self.with(|instance| instance.snapshot(&mut Imports))
    }

    pub fn trim(&self, bytes_target: u64) -> Result<(), types::OpError> {
        self.with(|instance| instance.trim(&mut Imports, bytes_target))
    }

    pub fn close(&self) -> Result<(), types::OpError> {
        self.with(Instance::close)
    }

    fn with<R>(&self, call: impl FnOnce(&mut Instance<Op>) -> Result<R, Error>) -> Result<R, types::OpError> {
        let mut instance = self.0.borrow_mut();
        call(instance.as_mut().expect("an operator that was opened")).map_err(op_error)
    }
}

fn input(input: &crate::operator::InputName) -> types::Input {
    types::Input { name: input.name.to_owned(), broadcast: input.broadcast }
}

fn rejection(rejection: Rejection) -> types::Rejection {
    types::Rejection { row: rejection.row, message: rejection.message }
}

fn table_entries(entries: &migration::Entries) -> TableEntriesRef<'_> {
    TableEntriesRef {
        keys: column_ref(&entries.keys),
        user_keys: column_ref(&entries.user_keys),
        values: column_ref(&entries.values),
    }
}

fn column_ref(column: &types::ColumnResult) -> ColumnRef<'_> {
    ColumnRef { data: &column.data, offsets: &column.offsets }
}

fn column_result(column: Column) -> types::ColumnResult {
    types::ColumnResult { data: column.data, offsets: column.offsets }
}

fn batch(rows: &types::BatchResult) -> BatchRef<'_> {
    BatchRef {
        rows: rows.rows,
        keys: column_ref(&rows.keys),
        values: column_ref(&rows.values),
        timestamps: &rows.timestamps,
        nulls: &rows.nulls,
        ext: &rows.ext,
    }
}

fn op_error(error: Error) -> types::OpError {
    let kind = match error.kind() {
        ErrorKind::Transient => types::ErrorKind::Transient,
        ErrorKind::BadRecord => types::ErrorKind::BadRecord,
        ErrorKind::Fatal => types::ErrorKind::Fatal,
    };
    types::OpError { kind, row: error.row(), message: error.to_string() }
}

/// Tells the host why before the trap, which says nothing.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        runtime::log(runtime::Level::Error, &panic.to_string());
    }));
}

/// The imports of the component.
struct Imports;

impl Host for Imports {
    fn emit(&mut self, port: u32, rows: BatchRef<'_>) {
        let batch = types::BatchParam {
            rows: rows.rows,
            keys: column_param(rows.keys),
            values: column_param(rows.values),
            timestamps: rows.timestamps,
            nulls: rows.nulls,
            ext: rows.ext,
        };
        output::emit(port, batch);
    }

    fn get_many(&mut self, table: u32, keys: ColumnRef<'_>, user_keys: ColumnRef<'_>) -> Entries {
        let entries = state::get_many(table, column_param(keys), column_param(user_keys));
        Entries { values: column(entries.values), found: entries.found }
    }

    fn write_many(
        &mut self,
        table: u32,
        keys: ColumnRef<'_>,
        user_keys: ColumnRef<'_>,
        values: ColumnRef<'_>,
        deletes: &[u8],
    ) {
        let [keys, user_keys, values] = [keys, user_keys, values].map(column_param);
        state::write_many(table, keys, user_keys, values, deletes);
    }

    fn scan(&mut self, table: u32, key: &[u8], after: Option<&[u8]>, max_bytes: u32) -> Page {
        let page = state::scan(table, key, after, max_bytes);
        Page { user_keys: column(page.user_keys), values: column(page.values), more: page.more }
    }

    fn write_timers(&mut self, clock: Clock, keys: ColumnRef<'_>, tags: ColumnRef<'_>, times: &[u8], deletes: &[u8]) {
        let clock = match clock {
            Clock::EventTime => types::Clock::EventTime,
            Clock::ProcessingTime => types::Clock::ProcessingTime,
        };
        timers::write_many(clock, column_param(keys), column_param(tags), times, deletes);
    }

    fn now_ms(&mut self) -> i64 {
        runtime::now_ms()
    }

    fn watermark_ms(&mut self) -> i64 {
        runtime::watermark_ms()
    }

    fn log(&mut self, level: Level, message: &str) {
        let level = match level {
            Level::Debug => runtime::Level::Debug,
            Level::Info => runtime::Level::Info,
            Level::Warn => runtime::Level::Warn,
            Level::Error => runtime::Level::Error,
        };
        runtime::log(level, message);
    }

    fn counter_add(&mut self, name: &str, delta: u64) {
        runtime::counter_add(name, delta);
    }
}

fn column_param(column: ColumnRef<'_>) -> types::ColumnParam<'_> {
    types::ColumnParam { data: column.data, offsets: column.offsets }
}

fn column(column: types::ColumnResult) -> Column {
    Column { data: column.data, offsets: column.offsets }
}
