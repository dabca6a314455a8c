//! Reading all entries of one key, a page at a time.

use super::cache::Cache;
use crate::error::Error;
use crate::host::{Host, Page};

/// About how much a page carries.
const PAGE_BYTES: u32 = 64 << 10;

/// A user key and its value.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// Where a scan of one key's entries stands. Holds nothing of the cache, so that anything can be done between two entries.
pub(super) struct Scan {
    table: u32,
    key: Vec<u8>,
    page: Page,
    row: usize,
    /// The user key after which the next page starts; none at the start.
    after: Option<Vec<u8>>,
    more: bool,
}

impl Scan {
    /// Scans the entries whose user key is greater than `after`, or all.
    pub(super) fn new(table: u32, key: Vec<u8>, after: Option<Vec<u8>>) -> Scan {
        Scan { table, key, page: Page::default(), row: 0, after, more: true }
    }

    /// The next entry: its user key and value. What is dirty is written before a page is read.
    pub(super) fn next(&mut self, cache: &mut Cache, host: &mut dyn Host) -> Result<Option<Entry<'_>>, Error> {
        while self.row == self.page.values.as_ref().rows() {
            if !self.more {
                return Ok(None);
            }
            if let Some(slot) = cache.directory.find(&self.key) {
                cache.resolve(self.table, &self.key, host);
                cache.write_slots(self.table, &[slot], host)?;
            }
            self.page = host.scan(self.table, &self.key, self.after.as_deref(), PAGE_BYTES);
            self.row = 0;
            let rows = self.page.user_keys.as_ref().rows();
            self.more = self.page.more && rows > 0;
            if rows > 0 {
                self.after = Some(self.page.user_keys.as_ref().get(rows - 1).to_vec());
            }
        }
        let row = self.row;
        self.row += 1;
        Ok(Some((self.page.user_keys.as_ref().get(row), self.page.values.as_ref().get(row))))
    }
}
