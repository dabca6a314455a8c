//! The timers' side of [`KeyedState`].
//!
//! Invariant: what a call sets, deletes and is given is staged with its other writes, in the table and in the queue alike.

use xxhash_rust::xxh3::xxh3_64;

use super::{Clock, TimerQueue, key};
use crate::element::{Batch, Column, NO_TIMESTAMP, Row};
use crate::id::{KeyGroup, SubtaskId};
use crate::state::entry::KeyRef;
use crate::state::error::StateError;
use crate::state::key_space::bit;
use crate::state::keyed::{ENTRY_OVERHEAD_BYTES, KeyedState};
use crate::state::scan::{self, Page};

/// What one call is given at most, but for its first timer.
const TAKEN_BYTES_MAX: usize = 1 << 20;

impl KeyedState {
    /// Whether the operator uses timers.
    pub fn has_timers(&self) -> bool {
        self.timers.is_some()
    }

    /// Stages timers that are set or (`deletes`: a bitmap, or empty) deleted, in order. Gives the earliest time that was set,
    /// or the largest. After an error some of them may be staged.
    ///
    /// # Errors
    /// If the guest hands over what it may not, or too much for memory, or the disk has failed.
    ///
    /// # Panics
    /// If there are no timers.
    pub fn write_timers(
        &mut self,
        clock: Clock,
        keys: &Column,
        tags: &Column,
        times: &[u8],
        deletes: &[u8],
    ) -> Result<i64, StateError> {
        let table = self.timers_table();
        let rows = self.space.rows(keys, tags)?;
        self.space.bitmap_fits(deletes, rows.count)?;
        let (times, rest) = times.as_chunks::<8>();
        if times.len() != rows.count || !rest.is_empty() {
            let (rows, bytes) = (rows.count, times.len() * 8 + rest.len());
            return Err(StateError::Times { subtask: self.space.subtask.clone(), rows, bytes });
        }
        self.make_room(rows.count, rows.bytes() + rows.count * key::HEADER_BYTES)?;
        let mut earliest_ms = i64::MAX;
        for (row, time_ms) in times.iter().map(|bytes| i64::from_le_bytes(*bytes)).enumerate() {
            let (key, tag) = rows.get(row);
            let group = self.space.locate(table, key, b"")?.group();
            self.space.tag_fits(tag)?;
            let set = !bit(deletes, row);
            if set {
                earliest_ms = earliest_ms.min(time_ms);
            }
            let user_key = key::of(clock, time_ms, key, tag);
            if self.queue().change(clock, group, &user_key, set) {
                self.current.put(&stored(group, table, &user_key), set.then_some(b""));
            }
        }
        Ok(earliest_ms)
    }

    /// The time of the earliest timer that is set. Staged writes aren't seen.
    pub fn next_timer(&self, clock: Clock) -> Option<i64> {
        self.timers.as_ref().and_then(|timers| timers.next_ms(clock))
    }

    /// Takes the earliest timers at or before `up_to_ms`, at most `rows_max`: key, tag as the value, time as the timestamp. That
    /// they are deleted is staged.
    ///
    /// # Errors
    /// If the state can't be read, or the disk has failed.
    ///
    /// # Panics
    /// If there are no timers, or there are staged writes.
    pub fn take_timers(&mut self, clock: Clock, up_to_ms: i64, rows_max: usize) -> Result<Batch, StateError> {
        assert!(!self.current.has_staged(), "timers were taken in the middle of a call");
        let table = self.timers_table();
        let mut batch = Batch::with_capacity(0, 0);
        let mut taken = Vec::new();
        // Each leaves a tombstone, and those of a call have to fit into memory.
        let staged_bytes_max = self.memory_bytes_max / 4;
        let mut staged_bytes = 0;
        while (batch.rows as usize) < rows_max && batch.bytes() < TAKEN_BYTES_MAX && staged_bytes < staged_bytes_max {
            let next = self.with_reader(|queue, read| queue.take(clock, up_to_ms, read))?;
            let Some((group, user_key)) = next else { break };
            let (timestamp, key, tag) = key::parse(&user_key).expect("a timer of the queue");
            batch.push(Row { key: Some(key), value: Some(tag), timestamp });
            staged_bytes += user_key.len() + ENTRY_OVERHEAD_BYTES;
            taken.push((group, user_key));
        }
        self.make_room(taken.len(), taken.iter().map(|(_, user_key)| user_key.len()).sum())?;
        for (group, user_key) in &taken {
            self.current.put(&stored(*group, table, user_key), None);
        }
        Ok(batch)
    }

