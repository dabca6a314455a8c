//! Clocks that show the time of the running call and stand still meanwhile.
//!
//! Invariant: both show nothing but `HostState::now_ms`; the monotonic one never goes back.

use wasmtime::component::{ComponentType, LinkerInstance, Lower};

use super::HostState;
use super::poll::subscribe;

const NANOSECONDS_PER_MS: u64 = 1_000_000;

/// A time of the wall clock.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl Datetime {
    fn of(ms: u64) -> Datetime {
        Datetime { seconds: ms / 1000, nanoseconds: (ms % 1000) as u32 * NANOSECONDS_PER_MS as u32 }
    }
}

/// WASI has no times before 1970.
fn now_ms(host: &HostState) -> u64 {
    u64::try_from(host.now_ms).unwrap_or(0)
}

pub(super) fn link_wall(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("now", |store, ()| Ok((Datetime::of(now_ms(store.data())),)))?;
    instance.func_wrap("resolution", |_, ()| Ok((Datetime::of(1),)))
}

pub(super) fn link_monotonic(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("now", |mut store, ()| {
        let host = store.data_mut();
        host.wasi.monotonic_ms = host.wasi.monotonic_ms.max(now_ms(host));
        Ok((host.wasi.monotonic_ms.saturating_mul(NANOSECONDS_PER_MS),))
    })?;
    instance.func_wrap("resolution", |_, ()| Ok((NANOSECONDS_PER_MS,)))?;
    // A sleep is over at once: the clock stands still until the call ends.
    instance.func_wrap("subscribe-instant", subscribe::<(u64,)>)?;
    instance.func_wrap("subscribe-duration", subscribe::<(u64,)>)
}
