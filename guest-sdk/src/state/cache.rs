//! The write-back cache of all tables: which keys are in memory, which must be read, written or given up.
//!
//! Invariant: a slot is given up only when all its cells are clean, and only between two uses of state, when nothing holds
//! on to a slot's number but `row_slots`, which is then forgotten.

use super::column::Column;
use super::directory::{AHEAD_KEYS, Ahead, Directory, REFERENCED};
use super::rows::{NO_SLOT, RowSlots};
use super::undo::Undo;
use super::writes::Writes;
use crate::error::Error;
use crate::host::{self, ColumnRef, Host, bit};
use crate::record::Rows;

/// What a cache may take unless the operator says otherwise.
const CACHE_BYTES_MAX_DEFAULT: usize = 64 << 20;
/// No limit is lower than this: a batch must fit.
const CACHE_BYTES_MIN: usize = 1 << 20;
/// How many rows are looked up, and at most read, at once, while some have to be read: each read is a call to the host.
const COLD_ROWS_MAX: usize = 4096;
/// How many are looked up at once while none has to be read: so few that what they need is still close to the processor when
/// they are processed.
const WARM_ROWS_MAX: usize = AHEAD_KEYS;
/// How many are read before it is known how large a table's values are.
const FIRST_READ_ROWS: usize = 64;

pub(crate) struct Cache {
    pub(super) directory: Directory,
    pub(super) columns: Vec<Box<dyn Column>>,
    /// By table: the slots that have become dirty. Some may have been written since.
    dirty: Vec<Vec<u32>>,
    /// By table: how many entries have been read, and their bytes.
    read: Vec<(usize, usize)>,
    row_slots: RowSlots,
    /// Whether the rows of this batch have state.
    keyed: bool,
    /// Whether anything had to be read since rows were looked up.
    cold: bool,
    /// Records that were looked up, and entries that had to be read for them, since the host was told.
    used: (u64, u64),
    /// Bytes behind the cells.
    pub(super) heap_bytes: usize,
    /// Bytes of a slot and its cells.
    slot_bytes: usize,
    bytes_max: usize,
    /// Where the clock that looks for slots to give up stands.
    hand: usize,
    /// For user keys.
    pub(super) scratch: Vec<u8>,
    pub(super) undo: Undo,
}

impl Cache {
    pub(crate) fn new(columns: Vec<Box<dyn Column>>) -> Cache {
        let cell_bytes = columns.iter().map(|column| column.cell_bytes()).sum::<usize>();
        Cache {
            directory: Directory::new(),
            dirty: columns.iter().map(|_| Vec::new()).collect(),
            read: columns.iter().map(|_| (0, 0)).collect(),
            columns,
            row_slots: RowSlots::default(),
            keyed: true,
            cold: true,
            used: (0, 0),
            heap_bytes: 0,
            slot_bytes: Directory::SLOT_BYTES + cell_bytes,
            bytes_max: CACHE_BYTES_MAX_DEFAULT,
            hand: 0,
            scratch: Vec::new(),
            undo: Undo::default(),
        }
    }

