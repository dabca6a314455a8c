//! The keyed state of one subtask: segments in memory over a database.
//!
//! Invariant: what a call reads is the newest that was written before, staged writes included: the current segment, then the
//! sealed ones from the newest to the oldest, then RocksDB. Memory stays within `memory_bytes_max` whatever is written: a
//! segment that grows too large is sealed in the middle of an epoch, and who writes faster than the disk waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::base::KnownFiles;
use super::chain::Chain;
use super::entry::{self, KeyRef};
use super::error::StateError;
use super::flusher::Flusher;
use super::key_space::{KeySpace, bit};
use super::lookup;
use super::migration::MigratedTable;
use super::queue::{Covers, Sealed};
use super::restore::{self, Fetch, Restored};
use super::rocks::BlockCache;
use super::scan::{self, Page};
use super::segment::SLOT_BYTES;
use super::snapshot::PendingSnapshot;
use super::spares::Spares;
use super::staging::Staging;
use super::timers::TimerQueue;
use super::whole::OpenWhole;
use crate::element::{Column, NO_TIMESTAMP};
use crate::id::{Attempt, Epoch, SubtaskId};
use crate::protocol::{KeyGroupRange, MaxParallelism};
use crate::store::{KeyedSnapshot, TableRef};

/// Arena offsets have 32 bits.
const MEMORY_BYTES_MAX: usize = 2 << 30;
/// A bound that is smaller would only make many tiny files.
const MEMORY_BYTES_MIN: usize = 64 << 10;
/// What an entry takes beside its key, user key and value.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = entry::HEADER_BYTES + entry::PREFIX_BYTES + SLOT_BYTES;

/// How one subtask's keyed state is to be opened.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// For this subtask and attempt alone; new, or empty. Must stay until the last [`PendingSnapshot`] is uploaded or dropped.
    pub work_dir: PathBuf,
    pub subtask: SubtaskId,
    pub key_groups: KeyGroupRange,
    pub max_parallelism: MaxParallelism,
    pub attempt: Attempt,
    /// The operator's tables in its own order; calls name a table by its index. With [`TIMERS_TABLE`](super::TIMERS_TABLE)
    /// among them, which has none, there are timers.
    pub tables: Vec<TableRef>,
    /// Bound for entries in memory (64 KiB to 2 GiB); empty buffers for the next ones may come to an eighth more. A call may
    /// write up to three quarters of it, so it has to be larger than what a guest may keep back until a barrier.
    pub memory_bytes_max: usize,
    /// Shared by the subtasks of a process.
    pub block_cache: BlockCache,
}

/// How large the state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateMetrics {
    /// Entries in memory; those that are in several segments count for each.
    pub memory_entries: usize,
    pub memory_bytes: usize,
    /// Timers that are in memory, beside the entries that all of them are.
    pub memory_timers: usize,
    pub segments: usize,
    /// Bytes of RocksDB's files.
    pub disk_bytes: u64,
    /// Deltas that the next snapshot has over its base.
    pub deltas: usize,
}

/// The keyed state of one subtask. Used from one thread; dropped, it waits for the images that snapshots still need.
pub struct KeyedState {
    pub(super) space: KeySpace,
    pub(super) memory_bytes_max: usize,
    pub(super) current: Staging,
    pub(super) timers: Option<TimerQueue>,
    pub(super) restored_watermark_ms: i64,
    pub(super) written_watermark_ms: i64,
    pub(super) chain: Chain,
    known: KnownFiles,
    /// Tables that were migrated since it was opened.
    pub(super) migrated: Vec<MigratedTable>,
    /// The rest of the restored checkpoint, as long as it may be asked for.
    pub(super) whole: Option<OpenWhole>,
    pub(super) flusher: Arc<Flusher>,
    thread: Option<JoinHandle<()>>,
}

