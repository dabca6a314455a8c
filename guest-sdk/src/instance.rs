//! One instance of an operator with its cache and its output: what a host drives.
//!
//! Invariant: after an error the instance is of no more use, for its cache may be ahead of the host.

use crate::context::{Context, Gathered};
use crate::error::Error;
use crate::host::{BatchRef, Clock, Column, ColumnRef, Host, TableEntries, TableEntriesRef};
use crate::migration::{Keys, Migration};
use crate::open_context::{OpenContext, Place};
use crate::operator::{Declaration, Input, InputName, Operator, Table};
use crate::output::OutputBuffer;
use crate::record::{Record, Rows};
use crate::state::Cache;
use crate::timers::{Timer, TimerWrites};

/// An operator that can be called. The exports of a component come here, and so do hosts that run operators natively.
///
/// Whatever the host is given during a call that fails is to be dropped.
pub struct Instance<Op> {
    operator: Op,
    cache: Cache,
    /// By port; made when first used.
    outputs: Vec<Option<Box<OutputBuffer>>>,
    timers: TimerWrites,
    inputs: Vec<InputName>,
    tables: Vec<Table>,
    rejections: bool,
}

/// A row that could not be processed and had no effect: `rejection` of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub row: u32,
    pub message: String,
}

impl<Op: Operator> Instance<Op> {
    /// # Errors
    /// If the operator refuses its configuration.
    pub fn open(place: &Place, host: &mut dyn Host) -> Result<Instance<Op>, Error> {
        let (mut operator, declaration) = Declaration::with::<Op>();
        let outputs = declaration.outputs().iter().map(|_| None).collect();
        let (inputs, tables) = (declaration.inputs().to_vec(), declaration.tables().to_vec());
        let mut cache = Cache::new(declaration.into_columns());
        operator.open(&mut OpenContext { host, cache: &mut cache, place }).map_err(|error| error.at_row(None))?;
        let (timers, rejections) = (TimerWrites::default(), place.rejections);
        Ok(Instance { operator, cache, outputs, timers, inputs, tables, rejections })
    }

    /// Finds out how the operator migrates a table from an older version.
    ///
    /// # Errors
    /// If it doesn't.
    ///
    /// # Panics
    /// If the operator has no such table; so do `migrate` and `merge`.
    pub fn prepare_migration(&mut self, table: u32, from_version: u32) -> Result<Keys, Error> {
        let mut migration = Migration::of_entries(&self.tables[table as usize], table, from_version, None);
        let said = self.operator.migrate(&mut migration).and_then(|()| migration.prepared());
        said.map_err(|error| error.at_row(None))
    }

    /// Makes new entries of a part of the old ones of a table.
    ///
    /// # Errors
    /// If the operator fails.
    pub fn migrate(
        &mut self,
        table: u32,
        from_version: u32,
        entries: TableEntriesRef<'_>,
    ) -> Result<TableEntries, Error> {
        let mut migration = Migration::of_entries(&self.tables[table as usize], table, from_version, Some(entries));
        let done = self.operator.migrate(&mut migration).and_then(|()| migration.into_entries());
        done.map_err(|error| error.at_row(None))
    }

    /// Merges new entries that have become one with the other one of each.
    ///
    /// # Errors
    /// If the operator fails, or doesn't say how.
    pub fn merge(
        &mut self,
        table: u32,
        from_version: u32,
        entries: TableEntriesRef<'_>,
        others: ColumnRef<'_>,
    ) -> Result<Column, Error> {
        let of = (entries, others);
        let mut migration = Migration::of_pairs(&self.tables[table as usize], table, from_version, of);
        let done = self.operator.migrate(&mut migration).and_then(|()| migration.into_merged());
        done.map_err(|error| error.at_row(None))
    }

    /// # Errors
    /// If the operator refuses its state.
    pub fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        self.operator.restore(states).map_err(|error| error.at_row(None))
    }

    /// Processes records. Gives those that were rejected: none unless [`Place::rejections`] says that they may be.
    ///
    /// # Errors
    /// If the operator fails; [`Error::row`] says at which record.
    ///
    /// # Panics
    /// If the operator has no such input.
    pub fn process(&mut self, host: &mut dyn Host, port: u32, batch: BatchRef<'_>) -> Result<Vec<Rejection>, Error> {
        let broadcast = self.inputs[port as usize].broadcast;
        let (operator, mut ctx) = self.context(host, Rows::new(batch), !broadcast);
        ctx.set_input(Input { port });
        let result = operator.process_batch(&mut ctx);
        ctx.end(result)
    }

    /// Lets timers fire: keys, tags as the values, times as the timestamps. Gives those that were rejected.
    ///
    /// # Errors
    /// As `process`.
    pub fn timers(&mut self, host: &mut dyn Host, clock: Clock, batch: BatchRef<'_>) -> Result<Vec<Rejection>, Error> {
        let (operator, mut ctx) = self.context(host, Rows::new(batch), true);
        let result = fire(operator, clock, &mut ctx);
        ctx.end(result)
    }

    /// # Errors
    /// If the operator fails.
    pub fn watermark(&mut self, host: &mut dyn Host, timestamp: i64) -> Result<(), Error> {
        let (operator, mut ctx) = self.context(host, Rows::default(), true);
        let result = operator.watermark(timestamp, &mut ctx);
        ctx.end(result).map(drop)
    }

    /// The operator, and what it may do with some rows; `keyed`: whether they have state.
    fn context<'a>(&'a mut self, host: &'a mut dyn Host, rows: Rows<'a>, keyed: bool) -> (&'a mut Op, Context<'a>) {
        self.cache.begin_batch(keyed);
        let gathered = Gathered { outputs: &mut self.outputs, timers: &mut self.timers };
        (&mut self.operator, Context::new(host, &mut self.cache, gathered, rows, self.rejections))
    }

    /// Writes all changed keyed state to the host and gives the state that isn't keyed.
    ///
    /// # Errors
    /// If the operator fails or a value can't be encoded.
    pub fn snapshot(&mut self, host: &mut dyn Host) -> Result<Vec<u8>, Error> {
        self.cache.write_back(host).map_err(|error| error.at_row(None))?;
        self.operator.snapshot().map_err(|error| error.at_row(None))
    }

    /// Writes all changed keyed state to the host and frees cache until about `bytes_target` are in use.
    ///
    /// # Errors
    /// If a value can't be encoded.
    pub fn trim(&mut self, host: &mut dyn Host, bytes_target: u64) -> Result<(), Error> {
        let bytes_target = usize::try_from(bytes_target).unwrap_or(usize::MAX);
        self.cache.trim(bytes_target, host).map_err(|error| error.at_row(None))
    }

    /// # Errors
    /// If the operator fails.
    pub fn close(&mut self) -> Result<(), Error> {
        self.operator.close().map_err(|error| error.at_row(None))
    }

    /// About how much memory the cache uses.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }
}

fn fire<Op: Operator>(operator: &mut Op, clock: Clock, ctx: &mut Context<'_>) -> Result<(), Error> {
    while let Some(Record { key, value, timestamp, .. }) = ctx.next_record() {
        let timer = Timer { key: key.unwrap_or_default(), tag: value.unwrap_or_default(), time: timestamp, clock };
        if let Err(error) = operator.timer(timer, ctx) {
            ctx.reject(error)?;
        }
    }
    Ok(())
}
