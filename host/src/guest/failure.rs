//! From the engine's error to what happened.
//!
//! Invariant: every way in which a guest can end a call maps to a failure; what isn't known by type keeps the engine's words.

use std::collections::BTreeMap;

use wasmtime::{Trap, WasmBacktrace};

use super::error::{Failure, Misuse};
use super::imports::{HostState, OutputRefused};
use super::limits::{Limits, MemoryRefused};
use crate::state::StateError;

/// Says why a call ended without a result.
pub(super) fn failure(error: wasmtime::Error, limits: &Limits, host: &mut HostState) -> Failure {
    if let Some(refused) = find::<MemoryRefused>(&error) {
        return Failure::Memory { wanted_bytes: refused.wanted_bytes, limit_bytes: refused.limit_bytes };
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
        Ok(error) => Failure::State(error),
        Err(error) => Failure::Trap { trap: format!("{error:#}") },
    }
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
        return Failure::Stack;
    }
    // A panic logs its message and then runs into `unreachable`.
    match host.log.take_last_error() {
        Some(message) if trap == Trap::UnreachableCodeReached => Failure::Panic { message },
        Some(_) | None => Failure::Trap { trap: trap.to_string() },
    }
}