impl KeyedState {
    /// Opens empty state, or what the snapshots of a checkpoint hold of this subtask's key groups. They may be those of all
    /// subtasks that the operator had. `fetch` copies a file of the checkpoint store to a path that doesn't exist yet, and fails
    /// if its size or checksum is wrong.
    ///
    /// # Errors
    /// If the snapshots can't be used (a newer version of a table, key groups missing, a corrupt file), or a file or folder
    /// can't be made.
    pub fn open(
        options: StateOptions,
        restored: &[KeyedSnapshot],
        fetch: &Fetch<'_>,
    ) -> Result<KeyedState, StateError> {
        let Restored { tables, rocks, chain, known, deltas } = restore::open(&options, restored, fetch)?;
        let memory_bytes_max = options.memory_bytes_max.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        let StateOptions { work_dir, subtask, key_groups, max_parallelism, block_cache, .. } = options;
        let spares = Spares::new(memory_bytes_max / 8);
        let current = Staging::new(spares.clone());
        let flusher = Flusher::new(subtask.clone(), work_dir.clone(), block_cache, memory_bytes_max / 4, spares, rocks);
        let thread = std::thread::Builder::new().name(format!("state-{}", subtask.index)).spawn({
            let flusher = Arc::clone(&flusher);
            move || flusher.run()
        });
        let thread = thread.map_err(|source| StateError::File {
            subtask: subtask.clone(),
            action: "start the thread that writes to",
            path: work_dir,
            source,
        })?;
        let space = KeySpace { subtask: subtask.clone(), key_groups, max_parallelism, tables };
        let timers = space.tables.timers().map(|_| TimerQueue::new(key_groups, !restored.is_empty()));
        let thread = Some(thread);
        let mut state = KeyedState {
            space,
            memory_bytes_max,
            current,
            timers,
            restored_watermark_ms: NO_TIMESTAMP,
            written_watermark_ms: NO_TIMESTAMP,
            chain,
            known,
            migrated: Vec::new(),
            whole: None,
            flusher,
            thread,
        };
        let mut covers = state.chain.covers();
        for delta in deltas {
            delta.fetch(&subtask, key_groups, fetch, |key, value| state.put_restored(key, value, &mut covers))?;
        }
        state.current.accept();
        state.seal_current(covers)?;
        state.settle_timers()?;
        if !restored.is_empty() {
            state.read_watermark()?;
        }
        Ok(state)
    }

    /// Reads many entries: values, and a bitmap with 1 for the entries that exist. Staged writes are seen.
    ///
    /// # Errors
    /// If the guest asks for what it may not, or the state can't be read.
    pub fn get_many(&self, table: u32, keys: &Column, user_keys: &Column) -> Result<(Column, Vec<u8>), StateError> {
        self.get_many_until(table, keys, user_keys, &|| false)
    }

