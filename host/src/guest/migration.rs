//! Brings keyed state from older versions of its tables to those that the operator declares, between `open` and `restore`.
//!
//! The old entries are read part by part, the guest says what becomes of them, and that is written as all state is. So memory
//! and each call are bounded however large a table is, as is what an operator may write, and nothing is durable before the next checkpoint has it: an attempt that
//! ends in the middle leaves the restored checkpoint as it was.
//!
//! Where keys change, each subtask is handed the entries of all and keeps those that become its own. A subtask that is
//! given the state of a running one sees nothing but that: it can't take what others have, nor give them anything.
//!
//! Invariant: every old entry is handed to `migrate` exactly once in an attempt (where keys change: once for each subtask), and
//! each key and user key is written by one entry, or by what `merge` has made of several.

mod error;
mod merge;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wasmtime::Store;

pub use self::error::MigrationError;
use self::merge::Row;
use super::bindings::migrating::{self, Entries, Guest, Keys, MigrationExports};
use super::error::{Call, ErrorKind, Failure, OperatorError, Problem};
use super::imports::{HostState, Phase, printable};
use super::instance::Unopened;
use crate::element::Column;
use crate::state::{KeyedState, MigratedTable, OldEntries, OldPage, Outdated, StateError, TableSize, Whole};
use crate::telemetry::{TableMigrated, TableMigrating};

/// What one call migrates at most, but for its first entry.
const PART_BYTES_MAX: usize = 1 << 20;
const PART_ROWS_MAX: usize = 4096;
/// How often a long migration says how far it is.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);

/// Where entries may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Nowhere: each keeps its key.
    Kept,
    /// Anywhere: what is another subtask's is written by that one, which is handed the same.
    Anywhere,
    /// To keys of this subtask. It is handed its own entries only, and what left it would be lost.
    Here,
}

/// One table on its way.
struct Run<'a> {
    guest: &'a Guest,
    outdated: &'a Outdated,
    reach: Reach,
    started: Instant,
    told: Instant,
    before: TableSize,
    after: TableSize,
}

impl Run<'_> {
    fn call(&self, of: fn(u32, u32, u32) -> Call, rows: usize) -> Call {
        of(self.outdated.table, self.outdated.from_version, rows as u32)
    }
}

fn migrate_call(table: u32, from_version: u32, rows: u32) -> Call {
    Call::Migrate { table, from_version, rows }
}

fn merge_call(table: u32, from_version: u32, rows: u32) -> Call {
    Call::Merge { table, from_version, rows }
}

impl Unopened {
    /// Whether what it exports for its migration fits the world.
    ///
    /// # Errors
    /// If it doesn't.
    pub(super) fn check_migration(&mut self) -> Result<(), Problem> {
        let exports = MigrationExports::new(&mut self.store, &self.exported);
        exports.map(drop).map_err(|error| Problem::Mismatch(format!("{error:#}")))
    }

    /// Migrates all tables that are outdated. `exported`: whether the component can.
    ///
    /// # Errors
    /// If it can't, refuses to, traps or breaks a limit.
    pub(super) fn migrate(&mut self, exported: bool) -> Result<(), OperatorError> {
        let Some(state) = self.store.data_mut().state.as_deref_mut() else { return Ok(()) };
        let outdated = state.outdated().to_vec();
        if let Some(first) = outdated.first().filter(|_| !exported) {
            let (table, from, to) = (first.name.clone(), first.from_version, first.to_version);
            return Err(self.broken(Call::Open, MigrationError::NotExported { table, from, to }));
        }
        if !outdated.is_empty() {
            let exports = MigrationExports::new(&mut self.store, &self.exported);
            let exports = exports.map_err(|error| {
                let failure = Failure::Unfit { problem: format!("{error:#}") };
                OperatorError::new(self.subtask.clone(), Call::Open, failure)
            })?;
            let mut whole = None;
            for outdated in &outdated {
                self.migrate_table(exports.lockgate_operator_migration(), outdated, &mut whole)?;
            }
        }
        self.state().forget_whole();
        Ok(())
    }

