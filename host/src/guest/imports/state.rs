//! The `state` import: keyed state of the subtask.
//!
//! Invariant: columns are copied out of the guest's memory before the state sees them, and the state checks them; what it
//! refuses ends the call.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower, WasmList};

use super::{ColumnList, HostState, note_place};
use crate::element::Column;
use crate::guest::deadline::Deadline;
use crate::guest::error::Misuse;
use crate::guest::world::WORLD;
use crate::state::KeyedState;

/// A column on its way to the guest.
#[derive(ComponentType, Lower)]
#[component(record)]
struct ColumnBytes {
    data: Vec<u8>,
    offsets: Vec<u8>,
}

impl From<Column> for ColumnBytes {
    fn from(column: Column) -> ColumnBytes {
        ColumnBytes { data: column.data, offsets: column.offsets }
    }
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Entries {
    values: ColumnBytes,
    found: Vec<u8>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Page {
    #[component(name = "user-keys")]
    user_keys: ColumnBytes,
    values: ColumnBytes,
    more: bool,
}

type Bytes = WasmList<u8>;

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut state = linker.instance(&WORLD.interface("state"))?;
    state.func_wrap("get-many", |store, (table, keys, user_keys): (u32, ColumnList, ColumnList)| {
        Ok((get_many(store, table, &keys, &user_keys)?,))
    })?;
    state.func_wrap(
        "write-many",
        |store, (table, keys, user_keys, values, deletes): (u32, ColumnList, ColumnList, ColumnList, Bytes)| {
            write_many(store, table, [&keys, &user_keys, &values], &deletes)
        },
    )?;
    state.func_wrap("scan", |store, (table, key, after, bytes_max): (u32, Bytes, Option<Bytes>, u32)| {
        Ok((scan(store, table, &key, after.as_ref(), bytes_max)?,))
    })
}

pub(super) fn column(store: &StoreContextMut<'_, HostState>, list: &ColumnList) -> Column {
    Column { data: list.data.as_le_slice(store).to_vec(), offsets: list.offsets.as_le_slice(store).to_vec() }
}

/// The state, if the running call may use it, and when that has to be over.
fn keyed<'a>(store: &'a mut StoreContextMut<'_, HostState>) -> wasmtime::Result<(&'a mut KeyedState, &'a Deadline)> {
    let host = store.data_mut();
    host.may_ask()?;
    let state = host.state.as_deref_mut().ok_or(Misuse::NoState)?;
    Ok((state, &host.deadline))
}

fn get_many(
    mut store: StoreContextMut<'_, HostState>,
    table: u32,
    keys: &ColumnList,
    user_keys: &ColumnList,
) -> wasmtime::Result<Entries> {
    note_place(&mut store, &keys.offsets);
    let (keys, user_keys) = (column(&store, keys), column(&store, user_keys));
    let (state, deadline) = keyed(&mut store)?;
    let (mut values, mut found) = state.get_many_until(table, &keys, &user_keys, &|| deadline.has_passed())?;
    if let Some(recording) = &mut store.data_mut().recording {
        (values, found) = recording.got(table, keys, user_keys, values, found);
    }
    Ok(Entries { values: values.into(), found })
}

fn write_many(
    mut store: StoreContextMut<'_, HostState>,
    table: u32,
    columns: [&ColumnList; 3],
    deletes: &Bytes,
) -> wasmtime::Result<()> {
    let [keys, user_keys, values] = columns.map(|list| column(&store, list));
    let deletes = deletes.as_le_slice(&store).to_vec();
    keyed(&mut store)?.0.write_many(table, &keys, &user_keys, &values, &deletes)?;
    let host = store.data_mut();
    host.note_written([&keys, &user_keys, &values]);
    if let Some(recording) = &mut host.recording {
        recording.wrote(table, [&keys, &user_keys, &values], &deletes);
    }
    Ok(())
}

fn scan(
    mut store: StoreContextMut<'_, HostState>,
    table: u32,
    key: &Bytes,
    after: Option<&Bytes>,
    bytes_max: u32,
) -> wasmtime::Result<Page> {
    let key = key.as_le_slice(&store).to_vec();
    let after = after.map(|after| after.as_le_slice(&store).to_vec());
    let (state, deadline) = keyed(&mut store)?;
    let mut page = state.scan_until(table, &key, after.as_deref(), bytes_max, &|| deadline.has_passed())?;
    if let Some(recording) = &mut store.data_mut().recording {
        page = recording.scanned(table, key, after, bytes_max, page);
    }
    Ok(Page { user_keys: page.user_keys.into(), values: page.values.into(), more: page.more })
}
