//! The `timers` import: timers of the subtask's keys.
//!
//! Invariant: as for state, columns are copied out of the guest's memory before they are looked at, and what is refused ends the
//! call.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmList};

use super::state::column;
use super::{ColumnList, HostState};
use crate::guest::error::Misuse;
use crate::guest::world::WORLD;
use crate::state;

/// What a timer waits for.
#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by the derived lift, from the guest's number")]
enum Clock {
    #[component(name = "event-time")]
    EventTime,
    #[component(name = "processing-time")]
    ProcessingTime,
}

type Bytes = WasmList<u8>;

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance(&WORLD.interface("timers"))?.func_wrap(
        "write-many",
        |store, (clock, keys, tags, times, deletes): (Clock, ColumnList, ColumnList, Bytes, Bytes)| {
            write_many(store, clock, [&keys, &tags], [&times, &deletes])
        },
    )
}

fn write_many(
    mut store: StoreContextMut<'_, HostState>,
    clock: Clock,
    columns: [&ColumnList; 2],
    lists: [&Bytes; 2],
) -> wasmtime::Result<()> {
    let clock = match clock {
        Clock::EventTime => state::Clock::EventTime,
        Clock::ProcessingTime => state::Clock::ProcessingTime,
    };
    let [keys, tags] = columns.map(|list| column(&store, list));
    let [times, deletes] = lists.map(|list| list.as_le_slice(&store).to_vec());
    let host = store.data_mut();
    host.may_ask()?;
    let timers = host.state.as_deref_mut().filter(|state| state.has_timers()).ok_or(Misuse::NoTimers)?;
    let earliest_ms = timers.write_timers(clock, &keys, &tags, &times, &deletes)?;
    host.earliest_set_ms = host.earliest_set_ms.min(earliest_ms);
    // A timer is an entry with its time, and its deletion is one as well.
    host.note_written([&keys, &tags]);
    if let Some(recording) = &mut host.recording {
        recording.wrote_timers(clock, [&keys, &tags], &times, &deletes);
    }
    Ok(())
}
