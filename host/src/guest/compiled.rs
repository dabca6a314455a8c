//! From compiled code to a component: the one place where the host trusts bytes that it will run.
//!
//! Invariant: only [`VerifiedCode`] gets here.
#![expect(unsafe_code, reason = "wasmtime can't check compiled code; the cache vouches for it")]

use wasmtime::Engine;
use wasmtime::component::Component;

use super::cache::VerifiedCode;

/// Loads compiled code.
///
/// # Errors
/// If it was compiled by another version of the engine or with other settings.
pub(super) fn component(engine: &Engine, code: &VerifiedCode) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` wants bytes that `Component::serialize` or `Engine::precompile_component` gave. `VerifiedCode` either comes
    // from there without a detour; or from a process of this very program that does nothing else, over memory that only the two have; or
    // was written by `CodeCache::write` with just that, into a folder (0700) and file of this user, and its checksum says
    // that it is unchanged. The bytes are copied, so that a later change of the file can't reach the code.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
