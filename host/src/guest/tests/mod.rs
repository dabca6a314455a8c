//! Whole components against the host: it loads what is good, refuses what isn't, and survives what is hostile.

mod guest;
mod hostile;
mod limits;
mod loading;
mod streaming;
mod timers;

use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use self::guest::Guest;
use super::{Counters, Engine, GuestError, Instance, InstanceContext, Limits, OperatorError, Plugin, Problem};
use crate::element::{Batch, Row};
use crate::id::{Name, SubtaskId};

/// One engine for all tests, without a cache.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(None).expect("an engine"))
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

fn context(limits: Limits) -> InstanceContext {
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
