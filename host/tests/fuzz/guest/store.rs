//! Keyed state of a case, and a checkpoint store in memory to bring it to and back from.
//!
//! Invariant: the folder of a case's state is gone when the case is over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lockgate_host::element::Column;
use lockgate_host::id::{Attempt, Epoch};
use lockgate_host::protocol::MaxParallelism;
use lockgate_host::state::{
    Clock, KeyedState, PendingSnapshot, StateError, StateOptions, TIMERS_TABLE, TransferError, Uploader,
};
use lockgate_host::store::{FileRef, KeyedSnapshot, TableRef};
use xxhash_rust::xxh3::xxh3_64;

use crate::guest::puppet::TABLES;
use crate::guest::script::{KEYS, USER_KEYS};
use crate::guest::{World, subtask};

pub fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(16).expect("in range")
}

/// Those of [`KEYS`] that belong to the subtask.
pub fn own_keys() -> Vec<&'static str> {
    let owner = |key: &str| max_parallelism().subtask(max_parallelism().key_group(key.as_bytes()), 2);
    KEYS.into_iter().filter(|key| owner(key) == subtask().index).collect()
}

pub fn column(rows: &[&[u8]]) -> Column {
    let mut column = Column::with_capacity(0, 0);
    rows.iter().for_each(|row| column.push(row));
    column
}

/// Where a case keeps its state and its files.
pub struct Store {
    folder: PathBuf,
    files: Mutex<BTreeMap<String, Bytes>>,
    opened: AtomicU64,
}

impl Store {
    pub fn new(world: &World) -> Store {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let folder = world.folder().join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        Store { folder, files: Mutex::default(), opened: AtomicU64::new(0) }
    }

    /// Opens state with the tables in this version.
    pub fn open(
        &self,
        world: &World,
        version: u32,
        memory_bytes_max: usize,
        restored: &[KeyedSnapshot],
    ) -> Result<KeyedState, StateError> {
        let table = |name: &str, version| TableRef { name: name.to_owned(), version };
        let mut tables = TABLES.map(|(name, ..)| table(name, version)).to_vec();
        tables.push(table(TIMERS_TABLE, 1));
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let options = StateOptions {
            work_dir: self.folder.join(number.to_string()),
            subtask: subtask(),
            key_groups: max_parallelism().range(subtask().index, 2),
            max_parallelism: max_parallelism(),
            attempt: Attempt(number + 1),
            tables,
            memory_bytes_max,
            block_cache: world.block_cache.clone(),
        };
        KeyedState::open(options, restored, &|file, to| self.fetch(file, to))
    }

    /// Puts something into every table, and sets a few timers.
    pub fn fill(&self, state: &mut KeyedState) -> Result<(), StateError> {
        let own = own_keys();
        let keys = own.iter().map(|key| key.as_bytes()).collect::<Vec<_>>();
        let none = Column::default();
        for table in 0..TABLES.len() as u32 {
            state.write_many(table, &column(&keys), &none, &column(&keys), &[])?;
            let user_keys = vec![USER_KEYS[1].as_bytes(); keys.len()];
            state.write_many(table, &column(&keys), &column(&user_keys), &column(&keys), &[])?;
        }
        for clock in [Clock::EventTime, Clock::ProcessingTime] {
            let times = (0..keys.len() as i64).flat_map(|n| (n * 20).to_le_bytes()).collect::<Vec<_>>();
            state.write_timers(clock, &column(&keys), &column(&vec![&b"tag"[..]; keys.len()]), &times, &[])?;
        }
        state.accept()
    }

    pub fn upload(&self, world: &World, pending: PendingSnapshot) -> Result<KeyedSnapshot, StateError> {
        world.runtime.block_on(pending.upload(self))
    }

    /// A snapshot of state, and what it is read back as.
    pub fn through_a_snapshot(&self, world: &World, state: &mut KeyedState) -> Result<KeyedState, StateError> {
        let snapshot = self.upload(world, state.freeze(Epoch(1))?)?;
        self.open(world, TABLES[0].2, 64 << 20, &[snapshot])
    }

    fn put(&self, name: &str, content: Bytes) -> FileRef {
        let file = file_ref(name, &content);
        self.files.lock().expect("no panic").insert(name.to_owned(), content);
        file
    }

    fn fetch(&self, file: &FileRef, to: &Path) -> Result<(), TransferError> {
        let content = self.files.lock().expect("no panic").get(&file.path).cloned().ok_or("no such file")?;
        Ok(std::fs::write(to, content)?)
    }
}

pub fn file_ref(name: &str, content: &[u8]) -> FileRef {
    FileRef { path: name.to_owned(), size_bytes: content.len() as u64, xxh3: format!("{:016x}", xxh3_64(content)) }
}

impl Uploader for Store {
    async fn put_bytes(&self, name: &str, content: Bytes) -> Result<FileRef, TransferError> {
        Ok(self.put(name, content))
    }

    async fn put_file(&self, name: &str, path: &Path) -> Result<FileRef, TransferError> {
        Ok(self.put(name, std::fs::read(path)?.into()))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The folder around it goes with the process.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
