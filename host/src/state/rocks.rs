//! RocksDB as this room uses it: written only by ingesting sorted files, read by key and by range, captured by hard links.
//!
//! Invariant: nothing is ever put into a memtable, so the content is exactly the sum of the ingested files, and a capture needs
//! no flush and no log. Its directory is never opened again by a later attempt; durability is the checkpoint store's business.

use std::path::{Path, PathBuf};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, InfoLogger, IngestExternalFileOptions, LogLevel,
    Options, ReadOptions, SstFileWriter, properties,
};

use super::entry::Entry;
use super::error::StateError;
use crate::id::SubtaskId;

/// Keys of one batched read: RocksDB's own batch size, which also bounds the values that are pinned at once.
pub const READ_BATCH_KEYS: usize = 32;
/// Files at level 0 above which ingesting waits for compaction: each of them costs every cold read a look.
const LEVEL0_FILES_MAX: u64 = 20;
/// An ingested file is cut at this size.
const SST_BYTES_MAX: u64 = 64 << 20;
const DEFAULT_COLUMN_FAMILY: &str = "default";

/// Blocks of RocksDB files in memory, shared by all subtasks of a process. Costs nothing until used.
#[derive(Clone)]
pub struct BlockCache(Cache);

impl BlockCache {
    pub fn new(bytes_max: usize) -> BlockCache {
        BlockCache(Cache::new_lru_cache(bytes_max))
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("usage_bytes", &self.0.get_usage()).finish()
    }
}

pub struct Rocks {
    db: DB,
    options: Options,
    subtask: SubtaskId,
    dir: PathBuf,
}

/// Names a failed action for [`StateError::Rocks`].
fn failed<'a>(
    subtask: &'a SubtaskId,
    action: &'static str,
    path: &'a Path,
) -> impl Fn(rocksdb::Error) -> StateError + 'a {
    move |source| StateError::Rocks { subtask: subtask.clone(), action, path: path.to_owned(), source }
}

impl Rocks {
    /// Opens the database in `dir`, and makes an empty one if there is none.
    ///
    /// # Errors
    /// If RocksDB can't.
    pub fn open(subtask: &SubtaskId, dir: &Path, cache: &BlockCache) -> Result<Rocks, StateError> {
        let options = options(cache);
        let families = [(DEFAULT_COLUMN_FAMILY, options.clone())];
        let db = DB::open_cf_with_opts(&options, dir, families).map_err(failed(subtask, "open its database", dir))?;
        Ok(Rocks { db, options, subtask: subtask.clone(), dir: dir.to_owned() })
    }

    /// Opens the database in `dir` without changing anything there.
    ///
    /// # Errors
    /// If there is none, or RocksDB can't.
    pub fn open_read_only(subtask: &SubtaskId, dir: &Path, cache: &BlockCache) -> Result<Rocks, StateError> {
        let options = options(cache);
        let families = [(DEFAULT_COLUMN_FAMILY, options.clone())];
        let db = DB::open_cf_with_opts_for_read_only(&options, dir, families, false).map_err(failed(
            subtask,
            "open its database",
            dir,
        ))?;
        Ok(Rocks { db, options, subtask: subtask.clone(), dir: dir.to_owned() })
    }

    fn failed(&self, action: &'static str) -> impl Fn(rocksdb::Error) -> StateError + '_ {
        failed(&self.subtask, action, &self.dir)
    }

    /// Reads up to [`READ_BATCH_KEYS`] stored keys, and gives each its value in order.
    ///
    /// # Errors
    /// If RocksDB can't read, or what `take` says.
    pub fn get_many<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut take: impl FnMut(usize, Option<&[u8]>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let family = self.db.cf_handle(DEFAULT_COLUMN_FAMILY).expect("every database has a default column family");
        for (index, value) in self.db.batched_multi_get_cf(family, keys, false).into_iter().enumerate() {
            take(index, value.map_err(self.failed("read"))?.as_deref())?;
        }
        Ok(())
    }

    /// Whether the key may be there; `false` is certain.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        self.db.key_may_exist(key)
    }

