//! The process that an operator isn't: no arguments, no environment, no folders, no terminal, and no way to end anything but the
//! call.
//!
//! Invariant: all answers are empty.

use wasmtime::component::{LinkerInstance, Val};

use super::HostState;
use super::absent::release;
use crate::guest::error::Misuse;

type Variables = Vec<(String, String)>;

pub(super) fn link(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("get-environment", |_, ()| Ok((Variables::new(),)))?;
    instance.func_wrap("get-arguments", |_, ()| Ok((Vec::<String>::new(),)))?;
    instance.func_wrap("initial-cwd", |_, ()| Ok((None::<String>,)))
}

pub(super) fn link_exit(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    let exit = |host: &mut HostState, code| -> wasmtime::Result<()> {
        let said = host.log.take_last_words().map(|words| format!(": {words}")).unwrap_or_default();
        Err(Misuse::Exited { code, said }.into())
    };
    instance.func_wrap("exit", move |mut store, (status,): (Result<(), ()>,)| {
        exit(store.data_mut(), u8::from(status.is_err()))
    })?;
    instance.func_wrap("exit-with-code", move |mut store, (code,): (u8,)| exit(store.data_mut(), code))
}

pub(super) fn link_preopens(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_new("get-directories", |_, _, _, results| {
        results[0] = Val::List(Vec::new());
        Ok(())
    })
}

/// Links a function whose answer is an option, and always none.
pub(super) fn link_none(instance: &mut LinkerInstance<'_, HostState>, name: &str) -> wasmtime::Result<()> {
    instance.func_new(name, |store, _, given, results| {
        release(store, given)?;
        results[0] = Val::Option(None);
        Ok(())
    })
}
