//! Many values for each key, by a user key.

use std::borrow::Borrow;
use std::marker::PhantomData;

use serde::Serialize;

use super::cache::unreadable;
use super::map_cells::MapColumn;
use super::scan::Scan;
use super::writes::Writes;
use crate::context::Context;
use crate::encoding::{Data, decode, encode_into};
use crate::error::Error;
use crate::host::{self, bit};

/// A table with values by user key for each key; declared with [`Declaration::map`](crate::Declaration::map).
///
/// All methods are about the key of the record being processed. They fail if it has none, or outside of
/// [`process`](crate::Operator::process). Where one takes a user key, a borrowed form will do if it is encoded alike
/// (`&str` for `String`).
///
/// ```
/// use lockgate::prelude::*;
///
/// /// Counts the pages that each visitor has seen.
/// struct Pages {
///     seen: Map<String, u64>,
/// }
///
/// impl Operator for Pages {
///     fn new(declare: &mut Declaration) -> Pages {
///         Pages { seen: declare.map("seen") }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         let page = record.value_str()?;
///         if page == "bye" {
///             let mut entries = self.seen.iter(ctx)?;
///             while let Some((page, visits)) = entries.next(ctx)? {
///                 ctx.emit_fmt(record.key(), format_args!("{page}: {visits}"));
///             }
///             return self.seen.clear(ctx);
///         }
///         self.seen.update(ctx, page, |visits| visits.unwrap_or(0) + 1)?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Pages>::open()?;
/// harness.process([("ann", "/a"), ("bob", "/b"), ("ann", "/c"), ("ann", "/a"), ("ann", "bye")])?;
/// assert_eq!(harness.take_output(), [("ann", "/a: 2"), ("ann", "/c: 1")]);
/// assert!(harness.map::<String, u64>("seen", "ann").is_empty());
/// # Ok(())
/// # }
/// ```
pub struct Map<K, V> {
    table: u32,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Data, V: Data> Map<K, V> {
    pub(crate) fn new(table: u32) -> Map<K, V> {
        Map { table, of: PhantomData }
    }

    pub(crate) fn table(self) -> u32 {
        self.table
    }

    /// A copy of an entry's value; [`read`](Self::read) where a copy is too much.
    ///
    /// # Errors
    /// If there is no key, or the stored bytes aren't a `V`.
    pub fn get<Q>(&self, ctx: &mut Context<'_>, user_key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Clone,
    {
        self.read(ctx, user_key, |value| value.cloned())
    }

    /// Looks at an entry's value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn read<Q, R>(
        &self,
        ctx: &mut Context<'_>,
        user_key: &Q,
        look: impl FnOnce(Option<&V>) -> R,
    ) -> Result<R, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let slot = ctx.enter()?;
        let user_key = Self::encoded(ctx, user_key)?;
        self.make_known(ctx, slot, &user_key, Need::Value)?;
        let (column, _) = ctx.cache.column::<MapColumn<V>>(self.table);
        let result = look(column.get(slot, &user_key).and_then(|entry| entry.value.as_ref()));
        ctx.cache.scratch = user_key;
        Ok(result)
    }

