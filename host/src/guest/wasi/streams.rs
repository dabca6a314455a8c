//! Streams of bytes: those that are read are at their end, those that are written are the log.
//!
//! Invariant: a write takes no more than [`WRITE_BYTES_MAX`], and never waits.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, LinkerInstance, Lower, Resource, ResourceType, WasmList};

use super::HostState;
use super::poll::subscribe;
use super::stdio::output;
use crate::guest::error::Misuse;

/// Nothing fails here in a way that needs an error.
pub(super) enum StreamFailure {}
pub(super) enum InputStream {}
pub(super) enum OutputStream {}

/// What `check-write` allows.
const WRITE_BYTES_MAX: usize = 64 * 1024;

#[derive(ComponentType, Lower)]
#[component(variant)]
#[expect(dead_code, reason = "the type has a case that never comes")]
enum StreamError {
    #[component(name = "last-operation-failed")]
    Failed(Resource<StreamFailure>),
    #[component(name = "closed")]
    Closed,
}

type In = Resource<InputStream>;
type Out = Resource<OutputStream>;
type Done = Result<(), StreamError>;

pub(super) fn link_error(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.resource("error", ResourceType::host::<StreamFailure>(), |_, _| Ok(()))
}

pub(super) fn link(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    link_input(instance)?;
    link_output(instance)
}

fn link_input(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.resource("input-stream", ResourceType::host::<InputStream>(), |_, _| Ok(()))?;
    for name in ["[method]input-stream.read", "[method]input-stream.blocking-read"] {
        let at_its_end = Err::<Vec<u8>, StreamError>;
        instance.func_wrap(name, move |_, (_, _): (In, u64)| Ok((at_its_end(StreamError::Closed),)))?;
    }
    for name in ["[method]input-stream.skip", "[method]input-stream.blocking-skip"] {
        let at_its_end = Err::<u64, StreamError>;
        instance.func_wrap(name, move |_, (_, _): (In, u64)| Ok((at_its_end(StreamError::Closed),)))?;
    }
    instance.func_wrap("[method]input-stream.subscribe", subscribe::<(In,)>)
}

fn link_output(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.resource("output-stream", ResourceType::host::<OutputStream>(), |_, _| Ok(()))?;
    let allowed = Ok::<u64, StreamError>;
    instance.func_wrap("[method]output-stream.check-write", move |_, (_,): (Out,)| {
        Ok((allowed(WRITE_BYTES_MAX as u64),))
    })?;
    for name in ["[method]output-stream.write", "[method]output-stream.blocking-write-and-flush"] {
        instance.func_wrap(name, |store, (stream, contents): (Out, WasmList<u8>)| write(store, &stream, &contents))?;
    }
    for name in ["[method]output-stream.flush", "[method]output-stream.blocking-flush"] {
        instance.func_wrap(name, |_, (_,): (Out,)| Ok((Done::Ok(()),)))?;
    }
    // Zeros say nothing in a log.
    for name in ["[method]output-stream.write-zeroes", "[method]output-stream.blocking-write-zeroes-and-flush"] {
        instance.func_wrap(name, |_, (_, _): (Out, u64)| Ok((Done::Ok(()),)))?;
    }
    for name in ["[method]output-stream.splice", "[method]output-stream.blocking-splice"] {
        let at_its_end = Err::<u64, StreamError>;
        instance.func_wrap(name, move |_, (_, _, _): (Out, In, u64)| Ok((at_its_end(StreamError::Closed),)))?;
    }
    instance.func_wrap("[method]output-stream.subscribe", subscribe::<(Out,)>)
}

fn write(
    mut store: StoreContextMut<'_, HostState>,
    stream: &Out,
    contents: &WasmList<u8>,
) -> wasmtime::Result<(Done,)> {
    store.data().deadline.check()?;
    if contents.len() > WRITE_BYTES_MAX {
        return Err(Misuse::WriteTooLong { bytes: contents.len(), most: WRITE_BYTES_MAX }.into());
    }
    let bytes = contents.as_le_slice(&store).to_vec();
    store.data_mut().log.print(output(stream), &bytes);
    Ok((Ok(()),))
}
