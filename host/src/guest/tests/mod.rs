//! Whole components against the host: it loads what is good, refuses what isn't, and survives what is hostile.

pub mod guest;
mod hostile;
mod limits;
mod loading;
mod migration;
mod streaming;
mod timers;
pub mod trials;
pub mod wasi;

use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use self::guest::Guest;
use super::{
    Compiler, Counters, Engine, GuestError, Instance, InstanceContext, Limits, OperatorError, Plugin, Problem,
};
use crate::element::{Batch, Row};
use crate::id::{Attempt, Name, SubtaskId};
use crate::protocol::MaxParallelism;
use crate::state::{BlockCache, KeyedState, StateOptions};
use crate::store::TableRef;

/// One engine for all tests, without a cache.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(None, Compiler::InProcess).expect("an engine"))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a usable name")
}

/// A file with these bytes, in a folder that goes away with the first value.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("op.wasm");
    std::fs::write(&path, bytes).expect("written");
    (folder, path)
}

fn load_bytes(bytes: &[u8]) -> Result<Plugin, GuestError> {
    let (_folder, path) = file(bytes);
    engine().load(&name("op"), &path)
}

/// Loads what must not load.
fn refusal(bytes: &[u8]) -> Problem {
    match load_bytes(bytes).map(|_| ()).expect_err("refused") {
        GuestError::Plugin { problem, .. } => *problem,
        GuestError::Engine { problem } => panic!("the engine fails: {problem}"),
    }
}

pub fn context(limits: Limits) -> InstanceContext {
    InstanceContext {
        job: name("job"),
        subtask: SubtaskId { operator: name("op"), index: 1 },
        parallelism: 2,
        config_json: "{}".to_owned(),
        limits,
        rejections: false,
        state: None,
        counters: Counters::default(),
    }
}

/// Empty state with all key groups, and tables in version 1.
fn whole_state(tables: &[&str], memory_bytes_max: usize) -> (TempDir, KeyedState) {
    let folder = tempfile::tempdir().expect("a folder");
    let max_parallelism = MaxParallelism::new(16).expect("in range");
    let options = StateOptions {
        work_dir: folder.path().join("work"),
        subtask: SubtaskId { operator: name("op"), index: 0 },
        key_groups: max_parallelism.range(0, 1),
        max_parallelism,
        attempt: Attempt(1),
        tables: tables.iter().map(|table| TableRef { name: (*table).to_owned(), version: 1 }).collect(),
        memory_bytes_max,
        block_cache: BlockCache::new(1 << 20),
    };
    (folder, KeyedState::open(options, &[], &|_, _| Ok(())).expect("empty state"))
}

fn open_with(guest: &Guest, limits: Limits) -> Result<Instance, OperatorError> {
    load_bytes(&guest.component()).expect("it loads").instantiate(context(limits))
}

fn open(guest: &Guest) -> Instance {
    open_with(guest, Limits::default()).expect("it opens")
}

fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::with_capacity(values.len(), 0);
    for (index, value) in values.iter().enumerate() {
        let key = (index % 2 == 0).then_some(&b"key"[..]);
        batch.push(Row { key, value: Some(value.as_bytes()), timestamp: index as i64 });
    }
    batch
}
