//! The network to which every socket is refused.
//!
//! Invariant: a handle of it leads nowhere.

use wasmtime::component::{LinkerInstance, Resource, ResourceType};

use super::HostState;

/// WASI gives it without an error, so there has to be one.
pub(super) enum Network {}

pub(super) fn link(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.resource("network", ResourceType::host::<Network>(), |_, _| Ok(()))
}

pub(super) fn link_instance(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("instance-network", |_, ()| Ok((Resource::<Network>::new_own(0),)))
}
