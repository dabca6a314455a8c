//! Changed entries on their way to the host, as columns.

use serde::Serialize;

use crate::encoding::encode_into;
use crate::error::Error;
use crate::host::{Column, Host};

/// A call carries about this much at most.
const WRITE_BYTES_MAX: usize = 8 << 20;

/// Entries of one table that have changed. Those that make a call full are sent at once, the rest with
/// [`send`](Self::send).
pub(crate) struct Writes<'h> {
    host: &'h mut dyn Host,
    table: u32,
    rows: usize,
    keys: Column,
    user_keys: Column,
    values: Column,
    /// A bitmap that ends with the last deleted row; empty if there is none.
    deletes: Vec<u8>,
}

impl<'h> Writes<'h> {
    pub(super) fn new(table: u32, host: &'h mut dyn Host) -> Writes<'h> {
        let [keys, user_keys, values] = [Column::new(), Column::new(), Column::new()];
        Writes { host, table, rows: 0, keys, user_keys, values, deletes: Vec::new() }
    }

    /// Adds an entry; says how many bytes its value has.
    ///
    /// # Errors
    /// If the value can't be encoded.
    pub(super) fn put<V: Serialize>(&mut self, key: &[u8], user_key: &[u8], value: &V) -> Result<usize, Error> {
        let before = self.values.data.len();
        encode_into(value, &mut self.values.data)?;
        let bytes = self.values.data.len() - before;
        self.end_row(key, user_key);
        Ok(bytes)
    }

    /// Adds an entry with the bytes of its value.
    pub(super) fn put_encoded(&mut self, key: &[u8], user_key: &[u8], value: &[u8]) {
        self.values.data.extend_from_slice(value);
        self.end_row(key, user_key);
    }

    /// Adds the removal of an entry.
    pub(super) fn delete(&mut self, key: &[u8], user_key: &[u8]) {
        self.deletes.resize(self.rows / 8 + 1, 0);
        self.deletes[self.rows / 8] |= 1 << (self.rows % 8);
        self.end_row(key, user_key);
    }

    fn end_row(&mut self, key: &[u8], user_key: &[u8]) {
        self.keys.push(key);
        self.user_keys.push(user_key);
        self.values.end_row();
        self.rows += 1;
        let bytes = self.keys.data.len() + self.user_keys.data.len() + self.values.data.len();
        if bytes + self.rows * 12 >= WRITE_BYTES_MAX {
            self.send();
        }
    }

    /// Sends what there is.
    pub(super) fn send(&mut self) {
        if self.rows == 0 {
            return;
        }
        if !self.deletes.is_empty() {
            self.deletes.resize(self.rows.div_ceil(8), 0);
        }
        let [keys, user_keys, values] = [&self.keys, &self.user_keys, &self.values].map(Column::as_ref);
        self.host.write_many(self.table, keys, user_keys, values, &self.deletes);
        self.rows = 0;
        self.keys.clear();
        self.user_keys.clear();
        self.values.clear();
        self.deletes.clear();
    }
}
