//! Keyed state as its callers see it, over a real RocksDB and a folder as checkpoint store.

mod hand_over;
mod hostile;
mod memory;
mod migration;
mod model;
mod snapshots;
mod timers;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use super::{BlockCache, KeyedState, PendingSnapshot, StateError, StateOptions, TransferError, Uploader};
use crate::element::Column;
use crate::id::{Attempt, Name, SubtaskId};
use crate::protocol::MaxParallelism;
use crate::store::{FileRef, KeyedSnapshot, TableRef};

const MIB: usize = 1 << 20;

/// A checkpoint store that remembers what was brought to it, and the work folders of all attempts.
struct World {
    dir: TempDir,
    runtime: tokio::runtime::Runtime,
    cache: BlockCache,
    works: Mutex<u64>,
}

/// The uploader of one subtask and attempt.
struct Upload<'a> {
    world: &'a World,
    owner: String,
    /// Names and sizes.
    puts: Mutex<Vec<(String, u64)>>,
    fails: bool,
}

impl World {
    fn new() -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let dir = tempfile::tempdir().expect("a folder");
        World { dir, runtime, cache: BlockCache::new(8 * MIB), works: Mutex::new(0) }
    }

    /// Each with its own name in the store.
    fn uploader(&self, owner: &str) -> Upload<'_> {
        Upload { world: self, owner: owner.to_owned(), puts: Mutex::default(), fails: false }
    }

    fn options(&self, index: u32, parallelism: u32, memory_bytes_max: usize) -> StateOptions {
        let mut works = self.works.lock().expect("one thread");
        *works += 1;
        let max_parallelism = MaxParallelism::new(16).expect("in range");
        StateOptions {
            work_dir: self.dir.path().join(format!("work-{works}")),
            subtask: SubtaskId { operator: Name::new("count").expect("a name"), index },
            key_groups: max_parallelism.range(index, parallelism),
            max_parallelism,
            attempt: Attempt(*works),
            tables: vec![table("a", 1), table("b", 1)],
            memory_bytes_max,
            block_cache: self.cache.clone(),
        }
    }

    fn open(&self, memory_bytes_max: usize, restored: &[KeyedSnapshot]) -> KeyedState {
        self.open_with(self.options(0, 1, memory_bytes_max), restored).expect("good snapshots")
    }

    fn open_with(&self, options: StateOptions, restored: &[KeyedSnapshot]) -> Result<KeyedState, StateError> {
        KeyedState::open(options, restored, &|file, to| self.fetch(file, to))
    }

    fn fetch(&self, file: &FileRef, to: &Path) -> Result<(), TransferError> {
        assert!(!to.exists(), "{} is there already", to.display());
        let content = std::fs::read(self.stored(&file.path))?;
        if content.len() as u64 != file.size_bytes || format!("{:016x}", xxh3_64(&content)) != file.xxh3 {
            return Err("its checksum doesn't match".into());
        }
        Ok(std::fs::write(to, content)?)
    }

    fn stored(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }
}

impl Upload<'_> {
    fn finish(&self, pending: PendingSnapshot) -> KeyedSnapshot {
        self.world.runtime.block_on(pending.upload(self)).expect("the folder takes everything")
    }

    fn try_finish(&self, pending: PendingSnapshot) -> Result<KeyedSnapshot, StateError> {
        self.world.runtime.block_on(pending.upload(self))
    }

    /// What was brought since the last time, by name.
    fn take_puts(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.puts.lock().expect("one thread"))
    }

    fn take_bytes(&self) -> u64 {
        self.take_puts().into_iter().map(|(_, bytes)| bytes).sum()
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<FileRef, TransferError> {
        if self.fails {
            return Err("the store is down".into());
        }
        let path = format!("{}-{name}", self.owner);
        assert!(!self.world.stored(&path).exists(), "{path} is brought twice");
        std::fs::write(self.world.stored(&path), content)?;
        self.puts.lock().expect("one thread").push((name.to_owned(), content.len() as u64));
        Ok(FileRef { path, size_bytes: content.len() as u64, xxh3: format!("{:016x}", xxh3_64(content)) })
    }
}

impl Uploader for Upload<'_> {
    async fn put_bytes(&self, name: &str, content: Bytes) -> Result<FileRef, TransferError> {
        self.put(name, &content)
    }

    async fn put_file(&self, name: &str, path: &Path) -> Result<FileRef, TransferError> {
        self.put(name, &std::fs::read(path)?)
    }
}

fn table(name: &str, version: u32) -> TableRef {
    TableRef { name: name.to_owned(), version }
}

fn column<R: AsRef<[u8]>>(rows: impl IntoIterator<Item = R>) -> Column {
    let mut column = Column::with_capacity(0, 0);
    rows.into_iter().for_each(|row| column.push(row.as_ref()));
    column
}

/// Writes values with empty user keys, accepted.
fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(state: &mut KeyedState, entries: impl IntoIterator<Item = (K, V)>) {
    let (keys, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
    state.write_many(0, &column(keys), &Column::default(), &column(values), &[]).expect("good entries");
    state.accept().expect("a working disk");
}

/// Reads one value with an empty user key.
fn read(state: &KeyedState, key: &[u8]) -> Option<Vec<u8>> {
    let (values, found) = state.get_many(0, &column([key]), &Column::default()).expect("a good key");
    (found == [1]).then(|| values.get(0).to_vec())
}

/// Bytes that no compression makes smaller, the same for the same number.
fn noise(number: u64, length: usize) -> Vec<u8> {
    (0..length.div_ceil(8) as u64)
        .flat_map(|i| xxh3_64(&[number, i].map(u64::to_le_bytes).concat()).to_le_bytes())
        .take(length)
        .collect()
}

#[test]
fn state_goes_to_its_task_and_snapshots_to_the_runtime() {
    fn is_send<T: Send>(_: Option<T>) {}
    is_send(None::<KeyedState>);
    is_send(None::<PendingSnapshot>);
    fn upload(
        pending: PendingSnapshot,
        uploader: &Upload<'_>,
    ) -> impl Future<Output = Result<KeyedSnapshot, StateError>> + Send {
        pending.upload(uploader)
    }
    is_send(Some(upload));
}
