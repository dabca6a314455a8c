//! Windows that follow each other without overlap.

use std::time::Duration;

use super::aggregate::Aggregate;
use super::geometry::Geometry;
use super::panes::Panes;
use super::time::{Window, declared_ms, length_ms};
use crate::context::Context;
use crate::error::Error;
use crate::operator::{Declaration, Output};
use crate::record::Record;
use crate::timers::Timer;

/// Windows of one length that follow each other, for each key; they begin at the multiples of their length since the
/// Unix epoch.
///
/// Each keeps an [`Aggregate`] of its values, not the values. It is given out when the watermark reaches its last
/// millisecond. A record that comes after that is late: it is counted as `late-records`, goes to the [side
/// output](Self::late_to) if there is one, and nowhere else.
///
/// ```
/// use std::time::Duration;
///
/// use lockgate::blocks::{Count, TumblingWindows};
/// use lockgate::prelude::*;
///
/// /// Counts the visits of each page per minute.
/// struct Visits {
///     windows: TumblingWindows<Count>,
/// }
///
/// impl Operator for Visits {
///     fn new(declare: &mut Declaration) -> Visits {
///         let late = declare.output("late");
///         Visits { windows: TumblingWindows::declare(declare, "visits", Duration::from_secs(60)).late_to(late) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.windows.add(ctx, &record, ())?;
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.windows.fire(ctx, &timer, |ctx, window, count| {
///             ctx.emit_fmt(timer.key(), format_args!("{count} from {}", window.start));
///             Ok(())
///         })?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Visits>::open()?;
/// harness.process([("/a", "", 1_000), ("/b", "", 59_999), ("/a", "", 2_000), ("/a", "", 60_000)])?;
/// harness.advance_watermark(59_999)?;
/// assert_eq!(harness.take_output(), [("/a", "2 from 0", 59_999), ("/b", "1 from 0", 59_999)]);
/// harness.process([("/a", "too late", 3_000)])?;
/// assert_eq!(harness.take_output_of("late"), [("/a", "too late", 3_000)]);
/// # Ok(())
/// # }
/// ```
pub struct TumblingWindows<A> {
    panes: Panes<A>,
}

impl<A: Aggregate> TumblingWindows<A> {
    /// Declares windows. The name is that of their state, and the operator's own for it.
    ///
    /// # Panics
    /// If the size isn't a whole number of milliseconds, or none.
    pub fn declare(declare: &mut Declaration, name: &'static str, size: Duration) -> TumblingWindows<A> {
        let size = declared_ms("a window", size);
        TumblingWindows { panes: Panes::declare(declare, name, Geometry::new(size, size)) }
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> TumblingWindows<A> {
        self.panes.late.output = Some(output);
        self
    }

    /// Records may come so much later: a window is kept for that long after it was given out, and given out again, with
    /// all that it has got, at the first watermark after a record has come.
    ///
    /// # Panics
    /// If it isn't a whole number of milliseconds, or none.
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> TumblingWindows<A> {
        self.panes.late.allowed_ms = declared_ms("a lateness", lateness);
        self
    }

    /// [`allowed_lateness`](Self::allowed_lateness) of the configuration: in [`open`](crate::Operator::open) only.
    ///
    /// # Errors
    /// If it isn't a whole number of milliseconds, or none.
    pub fn set_allowed_lateness(&mut self, lateness: Duration) -> Result<(), Error> {
        self.panes.late.allowed_ms = length_ms("a lateness", lateness)?;
        Ok(())
    }

    /// Takes another size, one of the configuration: in [`open`](crate::Operator::open) only. State that was kept with
    /// one size means nothing with another.
    ///
    /// # Errors
    /// If the size isn't a whole number of milliseconds, or none.
    pub fn set_size(&mut self, size: Duration) -> Result<(), Error> {
        let size = length_ms("a window", size)?;
        self.panes.geometry = Geometry::new(size, size);
        Ok(())
    }

    /// Adds a value to the window of the record, in which it has its event time and key. Says whether it counts; if
    /// not, it was late.
    ///
    /// # Errors
    /// If the record has no key or no event time, or its window would pass an end of time.
    #[inline]
    pub fn add(&self, ctx: &mut Context<'_>, record: &Record<'_>, value: A::Input) -> Result<bool, Error> {
        self.panes.add(ctx, record, value)
    }

    /// Gives out the window that a timer is for; says whether the timer is one of these windows' at all. What is
    /// emitted has the last millisecond of the window as its event time.
    ///
    /// # Errors
    /// If state can't be read, or `emit` fails.
    pub fn fire(
        &self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        emit: impl FnMut(&mut Context<'_>, Window, A::Output) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        self.panes.fire(ctx, timer, emit)
    }
}