    fn migrate_table(
        &mut self,
        guest: &Guest,
        outdated: &Outdated,
        whole: &mut Option<Whole>,
    ) -> Result<(), OperatorError> {
        let (table, from_version) = (outdated.table, outdated.from_version);
        let call = Call::Prepare { table, from_version };
        let keys = self.ask(call, |store| guest.call_prepare(store, table, from_version))?;
        let reach = match keys {
            Keys::Kept => Reach::Kept,
            Keys::Changed => self.reach_of_changed(call, outdated, whole)?,
        };
        let now = Instant::now();
        let (before, after) = Default::default();
        let mut run = Run { guest, outdated, reach, started: now, told: now, before, after };
        match whole.as_ref().filter(|_| reach == Reach::Anywhere) {
            Some(whole) => {
                self.clear(&mut run)?;
                self.take_from(whole.state(), &mut run)?;
            }
            None => self.rewrite(&mut run)?,
        }
        let took = run.started.elapsed();
        let Run { before, after, .. } = run;
        let (to_version, keys_changed) = (outdated.to_version, reach != Reach::Kept);
        TableMigrated {
            subtask: &self.subtask,
            table: &outdated.name,
            from_version,
            to_version,
            entries_before: before.entries,
            entries_after: after.entries,
            took,
        }
        .emit();
        let name = outdated.name.clone();
        let migrated = MigratedTable { name, from_version, to_version, keys_changed, before, after, took };
        self.state().finish_migration(outdated, migrated);
        Ok(())
    }

    /// Finds out what entries may become this subtask's, if keys change.
    fn reach_of_changed(
        &mut self,
        call: Call,
        outdated: &Outdated,
        whole: &mut Option<Whole>,
    ) -> Result<Reach, OperatorError> {
        let table = outdated.name.clone();
        if self.state().is_any_timer_set() {
            return Err(self.broken(call, MigrationError::TimersSet { table }));
        }
        if whole.is_none() && !self.state().is_whole() {
            let opened = self.state().open_whole();
            *whole = opened.map_err(|error| self.state_failed(call, error))?;
        }
        Ok(if whole.is_some() { Reach::Anywhere } else { Reach::Here })
    }

    /// Puts new entries in the place of this subtask's old ones.
    fn rewrite(&mut self, run: &mut Run<'_>) -> Result<(), OperatorError> {
        let mut walk = self.state().old_entries(run.outdated);
        loop {
            let page = self.old_page(None, &mut walk, run)?;
            if page.rows() == 0 {
                return Ok(());
            }
            run.before.entries += page.size.entries;
            run.before.bytes += page.size.bytes;
            self.migrate_page(&page, run)?;
            self.remove(&page, run)?;
        }
    }

    /// Removes this subtask's old entries.
    fn clear(&mut self, run: &mut Run<'_>) -> Result<(), OperatorError> {
        let mut walk = self.state().old_entries(run.outdated);
        loop {
            let page = self.old_page(None, &mut walk, run)?;
            if page.rows() == 0 {
                return Ok(());
            }
            run.before.entries += page.size.entries;
            run.before.bytes += page.size.bytes;
            self.remove(&page, run)?;
        }
    }

    /// Writes what becomes this subtask's of the entries of all.
    fn take_from(&mut self, all: &KeyedState, run: &mut Run<'_>) -> Result<(), OperatorError> {
        let same = |other: &&Outdated| other.table == run.outdated.table;
        let outdated = all.outdated().iter().find(same).expect("the whole state has the same tables");
        let mut walk = all.old_entries(outdated);
        loop {
            let page = self.old_page(Some(all), &mut walk, run)?;
            if page.rows() == 0 {
                return Ok(());
            }
            self.migrate_page(&page, run)?;
        }
    }

    fn old_page(
        &mut self,
        all: Option<&KeyedState>,
        walk: &mut OldEntries,
        run: &mut Run<'_>,
    ) -> Result<OldPage, OperatorError> {
        if run.told.elapsed() >= PROGRESS_PERIOD {
            run.told = Instant::now();
            let (subtask, table) = (&self.subtask, &run.outdated.name[..]);
            TableMigrating { subtask, table, entries: run.after.entries.max(run.before.entries) }.emit();
        }
        let state = self.state();
        let bytes_max = state.part_bytes_max().min(PART_BYTES_MAX);
        let page = all.unwrap_or(state).read_old(walk, bytes_max, PART_ROWS_MAX);
        page.map_err(|error| self.state_failed(run.call(migrate_call, 0), error))
    }

