//! What operators don't get of WASI: each function fails as its type allows, or ends the call.
//!
//! Invariant: nothing that is linked here does anything.

use wasmtime::component::types::{ComponentExtern, ComponentFunc, ComponentItem, Type};
use wasmtime::component::{LinkerInstance, ResourceType, Val};
use wasmtime::{AsContextMut, StoreContextMut};

use super::HostState;
use crate::guest::error::Misuse;

/// A file, socket or the like. There never is one.
enum Absent {}

/// How the interfaces of WASI say that something isn't allowed, in the order of preference.
const REFUSALS: [&str; 2] = ["access-denied", "access"];

/// Links every function of an interface so that it fails. `known_resources` are those of the interfaces before it, which it may
/// name again.
pub(super) fn refuse_all<'a>(
    instance: &mut LinkerInstance<'_, HostState>,
    interface: &str,
    items: impl Iterator<Item = (&'a str, ComponentExtern<'a>)>,
    known_resources: &mut Vec<ResourceType>,
) -> wasmtime::Result<()> {
    for (name, item) in items {
        match item.ty {
            ComponentItem::ComponentFunc(function) => refuse(instance, interface, name, &function)?,
            ComponentItem::Resource(resource) if !known_resources.contains(&resource) => {
                known_resources.push(resource);
                instance.resource(name, ResourceType::host::<Absent>(), |_, _| Ok(()))?;
            }
            // Types need no link; modules and components are nothing that WASI has, so the engine refuses them.
            _ => {}
        }
    }
    Ok(())
}

fn refuse(
    instance: &mut LinkerInstance<'_, HostState>,
    interface: &str,
    name: &str,
    function: &ComponentFunc,
) -> wasmtime::Result<()> {
    if let Some(code) = refusal(function) {
        return instance.func_new(name, move |store, _, given, results| {
            store.data().deadline.check()?;
            release(store, given)?;
            results[0] = Val::Result(Err(Some(Box::new(Val::Enum(code.to_owned())))));
            Ok(())
        });
    }
    let function = format!("{name} of {interface}");
    instance.func_new(name, move |_, _, _, _| Err(Misuse::Absent { function: function.clone() }.into()))
}

/// The error code by which a function can say that it isn't allowed; `None` if it has none.
fn refusal(function: &ComponentFunc) -> Option<&'static str> {
    let mut results = function.results();
    let (Some(Type::Result(result)), None) = (results.next(), results.next()) else { return None };
    let Some(Type::Enum(codes)) = result.err() else { return None };
    REFUSALS.into_iter().find(|refusal| codes.names().any(|code| code == *refusal))
}

/// Gives back the handles that a function was given: a borrowed one must not outlive the call.
pub(super) fn release(mut store: StoreContextMut<'_, HostState>, given: &[Val]) -> wasmtime::Result<()> {
    for value in given {
        if let Val::Resource(handle) = value {
            handle.resource_drop(store.as_context_mut())?;
        }
    }
    Ok(())
}