    pub(crate) fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max.max(CACHE_BYTES_MIN);
    }

    /// About how much memory is in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.directory.len() * self.slot_bytes + self.directory.long_key_bytes() + self.heap_bytes
    }

    /// Starts with another batch.
    pub(crate) fn begin_batch(&mut self, keyed: bool) {
        self.keyed = keyed;
        self.row_slots.clear();
        self.begin_record();
    }

    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// The slot of a row's key. Makes room first if the cache is full.
    #[inline]
    pub(crate) fn enter(&mut self, rows: &Rows<'_>, row: usize, host: &mut dyn Host) -> Result<usize, Error> {
        // What may have to be undone stays where it is.
        if self.bytes() > self.bytes_max && self.undo.is_empty() {
            self.relieve(self.bytes_max / 8 * 7, host)?;
        }
        let slot = match self.row_slots.get(row) {
            Some(slot) => slot,
            None => self.look_ahead(rows, row),
        };
        if slot == NO_SLOT {
            return Err(self.no_key());
        }
        Ok(slot as usize)
    }

    #[cold]
    fn no_key(&self) -> Error {
        if self.keyed {
            Error::bad_record("state is kept by key, and the record has no key")
        } else {
            Error::fatal("state is kept by key, and records of a broadcast input have none")
        }
    }

    /// Finds the slots of this row and those that follow.
    fn look_ahead(&mut self, rows: &Rows<'_>, row: usize) -> u32 {
        if !self.keyed {
            return NO_SLOT;
        }
        let rows_max = if std::mem::take(&mut self.cold) { COLD_ROWS_MAX } else { WARM_ROWS_MAX };
        let end = rows.len().min(row + rows_max);
        let slots_max = self.directory.len() + (self.bytes_max / 16 / self.slot_bytes).max(1);
        let long_bytes_max = self.directory.long_key_bytes() + self.bytes_max / 16;
        self.row_slots.start(row);
        let mut ahead = [Ahead::NONE; AHEAD_KEYS];
        let mut at = row;
        'rows: while at < end {
            let block = at..end.min(at + AHEAD_KEYS);
            let keys = self.directory.hash_ahead(block.clone().map(|row| rows.key(row)), &mut ahead);
            for (at, key) in block.clone().zip(keys) {
                let directory = &mut self.directory;
                let full = directory.len() >= slots_max || directory.long_key_bytes() > long_bytes_max;
                if full && at > row {
                    break 'rows;
                }
                self.row_slots.push(directory.find_or_insert_ahead(key).unwrap_or(NO_SLOT));
            }
            at = block.end;
        }
        self.used.0 += self.row_slots.from(row).len() as u64;
        for column in &mut self.columns {
            column.grow(self.directory.slots.len());
            column.touch(self.row_slots.from(row));
        }
        self.row_slots.get(row).expect("at least one row")
    }

    #[inline]
    pub(super) fn column<C: Column>(&mut self, table: u32) -> (&mut C, &mut usize) {
        (self.columns[table as usize].of(), &mut self.heap_bytes)
    }

    /// Whether a cell is known, and marks its slot as used.
    #[inline]
    pub(super) fn is_loaded(&mut self, table: u32, slot: usize) -> bool {
        let slot = &mut self.directory.slots[slot];
        slot.loaded |= REFERENCED;
        slot.loaded >> table & 1 == 1
    }

    /// Says that a cell need not be read any more.
    #[inline]
    pub(super) fn mark_loaded(&mut self, table: u32, slot: usize) {
        self.directory.slots[slot].loaded |= REFERENCED | 1 << table;
    }

    /// Says that a cell is about to change.
    #[inline]
    pub(super) fn mark_dirty(&mut self, table: u32, slot: usize) -> bool {
        let newly = self.directory.slots[slot].dirty >> table & 1 == 0;
        if newly {
            self.directory.slots[slot].dirty |= 1 << table;
            self.dirty[table as usize].push(slot as u32);
        }
        newly
    }

    /// Reads the cells of this row and those that follow, of one table.
    #[cold]
    pub(crate) fn load(&mut self, table: u32, row: usize, host: &mut dyn Host) -> Result<(), Error> {
        self.cold = true;
        let rows_max = self.read_rows_max(table);
        let mut keys = host::Column::new();
        let mut wanted = Vec::new();
        for &slot in self.row_slots.from(row).iter().filter(|&&slot| slot != NO_SLOT) {
            let known = &mut self.directory.slots[slot as usize].loaded;
            if *known >> table & 1 == 0 {
                *known |= 1 << table;
                self.directory.push_key(slot as usize, &mut keys.data);
                keys.end_row();
                wanted.push(slot);
                if wanted.len() == rows_max {
                    break;
                }
            }
        }
        let entries = host.get_many(table, keys.as_ref(), ColumnRef::default());
        let values = entries.values.as_ref();
        for (index, &slot) in wanted.iter().enumerate() {
            let value = bit(&entries.found, index).then(|| values.get(index));
            self.columns[table as usize]
                .load(slot as usize, value, &mut self.heap_bytes)
                .map_err(|error| unreadable(table, error))?;
        }
        self.read[table as usize].0 += wanted.len();
        self.used.1 += wanted.len() as u64;
        self.read[table as usize].1 += entries.values.data.len();
        Ok(())
    }

    /// As many as take a sixteenth of the cache.
    fn read_rows_max(&self, table: u32) -> usize {
        let (entries, bytes) = self.read[table as usize];
        if entries == 0 {
            return FIRST_READ_ROWS;
        }
        (self.bytes_max / 16 / (1 + 2 * bytes / entries)).clamp(1, COLD_ROWS_MAX)
    }

    /// Measures again what has grown in a table's dirty cells.
    #[cold]
    pub(super) fn measure_dirty(&mut self, table: u32) {
        let slots = &self.dirty[table as usize];
        self.columns[table as usize].measure(slots, &mut self.heap_bytes);
    }

    /// Writes all that is dirty, and tells the host how often the cache had what was looked for.
    pub(crate) fn write_back(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        let (lookups, misses) = std::mem::take(&mut self.used);
        if lookups > 0 {
            host.counter_add("state_cache_lookups", lookups);
            host.counter_add("state_cache_misses", misses);
        }
        for table in 0..self.columns.len() as u32 {
            let mut slots = std::mem::take(&mut self.dirty[table as usize]);
            let all_slots = self.directory.slots.len();
            if slots.len() > all_slots / 4 {
                // In the order in which they are in memory, not in that of the records: each is a miss of the processor's cache otherwise.
                slots.clear();
                slots.extend(0..all_slots as u32);
            }
            self.write_slots(table, &slots, host)?;
            slots.clear();
            self.dirty[table as usize] = slots;
        }
        Ok(())
    }

    /// Writes what is dirty of one table in some slots.
    pub(super) fn write_slots(&mut self, table: u32, slots: &[u32], host: &mut dyn Host) -> Result<(), Error> {
        let mut writes = Writes::new(table, host);
        let mut key = Vec::new();
        for slot in slots.iter().map(|&slot| slot as usize) {
            if self.directory.slots[slot].dirty >> table & 1 == 1 {
                self.directory.slots[slot].dirty &= !(1 << table);
                key.clear();
                self.directory.push_key(slot, &mut key);
                self.columns[table as usize].write_dirty(slot, &key, &mut writes, &mut self.heap_bytes)?;
            }
        }
        writes.send();
        Ok(())
    }

    /// Gives up slots until `bytes_target` is reached: clean ones that weren't used for longest, then dirty ones, written
    /// first.
    #[cold]
    fn relieve(&mut self, bytes_target: usize, host: &mut dyn Host) -> Result<(), Error> {
        self.row_slots.clear();
        // The first turn makes "used lately" mean since the last time.
        for _ in 0..2 {
            self.turn_clock(bytes_target);
        }
        if self.bytes() > bytes_target {
            self.write_back(host)?;
            for _ in 0..2 {
                self.turn_clock(bytes_target);
            }
        }
        self.directory.sweep_long_keys();
        Ok(())
    }

    fn turn_clock(&mut self, bytes_target: usize) {
        let slots = self.directory.slots.len();
        for _ in 0..slots {
            if self.bytes() <= bytes_target {
                return;
            }
            self.hand = (self.hand + 1) % slots;
            if !self.directory.is_live(self.hand) {
                continue;
            }
            let slot = &mut self.directory.slots[self.hand];
            if slot.loaded & REFERENCED != 0 {
                slot.loaded &= !REFERENCED;
            } else if slot.dirty == 0 {
                for column in &mut self.columns {
                    column.forget(self.hand, &mut self.heap_bytes);
                }
                self.directory.remove(self.hand);
            }
        }
    }

    /// Writes all that is dirty, gives up slots until about `bytes_target` are in use and returns their memory.
    pub(crate) fn trim(&mut self, bytes_target: usize, host: &mut dyn Host) -> Result<(), Error> {
        self.write_back(host)?;
        self.relieve(bytes_target, host)?;
        if self.directory.len() * 2 <= self.directory.slots.len() {
            let kept = self.directory.compact();
            for column in &mut self.columns {
                column.keep(&kept);
            }
            self.dirty.iter_mut().for_each(|slots| *slots = Vec::new());
            self.hand = 0;
        }
        Ok(())
    }
}

/// State that can't be decoded is no record's fault.
pub(super) fn unreadable(table: u32, error: Error) -> Error {
    Error::fatal(format_args!("an entry of state table {table} can't be read: {error}"))
}