    /// Reads stored keys `from ..` below `below` in order.
    pub fn scan(&self, from: &[u8], below: &[u8]) -> Scan<'_> {
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(below);
        read.set_background_purge_on_iterator_cleanup(true);
        let mut rows = self.db.raw_iterator_opt(read);
        rows.seek(from);
        Scan { rows, rocks: self }
    }

    /// Writes entries, sorted by key and each key once, as one or more files and ingests them; nothing if there are none.
    /// They hide what was there before.
    ///
    /// # Errors
    /// If a file can't be written or ingested. Then nothing is.
    pub fn ingest<'e>(&self, entries: impl IntoIterator<Item = Entry<'e>>) -> Result<(), StateError> {
        let mut builder = self.builder();
        for entry in entries {
            builder.add(entry)?;
        }
        builder.ingest()
    }

    /// A way to ingest entries that come one by one.
    pub fn builder(&self) -> Builder<'_> {
        Builder { rocks: self, open: None, files: Vec::new() }
    }

    /// Whether so many files lie at level 0 that more should wait.
    pub fn is_behind(&self) -> bool {
        let name = properties::num_files_at_level(0);
        self.db.property_int_value(&name).ok().flatten().unwrap_or(0) > LEVEL0_FILES_MAX
    }

    /// Bytes of the files that are in use.
    pub fn bytes(&self) -> u64 {
        self.db.property_int_value(properties::LIVE_SST_FILES_SIZE).ok().flatten().unwrap_or(0)
    }

    /// Links a consistent image into a new folder.
    ///
    /// # Errors
    /// If RocksDB can't.
    pub fn capture(&self, to: &Path) -> Result<(), StateError> {
        let failed = failed(&self.subtask, "capture its files", to);
        Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(to)).map_err(failed)
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}

/// Files to be ingested. Dropped before that, they stay in the work folder, which goes with the attempt.
pub struct Builder<'a> {
    rocks: &'a Rocks,
    open: Option<SstFileWriter<'a>>,
    files: Vec<PathBuf>,
}

impl Builder<'_> {
    /// Adds an entry, whose key is greater than the last one's.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn add(&mut self, entry: Entry<'_>) -> Result<(), StateError> {
        let failed = self.rocks.failed("write a file to ingest");
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let path = self.rocks.dir.with_extension(format!("ingest-{}.sst", self.files.len()));
                let file = SstFileWriter::create(&self.rocks.options);
                file.open(&path).map_err(&failed)?;
                self.files.push(path);
                self.open.insert(file)
            }
        };
        match entry.value {
            Some(value) => file.put(entry.key, value),
            None => file.delete(entry.key),
        }
        .map_err(&failed)?;
        if file.file_size() >= SST_BYTES_MAX {
            file.finish().map_err(&failed)?;
            self.open = None;
        }
        Ok(())
    }

    /// Ingests all that was added at once.
    ///
    /// # Errors
    /// If a file can't be written or ingested. Then nothing is.
    pub fn ingest(mut self) -> Result<(), StateError> {
        if let Some(mut file) = self.open.take() {
            file.finish().map_err(self.rocks.failed("write a file to ingest"))?;
        }
        if self.files.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        options.set_snapshot_consistency(false);
        let files = std::mem::take(&mut self.files);
        self.rocks.db.ingest_external_file_opts(&options, files).map_err(self.rocks.failed("ingest a file"))
    }
}

/// Entries in order of their stored keys.
pub struct Scan<'a> {
    rows: DBRawIterator<'a>,
    rocks: &'a Rocks,
}

impl Scan<'_> {
    /// Where the scan stands; `None` at the end. Never a tombstone.
    ///
    /// # Errors
    /// If RocksDB couldn't read on.
    pub fn current(&self) -> Result<Option<Entry<'_>>, StateError> {
        match self.rows.item() {
            Some((key, value)) => Ok(Some(Entry { key, value: Some(value) })),
            None => self.rows.status().map(|()| None).map_err(self.rocks.failed("read")),
        }
    }

    pub fn advance(&mut self) {
        if self.rows.valid() {
            self.rows.next();
        }
    }
}

fn options(cache: &BlockCache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache.0);
    table.set_block_size(8 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_target_file_size_base(32 << 20);
    options.set_max_background_jobs(2);
    // Memtables stay empty: let them be as small as they can be.
    options.set_write_buffer_size(64 << 10);
    options.set_max_open_files(256);
    options.set_table_cache_num_shard_bits(2);
    options.set_max_file_opening_threads(1);
    options.set_skip_stats_update_on_db_open(true);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // No log file on disk. What matters to a user is in the errors; warnings are about how RocksDB works inside.
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Warn, |level, message| match level {
        LogLevel::Error | LogLevel::Fatal => {
            tracing::error!(target: "lockgate::state", message, "RocksDB reported an error")
        }
        LogLevel::Warn => tracing::debug!(target: "lockgate::state", message, "RocksDB reported a warning"),
        LogLevel::Debug | LogLevel::Info | LogLevel::Header => {}
    }));
    options
}
