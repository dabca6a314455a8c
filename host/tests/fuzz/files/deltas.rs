//! Snapshots of keyed state whose files have the checksum that the manifest says, and yet aren't what a host wrote.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lockgate_host::element::Column;
use lockgate_host::id::{Attempt, Epoch, SubtaskId};
use lockgate_host::protocol::{KeyGroupRange, MaxParallelism};
use lockgate_host::state::{
    BlockCache, Clock, KeyedState, StateError, StateOptions, TIMERS_TABLE, TransferError, Uploader,
};
use lockgate_host::store::{FileRef, KeyedSnapshot, TableRef};
use xxhash_rust::xxh3::xxh3_64;

use crate::chance::Chance;
use crate::damage::damaged;
use crate::files::name;
use crate::harness::Target;
use crate::text;

const DELTAS: Target = Target {
    name: "deltas",
    seeds: 1_000,
    bytes_max: 256,
    memory_bytes_max: 32 << 20,
    outcomes: &["read", "refused"],
    case,
};

#[test]
fn any_file_of_a_snapshot_is_read_or_refused() {
    DELTAS.run();
}

const CHECKSUM_BYTES: usize = 8;

fn table(name: &str) -> TableRef {
    TableRef { name: name.to_owned(), version: 1 }
}

fn all() -> (MaxParallelism, KeyGroupRange) {
    let max_parallelism = MaxParallelism::new(16).expect("in range");
    (max_parallelism, max_parallelism.range(0, 1))
}

fn open(folder: &Path, restored: &[KeyedSnapshot], file: &[u8]) -> Result<KeyedState, StateError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (max_parallelism, key_groups) = all();
    let options = StateOptions {
        work_dir: folder.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string()),
        subtask: SubtaskId { operator: name("count"), index: 0 },
        key_groups,
        max_parallelism,
        attempt: Attempt(1),
        tables: vec![table("a"), table(TIMERS_TABLE)],
        memory_bytes_max: 1 << 20,
        block_cache: BlockCache::new(1 << 16),
    };
    KeyedState::open(options, restored, &|_, to| Ok(std::fs::write(to, file)?))
}

/// Keeps the one file that it is given.
#[derive(Default)]
struct OneFile(std::sync::Mutex<Vec<u8>>);

impl Uploader for OneFile {
    async fn put_bytes(&self, name: &str, content: Bytes) -> Result<FileRef, TransferError> {
        *self.0.lock().expect("no panic") = content.to_vec();
        Ok(FileRef { path: name.to_owned(), size_bytes: content.len() as u64, xxh3: String::new() })
    }

    async fn put_file(&self, _: &str, path: &Path) -> Result<FileRef, TransferError> {
        Err(format!("{} is to be brought to the store", path.display()).into())
    }
}

/// A snapshot of a few entries and timers, and its delta.
fn good() -> &'static (KeyedSnapshot, Vec<u8>) {
    static GOOD: OnceLock<(KeyedSnapshot, Vec<u8>)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut state = open(folder.path(), &[], &[]).expect("empty state");
        let column = |rows: &[&[u8]]| {
            let mut column = Column::with_capacity(0, 0);
            rows.iter().for_each(|row| column.push(row));
            column
        };
        let keys = column(&[b"one", b"two", b"three"]);
        state.write_many(0, &keys, &Column::default(), &keys, &[4]).expect("good entries");
        let times = [5i64, -1, i64::MAX].map(i64::to_le_bytes).concat();
        state.write_timers(Clock::EventTime, &keys, &keys, &times, &[]).expect("good timers");
        state.write_watermark(4).expect("a good watermark");
        state.accept().expect("a working disk");
        let (uploaded, pending) = (OneFile::default(), state.freeze(Epoch(3)).expect("a snapshot"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let snapshot = runtime.block_on(pending.upload(&uploaded)).expect("uploaded");
        assert_eq!((snapshot.deltas.len(), snapshot.base.len()), (1, 0));
        (snapshot, uploaded.0.into_inner().expect("no panic"))
    })
}

/// The same with the right checksum again.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len().saturating_sub(CHECKSUM_BYTES);
    let checksum = xxh3_64(&bytes[..body]).to_le_bytes();
    bytes.truncate(body);
    bytes.extend_from_slice(&checksum);
    bytes
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder").keep());
    let (snapshot, good) = good();
    let bytes = match chance.below(8) {
        0 => good.clone(),
        1 => damaged(chance, good, &[]),
        // The length of the entries is in the header.
        2 | 3 => {
            let mut bytes = damaged(chance, good, &[]);
            let entries = (bytes.len() as u64).saturating_sub(48).to_le_bytes();
            bytes.get_mut(32..40).into_iter().for_each(|length| length.copy_from_slice(&entries));
            with_checksum(bytes)
        }
        _ => with_checksum(damaged(chance, good, &[])),
    };
    chance.tell(|| format!("{bytes:02x?}"));
    let opened = open(folder, std::slice::from_ref(snapshot), &bytes);
    let outcome = match opened {
        Ok(mut state) => use_it(&mut state).map(|()| "read"),
        Err(error) if error.is_guest_fault() => Err(format!("no operator is to blame for {error}")),
        Err(error) => text::check(&error.to_string()).map(|()| "refused"),
    };
    std::fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    outcome
}

fn use_it(state: &mut KeyedState) -> Result<(), String> {
    let said = |error: StateError| error.to_string();
    for key in [&b"one"[..], b"two", b"three", b""] {
        state.scan(0, key, None, u32::MAX).map_err(said)?;
    }
    for clock in [Clock::EventTime, Clock::ProcessingTime] {
        let next = state.next_timer(clock);
        let taken = state.take_timers(clock, i64::MAX, 100).map_err(said)?;
        taken.check().map_err(|malformed| malformed.to_string())?;
        state.accept().map_err(said)?;
        if next.is_some() == taken.is_empty() || state.next_timer(clock).is_some() {
            return Err(format!("the next timer is at {next:?}, and {} were taken", taken.rows));
        }
    }
    drop(state.freeze(Epoch(4)).map_err(said)?);
    Ok(())
}