    fn remove(&mut self, page: &OldPage, run: &Run<'_>) -> Result<(), OperatorError> {
        let state = self.state();
        let removed = state.remove_old(page).and_then(|()| state.accept());
        removed.map_err(|error| self.state_failed(run.call(migrate_call, page.rows()), error))
    }

    fn migrate_page(&mut self, page: &OldPage, run: &mut Run<'_>) -> Result<(), OperatorError> {
        let call = run.call(migrate_call, page.rows());
        let own = |column: &Column| lowered(column.clone());
        let given = Entries { keys: own(&page.keys), user_keys: own(&page.user_keys), values: own(&page.values) };
        let Outdated { table, from_version, .. } = *run.outdated;
        let Entries { keys, user_keys, values } =
            self.ask(call, |store| run.guest.call_migrate(store, table, from_version, &given))?;
        let [keys, user_keys, values] = [keys, user_keys, values].map(lifted);
        let limit_bytes = self.limits.output_bytes_max;
        // Empty rows take memory as well. As many as were given are always few enough.
        let rows_max = PART_ROWS_MAX + limit_bytes / size_of::<Row<'_>>();
        let bytes = keys.data.len() + user_keys.data.len() + values.data.len();
        if bytes > limit_bytes || keys.rows() > rows_max {
            return Err(OperatorError::new(self.subtask.clone(), call, Failure::Output { limit_bytes }));
        }
        let rows = merge::rows(&run.outdated.name, &keys, &user_keys, &values);
        let mut rows = rows.map_err(|error| self.broken(call, error))?;
        self.check_keys(call, page, &mut rows, run)?;
        let rows = self.merge_equal(rows, run)?;
        for part in merge::parts(&rows, self.state().part_bytes_max()) {
            self.write(part, run)?;
        }
        Ok(())
    }

    /// Leaves out what isn't this subtask's, where that is right; else it is an error.
    fn check_keys(
        &mut self,
        call: Call,
        page: &OldPage,
        rows: &mut Vec<Row<'_>>,
        run: &Run<'_>,
    ) -> Result<(), OperatorError> {
        let table = || run.outdated.name.clone();
        let state = self.state();
        match run.reach {
            Reach::Anywhere => rows.retain(|row| state.owns(row.key)),
            Reach::Here => {
                if let Some(row) = rows.iter().find(|row| !state.owns(row.key)) {
                    let key = merge::shown(row.key);
                    return Err(self.broken(call, MigrationError::KeyElsewhere { table: table(), key }));
                }
            }
            Reach::Kept => {
                let kept = (0..page.rows()).map(|row| page.keys.get(row)).collect::<HashSet<_>>();
                if let Some(row) = rows.iter().find(|row| !kept.contains(row.key)) {
                    let key = merge::shown(row.key);
                    return Err(self.broken(call, MigrationError::KeyNotKept { table: table(), key }));
                }
            }
        }
        Ok(())
    }

    /// Lets the guest merge rows with the same key and user key, until each is there once.
    fn merge_equal<'r>(&mut self, rows: Vec<Row<'r>>, run: &Run<'_>) -> Result<Vec<Row<'r>>, OperatorError> {
        let mut rows = merge::sorted(rows);
        loop {
            let pairs = merge::equal_neighbours(&rows);
            if pairs.is_empty() {
                return Ok(rows);
            }
            let others = pairs.iter().map(|&first| &*rows[first + 1].value).collect::<Vec<_>>();
            let merged = self.merge(pairs.iter().map(|&first| &rows[first]), &others, run)?;
            rows = merge::with_merged(rows, &pairs, &merged);
        }
    }

