//! Windows that overlap.

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

/// Windows of one length that begin at each multiple of a shorter one, for each key.
///
/// A record is added once, whatever the number of windows that have it: time is cut into *panes* as long as the
/// greatest common divisor of both lengths, and windows are put together from panes with a few
/// [merges](Aggregate::merge) each. So windows of a minute that slide by a second cost about as much as a minute's
/// [`TumblingWindows`](super::TumblingWindows), and what there is to emit. Choose lengths that divide each other: the
/// smaller the panes, the more of them there are.
///
/// A window without records isn't given out. What is said of [late records](super::TumblingWindows) is true here; a
/// record is late if all its windows have been given out.
///
/// ```
/// use std::time::Duration;
///
/// use lockgate::blocks::{Max, SlidingWindows};
/// use lockgate::prelude::*;
///
/// /// The highest reading of each sensor in the last 10 seconds, every 5 seconds.
/// struct Highest {
///     windows: SlidingWindows<Max<i64>>,
/// }
///
/// impl Operator for Highest {
///     fn new(declare: &mut Declaration) -> Highest {
///         let (size, slide) = (Duration::from_secs(10), Duration::from_secs(5));
///         Highest { windows: SlidingWindows::declare(declare, "highest", size, slide) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.windows.add(ctx, &record, record.value_str()?.parse()?)?;
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.windows.fire(ctx, &timer, |ctx, window, highest| {
///             ctx.emit_fmt(timer.key(), format_args!("{highest} before {}", window.end));
///             Ok(())
///         })?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Highest>::open()?;
/// harness.process([("attic", "20", 1_000), ("attic", "19", 7_000)])?;
/// harness.advance_watermark(i64::MAX)?;
/// assert_eq!(harness.take_output(), [("attic", "20 before 5000"), ("attic", "20 before 10000"), ("attic", "19 before 15000")]);
/// # Ok(())
/// # }
/// ```
pub struct SlidingWindows<A> {
    panes: Panes<A>,
}

impl<A: Aggregate> SlidingWindows<A> {
    /// Declares windows of `size` that begin every `slide`. The name is that of their state, and the operator's own for
    /// it.
    ///
    /// # Panics
    /// If a length isn't a whole number of milliseconds, or none, or the slide is longer than the size.
    pub fn declare(
        declare: &mut Declaration,
        name: &'static str,
        size: Duration,
        slide: Duration,
    ) -> SlidingWindows<A> {
        let geometry = geometry(size, slide).unwrap_or_else(|error| panic!("{error}"));
        SlidingWindows { panes: Panes::declare_sliding(declare, name, geometry) }
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> SlidingWindows<A> {
        self.panes.late.output = Some(output);
        self
    }

    /// As [`TumblingWindows::allowed_lateness`](super::TumblingWindows::allowed_lateness). Panes are kept for as much
    /// longer.
    ///
    /// # Panics
    /// If it isn't a whole number of milliseconds, or none.
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> SlidingWindows<A> {
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

    /// Takes other lengths, those of the configuration: in [`open`](crate::Operator::open) only. State that was kept
    /// with some means nothing with others.
    ///
    /// # Errors
    /// If a length isn't a whole number of milliseconds, or none, or the slide is longer than the size.
    pub fn set_size(&mut self, size: Duration, slide: Duration) -> Result<(), Error> {
        self.panes.geometry = geometry(size, slide)?;
        Ok(())
    }

    /// Adds a value to the windows of the record, which have its event time and key. Says whether it counts in any; if
    /// not, it was late.
    ///
    /// # Errors
    /// If the record has no key or no event time, or its windows would pass an end of time.
    #[inline]
    pub fn add(&self, ctx: &mut Context<'_>, record: &Record<'_>, value: A::Input) -> Result<bool, Error> {
        self.panes.add(ctx, record, value)
    }

    /// Gives out the window that a timer is for, and those after it that are complete; says whether the timer is one of
    /// these windows' at all. What is emitted has the last millisecond of its window as its event time.
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

fn geometry(size: Duration, slide: Duration) -> Result<Geometry, Error> {
    let (size_ms, slide_ms) = (length_ms("a window", size)?, length_ms("a slide", slide)?);
    if slide_ms > size_ms {
        return Err(Error::fatal(format_args!(
            "windows of {size:?} that begin every {slide:?} leave gaps: the slide is at most the size"
        )));
    }
    Ok(Geometry::new(size_ms, slide_ms))
}
