//! Timers: what an operator sets for a key, and gets back when their time has come.
//!
//! Invariant: a call to the host carries many timers, and none that a rejected record has set.

use crate::context::Context;
use crate::error::Error;
use crate::host::{Clock, Column, Host};

/// The handle to timers; declared with [`Declaration::timers`](crate::Declaration::timers).
///
/// A timer is a clock, a key, a time and a tag, and fires once: [`Operator::timer`](crate::Operator::timer) is called with it.
/// Setting one that is set, or deleting one that isn't, changes nothing. Timers are part of the operator's state: they are
/// still there after a crash, and move with their keys.
///
/// All methods are about the key of the record (or timer) being processed. They fail if it has none, or where there is none.
///
/// ```
/// use lockgate::prelude::*;
///
/// /// Says so when a key has been silent for a minute.
/// struct Silence {
///     last: Value<i64>,
///     timers: Timers,
/// }
///
/// impl Operator for Silence {
///     fn new(declare: &mut Declaration) -> Silence {
///         Silence { last: declare.value("last"), timers: declare.timers() }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         let time = record.timestamp().unwrap_or_default();
///         if let Some(last) = self.last.get(ctx)? {
///             self.timers.delete_event_time(ctx, last + 60_000, b"")?;
///         }
///         self.last.set(ctx, time)?;
///         self.timers.set_event_time(ctx, time + 60_000, b"")
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.last.remove(ctx)?;
///         ctx.emit(timer.key(), "silent");
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Silence>::open()?;
/// harness.process([("ann", "", 0), ("bob", "", 10_000), ("ann", "", 50_000)])?;
/// harness.advance_watermark(80_000)?;
/// assert_eq!(harness.take_output(), [("bob", "silent", 70_000)]);
/// harness.advance_watermark(i64::MAX)?;
/// assert_eq!(harness.take_output(), [("ann", "silent", 110_000)]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timers(());

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers(())
    }

    /// Sets a timer that fires when the watermark has come to `time` (milliseconds since the Unix epoch): with the next
    /// watermark if it is there already.
    ///
    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn set_event_time(&self, ctx: &mut Context<'_>, time: i64, tag: &[u8]) -> Result<(), Error> {
        ctx.write_timer(Clock::EventTime, time, tag, false)
    }

    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn delete_event_time(&self, ctx: &mut Context<'_>, time: i64, tag: &[u8]) -> Result<(), Error> {
        ctx.write_timer(Clock::EventTime, time, tag, true)
    }

    /// Sets a timer that fires when the machine's clock has come to `time` (milliseconds since the Unix epoch): at once if it
    /// is past. What follows from such a timer isn't the same again after a crash.
    ///
    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn set_processing_time(&self, ctx: &mut Context<'_>, time: i64, tag: &[u8]) -> Result<(), Error> {
        ctx.write_timer(Clock::ProcessingTime, time, tag, false)
    }

    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn delete_processing_time(&self, ctx: &mut Context<'_>, time: i64, tag: &[u8]) -> Result<(), Error> {
        ctx.write_timer(Clock::ProcessingTime, time, tag, true)
    }
}

/// A timer that has fired. It is no longer set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) tag: &'a [u8],
    pub(crate) time: i64,
    pub(crate) clock: Clock,
}

impl<'a> Timer<'a> {
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// What it was set with.
    pub fn tag(&self) -> &'a [u8] {
        self.tag
    }

    /// When it was due, in milliseconds since the Unix epoch.
    pub fn time(&self) -> i64 {
        self.time
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }
}

/// A call carries about this much at most.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Timers on their way to the host.
#[derive(Default)]
pub(crate) struct TimerWrites {
    event_time: Pending,
    processing_time: Pending,
}

/// Those of one clock.
#[derive(Default)]
struct Pending {
    keys: Column,
    tags: Column,
    times: Vec<[u8; 8]>,
    /// A bitmap that ends with the last deleted row; empty if there is none.
    deletes: Vec<u8>,
}

impl TimerWrites {
    pub(crate) fn push(&mut self, clock: Clock, key: &[u8], time: i64, tag: &[u8], delete: bool) {
        let pending = self.of(clock);
        let row = pending.times.len();
        pending.keys.push(key);
        pending.tags.push(tag);
        pending.times.push(time.to_le_bytes());
        if delete {
            pending.deletes.resize(row / 8 + 1, 0);
            pending.deletes[row / 8] |= 1 << (row % 8);
        }
    }

    fn of(&mut self, clock: Clock) -> &mut Pending {
        match clock {
            Clock::EventTime => &mut self.event_time,
            Clock::ProcessingTime => &mut self.processing_time,
        }
    }

    /// Whether there are so many that they should be sent before the call ends.
    pub(crate) fn is_full(&self) -> bool {
        [&self.event_time, &self.processing_time].iter().any(|pending| pending.bytes() >= WRITE_BYTES_MAX)
    }

    /// Sends what there is.
    pub(crate) fn send(&mut self, host: &mut dyn Host) {
        self.event_time.send(Clock::EventTime, host);
        self.processing_time.send(Clock::ProcessingTime, host);
    }

    /// Drops what there is.
    pub(crate) fn clear(&mut self) {
        self.event_time.cut(0);
        self.processing_time.cut(0);
    }

    /// How many there are of each clock.
    pub(crate) fn mark(&self) -> [usize; 2] {
        [self.event_time.times.len(), self.processing_time.times.len()]
    }

    /// Drops those behind a mark.
    pub(crate) fn cut_back(&mut self, [event_time, processing_time]: [usize; 2]) {
        self.event_time.cut(event_time);
        self.processing_time.cut(processing_time);
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        self.keys.data.len() + self.tags.data.len() + self.times.len() * 16
    }

    fn send(&mut self, clock: Clock, host: &mut dyn Host) {
        if self.times.is_empty() {
            return;
        }
        if !self.deletes.is_empty() {
            self.deletes.resize(self.times.len().div_ceil(8), 0);
        }
        let (keys, tags) = (self.keys.as_ref(), self.tags.as_ref());
        host.write_timers(clock, keys, tags, self.times.as_flattened(), &self.deletes);
        self.cut(0);
    }

    fn cut(&mut self, rows: usize) {
        if self.times.len() > rows {
            self.keys.cut(rows);
            self.tags.cut(rows);
            self.times.truncate(rows);
            self.deletes.truncate(rows.div_ceil(8));
            if let Some(last) = self.deletes.get_mut(rows / 8) {
                *last &= (1 << (rows % 8)) - 1;
            }
        }
    }
}
