//! The `output` import: batches that leave an operator.
//!
//! Invariant: what is staged here is well formed and within the call's limit; the bytes are copied once, out of the guest's
//! memory.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmList};

use super::{ColumnList, HostState, Phase, note_place};
use crate::element::{Batch, Column};
use crate::guest::error::Misuse;
use crate::guest::world::WORLD;

/// What a batch costs beside its bytes, so that a flood of tiny ones meets the limit too.
const BATCH_OVERHEAD_BYTES: usize = 256;

/// A batch where it lies in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
struct BatchList {
    rows: u32,
    keys: ColumnList,
    values: ColumnList,
    timestamps: WasmList<u8>,
    nulls: WasmList<u8>,
    ext: WasmList<u8>,
}

/// The call put out more than it may.
#[derive(Debug, thiserror::Error)]
#[error("more output than the limit")]
pub(in crate::guest) struct OutputRefused;

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker
        .instance(&WORLD.interface("output"))?
        .func_wrap("emit", |store, (port, rows): (u32, BatchList)| emit(store, port, &rows))
}

fn emit(mut store: StoreContextMut<'_, HostState>, port: u32, list: &BatchList) -> wasmtime::Result<()> {
    let host = store.data_mut();
    host.may_ask()?;
    match host.phase {
        Phase::Streaming => {}
        Phase::Closing => return Ok(()),
        Phase::Describing | Phase::Migrating | Phase::Silent => return Err(Misuse::EmitForbidden.into()),
    }
    if port >= host.outputs {
        return Err(Misuse::NoSuchOutput { port, outputs: host.outputs }.into());
    }
    let BatchList { rows, keys, values, timestamps, nulls, ext } = list;
    let lists = [&keys.data, &keys.offsets, &values.data, &values.offsets, timestamps, nulls, ext];
    let bytes = lists.iter().map(|list| list.len()).sum::<usize>();
    host.output_bytes_left =
        host.output_bytes_left.checked_sub(bytes.saturating_add(BATCH_OVERHEAD_BYTES)).ok_or(OutputRefused)?;
    note_place(&mut store, timestamps);
    let copy = |list: &WasmList<u8>| list.as_le_slice(&store).to_vec();
    let column = |list: &ColumnList| Column { data: copy(&list.data), offsets: copy(&list.offsets) };
    let batch = Batch {
        rows: *rows,
        keys: column(keys),
        values: column(values),
        timestamps: copy(timestamps),
        nulls: copy(nulls),
        headers: Batch::headers_of(*rows, ext.as_le_slice(&store)).map_err(Misuse::MalformedBatch)?,
        provenance: None,
    };
    batch.check().map_err(Misuse::MalformedBatch)?;
    if let Some(recording) = &mut store.data_mut().recording {
        recording.emitted(port, &batch);
    }
    if !batch.is_empty() {
        store.data_mut().emitted.push((port, batch));
    }
    Ok(())
}
