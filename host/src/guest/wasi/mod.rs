//! WASI 0.2 for components that were built for it, with nothing behind it.
//!
//! The runtimes of most languages ask for arguments, files, clocks and random numbers, whether the operator needs them or not. Every
//! question gets an answer that is empty or follows from the job: clocks show the time of the running call, random numbers are
//! seeded by job, operator and subtask, standard output goes to the log, and what would reach outside is refused.
//!
//! Invariant: no function here reads a clock, a file, a random number or the environment of the machine, waits for anything, or
//! keeps what a guest can make grow.

mod absent;
mod clocks;
mod environment;
mod network;
mod poll;
mod random;
mod stdio;
mod streams;

pub use random::Draws;
pub(super) use random::Randomness;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance};

use super::imports::HostState;

/// What a guest may hold of files, streams and the like at once. Nothing of it is real, but each handle takes memory of the host.
pub(super) const HANDLES_MAX: usize = 10_000;

/// What belongs to one instance.
pub(super) struct Wasi {
    pub randomness: Randomness,
    /// The latest time that the monotonic clock has shown.
    monotonic_ms: u64,
}

impl Wasi {
    pub fn new(randomness: Randomness) -> Wasi {
        Wasi { randomness, monotonic_ms: 0 }
    }
}

/// The interface of an import like `wasi:cli/environment@0.2.6`, without namespace and version; `None` for all others. Versions
/// from 0.2.0 on only add to each other.
pub(super) fn interface(import: &str) -> Option<&str> {
    let (interface, version) = import.strip_prefix("wasi:")?.split_once('@')?;
    let patch = version.strip_prefix("0.2.")?;
    let is_release = !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
    is_release.then_some(interface)
}

/// Links the WASI interfaces of a component, each under the very name by which it is imported.
///
/// # Errors
/// If one of them isn't what WASI says.
pub(super) fn link(linker: &mut Linker<HostState>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    let mut known_resources = Vec::new();
    // First all that is imported is refused, then what has an answer takes the place of its refusal.
    linker.allow_shadowing(true);
    let component = component.component_type();
    for (import, item) in component.imports(engine) {
        let (Some(interface), ComponentItem::ComponentInstance(items)) = (interface(import), &item.ty) else {
            continue;
        };
        let mut instance = linker.instance(import)?;
        absent::refuse_all(&mut instance, import, items.exports(engine), &mut known_resources)?;
        answer(interface, &mut instance)?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

/// Links what has an answer.
fn answer(interface: &str, instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    match interface {
        "cli/environment" => environment::link(instance),
        "cli/exit" => environment::link_exit(instance),
        "cli/stdin" => stdio::link_stdin(instance),
        "cli/stdout" => stdio::link_stdout(instance),
        "cli/stderr" => stdio::link_stderr(instance),
        "cli/terminal-stdin" => environment::link_none(instance, "get-terminal-stdin"),
        "cli/terminal-stdout" => environment::link_none(instance, "get-terminal-stdout"),
        "cli/terminal-stderr" => environment::link_none(instance, "get-terminal-stderr"),
        "clocks/monotonic-clock" => clocks::link_monotonic(instance),
        "clocks/wall-clock" => clocks::link_wall(instance),
        "filesystem/preopens" => environment::link_preopens(instance),
        "filesystem/types" => environment::link_none(instance, "filesystem-error-code"),
        "io/error" => streams::link_error(instance),
        "io/poll" => poll::link(instance),
        "io/streams" => streams::link(instance),
        "random/random" => random::link(instance, "get-random-bytes", "get-random-u64"),
        "random/insecure" => random::link(instance, "get-insecure-random-bytes", "get-insecure-random-u64"),
        "random/insecure-seed" => random::link_seed(instance),
        "sockets/instance-network" => network::link_instance(instance),
        "sockets/network" => network::link(instance),
        // Files, sockets, HTTP, and what later versions bring: all of it is refused.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_of_0_2_is_known_and_nothing_else() {
        assert_eq!(interface("wasi:cli/environment@0.2.0"), Some("cli/environment"));
        assert_eq!(interface("wasi:http/types@0.2.17"), Some("http/types"));
        for other in [
            "wasi:cli/environment",
            "wasi:cli/environment@0.3.0",
            "wasi:cli/environment@0.2",
            "wasi:cli/environment@0.2.",
            "wasi:cli/environment@0.2.0-rc-2023-11-10",
            "wasi:cli/environment@0.20.0",
            "wasix:cli/environment@0.2.0",
            "my:wasi:cli/environment@0.2.0",
        ] {
            assert_eq!(interface(other), None, "{other}");
        }
    }
}
