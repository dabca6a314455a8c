//! Windows that end when nothing comes for a while.
//!
//! Invariant: of the sessions of a key, ordered by time, no two are nearer than the gap; and for each that hasn't been
//! given out since it last changed there is a timer no later than its last millisecond.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aggregate::Aggregate;
use super::name::{part, tag};
use super::time::{Late, Window, declared_ms, event_time, length_ms, out_of_time};
use crate::context::Context;
use crate::error::Error;
use crate::operator::{Declaration, Output};
use crate::record::Record;
use crate::state::Value;
use crate::timers::{Timer, Timers};

/// Sessions of each key: records of which each is less than a gap after the one before it. A session begins with its
/// first record and ends a gap after its last one; a record between two sessions makes them one.
///
/// A session keeps an [`Aggregate`] of its values. It is given out when the watermark reaches its last millisecond. A
/// record is late if it would be a session of its own, and that session were over.
///
/// The sessions of one key that are open at the same time are kept in one value: it is made for a few of them.
///
/// ```
/// use std::time::Duration;
///
/// use lockgate::blocks::{Count, SessionWindows};
/// use lockgate::prelude::*;
///
/// struct Clicks {
///     sessions: SessionWindows<Count>,
/// }
///
/// impl Operator for Clicks {
///     fn new(declare: &mut Declaration) -> Clicks {
///         Clicks { sessions: SessionWindows::declare(declare, "clicks", Duration::from_secs(30)) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.sessions.add(ctx, &record, ())?;
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.sessions.fire(ctx, &timer, |ctx, session, clicks| {
///             ctx.emit_fmt(timer.key(), format_args!("{clicks} in {} ms", session.end - session.start));
///             Ok(())
///         })?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Clicks>::open()?;
/// harness.process([("ann", "", 1_000), ("ann", "", 21_000), ("ann", "", 90_000)])?;
/// harness.advance_watermark(i64::MAX)?;
/// assert_eq!(harness.take_output(), [("ann", "2 in 50000 ms", 50_999), ("ann", "1 in 30000 ms", 119_999)]);
/// # Ok(())
/// # }
/// ```
pub struct SessionWindows<A> {
    gap: i64,
    late: Late,
    sessions: Value<Sessions<A>>,
    timers: Timers,
    tag: &'static [u8],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sessions<A>(Vec<Session<A>>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session<A> {
    /// The event times of its first and last record.
    first: i64,
    last: i64,
    aggregate: A,
    /// Whether it has changed since it was given out.
    changed: bool,
    /// A timer that is there still, if it hasn't been given out.
    timer: i64,
}

impl<A> Default for Sessions<A> {
    fn default() -> Sessions<A> {
        Sessions(Vec::new())
    }
}

impl<A: Aggregate> SessionWindows<A> {
    /// Declares sessions that end after `gap` without a record. The name is that of their state, and the operator's own
    /// for it.
    ///
    /// # Panics
    /// If the gap isn't a whole number of milliseconds, or none.
    pub fn declare(declare: &mut Declaration, name: &'static str, gap: Duration) -> SessionWindows<A> {
        SessionWindows {
            gap: declared_ms("a gap", gap),
            late: Late::default(),
            sessions: declare.value(part(name, "sessions")),
            timers: declare.timers(),
            tag: tag(name, "session"),
        }
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> SessionWindows<A> {
        self.late.output = Some(output);
        self
    }

    /// As [`TumblingWindows::allowed_lateness`](super::TumblingWindows::allowed_lateness). A session that was given out
    /// may grow and be given out again, with what was another session before.
    ///
    /// # Panics
    /// If it isn't a whole number of milliseconds, or none.
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> SessionWindows<A> {
        self.late.allowed_ms = declared_ms("a lateness", lateness);
        self
    }

    /// [`allowed_lateness`](Self::allowed_lateness) of the configuration: in [`open`](crate::Operator::open) only.
    ///
    /// # Errors
    /// If it isn't a whole number of milliseconds, or none.
    pub fn set_allowed_lateness(&mut self, lateness: Duration) -> Result<(), Error> {
        self.late.allowed_ms = length_ms("a lateness", lateness)?;
        Ok(())
    }

    /// Takes another gap, one of the configuration: in [`open`](crate::Operator::open) only.
    ///
    /// # Errors
    /// If the gap isn't a whole number of milliseconds, or none.
    pub fn set_gap(&mut self, gap: Duration) -> Result<(), Error> {
        self.gap = length_ms("a gap", gap)?;
        Ok(())
    }

    /// Adds a value to the session of the record. Says whether it counts; if not, it was late.
    ///
    /// # Errors
    /// If the record has no key or no event time, or its session would pass the end of time.
    pub fn add(&self, ctx: &mut Context<'_>, record: &Record<'_>, value: A::Input) -> Result<bool, Error> {
        let time = event_time(record)?;
        let gap = self.gap;
        let end = time.checked_add(gap).ok_or_else(|| out_of_time(time, "sessions with a gap", gap))?;
        let watermark = ctx.watermark();
        if (end - 1).saturating_add(self.late.allowed_ms) <= watermark {
            let joins = self
                .sessions
                .read(ctx, |sessions| sessions.is_some_and(|sessions| !sessions.near(time, gap).is_empty()))?;
            if !joins {
                self.late.give_up(ctx, record);
                return Ok(false);
            }
        }
        let set = self.sessions.modify(ctx, |sessions| sessions.add(time, gap, watermark, value))?;
        if let Some(timer) = set {
            self.timers.set_event_time(ctx, timer, self.tag)?;
        }
        Ok(true)
    }

    /// Gives out the sessions that are complete, if the timer is for these; says whether it is. What is emitted has the
    /// last millisecond of the session as its event time.
    ///
    /// # Errors
    /// If state can't be read, or `emit` fails.
    pub fn fire(
        &self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        mut emit: impl FnMut(&mut Context<'_>, Window, A::Output) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if timer.tag() != self.tag {
            return Ok(false);
        }
        let Due { complete, timers, empty } =
            self.sessions.modify(ctx, |sessions| sessions.due(timer.time(), self.gap, self.late.allowed_ms))?;
        if empty {
            self.sessions.remove(ctx)?;
        }
        for time in timers {
            self.timers.set_event_time(ctx, time, self.tag)?;
        }
        for (window, aggregate) in complete {
            ctx.set_timestamp(window.last());
            emit(ctx, window, aggregate.finish())?;
        }
        Ok(true)
    }
}

/// What a timer has to do.
struct Due<A> {
    complete: Vec<(Window, A)>,
    timers: Vec<i64>,
    /// Whether there is no session any more.
    empty: bool,
}

impl<A: Aggregate> Sessions<A> {
    /// The sessions that a record would belong to: none, one, or two that it joins.
    fn near(&self, time: i64, gap: i64) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|session| session.last.saturating_add(gap) <= time);
        let end = self.0.partition_point(|session| session.first < time.saturating_add(gap));
        start..end.max(start)
    }

    /// Adds a value; gives the time of the timer to set, if there is none yet that does.
    fn add(&mut self, time: i64, gap: i64, watermark: i64, value: A::Input) -> Option<i64> {
        let near = self.near(time, gap);
        let at = near.start;
        if near.is_empty() {
            let timer = time + (gap - 1);
            let session = Session { first: time, last: time, aggregate: A::create(value), changed: true, timer };
            self.0.insert(at, session);
            return Some(timer);
        }
        let others = self.0.drain(at + 1..near.end).collect::<Vec<_>>();
        let session = &mut self.0[at];
        session.aggregate.add(value);
        session.first = session.first.min(time);
        session.last = session.last.max(time);
        for other in others {
            session.aggregate.merge(&other.aggregate);
            session.last = session.last.max(other.last);
            session.timer = session.timer.max(other.timer);
            // Both had timers, or else none of them has one that will come.
            session.changed |= other.changed;
        }
        let complete = session.last + (gap - 1);
        let has_timer = session.changed && session.timer > watermark;
        session.changed = true;
        if has_timer {
            return None;
        }
        session.timer = complete;
        Some(complete)
    }

    /// What to do when the watermark has reached `now`.
    fn due(&mut self, now: i64, gap: i64, allowed_ms: i64) -> Due<A> {
        let mut due = Due { complete: Vec::new(), timers: Vec::new(), empty: false };
        self.0.retain_mut(|session| {
            let last = session.last + (gap - 1);
            let over = last.saturating_add(allowed_ms);
            if last > now {
                // Longer than it was when the timer was set.
                if session.timer <= now {
                    session.timer = last;
                    due.timers.push(last);
                }
                return true;
            }
            if session.changed {
                session.changed = false;
                due.complete.push((Window { start: session.first, end: last + 1 }, session.aggregate.clone()));
                if over > now {
                    due.timers.push(over);
                }
            }
            over > now
        });
        due.empty = self.0.is_empty();
        due
    }
}
