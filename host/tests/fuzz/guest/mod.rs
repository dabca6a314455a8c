//! A guest that calls anything with anything and answers with anything: its host lives on, tells what it did, and takes nothing of a
//! call that failed.

mod calls;
mod case;
mod look;
mod puppet;
mod script;
mod store;

use std::path::Path;
use std::sync::OnceLock;

use lockgate_host::guest::{Compiler, Counters, Engine, InstanceContext, Limits, Plugin};
use lockgate_host::id::{Name, SubtaskId};
use lockgate_host::state::BlockCache;
use tempfile::TempDir;

use crate::harness::Target;
use crate::wat_guest::{EMIT_INPUT, Guest};

const GUEST: Target = Target {
    name: "guest",
    seeds: 2_000,
    bytes_max: 8 << 10,
    memory_bytes_max: 64 << 20,
    outcomes: &[
        "well",
        "bad-record",
        "deadline",
        "fatal",
        "migration",
        "misuse",
        "output",
        "panic",
        "stack",
        "state",
        "tables",
        "transient",
        "trap",
        "memory",
    ],
    case: case::case,
};

#[test]
fn a_guest_does_harm_to_nothing_but_itself_whatever_it_passes_and_answers() {
    GUEST.run();
}

/// What all cases share.
struct World {
    puppet: Plugin,
    /// An operator of the same engine that gives on what it gets.
    good: Plugin,
    block_cache: BlockCache,
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
}

impl World {
    fn get() -> &'static World {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = Engine::new(None, Compiler::InProcess).expect("an engine");
            let load = |file: &str, component: &[u8]| {
                let path = folder.path().join(file);
                std::fs::write(&path, component).expect("written");
                engine.load(&name("op"), &path).expect("it loads")
            };
            let good = Guest { process: EMIT_INPUT.to_owned(), ..Guest::default() };
            World {
                puppet: load("puppet.wasm", &puppet::component()),
                good: load("good.wasm", &good.component()),
                block_cache: BlockCache::new(1 << 20),
                runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
                folder,
            }
        })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a usable name")
}

fn subtask() -> SubtaskId {
    SubtaskId { operator: name("op"), index: 1 }
}

/// Of the second subtask of two.
fn context(config_json: String, limits: Limits, rejections: bool) -> InstanceContext {
    InstanceContext {
        job: name("job"),
        subtask: subtask(),
        parallelism: 2,
        config_json,
        limits,
        rejections,
        state: None,
        counters: Counters::default(),
    }
}
