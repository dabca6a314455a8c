//! A table that every subtask holds in full, from a broadcast input.
//!
//! Invariant: what `snapshot` gives is the whole table in the order of its keys, so equal tables give equal bytes.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoding::{decode, encode};
use crate::error::Error;

/// A table in the operator's memory that a broadcast input fills, to look up what other records are to be enriched
/// with.
///
/// A broadcast input gives every record to every subtask. So each one has the whole table, whatever the keys of its
/// other input; and after a change of parallelism each takes up one snapshot of it. The table must fit into the
/// operator's memory.
///
/// ```
/// use lockgate::blocks::BroadcastTable;
/// use lockgate::prelude::*;
///
/// /// Puts the name of the country into the place of its code.
/// struct Countries {
///     codes: Input,
///     names: BroadcastTable<String, String>,
/// }
///
/// impl Operator for Countries {
///     fn new(declare: &mut Declaration) -> Countries {
///         declare.input("visits");
///         Countries { codes: declare.broadcast_input("codes"), names: BroadcastTable::new() }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         if ctx.input() == self.codes {
///             self.names.insert(record.key_str()?.to_owned(), record.value_str()?.to_owned());
///         } else {
///             let name = self.names.get(record.value_str()?).map_or("unknown", String::as_str);
///             ctx.emit(record.key(), name);
///         }
///         Ok(())
///     }
///
///     fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
///         self.names.snapshot()
///     }
///
///     fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
///         self.names.restore(states)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Countries>::open()?;
/// harness.process_from("codes", [("fr", "France")])?;
/// harness.process_from("visits", [("ann", "fr"), ("bob", "xx")])?;
/// assert_eq!(harness.take_output(), [("ann", "France"), ("bob", "unknown")]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastTable<K, V> {
    rows: BTreeMap<K, V>,
}

impl<K, V> Default for BroadcastTable<K, V> {
    fn default() -> BroadcastTable<K, V> {
        BroadcastTable::new()
    }
}

impl<K, V> BroadcastTable<K, V> {
    /// An empty table.
    pub const fn new() -> BroadcastTable<K, V> {
        BroadcastTable { rows: BTreeMap::new() }
    }
}

impl<K: Ord, V> BroadcastTable<K, V> {
    /// Sets a row; gives what it was.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.rows.insert(key, value)
    }

    /// Removes a row; gives what it was.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.rows.remove(key)
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.rows.get(key)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter()
    }
}

impl<K, V> BroadcastTable<K, V>
where
    K: Ord + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// The table as bytes, for the operator's [`snapshot`](crate::Operator::snapshot).
    ///
    /// # Errors
    /// If a row can't be encoded.
    pub fn snapshot(&self) -> Result<Vec<u8>, Error> {
        encode(&self.rows)
    }

    /// Takes up what [`snapshot`](Self::snapshot) gave, in the operator's [`restore`](crate::Operator::restore).
    ///
    /// # Errors
    /// If the bytes aren't such a table.
    pub fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        for state in states {
            self.rows.extend(decode::<BTreeMap<K, V>>(state)?);
        }
        Ok(())
    }
}
