//! The state of an operator as tests keep it, or make it up.
//!
//! Invariant: what is made up is taken as the host would store it; whether it can be decoded shows when it is read.

use std::collections::BTreeMap;

use super::memory::{Tables, TimerSet};
use crate::field::AsField;
use crate::host::Clock;

/// What one subtask gave at a barrier: its tables, its timers and the state that isn't in tables.
///
/// A test may also make one up, entry by entry in the [`encoding`](crate::encoding) of state:
///
/// ```
/// use lockgate::prelude::*;
/// use lockgate::testing::{Harness, Snapshot};
///
/// struct Count {
///     counts: Value<u64>,
/// }
///
/// impl Operator for Count {
///     fn new(declare: &mut Declaration) -> Count {
///         Count { counts: declare.value("counts") }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
///         ctx.emit_fmt(record.key(), format_args!("{count}"));
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let forty = lockgate::encoding::encode(&40u64)?;
/// let mut harness = Harness::<Count>::restore(&[&Snapshot::new().with_entry("counts", "tea", "", forty)])?;
/// harness.process([("tea", "")])?;
/// assert_eq!(harness.take_output(), [("tea", "41")]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) tables: Tables,
    /// Those of the tables; what isn't here is as the operator declares it.
    pub(super) versions: BTreeMap<&'static str, u32>,
    pub(super) timers: TimerSet,
    pub(super) watermark_ms: i64,
    pub(super) state: Vec<u8>,
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot::new()
    }
}

impl Snapshot {
    /// One with nothing in it.
    pub fn new() -> Snapshot {
        let (tables, versions, timers) = (Tables::new(), BTreeMap::new(), TimerSet::new());
        Snapshot { tables, versions, timers, watermark_ms: i64::MIN, state: Vec::new() }
    }

    /// With the state that isn't in tables, as the operator's `snapshot` gives it.
    #[must_use]
    pub fn with_state(mut self, state: impl AsField) -> Snapshot {
        self.state = bytes(state);
        self
    }

    /// With the watermark that the operator had come to.
    #[must_use]
    pub fn with_watermark(mut self, watermark_ms: i64) -> Snapshot {
        self.watermark_ms = watermark_ms;
        self
    }

    /// With an entry of a table. The user key of a [`Value`](crate::Value)'s entry is empty.
    #[must_use]
    pub fn with_entry(
        mut self,
        table: &str,
        key: impl AsField,
        user_key: impl AsField,
        value: impl AsField,
    ) -> Snapshot {
        self.tables.entry(table.to_owned()).or_default().insert((bytes(key), bytes(user_key)), bytes(value));
        self
    }

    /// With a timer that is set.
    #[must_use]
    pub fn with_timer(mut self, clock: Clock, time: i64, key: impl AsField, tag: impl AsField) -> Snapshot {
        self.timers.insert((clock, time, bytes(key), bytes(tag)));
        self
    }
}

fn bytes(field: impl AsField) -> Vec<u8> {
    field.as_field().unwrap_or_default().to_vec()
}
