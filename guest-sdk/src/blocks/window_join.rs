//! Records of two streams that are in the same window.

use std::time::Duration;

use super::name::tag;
use super::runs::Runs;
use super::time::{Late, Window, declared_ms, event_time, length_ms, out_of_time, piece};
use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::operator::{Declaration, Output};
use crate::record::Record;
use crate::timers::{Timer, Timers};

/// Brings the records of two streams together that have the same key and are in the same window of a fixed length.
///
/// Both sides are given out in one piece when the window is complete, each in the order in which it came; so what is
/// done with them is an inner join, a left or an outer one, or none. A record is late if its window has been given out.
///
/// ```
/// use std::time::Duration;
///
/// use lockgate::blocks::WindowJoin;
/// use lockgate::prelude::*;
///
/// /// Each visitor of a day with what they bought on that day, or nothing: a left join.
/// struct Bought {
///     orders: Input,
///     join: WindowJoin<(), String>,
/// }
///
/// impl Operator for Bought {
///     fn new(declare: &mut Declaration) -> Bought {
///         declare.input("visits");
///         let orders = declare.input("orders");
///         Bought { orders, join: WindowJoin::declare(declare, "bought", Duration::from_secs(86_400)) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         if ctx.input() == self.orders {
///             self.join.add_right(ctx, &record, record.value_str()?.to_owned())?;
///         } else {
///             self.join.add_left(ctx, &record, ())?;
///         }
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.join.fire(ctx, &timer, |ctx, _, visits, orders| {
///             if !visits.is_empty() {
///                 ctx.emit(timer.key(), if orders.is_empty() { "nothing".to_owned() } else { orders.join("+") });
///             }
///             Ok(())
///         })?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Bought>::open()?;
/// harness.process_from("visits", [("ann", "", 5), ("bob", "", 6)])?;
/// harness.process_from("orders", [("ann", "tea", 7), ("ann", "rice", 8), ("cat", "oil", 9)])?;
/// harness.advance_watermark(86_399_999)?;
/// let mut bought = harness.take_output();
/// bought.sort_by_key(|record| record.key.clone());
/// assert_eq!(bought, [("ann", "tea+rice"), ("bob", "nothing")]);
/// # Ok(())
/// # }
/// ```
pub struct WindowJoin<L, R> {
    size: i64,
    left: Runs<L>,
    right: Runs<R>,
    late: Late,
    timers: Timers,
    tag: &'static [u8],
}

impl<L: Data + Clone, R: Data + Clone> WindowJoin<L, R> {
    /// Declares a join in windows of a size. The name is that of its state, and the operator's own for it.
    ///
    /// # Panics
    /// If the size isn't a whole number of milliseconds, or none.
    pub fn declare(declare: &mut Declaration, name: &'static str, size: Duration) -> WindowJoin<L, R> {
        WindowJoin {
            size: declared_ms("a window", size),
            left: Runs::declare(declare, name, "left"),
            right: Runs::declare(declare, name, "right"),
            late: Late::default(),
            timers: declare.timers(),
            tag: tag(name, "complete"),
        }
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> WindowJoin<L, R> {
        self.late.output = Some(output);
        self
    }

    /// Takes another size, one of the configuration: in [`open`](crate::Operator::open) only.
    ///
    /// # Errors
    /// If the size isn't a whole number of milliseconds, or none.
    pub fn set_size(&mut self, size: Duration) -> Result<(), Error> {
        self.size = length_ms("a window", size)?;
        Ok(())
    }

    /// Takes a left record. Says whether it counts; if not, it was late.
    ///
    /// # Errors
    /// If the record has no key or no event time, or its window would pass an end of time.
    pub fn add_left(&self, ctx: &mut Context<'_>, record: &Record<'_>, left: L) -> Result<bool, Error> {
        self.add(ctx, record, &self.left, left)
    }

    /// Takes a right record. Says whether it counts; if not, it was late.
    ///
    /// # Errors
    /// As [`add_left`](Self::add_left).
    pub fn add_right(&self, ctx: &mut Context<'_>, record: &Record<'_>, right: R) -> Result<bool, Error> {
        self.add(ctx, record, &self.right, right)
    }

    fn add<T: Data + Clone>(
        &self,
        ctx: &mut Context<'_>,
        record: &Record<'_>,
        side: &Runs<T>,
        value: T,
    ) -> Result<bool, Error> {
        let time = event_time(record)?;
        let window = self.window(piece(time, self.size)).ok_or_else(|| out_of_time(time, "windows", self.size))?;
        if window.last() <= ctx.watermark() {
            self.late.give_up(ctx, record);
            return Ok(false);
        }
        if side.push(ctx, piece(time, self.size), value)? {
            self.timers.set_event_time(ctx, window.last(), self.tag)?;
        }
        Ok(true)
    }

    /// Gives out both sides of the window that a timer is for; says whether the timer is this join's at all. One of
    /// them may be empty. What is emitted has the last millisecond of the window as its event time.
    ///
    /// # Errors
    /// If state can't be read, or `emit` fails.
    pub fn fire(
        &self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        emit: impl FnOnce(&mut Context<'_>, Window, &[L], &[R]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if timer.tag() != self.tag {
            return Ok(false);
        }
        let number = piece(timer.time(), self.size);
        let left = self.left.take(ctx, number)?;
        let right = self.right.take(ctx, number)?;
        match self.window(number) {
            Some(window) if !left.is_empty() || !right.is_empty() => emit(ctx, window, &left, &right)?,
            Some(_) | None => {}
        }
        Ok(true)
    }

    /// The window of a number, if it is within time.
    fn window(&self, number: i64) -> Option<Window> {
        let start = number.checked_mul(self.size)?;
        Some(Window { start, end: start.checked_add(self.size)? })
    }
}