    /// The watermark that the operator had come to when the snapshot was taken from which this state was restored.
    pub fn restored_watermark(&self) -> i64 {
        self.restored_watermark_ms
    }

    /// Stages the watermark that the operator has come to: a record that is late now is to be late after a restore as well.
    /// Nothing if the operator doesn't use timers.
    ///
    /// # Errors
    /// If the disk has failed.
    pub fn write_watermark(&mut self, watermark_ms: i64) -> Result<(), StateError> {
        let Some(table) = self.space.tables.timers() else { return Ok(()) };
        if std::mem::replace(&mut self.written_watermark_ms, watermark_ms) == watermark_ms {
            return Ok(());
        }
        let groups = self.space.key_groups.first.0..=self.space.key_groups.last.0;
        self.make_room(groups.len(), groups.len() * (key::WATERMARK.len() + 8))?;
        for group in groups.map(KeyGroup) {
            self.current.put(&stored(group, table, key::WATERMARK), Some(&watermark_ms.to_le_bytes()));
        }
        Ok(())
    }

    /// Reads the watermark of a restored state. Where key groups come from several subtasks, it is the least of theirs.
    pub(in crate::state) fn read_watermark(&mut self) -> Result<(), StateError> {
        let Some(table) = self.space.tables.timers() else { return Ok(()) };
        let mut least_ms = i64::MAX;
        for group in (self.space.key_groups.first.0..=self.space.key_groups.last.0).map(KeyGroup) {
            let sealed = self.flusher.segments();
            let segments: Vec<_> = std::iter::once(self.current.segment()).chain(sealed.iter().map(|s| &**s)).collect();
            let first = scan::scan(&segments, self.flusher.rocks(), &stored(group, table, b""), None, 0, &|| Ok(()))?;
            let watermark = (first.user_keys.rows() > 0 && first.user_keys.get(0) == key::WATERMARK)
                .then(|| first.values.get(0).try_into().map(i64::from_le_bytes));
            let watermark_ms =
                watermark.transpose().map_err(|_| StateError::Timers { subtask: self.space.subtask.clone() })?;
            least_ms = least_ms.min(watermark_ms.unwrap_or(NO_TIMESTAMP));
        }
        (self.restored_watermark_ms, self.written_watermark_ms) = (least_ms, least_ms);
        Ok(())
    }

    /// Brings the queue to what the accepted writes say.
    pub(in crate::state) fn settle_timers(&mut self) -> Result<(), StateError> {
        if self.timers.is_none() {
            return Ok(());
        }
        self.with_reader(TimerQueue::settle)
    }

    fn timers_table(&self) -> u16 {
        self.space.tables.timers().expect("an operator that uses timers")
    }

    fn queue(&mut self) -> &mut TimerQueue {
        self.timers.as_mut().expect("an operator that uses timers")
    }

    fn with_reader<R>(
        &mut self,
        then: impl FnOnce(&mut TimerQueue, &super::queue::Read<'_>) -> Result<R, StateError>,
    ) -> Result<R, StateError> {
        let table = self.timers_table();
        let KeyedState { space, current, flusher, timers, .. } = self;
        let read = |group, after: &[u8], bytes_max| {
            let sealed = flusher.segments();
            let segments: Vec<_> = std::iter::once(current.segment()).chain(sealed.iter().map(|s| &**s)).collect();
            let key = stored(group, table, b"");
            let page = scan::scan(&segments, flusher.rocks(), &key, Some(after), bytes_max, &|| Ok(()))?;
            checked(page, &space.subtask)
        };
        then(timers.as_mut().expect("an operator that uses timers"), &read)
    }
}

/// Where a timer lies: all of a key group have the same, empty key.
fn stored(group: KeyGroup, table: u16, user_key: &[u8]) -> KeyRef<'_> {
    KeyRef::new(group, table, b"", user_key, xxh3_64(b""))
}

/// What was read comes from a checkpoint.
fn checked(page: Page, subtask: &SubtaskId) -> Result<Page, StateError> {
    let good = (0..page.user_keys.rows()).all(|row| key::parse(page.user_keys.get(row)).is_some());
    if good { Ok(page) } else { Err(StateError::Timers { subtask: subtask.clone() }) }
}
