//! The process's WebAssembly engine and the clock that ends calls which run too long.
//!
//! Invariant: while any plugin or instance of an engine lives, its clock ticks; when the last is dropped, its thread has ended.

use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

use wasmtime::component::Linker;
use wasmtime::{Config, OptLevel};
use xxhash_rust::xxh3::Xxh3;

use super::cache::CodeCache;
use super::error::GuestError;
use super::imports::{self, HostState};
use super::limits::TICK;
use super::plugin::Plugin;
use crate::id::Name;

/// Compiles and runs components. One per process.
pub struct Engine {
    pub(super) wasmtime: wasmtime::Engine,
    pub(super) linker: Linker<HostState>,
    pub(super) cache: Option<CodeCache>,
    pub(super) ticker: Arc<Ticker>,
}

impl Engine {
    /// Starts the engine. Compiled code is kept in `cache_dir` ([`default_cache_dir`](super::default_cache_dir)), if there is
    /// one; a folder that can't be used or could be written by others is left alone with a warning.
    ///
    /// # Errors
    /// [`GuestError::Engine`] if this machine can't run it.
    pub fn new(cache_dir: Option<PathBuf>) -> Result<Engine, GuestError> {
        let failed = |error: wasmtime::Error| GuestError::Engine { problem: format!("{error:#}") };
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .epoch_interruption(true)
            .cranelift_opt_level(OptLevel::Speed)
            .relaxed_simd_deterministic(true);
        let wasmtime = wasmtime::Engine::new(&config).map_err(failed)?;
        let linker = imports::linker(&wasmtime).map_err(failed)?;
        let ticker = Arc::new(Ticker::start(wasmtime.clone()).map_err(|error| failed(error.into()))?);
        let cache = cache_dir.and_then(|dir| CodeCache::open(dir, engine_key(&wasmtime)));
        Ok(Engine { wasmtime, linker, cache, ticker })
    }

    /// Loads the component of an operator: checks it, compiles it or takes the compiled code from the cache, and asks it what
    /// it is.
    ///
    /// # Errors
    /// [`GuestError::Plugin`] with the reason for which it can't be used.
    pub fn load(&self, operator: &Name, wasm: &Path) -> Result<Plugin, GuestError> {
        Plugin::load(self, Some(operator), wasm)
    }

    /// Loads a component that has no name in a job, to look at it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn inspect(&self, wasm: &Path) -> Result<Plugin, GuestError> {
        Plugin::load(self, None, wasm)
    }
}

/// Tells compiled code of this engine's version and settings from that of others.
fn engine_key(engine: &wasmtime::Engine) -> String {
    let mut hasher = Xxh3::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.digest())
}

/// The thread behind deadlines. A tick that comes late only makes deadlines later; ticks that were missed (a suspended machine)
/// aren't made up for, so that no call is punished for it.
pub(super) struct Ticker {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: wasmtime::Engine) -> std::io::Result<Ticker> {
        let (stop, stopped) = mpsc::channel();
        let tick = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TICK) {
                engine.increment_epoch();
            }
        };
        let thread = std::thread::Builder::new().name("guest-clock".to_owned()).spawn(tick)?;
        Ok(Ticker { stop: Some(stop), thread: Some(thread) })
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
