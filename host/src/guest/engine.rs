//! The process's WebAssembly engine and the clock that ends calls which run too long.
//!
//! Invariant: while any plugin or instance of an engine lives, its clock ticks; when the last is dropped, its thread has ended.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use wasmtime::component::Linker;
use wasmtime::{Config, OptLevel};
use xxhash_rust::xxh3::Xxh3;

use super::cache::CodeCache;
use super::compiler::Compiler;
use super::deadline::GuestClock;
use super::error::GuestError;
use super::imports::{self, HostState};
use super::limits::{Limits, StackSize, TICK};
use super::plugin::Plugin;
use crate::id::Name;

/// Compiles and runs components. One per process.
pub struct Engine {
    pub(super) engines: Arc<Engines>,
    pub(super) cache: Option<CodeCache>,
    pub(super) compiler: Compiler,
}

impl Engine {
    /// Starts the engine. Compiled code is kept in `cache_dir` ([`default_cache_dir`](super::default_cache_dir)), if there is
    /// one; a folder that can't be used or could be written by others is left alone with a warning. What isn't there is compiled by
    /// `compiler`.
    ///
    /// # Errors
    /// [`GuestError::Engine`] if this machine can't run it.
    pub fn new(cache_dir: Option<PathBuf>, compiler: Compiler) -> Result<Engine, GuestError> {
        Engine::start(cache_dir, compiler, Deadlines::Kept)
    }

    /// An engine whose calls never end by themselves, to measure what deadlines cost. Nothing ends a guest that loops, and components
    /// are compiled in this process.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn without_deadlines(cache_dir: Option<PathBuf>) -> Result<Engine, GuestError> {
        Engine::start(cache_dir, Compiler::InProcess, Deadlines::None)
    }

    fn start(cache_dir: Option<PathBuf>, compiler: Compiler, deadlines: Deadlines) -> Result<Engine, GuestError> {
        let failed = |error: wasmtime::Error| GuestError::Engine { problem: format!("{error:#}") };
        let engines = Arc::new(Engines::start(deadlines).map_err(failed)?);
        let usual = engines.linked(Limits::default().stack()).map_err(failed)?;
        let cache = cache_dir.and_then(|dir| CodeCache::open(dir, engine_key(&usual.wasmtime)));
        Ok(Engine { engines, cache, compiler })
    }

    /// Loads the component of an operator: checks it, compiles it or takes the compiled code from the cache, and asks it what
    /// it is, under the usual limits.
    ///
    /// # Errors
    /// [`GuestError::Plugin`] with the reason for which it can't be used.
    pub fn load(&self, operator: &Name, wasm: &Path) -> Result<Plugin, GuestError> {
        Plugin::load(self, Some(operator), wasm, Limits::default())
    }

    /// As [`load`](Self::load), under limits of its own.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_within(&self, operator: &Name, wasm: &Path, limits: Limits) -> Result<Plugin, GuestError> {
        Plugin::load(self, Some(operator), wasm, limits)
    }

    /// Loads a component that has no name in a job, to look at it, under [`Limits::of_inspection`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn inspect(&self, wasm: &Path) -> Result<Plugin, GuestError> {
        Plugin::load(self, None, wasm, Limits::of_inspection())
    }
}

/// An engine that only compiles, for the others with deadlines.
///
/// # Errors
/// If this machine can't run it.
pub(super) fn compiling() -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(&config(Limits::default().stack(), Deadlines::Kept))
}

/// The exact version: the engine tells only its major one, and a patch may be one of the compiler. A test compares it with what is
/// built.
const ENGINE_VERSION: &str = "48.0.8";

/// Tells compiled code of this engine's version, settings and target (with the processor's features) from that of others.
fn engine_key(engine: &wasmtime::Engine) -> String {
    let mut hasher = Xxh3::new();
    ENGINE_VERSION.hash(&mut hasher);
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.digest())
}

#[derive(Clone, Copy)]
enum Deadlines {
    Kept,
    None,
}

