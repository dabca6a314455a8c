//! What keyed state costs an entry: handed over at a barrier, frozen, uploaded, moved to disk, restored, read.
//!
//! `cargo bench --profile dev --workspace --bench state`. "Own CPU" is that of the calling thread, which is the stream's; "CPU" is that of
//! the whole process, the thread in the background included.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use lockgate_host::element::Column;
use lockgate_host::id::{Attempt, Epoch, Name, SubtaskId};
use lockgate_host::protocol::MaxParallelism;
use lockgate_host::state::{BlockCache, Clock, KeyedState, StateOptions, TIMERS_TABLE, TransferError, Uploader};
use lockgate_host::store::{FileRef, KeyedSnapshot, TableRef};
use rustix::time::ClockId;

const ENTRIES: u64 = 100_000;
const ROUNDS: u64 = 40;

/// Takes files into a folder, without syncing them: what the disk costs is another matter.
struct Folder<'a>(&'a Path);

impl Uploader for Folder<'_> {
    async fn put_bytes(&self, name: &str, content: Bytes) -> Result<FileRef, TransferError> {
        std::fs::write(self.0.join(name), &content)?;
        Ok(FileRef { path: name.to_owned(), size_bytes: content.len() as u64, xxh3: String::new() })
    }

    async fn put_file(&self, name: &str, path: &Path) -> Result<FileRef, TransferError> {
        let size_bytes = std::fs::copy(path, self.0.join(name))?;
        Ok(FileRef { path: name.to_owned(), size_bytes, xxh3: String::new() })
    }
}

fn options(work_dir: &Path, memory_bytes_max: usize) -> StateOptions {
    let max_parallelism = MaxParallelism::new(128).expect("in range");
    StateOptions {
        work_dir: work_dir.to_owned(),
        subtask: SubtaskId { operator: Name::new("bench").expect("a name"), index: 0 },
        key_groups: max_parallelism.range(0, 1),
        max_parallelism,
        attempt: Attempt(1),
        tables: vec![TableRef { name: "count".to_owned(), version: 1 }],
        memory_bytes_max,
        block_cache: BlockCache::new(64 << 20),
    }
}

