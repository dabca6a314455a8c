//! Entries in order, of one key or of all that begin alike, out of all the places where they may be.
//!
//! Invariant: of each stored key only the newest entry is seen, and a tombstone hides what is older.

use std::sync::MutexGuard;

use super::entry::KeyRef;
use super::error::StateError;
use super::order::Order;
use super::rocks::{Rocks, Scan};
use super::segment::Segment;
use crate::element::Column;

/// However much a guest asks for.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// After so many entries, deleted ones included, a walk asks whether to go on.
const ENTRIES_PER_LOOK: u32 = 1024;

/// Asked now and then by what may take long; its error ends that.
pub type GoOn<'a> = dyn Fn() -> Result<(), StateError> + 'a;

/// Entries of one key in the order of their user keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub user_keys: Column,
    pub values: Column,
    /// Whether there are more after the last of these.
    pub more: bool,
}

/// The entries of `key` (whose own user key is empty) with a user key greater than `after`, or all.
///
/// `segments` come newest first. The page has at least one entry if there is one, and more while they fit `bytes_max`.
///
/// # Errors
/// If RocksDB can't read, or `go_on` says that it is enough.
pub fn scan(
    segments: &[&Segment],
    rocks: Option<&Rocks>,
    key: &KeyRef<'_>,
    after: Option<&[u8]>,
    bytes_max: usize,
    go_on: &GoOn<'_>,
) -> Result<Page, StateError> {
    let mut prefix = Vec::with_capacity(key.stored_bytes());
    key.write(&mut prefix);
    let mut from = prefix.clone();
    if let Some(after) = after {
        // Nothing is between a string and the same with a zero behind.
        from.extend_from_slice(after);
        from.push(0);
    }
    let mut page = Page { user_keys: Column::with_capacity(0, 0), values: Column::with_capacity(0, 0), more: false };
    let bytes_max = bytes_max.min(PAGE_BYTES_MAX);
    let mut bytes = 0;
    walk(segments, rocks, &prefix, &from, go_on, |stored, value| {
        let user_key = &stored[prefix.len()..];
        // As it takes in the columns.
        bytes += user_key.len() + value.len() + 8;
        page.more = page.user_keys.rows() > 0 && bytes > bytes_max;
        if page.more {
            return Walk::Stop;
        }
        page.user_keys.push(user_key);
        page.values.push(value);
        Walk::On
    })?;
    Ok(page)
}

/// Whether a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    On,
    Stop,
}

/// Gives `visit` the entries whose stored key begins with `prefix`, from the stored key `from` on, in order, until it stops.
///
/// `segments` come newest first.
///
/// # Errors
/// If RocksDB can't read, or `go_on` says that it is enough.
pub fn walk(
    segments: &[&Segment],
    rocks: Option<&Rocks>,
    prefix: &[u8],
    from: &[u8],
    go_on: &GoOn<'_>,
    mut visit: impl FnMut(&[u8], &[u8]) -> Walk,
) -> Result<(), StateError> {
    let orders: Vec<_> = segments.iter().map(|segment| segment.order()).collect();
    let mut cursors = cursors(segments, &orders, prefix, from);
    let mut disk = rocks.map(|rocks| rocks.scan(from, &after_all(prefix)));
    let mut next = Vec::new();
    let mut entries = 0u32;
    loop {
        if entries.is_multiple_of(ENTRIES_PER_LOOK) {
            go_on()?;
        }
        entries = entries.wrapping_add(1);
        let on_disk = disk.as_ref().map(Scan::current).transpose()?.flatten();
        // The first of the smallest is the newest.
        let newest = cursors.iter().filter_map(|c| Some((c.segment, c.key()?))).min_by(|a, b| a.1.cmp(b.1));
        let value = match (newest, on_disk) {
            (Some((segment, key)), on_disk) if on_disk.is_none_or(|other| key <= other.key) => {
                next.clear();
                next.extend_from_slice(key);
                let key = KeyRef::parse(&next).expect("a segment holds stored keys");
                segment.find(&key).expect("a key that is ordered is in the segment").value
            }
            (_, Some(entry)) => {
                next.clear();
                next.extend_from_slice(entry.key);
                entry.value
            }
            (_, None) => return Ok(()),
        };
        if value.is_some_and(|value| visit(&next, value) == Walk::Stop) {
            return Ok(());
        }
        cursors.iter_mut().for_each(|cursor| cursor.pass(&next));
        if let Some(disk) = &mut disk
            && disk.current()?.is_some_and(|entry| entry.key == next)
        {
            disk.advance();
        }
    }
}

/// The place of a scan in one run of a segment's order.
struct Cursor<'a> {
    segment: &'a Segment,
    /// What is left of the run.
    run: &'a [u32],
    prefix: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn key(&self) -> Option<&'a [u8]> {
        let key = self.segment.entry(*self.run.first()?).key;
        key.starts_with(self.prefix).then_some(key)
    }

    /// Goes on behind `key`.
    fn pass(&mut self, key: &[u8]) {
        while self.key() == Some(key) {
            self.run = &self.run[1..];
        }
    }
}

/// Those that have something to say.
fn cursors<'a>(
    segments: &[&'a Segment],
    orders: &'a [MutexGuard<'_, Order>],
    prefix: &'a [u8],
    from: &[u8],
) -> Vec<Cursor<'a>> {
    let mut cursors = Vec::new();
    for (segment, order) in segments.iter().zip(orders) {
        for run in order.runs() {
            let start = run.partition_point(|&offset| segment.entry(offset).key < from);
            let cursor = Cursor { segment, run: &run[start..], prefix };
            if cursor.key().is_some() {
                cursors.push(cursor);
            }
        }
    }
    cursors
}

/// The first string after all that begin with `prefix`.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return next;
        }
        next.pop();
    }
    unreachable!("a stored key begins with a key group, which is below 32,768")
}
