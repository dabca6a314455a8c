//! A host that keeps everything in memory and looks closely at what it is given.
//!
//! Invariant: between two calls `tables` and `timers` are what calls that succeeded have written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::record::TestRecord;
use crate::host::{BatchRef, Clock, Column, ColumnRef, Entries, Host, Level, Page, bit};
use crate::operator::Declaration;
use crate::record::Rows;

/// Key and user key.
type EntryKey = (Vec<u8>, Vec<u8>);
/// To the value.
pub(super) type EntryMap = BTreeMap<EntryKey, Vec<u8>>;
/// By name.
pub(super) type Tables = BTreeMap<String, EntryMap>;

/// Clock, time, key and tag.
pub(super) type TimerKey = (Clock, i64, Vec<u8>, Vec<u8>);
pub(super) type TimerSet = BTreeSet<TimerKey>;

/// How often an operator has called its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub emit: u64,
    pub get_many: u64,
    pub write_many: u64,
    pub scan: u64,
    pub write_timers: u64,
}

pub(super) struct MemoryHost {
    names: Vec<&'static str>,
    outputs: Vec<&'static str>,
    pub(super) tables: Tables,
    /// What the entries were that this call has written.
    undo: Vec<(&'static str, EntryKey, Option<Vec<u8>>)>,
    pub(super) timers: TimerSet,
    /// What `timers` was when this call began, if it has changed it.
    timers_before: Option<TimerSet>,
    uses_timers: bool,
    pub(super) now_ms: i64,
    pub(super) watermark_ms: i64,
    /// Port and record, by this call.
    staged: Vec<(u32, TestRecord)>,
    sent: Vec<(u32, TestRecord)>,
    pub(super) logs: Vec<(Level, String)>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) calls: Calls,
}

impl MemoryHost {
    pub(super) fn new(declaration: &Declaration) -> MemoryHost {
        let mut host = MemoryHost {
            names: declaration.tables().iter().map(|table| table.name).collect(),
            outputs: declaration.outputs().to_vec(),
            tables: Tables::new(),
            undo: Vec::new(),
            timers: TimerSet::new(),
            timers_before: None,
            uses_timers: declaration.uses_timers(),
            now_ms: 0,
            watermark_ms: i64::MIN,
            staged: Vec::new(),
            sent: Vec::new(),
            logs: Vec::new(),
            counters: BTreeMap::new(),
            calls: Calls::default(),
        };
        host.reset();
        host
    }

    /// Forgets all state, the watermark, and what wasn't taken.
    pub(super) fn reset(&mut self) {
        self.timers.clear();
        self.timers_before = None;
        self.watermark_ms = i64::MIN;
        self.tables = self.names.iter().map(|&name| (name.to_owned(), EntryMap::new())).collect();
        self.undo.clear();
        self.staged.clear();
        self.sent.clear();
    }

