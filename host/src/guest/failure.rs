//! From the engine's error to what happened.
//!
//! Invariant: every way in which a guest can end a call maps to a failure; what isn't known by type keeps the engine's words.

use std::collections::BTreeMap;

use wasmtime::{Trap, WasmBacktrace};

use super::deadline::DeadlinePassed;
use super::error::{Failure, Misuse};
use super::imports::{HostState, OutputRefused, printable};
use super::limits::{Limits, MemoryRefused, TableRefused};
use crate::state::StateError;

/// Says why a call ended without a result.
pub(super) fn failure(error: wasmtime::Error, limits: &Limits, host: &mut HostState) -> Failure {
    if let Some(refused) = find::<MemoryRefused>(&error) {
        return Failure::Memory { wanted_bytes: refused.wanted_bytes, limit_bytes: refused.limit_bytes };
    }
    if let Some(refused) = find::<TableRefused>(&error) {
        let TableRefused { wanted_elements, limit_elements } = *refused;
        return Failure::Tables { wanted_elements, limit_elements };
    }
    if find::<DeadlinePassed>(&error).is_some() {
        return Failure::Deadline { limit: limits.call_timeout };
    }
    if find::<OutputRefused>(&error).is_some() {
        return Failure::Output { limit_bytes: limits.output_bytes_max };
    }
    if let Some(misuse) = find::<Misuse>(&error) {
        return Failure::Misuse(misuse.clone());
    }
    if let Some(trap) = find::<Trap>(&error) {
        let recursive = error.downcast_ref::<WasmBacktrace>().is_some_and(is_recursion);
        return trapped(*trap, recursive, limits, host);
    }
    match error.downcast::<StateError>() {
        Ok(StateError::GivenUp { .. }) => Failure::Deadline { limit: limits.call_timeout },
        Ok(error) => Failure::State(error),
        Err(error) if says(&error, "resource limit exceeded: instance count") => {
            Failure::Instances { limit: limits.core_instances_max }
        }
        Err(error) if says(&error, "too much data is being copied between the host and the guest") => {
            Failure::Misuse(Misuse::HandedOver { most: limits.hostcall_bytes_max() })
        }
        Err(error) => Failure::Trap { trap: causes(&error) },
    }
}

/// The engine has no type for some errors, only words; tests notice when they change.
fn says(error: &wasmtime::Error, words: &str) -> bool {
    error.chain().any(|cause| cause.to_string().starts_with(words))
}

/// What has happened, in one line. The backtrace is left out: it has many, with names that the guest has chosen.
fn causes(error: &wasmtime::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    let causes = causes.filter(|cause| !cause.starts_with("error while executing at wasm backtrace"));
    printable(&causes.collect::<Vec<_>>().join(": "))
}

fn find<E: std::error::Error + Send + Sync + 'static>(error: &wasmtime::Error) -> Option<&E> {
    error.downcast_ref::<E>().or_else(|| error.chain().find_map(|cause| cause.downcast_ref::<E>()))
}

/// So many calls of one function among the innermost ones that a backtrace holds are a recursion.
const RECURSIVE_CALLS_MIN: u32 = 4;

/// Whether one function is under way again and again.
fn is_recursion(backtrace: &WasmBacktrace) -> bool {
    let mut calls = BTreeMap::new();
    backtrace.frames().iter().any(|frame| {
        let count = calls.entry(frame.func_index()).or_insert(0);
        *count += 1;
        *count >= RECURSIVE_CALLS_MIN
    })
}

/// `recursive`: in a recursion.
fn trapped(trap: Trap, recursive: bool, limits: &Limits, host: &mut HostState) -> Failure {
    if trap == Trap::Interrupt {
        return Failure::Deadline { limit: limits.call_timeout };
    }
    // Beside the engine's stack, compilers keep one in memory, from a low address downwards: at its end an access goes below 0.
    if trap == Trap::StackOverflow || trap == Trap::MemoryOutOfBounds && recursive {
        return Failure::Stack { limit_bytes: limits.stack().bytes() };
    }
    // A panic logs or prints its message and then runs into `unreachable`.
    match host.log.take_last_words() {
        Some(message) if trap == Trap::UnreachableCodeReached => Failure::Panic { message },
        Some(_) | None => Failure::Trap { trap: trap.to_string() },
    }
}
