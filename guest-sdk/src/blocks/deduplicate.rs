//! The first record of each key within a time.
//!
//! Invariant: a key has state only until its time is over; then a timer removes it.

use std::time::Duration;

use super::name::{part, tag};
use super::time::{Late, clamped, declared_ms, event_time, length_ms};
use crate::context::Context;
use crate::error::Error;
use crate::operator::{Declaration, Output};
use crate::record::Record;
use crate::state::Value;
use crate::timers::{Timer, Timers};

/// Lets one record of each key pass within a length of event time.
///
/// Of records out of order it is the one that comes first, not the one with the earliest time: a record is a duplicate
/// if its time is less than the length before or after that of one that has passed. A record at or before the watermark
/// is late, for it can't be known any more whether it is a duplicate.
///
/// ```
/// use std::time::Duration;
///
/// use lockgate::blocks::Deduplicate;
/// use lockgate::prelude::*;
///
/// struct Once {
///     seen: Deduplicate,
/// }
///
/// impl Operator for Once {
///     fn new(declare: &mut Declaration) -> Once {
///         Once { seen: Deduplicate::declare(declare, "seen", Duration::from_secs(3_600)) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         if self.seen.is_first(ctx, &record)? {
///             ctx.emit(record.key(), record.value());
///         }
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.seen.fire(ctx, &timer)?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Once>::open()?;
/// harness.process([("a", "1", 1_000), ("a", "2", 2_000), ("b", "3", 3_000), ("a", "4", 3_601_000)])?;
/// assert_eq!(harness.take_output(), [("a", "1"), ("b", "3"), ("a", "4")]);
/// # Ok(())
/// # }
/// ```
pub struct Deduplicate {
    within: i64,
    late: Late,
    /// The event times of records that have passed; of one, unless records are out of order by more than the length.
    passed: Value<Vec<i64>>,
    timers: Timers,
    tag: &'static [u8],
}

impl Deduplicate {
    /// Declares a deduplication within a length of time. The name is that of its state, and the operator's own for it.
    ///
    /// # Panics
    /// If the length isn't a whole number of milliseconds, or none.
    pub fn declare(declare: &mut Declaration, name: &'static str, within: Duration) -> Deduplicate {
        Deduplicate {
            within: declared_ms("a length", within),
            late: Late::default(),
            passed: declare.value(part(name, "passed")),
            timers: declare.timers(),
            tag: tag(name, "over"),
        }
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> Deduplicate {
        self.late.output = Some(output);
        self
    }

    /// Takes another length, one of the configuration: in [`open`](crate::Operator::open) only.
    ///
    /// # Errors
    /// If the length isn't a whole number of milliseconds, or none.
    pub fn set_within(&mut self, within: Duration) -> Result<(), Error> {
        self.within = length_ms("a length", within)?;
        Ok(())
    }

    /// Whether the record may pass: it is the first of its key within the time.
    ///
    /// # Errors
    /// If the record has no key or no event time.
    pub fn is_first(&self, ctx: &mut Context<'_>, record: &Record<'_>) -> Result<bool, Error> {
        let time = event_time(record)?;
        if time <= ctx.watermark() {
            self.late.give_up(ctx, record);
            return Ok(false);
        }
        let is_near = |passed: &i64| passed.abs_diff(time) < self.within.unsigned_abs();
        if self.passed.read(ctx, |passed| passed.is_some_and(|passed| passed.iter().any(is_near)))? {
            return Ok(false);
        }
        self.passed.modify(ctx, |passed| passed.push(time))?;
        self.timers.set_event_time(ctx, self.over(time), self.tag)?;
        Ok(true)
    }

    /// Forgets what is over, if the timer is this block's; says whether it is.
    ///
    /// # Errors
    /// If state can't be read.
    pub fn fire(&self, ctx: &mut Context<'_>, timer: &Timer<'_>) -> Result<bool, Error> {
        if timer.tag() != self.tag {
            return Ok(false);
        }
        let Some(mut passed) = self.passed.take(ctx)? else { return Ok(true) };
        passed.retain(|&time| self.over(time) > timer.time());
        if !passed.is_empty() {
            self.passed.set(ctx, passed)?;
        }
        Ok(true)
    }

    /// The last millisecond within the time of a record.
    fn over(&self, time: i64) -> i64 {
        clamped(i128::from(time) + i128::from(self.within) - 1)
    }
}