    /// Takes up the tables of a snapshot that are declared still.
    pub(super) fn load(&mut self, tables: &Tables) {
        for (name, entries) in tables {
            if let Some(table) = self.tables.get_mut(name) {
                table.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
    }

    /// Takes the earliest timers that are due, at most `rows_max`, for the next call.
    pub(super) fn take_timers(&mut self, clock: Clock, up_to_ms: i64, rows_max: usize) -> Vec<TestRecord> {
        let due = self.timers.iter().filter(|timer| timer.0 == clock && timer.1 <= up_to_ms);
        let due = due.take(rows_max).cloned().collect::<Vec<_>>();
        if !due.is_empty() {
            self.keep_timers();
        }
        let record = |(_, time, key, tag): TimerKey| TestRecord::from((key, tag, time));
        due.iter().for_each(|timer| assert!(self.timers.remove(timer), "a timer that is set"));
        due.into_iter().map(record).collect()
    }

    /// The watermark that a snapshot keeps.
    pub(super) fn kept_watermark_ms(&self) -> i64 {
        if self.uses_timers { self.watermark_ms } else { i64::MIN }
    }

    fn keep_timers(&mut self) {
        self.timers_before.get_or_insert_with(|| self.timers.clone());
    }

    pub(super) fn end_call(&mut self, succeeded: bool) {
        if let Some(before) = self.timers_before.take()
            && !succeeded
        {
            self.timers = before;
        }
        if succeeded {
            self.undo.clear();
            self.sent.append(&mut self.staged);
            return;
        }
        self.staged.clear();
        for (table, key, before) in self.undo.drain(..).rev() {
            let table = self.tables.get_mut(table).expect("a declared table");
            match before {
                Some(value) => table.insert(key, value),
                None => table.remove(&key),
            };
        }
    }

    pub(super) fn take_output(&mut self, output: &str) -> Vec<TestRecord> {
        let port = self.outputs.iter().position(|&name| name == output);
        let port = port.unwrap_or_else(|| panic!("no output '{output}' among {:?}", self.outputs)) as u32;
        let (taken, rest) = std::mem::take(&mut self.sent).into_iter().partition(|&(sent, _)| sent == port);
        self.sent = rest;
        let taken: Vec<(u32, TestRecord)> = taken;
        taken.into_iter().map(|(_, record)| record).collect()
    }

    /// User keys and values of one key.
    pub(super) fn entries(&self, table: &str, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let table = self.tables.get(table).unwrap_or_else(|| panic!("no table '{table}' among {:?}", self.names));
        let of_key = table.range((key.to_vec(), Vec::new())..).take_while(|((other, _), _)| other == key);
        of_key.map(|((_, user_key), value)| (user_key.clone(), value.clone())).collect()
    }

    fn table(&mut self, table: u32) -> (&'static str, &mut EntryMap) {
        let name = self.names[table as usize];
        (name, self.tables.get_mut(name).expect("a declared table"))
    }
}

impl Host for MemoryHost {
    fn emit(&mut self, port: u32, rows: BatchRef<'_>) {
        assert!((port as usize) < self.outputs.len(), "output {port} of {}", self.outputs.len());
        assert!(rows.rows > 0, "a batch of no records");
        check(rows.keys, rows.rows as usize);
        check(rows.values, rows.rows as usize);
        assert_eq!(rows.timestamps.len(), rows.rows as usize * 8);
        let bitmap_bytes = (rows.rows as usize).div_ceil(8);
        assert!([0, bitmap_bytes * 2].contains(&rows.nulls.len()), "{} bytes of nulls", rows.nulls.len());
        let headers = crate::headers::column(rows);
        if !headers.offsets.is_empty() {
            check(headers, rows.rows as usize);
        }
        self.calls.emit += 1;
        self.staged.extend(Rows::new(rows).iter().map(|record| (port, record.into())));
    }

    fn get_many(&mut self, table: u32, keys: ColumnRef<'_>, user_keys: ColumnRef<'_>) -> Entries {
        let rows = keys.rows();
        check(keys, rows);
        if !user_keys.offsets.is_empty() {
            check(user_keys, rows);
        }
        self.calls.get_many += 1;
        let (_, table) = self.table(table);
        let mut entries = Entries { values: Column::new(), found: vec![0; rows.div_ceil(8)] };
        for row in 0..rows {
            let value = table.get(&(keys.get(row).to_vec(), user_keys.get(row).to_vec()));
            entries.found[row / 8] |= u8::from(value.is_some()) << (row % 8);
            entries.values.push(value.map_or(&[], Vec::as_slice));
        }
        entries
    }

    fn write_many(
        &mut self,
        table: u32,
        keys: ColumnRef<'_>,
        user_keys: ColumnRef<'_>,
        values: ColumnRef<'_>,
        deletes: &[u8],
    ) {
        let rows = keys.rows();
        [keys, user_keys, values].into_iter().for_each(|column| check(column, rows));
        assert!([0, rows.div_ceil(8)].contains(&deletes.len()), "{} bytes of deletes", deletes.len());
        self.calls.write_many += 1;
        let mut undo = std::mem::take(&mut self.undo);
        let (name, table) = self.table(table);
        for row in 0..rows {
            let key = (keys.get(row).to_vec(), user_keys.get(row).to_vec());
            let delete = !deletes.is_empty() && bit(deletes, row);
            let before = if delete { table.remove(&key) } else { table.insert(key.clone(), values.get(row).to_vec()) };
            undo.push((name, key, before));
        }
        self.undo = undo;
    }

    fn scan(&mut self, table: u32, key: &[u8], after: Option<&[u8]>, max_bytes: u32) -> Page {
        self.calls.scan += 1;
        let (_, table) = self.table(table);
        let start = match after {
            Some(user_key) => Bound::Excluded((key.to_vec(), user_key.to_vec())),
            None => Bound::Included((key.to_vec(), Vec::new())),
        };
        let mut page = Page { user_keys: Column::new(), values: Column::new(), more: false };
        for ((other, user_key), value) in table.range((start, Bound::Unbounded)) {
            if other != key {
                break;
            }
            if page.user_keys.data.len() + page.values.data.len() >= max_bytes as usize {
                page.more = true;
                break;
            }
            page.user_keys.push(user_key);
            page.values.push(value);
        }
        page
    }

    fn write_timers(&mut self, clock: Clock, keys: ColumnRef<'_>, tags: ColumnRef<'_>, times: &[u8], deletes: &[u8]) {
        assert!(self.uses_timers, "timers that aren't declared");
        let (times, rows) = (times.as_chunks::<8>().0, keys.rows());
        [keys, tags].into_iter().for_each(|column| check(column, rows));
        assert_eq!(times.len(), rows);
        assert!([0, rows.div_ceil(8)].contains(&deletes.len()), "{} bytes of deletes", deletes.len());
        self.calls.write_timers += 1;
        self.keep_timers();
        for (row, time) in times.iter().enumerate() {
            let timer = (clock, i64::from_le_bytes(*time), keys.get(row).to_vec(), tags.get(row).to_vec());
            if !deletes.is_empty() && bit(deletes, row) {
                self.timers.remove(&timer);
            } else {
                self.timers.insert(timer);
            }
        }
    }

    fn now_ms(&mut self) -> i64 {
        self.now_ms
    }

    fn watermark_ms(&mut self) -> i64 {
        self.watermark_ms
    }

    fn log(&mut self, level: Level, message: &str) {
        self.logs.push((level, message.to_owned()));
    }

    fn counter_add(&mut self, name: &str, delta: u64) {
        *self.counters.entry(name.to_owned()).or_default() += delta;
    }
}

/// # Panics
/// If a column isn't one of so many rows.
fn check(column: ColumnRef<'_>, rows: usize) {
    assert_eq!(column.offsets.len(), (rows + 1) * 4, "offsets of {rows} rows");
    let ends = column.offsets.as_chunks::<4>().0.iter().map(|&end| u32::from_le_bytes(end)).collect::<Vec<_>>();
    assert!(ends[0] == 0 && ends.is_sorted() && ends[rows] as usize == column.data.len(), "offsets {ends:?}");
}
