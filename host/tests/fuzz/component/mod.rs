//! Components of every kind: good ones that were damaged, and random ones. Each is refused with an error that says why, or loads, and
//! then it can be opened and called like any other.

mod cache;
mod damaged;
mod random;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockgate_host::element::{Batch, Row};
use lockgate_host::guest::{
    Compiler, Counters, Emitted, Engine, GuestError, InstanceContext, Limits, OperatorError, OperatorInstance, Plugin,
    Problem,
};
use lockgate_host::id::{Epoch, Name, SubtaskId};
use lockgate_host::protocol::MaxParallelism;
use lockgate_host::state::{BlockCache, KeyedState, StateOptions};
use tempfile::TempDir;

use crate::text;

/// Where components are put that are to be loaded.
struct Bench {
    engine: Engine,
    folder: TempDir,
}

impl Bench {
    fn get() -> &'static Bench {
        static BENCH: OnceLock<Bench> = OnceLock::new();
        BENCH.get_or_init(|| Bench {
            engine: Engine::new(None, Compiler::InProcess).expect("an engine"),
            folder: tempfile::tempdir().expect("a folder"),
        })
    }

    /// Loads bytes. What they can be refused for is no failure; an error that helps nobody is.
    fn load(&self, bytes: &[u8]) -> Result<Result<Plugin, &'static str>, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.folder.path().join(format!("{}.wasm", NUMBER.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, bytes).expect("written");
        let loaded = self.engine.load_within(&name(), &path, limits());
        std::fs::remove_file(&path).expect("removed");
        match loaded {
            Ok(plugin) => Ok(Ok(plugin)),
            Err(error) => refusal(&error, &path).map(Err),
        }
    }
}

fn name() -> Name {
    Name::new("op").expect("a usable name")
}

/// Of somebody who has no time.
fn limits() -> Limits {
    Limits { call_timeout: Duration::from_millis(20), memory_bytes_max: 16 << 20, ..Limits::default() }
}

/// In a word why a component is refused.
fn refusal(error: &GuestError, path: &Path) -> Result<&'static str, String> {
    text::check_printable(&error.to_string())?;
    text::check_printable(&error.help())?;
    if !error.to_string().contains(&path.display().to_string()) {
        return Err(format!("it isn't said which file it is: {error}"));
    }
    let GuestError::Plugin { problem, .. } = error else { return Err(format!("the engine is broken: {error}")) };
    Ok(match &**problem {
        Problem::Empty => "empty",
        Problem::NotWasm => "not-wasm",
        Problem::CoreModule => "core-module",
        Problem::Invalid(_) => "invalid",
        Problem::NotAnOperator { .. } => "not-an-operator",
        Problem::WorldVersion { .. } => "world-version",
        Problem::Import { .. } => "import",
        Problem::Mismatch(_) => "mismatch",
        Problem::Unfolds { .. } => "unfolds",
        Problem::PassesComponents => "passes-components",
        Problem::LargeFunction { .. } => "large-function",
        Problem::DeepFunction { .. } => "deep-function",
        Problem::Compile(_) => "compile",
        Problem::Descriptor(_) => "descriptor",
        Problem::Describe(_) => "describe",
        other => return Err(format!("its bytes can't be the reason for this: {other}")),
    })
}

/// Opens a plugin and calls it as a job would. In a word what came of it.
fn use_it(plugin: &Plugin) -> Result<&'static str, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let all = MaxParallelism::new(8).expect("in range");
    let subtask = SubtaskId { operator: name(), index: 0 };
    let state = plugin.descriptor().is_keyed().then(|| {
        let options = StateOptions {
            work_dir: folder.path().join("state"),
            subtask: subtask.clone(),
            key_groups: all.range(0, 1),
            max_parallelism: all,
            attempt: lockgate_host::id::Attempt(1),
            tables: plugin.descriptor().stored_tables(),
            memory_bytes_max: 1 << 20,
            block_cache: BlockCache::new(1 << 16),
        };
        KeyedState::open(options, &[], &|_, _| Err("there is no file".into())).map_err(|error| error.to_string())
    });
    let context = InstanceContext {
        job: name(),
        subtask,
        parallelism: 1,
        config_json: "{}".to_owned(),
        limits: limits(),
        rejections: true,
        state: state.transpose()?,
        counters: Counters::default(),
    };
    match call(plugin, context) {
        Ok(()) => Ok("well"),
        Err(error) => {
            text::check_printable(&error.to_string())?;
            text::check_printable(&error.help())?;
            Ok("failed")
        }
    }
}

fn call(plugin: &Plugin, context: InstanceContext) -> Result<(), OperatorError> {
    let mut rows = Batch::default();
    rows.push(Row { key: Some(b"k"), value: Some(b"a record"), timestamp: 1 });
    let mut emitted = Emitted::new();
    let mut instance = plugin.instantiate(context)?;
    instance.process(0, &rows, &mut emitted)?;
    instance.watermark(2, &mut emitted)?;
    let state = instance.snapshot(Epoch(1))?;
    instance.close()?;
    emitted.iter().for_each(|(_, batch)| batch.check().expect("what was put out is well formed"));
    assert!(state.len() <= limits().output_bytes_max, "a snapshot keeps to its limit");
    Ok(())
}
