//! What an operator asks of its host: the imports of `wit/operator.wit` as a trait, and its records as plain structs.
//!
//! In a component the imports themselves stand behind this trait; in tests and in native benchmarks anything may.
//! Nothing here is called per record.

/// Byte strings one after the other: `column` of the contract, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    pub data: Vec<u8>,
    /// Little-endian u32, one more than there are rows; row `i` is `data[offsets[i] .. offsets[i + 1]]`.
    pub offsets: Vec<u8>,
}

/// [`Column`], borrowed. No offsets at all mean that every row is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnRef<'a> {
    pub data: &'a [u8],
    pub offsets: &'a [u8],
}

/// Records in columns: `batch` of the contract, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRef<'a> {
    pub rows: u32,
    pub keys: ColumnRef<'a>,
    pub values: ColumnRef<'a>,
    /// Little-endian i64, milliseconds since the Unix epoch; the smallest i64 means that there is none.
    pub timestamps: &'a [u8],
    /// Empty, or two bitmaps: missing keys, missing values.
    pub nulls: &'a [u8],
    /// Empty if no record has headers; else the offsets and the data of a column of them.
    pub ext: &'a [u8],
}

/// Entries of a table: `entries` of the contract's `migration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableEntries {
    pub keys: Column,
    pub user_keys: Column,
    pub values: Column,
}

/// [`TableEntries`], borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableEntriesRef<'a> {
    pub keys: ColumnRef<'a>,
    pub user_keys: ColumnRef<'a>,
    pub values: ColumnRef<'a>,
}

impl TableEntries {
    pub fn as_ref(&self) -> TableEntriesRef<'_> {
        TableEntriesRef { keys: self.keys.as_ref(), user_keys: self.user_keys.as_ref(), values: self.values.as_ref() }
    }
}

/// What [`Host::get_many`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    pub values: Column,
    /// A bitmap with 1 for the entries that exist.
    pub found: Vec<u8>,
}

/// What [`Host::scan`] found, in the order of the user keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub user_keys: Column,
    pub values: Column,
    /// Whether there are more after the last of these.
    pub more: bool,
}

/// What a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// The watermark.
    EventTime,
    /// The time of day of the machine.
    ProcessingTime,
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The imports of an operator.
///
/// An implementor gives back well-formed columns; it may panic if it is given a table, output or key that isn't the
/// operator's.
pub trait Host {
    fn emit(&mut self, port: u32, rows: BatchRef<'_>);
    /// `user_keys` may have no offsets.
    fn get_many(&mut self, table: u32, keys: ColumnRef<'_>, user_keys: ColumnRef<'_>) -> Entries;
    /// `deletes` is empty or a bitmap with 1 where the entry is removed.
    fn write_many(
        &mut self,
        table: u32,
        keys: ColumnRef<'_>,
        user_keys: ColumnRef<'_>,
        values: ColumnRef<'_>,
        deletes: &[u8],
    );
    /// Gives at least one entry if there is one, and about `max_bytes` of them at most.
    fn scan(&mut self, table: u32, key: &[u8], after: Option<&[u8]>, max_bytes: u32) -> Page;
    /// `times` are little-endian i64; `deletes` is as for `write_many`.
    fn write_timers(&mut self, clock: Clock, keys: ColumnRef<'_>, tags: ColumnRef<'_>, times: &[u8], deletes: &[u8]);
    /// The time of day, frozen for the call.
    fn now_ms(&mut self) -> i64;
    /// The watermark; the smallest i64 before the first.
    fn watermark_ms(&mut self) -> i64;
    fn log(&mut self, level: Level, message: &str);
    fn counter_add(&mut self, name: &str, delta: u64);
}

impl Column {
    /// A column of no rows.
    pub fn new() -> Column {
        Column { data: Vec::new(), offsets: vec![0; 4] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the column would pass 4 GiB.
    pub fn push(&mut self, row: &[u8]) {
        self.data.extend_from_slice(row);
        self.end_row();
    }

    /// Makes a row of what was added to `data` since the last one.
    pub(crate) fn end_row(&mut self) {
        if self.offsets.is_empty() {
            self.offsets.extend_from_slice(&[0; 4]);
        }
        let end = u32::try_from(self.data.len()).expect("a column under 4 GiB");
        self.offsets.extend_from_slice(&end.to_le_bytes());
    }

    pub fn as_ref(&self) -> ColumnRef<'_> {
        ColumnRef { data: &self.data, offsets: &self.offsets }
    }

    /// Drops the rows behind the first `rows`.
    pub(crate) fn cut(&mut self, rows: usize) {
        if rows < self.as_ref().rows() {
            self.offsets.truncate((rows + 1) * 4);
            let end = u32::from_le_bytes(*self.offsets.last_chunk().expect("an offset"));
            self.data.truncate(end as usize);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.offsets.clear();
        self.offsets.extend_from_slice(&[0; 4]);
    }
}

impl<'a> ColumnRef<'a> {
    /// How many rows the offsets tell of.
    pub fn rows(self) -> usize {
        (self.offsets.len() / 4).saturating_sub(1)
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If the column is malformed or has no such row.
    pub fn get(self, index: usize) -> &'a [u8] {
        if self.offsets.is_empty() {
            return &[];
        }
        let (ends, _) = self.offsets.as_chunks::<4>();
        let [start, end] = [ends[index], ends[index + 1]].map(|end| u32::from_le_bytes(end) as usize);
        &self.data[start..end]
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.rows()).map(move |index| self.get(index))
    }
}

/// Whether bit `index` of a bitmap is set.
pub(crate) fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap[index / 8] >> (index % 8) & 1 == 1
}