    /// As [`get_many`](Self::get_many), until `is_enough`, which is asked now and then.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many), and [`StateError::GivenUp`].
    pub fn get_many_until(
        &self,
        table: u32,
        keys: &Column,
        user_keys: &Column,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<(Column, Vec<u8>), StateError> {
        let table = self.space.table(table)?;
        let rows = self.space.rows(keys, user_keys)?;
        self.flusher.check()?;
        let sealed = self.flusher.segments();
        let segments: Vec<_> = std::iter::once(self.current.segment()).chain(sealed.iter().map(|s| &**s)).collect();
        lookup::get_many(&self.space, table, rows, &segments, self.flusher.rocks(), &|| self.go_on(is_enough))
    }

    /// Reads the entries of one key whose user key is greater than `after`, or all, in the order of their user keys: at most
    /// about `max_bytes` of them, but one if there is one. Staged writes are seen.
    ///
    /// # Errors
    /// If the guest asks for what it may not, or the state can't be read.
    pub fn scan(&self, table: u32, key: &[u8], after: Option<&[u8]>, max_bytes: u32) -> Result<Page, StateError> {
        self.scan_until(table, key, after, max_bytes, &|| false)
    }

    /// As [`scan`](Self::scan), until `is_enough`, which is asked now and then.
    ///
    /// # Errors
    /// As [`scan`](Self::scan), and [`StateError::GivenUp`].
    pub fn scan_until(
        &self,
        table: u32,
        key: &[u8],
        after: Option<&[u8]>,
        max_bytes: u32,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<Page, StateError> {
        let table = self.space.table(table)?;
        self.space.locate(table, key, after.unwrap_or_default())?;
        let key = self.space.locate(table, key, b"")?;
        self.flusher.check()?;
        let sealed = self.flusher.segments();
        let segments: Vec<_> = std::iter::once(self.current.segment()).chain(sealed.iter().map(|s| &**s)).collect();
        let go_on = || self.go_on(is_enough);
        scan::scan(&segments, self.flusher.rocks(), &key, after, max_bytes as usize, &go_on)
    }

    fn go_on(&self, is_enough: &dyn Fn() -> bool) -> Result<(), StateError> {
        if is_enough() { Err(StateError::GivenUp { subtask: self.space.subtask.clone() }) } else { Ok(()) }
    }

    /// Stages writes and (`deletes`: a bitmap, or empty) deletions, in order. After an error some of them may be staged.
    ///
    /// # Errors
    /// If the guest writes what it may not, or too much for memory, or the disk has failed.
    pub fn write_many(
        &mut self,
        table: u32,
        keys: &Column,
        user_keys: &Column,
        values: &Column,
        deletes: &[u8],
    ) -> Result<(), StateError> {
        let table = self.space.table(table)?;
        let rows = self.space.writes(keys, user_keys, values, deletes)?;
        self.make_room(rows.count, rows.bytes() + values.data.len())?;
        for row in 0..rows.count {
            let (key, user_key) = rows.get(row);
            let key = self.space.locate(table, key, user_key)?;
            let value = if bit(deletes, row) { None } else { Some(values.get(row)) };
            self.space.value_fits(value.unwrap_or_default())?;
            self.current.put(&key, value);
        }
        Ok(())
    }

    /// The call succeeded: its writes count. Waits if the disk can't keep up.
    ///
    /// # Errors
    /// If work in the background has failed. The attempt is over.
    pub fn accept(&mut self) -> Result<(), StateError> {
        self.current.accept();
        if self.current.bytes() < self.memory_bytes_max / 4 {
            self.flusher.check()?;
        } else {
            self.chain.set_uncovered();
            self.seal_current(None)?;
        }
        self.settle_timers()
    }

    /// The call failed: its writes never were.
    pub fn discard(&mut self) {
        self.current.discard();
        if let Some(timers) = &mut self.timers {
            timers.discard();
        }
    }

    /// Takes a snapshot at a barrier: seals the current segment, and neither writes nor waits.
    ///
    /// # Errors
    /// If work in the background has failed, or a table was to be migrated and wasn't. The attempt is over.
    ///
    /// # Panics
    /// If there are staged writes: the caller accepts or discards those of each call.
    pub fn freeze(&mut self, epoch: Epoch) -> Result<PendingSnapshot, StateError> {
        self.check_migrated()?;
        self.flusher.check()?;
        for consolidated in self.flusher.take_consolidated() {
            self.chain.consolidate(consolidated);
        }
        let segment = Arc::new(self.current.seal());
        if let Some(sealed) = self.chain.seal(epoch, segment, self.memory_bytes_max as u64) {
            self.flusher.push(sealed)?;
        }
        let (base, deltas) = self.chain.parts();
        Ok(PendingSnapshot {
            subtask: self.space.subtask.clone(),
            key_groups: self.space.key_groups,
            tables: self.space.tables.stored().to_vec(),
            base,
            deltas,
            known: Arc::clone(&self.known),
            metrics: self.metrics(),
        })
    }

    pub fn metrics(&self) -> StateMetrics {
        let sealed = self.flusher.segments();
        let current = self.current.segment();
        StateMetrics {
            memory_entries: current.len() + sealed.iter().map(|segment| segment.len()).sum::<usize>(),
            memory_bytes: self.current.bytes() + sealed.iter().map(|segment| segment.bytes()).sum::<usize>(),
            memory_timers: self.timers.as_ref().map_or(0, TimerQueue::in_memory),
            segments: usize::from(!current.is_empty()) + sealed.len(),
            disk_bytes: self.flusher.rocks().map_or(0, |rocks| rocks.bytes()),
            deltas: self.chain.deltas(),
        }
    }

    /// Makes sure that entries fit into memory, and waits for sealed segments to leave it if need be.
    pub(super) fn make_room(&mut self, entries: usize, bytes: usize) -> Result<(), StateError> {
        let bytes = bytes + entries * ENTRY_OVERHEAD_BYTES;
        let own_bytes = self.current.bytes() + bytes;
        let Some(left_bytes) = self.memory_bytes_max.checked_sub(own_bytes) else {
            let (subtask, bytes_max) = (self.space.subtask.clone(), self.memory_bytes_max);
            return Err(StateError::StagedTooMuch { subtask, bytes: own_bytes, bytes_max });
        };
        self.flusher.wait_for_memory(left_bytes)?;
        self.current.reserve(entries, bytes - entries * SLOT_BYTES);
        Ok(())
    }

    /// Moves the accepted writes behind those that wait for the disk, and waits until few enough do.
    fn seal_current(&mut self, covers: Option<Covers>) -> Result<(), StateError> {
        let segment = self.current.seal();
        if !segment.is_empty() {
            self.flusher.push(Sealed { segment: Arc::new(segment), covers, capture: None })?;
        }
        self.flusher.wait_for_memory(self.memory_bytes_max / 2)
    }

    /// Takes an entry of a restored delta, which later snapshots hold as it is. `covers`: the deltas that the current segment
    /// will hold in the end; none if it gets too large for that.
    fn put_restored(
        &mut self,
        key: &KeyRef<'_>,
        value: Option<&[u8]>,
        covers: &mut Option<Covers>,
    ) -> Result<(), StateError> {
        self.current.put(key, value);
        if self.current.bytes() >= self.memory_bytes_max / 4 {
            *covers = None;
            self.current.accept();
            self.seal_current(None)?;
        }
        Ok(())
    }
}

impl Drop for KeyedState {
    fn drop(&mut self) {
        self.flusher.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told to everybody who waits for it.
            let _ = thread.join();
        }
    }
}