/// One engine for each size of stack, since that is a setting of an engine. They run the same compiled code.
pub(super) struct Engines {
    deadlines: Deadlines,
    by_stack: Mutex<BTreeMap<StackSize, Linked>>,
    ticker: Ticker,
}

/// An engine, and what the host offers to components.
#[derive(Clone)]
pub(super) struct Linked {
    pub wasmtime: wasmtime::Engine,
    pub linker: Arc<Linker<HostState>>,
}

impl Engines {
    /// The clock by which imports end calls; one that stands still where no call has a deadline.
    pub fn clock(&self) -> GuestClock {
        match self.deadlines {
            Deadlines::Kept => self.ticker.clock.clone(),
            Deadlines::None => GuestClock::default(),
        }
    }

    fn start(deadlines: Deadlines) -> wasmtime::Result<Engines> {
        Ok(Engines { deadlines, by_stack: Mutex::default(), ticker: Ticker::start()? })
    }

    /// The engine with such a stack.
    ///
    /// # Errors
    /// If this machine can't run it.
    pub fn linked(&self, stack: StackSize) -> wasmtime::Result<Linked> {
        let mut by_stack = self.by_stack.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(linked) = by_stack.get(&stack) {
            return Ok(linked.clone());
        }
        let wasmtime = wasmtime::Engine::new(&config(stack, self.deadlines))?;
        let linker = Arc::new(imports::linker(&wasmtime)?);
        self.ticker.tick_for(wasmtime.clone());
        let linked = Linked { wasmtime, linker };
        by_stack.insert(stack, linked.clone());
        Ok(linked)
    }
}

/// Instances are allocated on demand and not from a pool: that is fast enough for what seldom happens, and a pool would need limits
/// for all jobs of the process together.
fn config(stack: StackSize, deadlines: Deadlines) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(match deadlines {
            Deadlines::Kept => true,
            Deadlines::None => false,
        })
        .max_wasm_stack(stack.bytes())
        .cranelift_opt_level(OptLevel::Speed)
        .relaxed_simd_deterministic(true);
    config
}

type Ticking = Arc<Mutex<Vec<wasmtime::Engine>>>;

/// The thread behind deadlines. A tick that comes late only makes deadlines later; ticks that were missed (a suspended machine)
/// aren't made up for, so that no call is punished for it.
struct Ticker {
    engines: Ticking,
    clock: GuestClock,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start() -> std::io::Result<Ticker> {
        let (stop, stopped) = mpsc::channel();
        let engines = Ticking::default();
        let clock = GuestClock::default();
        let (ticking, ticked) = (Arc::clone(&engines), clock.clone());
        let tick = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TICK) {
                let engines = ticking.lock().unwrap_or_else(PoisonError::into_inner);
                engines.iter().for_each(wasmtime::Engine::increment_epoch);
                ticked.tick();
            }
        };
        let thread = std::thread::Builder::new().name("guest-clock".to_owned()).spawn(tick)?;
        Ok(Ticker { engines, clock, stop: Some(stop), thread: Some(thread) })
    }

    fn tick_for(&self, engine: wasmtime::Engine) {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).push(engine);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the guest clock doesn't panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_engine_is_that_which_is_built() {
        let lock = include_str!("../../../Cargo.lock");
        let (_, after) = lock.split_once("name = \"wasmtime\"\nversion = \"").expect("wasmtime");
        assert_eq!(after.split('"').next(), Some(ENGINE_VERSION));
    }

    #[test]
    fn compiled_code_of_other_settings_has_another_key_and_of_other_stacks_the_same() {
        let key = |stack_bytes_max, deadlines| {
            let stack = Limits { stack_bytes_max, ..Limits::default() }.stack();
            engine_key(&wasmtime::Engine::new(&config(stack, deadlines)).expect("an engine"))
        };
        assert_eq!(key(1 << 20, Deadlines::Kept), key(1 << 16, Deadlines::Kept));
        assert_ne!(key(1 << 20, Deadlines::Kept), key(1 << 20, Deadlines::None));
    }
}
