//! The `runtime` import: time, log lines and counters.
//!
//! Invariant: a guest can't flood the log or the metrics: lines are cut, their rate and the number of counters are bounded, and
//! control characters don't reach the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmStr};

use super::HostState;
use crate::guest::world::WORLD;
use crate::id::SubtaskId;
use crate::telemetry::{self, GUEST_COUNTERS_MAX, GuestFigures};

const LINE_BYTES_MAX: usize = 4 * 1024;
/// Lines that an instance may log at once, and again after each [`LINES_PERIOD`].
const LINES_MAX: u32 = 100;
const LINES_PERIOD: Duration = Duration::from_secs(1);

/// The level of a log line.
#[derive(ComponentType, Lift, Clone, Copy, PartialEq, Eq)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by the derived lift, from the guest's number")]
enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// The figures of one instance, shared with whoever shows them.
pub type Counters = Arc<GuestFigures>;

pub(super) struct InstanceCounters {
    counters: Counters,
    complained: bool,
}

impl InstanceCounters {
    pub fn new(counters: Counters) -> InstanceCounters {
        InstanceCounters { counters, complained: false }
    }
}

/// The log of one instance.
pub(in crate::guest) struct GuestLog {
    subtask: SubtaskId,
    lines_left: u32,
    period_began: Instant,
    dropped: u64,
    last_error: Option<String>,
}

impl GuestLog {
    pub fn new(subtask: SubtaskId) -> GuestLog {
        GuestLog { subtask, lines_left: LINES_MAX, period_began: Instant::now(), dropped: 0, last_error: None }
    }

    /// Forgets the last call's errors.
    pub fn begin(&mut self) {
        self.last_error = None;
    }

    /// The last error that the running call has logged: the SDK logs a panic's message this way before it traps.
    pub fn take_last_error(&mut self) -> Option<String> {
        self.last_error.take()
    }

    fn write(&mut self, level: Level, line: String, now: Instant) {
        if now.duration_since(self.period_began) >= LINES_PERIOD {
            (self.lines_left, self.period_began) = (LINES_MAX, now);
        }
        if self.lines_left == 0 {
            self.dropped += 1;
        } else {
            self.lines_left -= 1;
            self.pass_on(level, &line);
        }
        if level == Level::Error {
            self.last_error = Some(line);
        }
    }

    fn pass_on(&mut self, level: Level, line: &str) {
        let operator = self.subtask.to_string();
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tracing::warn!(operator, dropped, "the operator logs too much; lines were dropped");
        }
        match level {
            Level::Debug => tracing::debug!(operator, "{line}"),
            Level::Info => tracing::info!(operator, "{line}"),
            Level::Warn => tracing::warn!(operator, "{line}"),
            Level::Error => tracing::error!(operator, "{line}"),
        }
    }
}

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut runtime = linker.instance(&WORLD.interface("runtime"))?;
    runtime.func_wrap("now-ms", |store, ()| time(&store, |host| host.now_ms))?;
    runtime.func_wrap("watermark-ms", |store, ()| time(&store, |host| host.watermark_ms))?;
    runtime.func_wrap("log", |store, (level, message): (Level, WasmStr)| log(store, level, &message))?;
    runtime.func_wrap("counter-add", |store, (name, delta): (WasmStr, u64)| counter_add(store, &name, delta))
}

/// What the running call may know of time.
fn time(store: &StoreContextMut<'_, HostState>, of: impl FnOnce(&HostState) -> i64) -> wasmtime::Result<(i64,)> {
    store.data().not_describing()?;
    Ok((of(store.data()),))
}

fn log(mut store: StoreContextMut<'_, HostState>, level: Level, message: &WasmStr) -> wasmtime::Result<()> {
    let line = printable(&message.to_str(&store)?);
    store.data_mut().log.write(level, line, Instant::now());
    Ok(())
}

fn counter_add(mut store: StoreContextMut<'_, HostState>, name: &WasmStr, delta: u64) -> wasmtime::Result<()> {
    store.data().not_describing()?;
    let counters = store.data().counters.counters.clone();
    let name = name.to_str(&store)?;
    if counters.add(&name, delta) {
        return Ok(());
    }
    let name = printable(&name);
    let host = store.data_mut();
    if !std::mem::replace(&mut host.counters.complained, true) {
        let line = format!(
            "counter '{name}' and maybe others are not counted: {GUEST_COUNTERS_MAX} usable names are the most"
        );
        host.log.write(Level::Warn, line, Instant::now());
    }
    Ok(())
}

/// A text of a guest, fit for a log line.
pub(in crate::guest) fn printable(text: &str) -> String {
    telemetry::printable(text, LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Name;

    fn log() -> GuestLog {
        GuestLog::new(SubtaskId { operator: Name::new("op").expect("a name"), index: 0 })
    }

    #[test]
    fn a_flood_of_lines_is_dropped_and_counted_and_the_last_error_kept() {
        let mut log = log();
        let start = log.period_began;
        for index in 0..1000 {
            log.write(Level::Error, index.to_string(), start);
        }
        assert_eq!(log.dropped, 1000 - u64::from(LINES_MAX));
        assert_eq!(log.take_last_error().as_deref(), Some("999"));
        log.write(Level::Info, "later".to_owned(), start + LINES_PERIOD);
        assert_eq!((log.dropped, log.lines_left), (0, LINES_MAX - 1));
    }
}