/// Entries of 8-byte keys and values, in an order without meaning, as a guest hands them over.
fn entries(first: u64, count: u64) -> (Column, Column) {
    let (mut keys, mut values) = (Column::default(), Column::default());
    for n in first..first + count {
        keys.push(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        values.push(&n.to_le_bytes());
    }
    (keys, values)
}

fn cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

fn own_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn wall() -> Duration {
    clock(ClockId::Monotonic)
}

fn clock(id: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Times of one kind of work, of which the median is shown: the machine is shared.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn take<T>(&mut self, clock: fn() -> Duration, work: impl FnOnce() -> T) -> T {
        let start = clock();
        let result = work();
        self.0.push(clock() - start);
        result
    }

    fn show(&mut self, what: &str, entries: u64) {
        self.0.sort();
        let median = self.0[self.0.len() / 2].as_nanos() as f64 / entries as f64;
        let best = self.0[0].as_nanos() as f64 / entries as f64;
        println!("{what:44} {median:8.1} ns an entry, at best {best:.1}");
    }
}

/// The same keys in each epoch: a keyed count with a write-back cache in front.
fn barriers(dir: &Path) -> KeyedSnapshot {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut state =
        KeyedState::open(options(&dir.join("barriers"), 256 << 20), &[], &|_, _| Ok(())).expect("empty state");
    let (keys, values) = entries(0, ENTRIES);
    let (mut hand_over, mut upload) = (Times::default(), Times::default());
    let (mut freeze, mut last) = (Times::default(), None);
    let before = cpu();
    for epoch in 1..=ROUNDS {
        hand_over.take(own_cpu, || {
            state.write_many(0, &keys, &Column::default(), &values, &[]).expect("good entries");
            state.accept().expect("a working disk");
        });
        let pending = freeze.take(own_cpu, || state.freeze(Epoch(epoch)).expect("a working disk"));
        // Some of the thread in the background may be among it; the best of the rounds is without.
        last = Some(upload.take(cpu, || runtime.block_on(pending.upload(&Folder(dir))).expect("the folder takes it")));
    }
    hand_over.show("handed over and accepted (own CPU)", ENTRIES);
    freeze.show("frozen (own CPU)", ENTRIES);
    upload.show("uploaded (CPU)", ENTRIES);
    drop(state);
    let all = (cpu() - before).as_nanos() as f64 / (ENTRIES * ROUNDS) as f64;
    println!("{:44} {all:8.1} ns an entry", "all of it, with flushes and bases (CPU)");
    last.expect("some rounds")
}

fn restored(dir: &Path, snapshot: &KeyedSnapshot) {
    let mut open = Times::default();
    let fetch = |file: &FileRef, to: &Path| {
        std::fs::copy(dir.join(&file.path), to)?;
        Ok(())
    };
    for round in 0..3 {
        let options = options(&dir.join(format!("restored-{round}")), 256 << 20);
        let snapshot = std::slice::from_ref(snapshot);
        open.take(wall, || KeyedState::open(options, snapshot, &fetch).map(drop).expect("a good snapshot"));
    }
    let deltas = snapshot.deltas.len() as u64;
    println!("{:44} {:8.1} ms with {deltas} deltas", "restored (wall)", open.0[0].as_secs_f64() * 1e3);
}

/// More state than memory: everything goes through RocksDB.
fn larger_than_memory(dir: &Path) {
    let count = ENTRIES * 20;
    let mut state = KeyedState::open(options(&dir.join("large"), 16 << 20), &[], &|_, _| Ok(())).expect("empty state");
    let mut write = Times::default();
    let before = cpu();
    for first in (0..count).step_by(10_000) {
        let (keys, values) = entries(first, 10_000);
        write.take(own_cpu, || {
            state.write_many(0, &keys, &Column::default(), &values, &[]).expect("good entries");
            state.accept().expect("a working disk");
        });
    }
    write.show("written beyond memory (own CPU)", 10_000);
    let all = (cpu() - before).as_nanos() as f64 / count as f64;
    println!("{:44} {all:8.1} ns an entry", "written beyond memory (CPU, with compaction)");
    for what in ["read cold, in batches of 1,000 (own CPU)", "the same again (own CPU)"] {
        let mut read = Times::default();
        for round in 0..20 {
            let (keys, _) = entries(round * 77_777 % count, 1000);
            let (_, found) = read.take(own_cpu, || state.get_many(0, &keys, &Column::default()).expect("good keys"));
            assert!(found.iter().all(|byte| *byte == 255));
        }
        read.show(what, 1000);
    }
    println!("{:?}", state.metrics());
}

/// Timers that are all due at once, fewer and more than memory holds: what one of them costs should not depend on their number.
fn timers(dir: &Path, count: u64) {
    let mut options = options(&dir.join(format!("timers-{count}")), 128 << 20);
    options.tables = vec![TableRef { name: TIMERS_TABLE.to_owned(), version: 1 }];
    let mut state = KeyedState::open(options, &[], &|_, _| Ok(())).expect("empty state");
    let (before, began) = (cpu(), wall());
    for first in (0..count).step_by(1_000) {
        let (keys, _) = entries(first, 1_000);
        let (mut tags, mut times) = (Column::default(), Vec::new());
        for _ in 0..keys.rows() {
            tags.push(b"");
            times.extend_from_slice(&1_000i64.to_le_bytes());
        }
        state.write_timers(Clock::EventTime, &keys, &tags, &times, &[]).expect("good timers");
        state.accept().expect("a working disk");
    }
    let each = |time: Duration| time.as_nanos() as f64 / count as f64;
    let (set_cpu, set_wall) = (each(cpu() - before), each(wall() - began));
    println!("{:44} {set_cpu:8.1} ns CPU a timer, {set_wall:.1} ns wall", format!("{count} timers set"));
    let (before, began) = (cpu(), wall());
    let mut fired = 0;
    while state.next_timer(Clock::EventTime).is_some() {
        fired += u64::from(state.take_timers(Clock::EventTime, 1_000, 1_024).expect("a working disk").rows);
        state.accept().expect("a working disk");
    }
    assert_eq!(fired, count);
    let (fire_cpu, fire_wall) = (each(cpu() - before), each(wall() - began));
    println!("{:44} {fire_cpu:8.1} ns CPU a timer, {fire_wall:.1} ns wall", format!("{count} timers taken"));
}

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let snapshot = barriers(dir.path());
    restored(dir.path(), &snapshot);
    larger_than_memory(dir.path());
    for count in [250_000, 1_000_000, 2_000_000] {
        timers(dir.path(), count);
    }
}