    /// Writes rows, none of which is there twice; what was written before is merged with them.
    fn write(&mut self, rows: &[Row<'_>], run: &mut Run<'_>) -> Result<(), OperatorError> {
        let call = run.call(migrate_call, rows.len());
        let table = run.outdated.table;
        let (keys, user_keys) = merge::key_columns(rows);
        let found = self.state().get_many(table, &keys, &user_keys);
        let (old, found) = found.map_err(|error| self.state_failed(call, error))?;
        let known = (0..rows.len()).filter(|&row| found[row / 8] >> (row % 8) & 1 == 1).collect::<Vec<_>>();
        let merged = if known.is_empty() {
            Column::with_capacity(0, 0)
        } else {
            let others = known.iter().map(|&row| old.get(row)).collect::<Vec<_>>();
            self.merge(known.iter().map(|&row| &rows[row]), &others, run)?
        };
        let mut values = Column::with_capacity(rows.len(), 0);
        let mut next_known = known.iter().enumerate().peekable();
        for (index, row) in rows.iter().enumerate() {
            match next_known.next_if(|(_, known)| **known == index) {
                Some((place, _)) => {
                    let value = merged.get(place);
                    run.after.bytes = run.after.bytes + value.len() as u64 - old.get(index).len() as u64;
                    values.push(value);
                }
                None => {
                    run.after.add(row.key, row.user_key, &row.value);
                    values.push(&row.value);
                }
            }
        }
        let limit_bytes = self.limits.state_bytes_max;
        if run.after.bytes > limit_bytes {
            let failure = Failure::StateSize { bytes: run.after.bytes, limit_bytes };
            return Err(OperatorError::new(self.subtask.clone(), call, failure));
        }
        let state = self.state();
        let written = state.write_many(table, &keys, &user_keys, &values, &[]).and_then(|()| state.accept());
        written.map_err(|error| self.state_failed(call, error))
    }

    fn merge<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r Row<'r>>,
        others: &[&[u8]],
        run: &Run<'_>,
    ) -> Result<Column, OperatorError> {
        let call = run.call(merge_call, others.len());
        let entries = merge::entries(rows);
        let others = lowered(merge::column(others.iter().copied()));
        let rows = (others.offsets.len() / 4).saturating_sub(1);
        let Outdated { table, from_version, .. } = *run.outdated;
        let given = Entries {
            keys: lowered(entries.keys),
            user_keys: lowered(entries.user_keys),
            values: lowered(entries.values),
        };
        let merged = self.ask(call, |store| run.guest.call_merge(store, table, from_version, &given, &others))?;
        let merged = lifted(merged);
        let limit_bytes = self.limits.output_bytes_max;
        if merged.data.len() > limit_bytes {
            return Err(OperatorError::new(self.subtask.clone(), call, Failure::Output { limit_bytes }));
        }
        merged.check(rows).map_err(|source| {
            let table = run.outdated.name.clone();
            self.broken(call, MigrationError::Malformed { table, what: "merged values", source })
        })?;
        Ok(merged)
    }

    /// Calls an export that uses no import.
    fn ask<R>(
        &mut self,
        call: Call,
        export: impl FnOnce(&mut Store<HostState>) -> wasmtime::Result<Result<R, migrating::OpError>>,
    ) -> Result<R, OperatorError> {
        let returned = self.guarded(call, Phase::Migrating, |_, store| export(store))?;
        returned.map_err(|refusal| OperatorError::new(self.subtask.clone(), call, refused(refusal)))
    }

    /// The state that is migrated.
    fn state(&mut self) -> &mut KeyedState {
        self.store.data_mut().state.as_deref_mut().expect("an operator with tables has state")
    }

    fn state_failed(&self, call: Call, error: StateError) -> OperatorError {
        OperatorError::new(self.subtask.clone(), call, Failure::State(error))
    }

    fn broken(&self, call: Call, error: MigrationError) -> OperatorError {
        OperatorError::new(self.subtask.clone(), call, Failure::Migration(error))
    }
}

fn lowered(column: Column) -> migrating::Column {
    migrating::Column { data: column.data, offsets: column.offsets }
}

fn lifted(column: migrating::Column) -> Column {
    Column { data: column.data, offsets: column.offsets }
}

fn refused(refusal: migrating::OpError) -> Failure {
    let kind = match refusal.kind {
        migrating::ErrorKind::Transient => ErrorKind::Transient,
        // There is no record that could be left out.
        migrating::ErrorKind::BadRecord | migrating::ErrorKind::Fatal => ErrorKind::Fatal,
    };
    Failure::Refused { kind, row: refusal.row, message: printable(&refusal.message) }
}