    /// Whether there is an entry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains<Q>(&self, ctx: &mut Context<'_>, user_key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.read(ctx, user_key, |value| value.is_some())
    }

    /// Sets an entry, whatever it was, without reading it.
    ///
    /// # Errors
    /// If there is no key, or the user key can't be encoded.
    pub fn insert<Q>(&self, ctx: &mut Context<'_>, user_key: &Q, value: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.change(ctx, user_key, Need::Nothing, |cell| *cell = Some(value))
    }

    /// Replaces an entry's value by what `next` makes of it, and gives a copy of the new one.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn update<Q>(&self, ctx: &mut Context<'_>, user_key: &Q, next: impl FnOnce(Option<V>) -> V) -> Result<V, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Clone,
    {
        self.change(ctx, user_key, Need::Value, |cell| {
            let value = next(cell.take());
            cell.insert(value).clone()
        })
    }

    /// Changes an entry's value in place; it starts as `V::default()`. Copies nothing.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn modify<Q, R>(
        &self,
        ctx: &mut Context<'_>,
        user_key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
        V: Default,
    {
        self.change(ctx, user_key, Need::Value, |cell| change(cell.get_or_insert_with(V::default)))
    }

    /// Changes an entry's value in place if there is one; `None` if there is none. Copies nothing.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn modify_existing<Q, R>(
        &self,
        ctx: &mut Context<'_>,
        user_key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.change(ctx, user_key, Need::Value, |cell| cell.as_mut().map(change))
    }

    /// Removes an entry, whatever it was, without reading it.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove<Q>(&self, ctx: &mut Context<'_>, user_key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        self.change(ctx, user_key, Need::Nothing, |cell| *cell = None)
    }

    /// Goes through all entries of the key, in the order of their [encoded](crate::encoding#tables) user keys. What is
    /// changed on the way may or may not be seen.
    ///
    /// # Errors
    /// If there is no key.
    pub fn iter(&self, ctx: &mut Context<'_>) -> Result<MapEntries<K, V>, Error> {
        ctx.enter()?;
        Ok(MapEntries { scan: Scan::new(self.table, ctx.key_bytes(), None), table: self.table, of: PhantomData })
    }

    /// Removes all entries of the key.
    ///
    /// # Errors
    /// If there is no key.
    pub fn clear(&self, ctx: &mut Context<'_>) -> Result<(), Error> {
        let slot = ctx.enter()?;
        ctx.note_all(self.table, slot)?;
        let (column, heap_bytes) = ctx.cache.column::<MapColumn<V>>(self.table);
        column.clear(slot, heap_bytes);
        let key = ctx.key_bytes();
        let mut scan = Scan::new(self.table, key.clone(), None);
        let mut user_keys = host::Column::new();
        while let Some((user_key, _)) = scan.next(ctx.cache, ctx.host)? {
            user_keys.push(user_key);
        }
        let mut writes = Writes::new(self.table, ctx.host);
        user_keys.as_ref().iter().for_each(|user_key| writes.delete(&key, user_key));
        writes.send();
        // What isn't in the cache is now known to be absent.
        ctx.cache.mark_loaded(self.table, slot);
        Ok(())
    }

    fn change<Q, R>(
        &self,
        ctx: &mut Context<'_>,
        user_key: &Q,
        need: Need,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let slot = ctx.enter()?;
        let user_key = Self::encoded(ctx, user_key)?;
        ctx.note_entry(self.table, slot, &user_key)?;
        ctx.cache.mark_dirty(self.table, slot);
        self.make_known(ctx, slot, &user_key, need)?;
        let (column, heap_bytes) = ctx.cache.column::<MapColumn<V>>(self.table);
        let result = column.change(slot, &user_key, heap_bytes, change);
        ctx.cache.scratch = user_key;
        Ok(result)
    }

    /// A user key encoded in the cache's scratch, which is to be given back.
    fn encoded<Q>(ctx: &mut Context<'_>, user_key: &Q) -> Result<Vec<u8>, Error>
    where
        K: Borrow<Q>,
        Q: Serialize + ?Sized,
    {
        let mut encoded = std::mem::take(&mut ctx.cache.scratch);
        encoded.clear();
        encode_into(user_key, &mut encoded)?;
        Ok(encoded)
    }

    /// Makes an entry known, reading it if its value is needed.
    fn make_known(&self, ctx: &mut Context<'_>, slot: usize, user_key: &[u8], need: Need) -> Result<(), Error> {
        let all_known = ctx.cache.is_loaded(self.table, slot);
        let key = ctx.rows.key(ctx.row());
        let (column, heap_bytes) = ctx.cache.column::<MapColumn<V>>(self.table);
        if column.get(slot, user_key).is_none() {
            let value = match need {
                Need::Value if !all_known => Self::fetch(self.table, ctx.host, key, user_key)?,
                Need::Value | Need::Nothing => None,
            };
            column.insert(slot, user_key, value, heap_bytes);
        }
        Ok(())
    }

    #[cold]
    fn fetch(table: u32, host: &mut dyn host::Host, key: Option<&[u8]>, user_key: &[u8]) -> Result<Option<V>, Error> {
        let [mut keys, mut user_keys] = [host::Column::new(), host::Column::new()];
        keys.push(key.unwrap_or_default());
        user_keys.push(user_key);
        let entries = host.get_many(table, keys.as_ref(), user_keys.as_ref());
        let value = bit(&entries.found, 0).then(|| entries.values.as_ref().get(0));
        value.map(decode).transpose().map_err(|error| unreadable(table, error))
    }
}

/// What must be known of an entry before it is changed.
#[derive(Clone, Copy)]
enum Need {
    Value,
    Nothing,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Map<K, V> {
        *self
    }
}

impl<K, V> Copy for Map<K, V> {}

/// The entries of one key's map. Not an [`Iterator`]: it borrows the context only while it steps, so that the loop may
/// emit and use state.
pub struct MapEntries<K, V> {
    scan: Scan,
    table: u32,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Data, V: Data> MapEntries<K, V> {
    /// # Errors
    /// If the stored bytes aren't a `K` or `V`.
    pub fn next(&mut self, ctx: &mut Context<'_>) -> Result<Option<(K, V)>, Error> {
        let Some((user_key, value)) = self.scan.next(ctx.cache, ctx.host)? else { return Ok(None) };
        let unreadable = |error| unreadable(self.table, error);
        Ok(Some((decode(user_key).map_err(unreadable)?, decode(value).map_err(unreadable)?)))
    }
}
