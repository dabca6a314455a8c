//! Windows of one length at equal distances, from panes.
//!
//! A pane is a piece of time that lies wholly inside or outside of every window: as long as the greatest common divisor
//! of the windows' length and distance. A record is added to the one pane that it is in, whatever the number of windows
//! it belongs to, and a window is put together from its panes when it is complete.
//!
//! *State.* The newest pane of a key, to which nearly all records go, is a `Value`; older ones are entries of a map. So
//! a checkpoint takes the panes that have changed, not whole windows, and nothing of those that have come and gone since
//! the last one.
//!
//! *Putting windows together.* Windows of a few panes are merged from them. For longer ones the panes are a queue in
//! *two stacks* (Tangwongsan, Hirzel, Schneider and Wu, "General incremental sliding-window aggregation", VLDB 2015):
//! `front` has, for each pane before `middle`, the aggregate of that pane and all between it and `middle`; `back` has
//! the aggregate of those from `middle` on. A window is one entry of `front` merged with `back`. When the window's
//! start has reached `middle`, `front` is made anew of all panes of the window. So each window costs a few merges,
//! however many panes it has. Both stacks can be made again from the panes; a record that comes after its pane was
//! merged drops them.
//!
//! Invariant: for each key there is a timer at the last millisecond of the first window that has a record and was not
//! given out.

use serde::{Deserialize, Serialize};

use super::aggregate::Aggregate;
use super::geometry::Geometry;
use super::name::{part, tag};
use super::places::Places;
use super::time::{Late, Window, event_time, out_of_time, piece};
use crate::context::Context;
use crate::error::Error;
use crate::operator::Declaration;
use crate::record::Record;
use crate::state::{Series, Value};
use crate::timers::{Timer, Timers};

/// Windows of no more panes than this are merged from them.
const DIRECT_PANES_MAX: i64 = 8;
/// About so many windows are given out in one call, however far the watermark goes, so that its output stays small ...
const WINDOWS_PER_CALL_MAX: usize = 1 << 16;
/// ... but so many for each timer of the call.
const WINDOWS_PER_TIMER_MIN: usize = 64;

/// The newest pane of a key and its number; none before the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Newest<A>(Option<(i64, A)>);

impl<A> Default for Newest<A> {
    fn default() -> Newest<A> {
        Newest(None)
    }
}

/// What became of a value.
enum Added<A: Aggregate> {
    ToNewest,
    /// Its pane is the newest one from now on; the one before is no more.
    AsNewest(Option<(i64, A)>),
    Not(A::Input),
}

/// The stack of the newer panes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Back<A> {
    /// The first pane that isn't in `front`.
    middle: i64,
    /// The panes from `middle` up to this one, this one not included, ...
    until: i64,
    /// ... merged, if there are any.
    merged: Option<A>,
}

/// What only windows that overlap need.
struct Overlap<A> {
    front: Series<A>,
    back: Value<Back<A>>,
    /// The start of the first window that has a record and wasn't given out; its timer is set.
    next: Value<i64>,
}

/// The windows of an operator's keys.
pub(super) struct Panes<A> {
    pub(super) geometry: Geometry,
    pub(super) late: Late,
    newest: Value<Newest<A>>,
    older: Places<A>,
    overlap: Option<Overlap<A>>,
    timers: Timers,
    /// A window is complete.
    complete: &'static [u8],
    /// A window that was given out before has got another record.
    again: &'static [u8],
    /// No window of some pane takes records any more.
    over: &'static [u8],
}

impl<A: Aggregate> Panes<A> {
    /// Windows that don't overlap.
    pub(super) fn declare(declare: &mut Declaration, name: &str, geometry: Geometry) -> Panes<A> {
        Panes {
            geometry,
            late: Late::default(),
            newest: declare.value(part(name, "newest")),
            older: Places::declare(declare, name, "panes"),
            overlap: None,
            timers: declare.timers(),
            complete: tag(name, "complete"),
            again: tag(name, "again"),
            over: tag(name, "over"),
        }
    }

    /// Windows that may overlap.
    pub(super) fn declare_sliding(declare: &mut Declaration, name: &str, geometry: Geometry) -> Panes<A> {
        let panes = Panes::declare(declare, name, geometry);
        let overlap = Overlap {
            front: declare.series(part(name, "front")),
            back: declare.value(part(name, "back")),
            next: declare.value(part(name, "next")),
        };
        Panes { overlap: Some(overlap), ..panes }
    }

    /// Adds a value to the windows that have the record's event time; says whether there is any that isn't over.
    #[inline]
    pub(super) fn add(&self, ctx: &mut Context<'_>, record: &Record<'_>, value: A::Input) -> Result<bool, Error> {
        let time = event_time(record)?;
        let pane = piece(time, self.geometry.pane);
        if pane < self.geometry.panes_min || pane > self.geometry.panes_max {
            return Err(out_of_time(time, "windows", self.geometry.size));
        }
        if time <= ctx.watermark() {
            return self.add_behind(ctx, record, pane, value);
        }
        if self.add_to(ctx, pane, value)? {
            self.schedule(ctx, pane)?;
        }
        Ok(true)
    }

    /// Adds a value to a pane; says whether the pane is new.
    #[inline]
    fn add_to(&self, ctx: &mut Context<'_>, pane: i64, value: A::Input) -> Result<bool, Error> {
        let added = self.newest.modify(ctx, |newest| match &mut newest.0 {
            Some((number, aggregate)) if *number == pane => {
                aggregate.add(value);
                Added::ToNewest
            }
            Some((number, _)) if *number > pane => Added::Not(value),
            before => Added::AsNewest(before.replace((pane, A::create(value)))),
        })?;
        match added {
            Added::ToNewest => Ok(false),
            Added::AsNewest(None) => Ok(true),
            Added::AsNewest(Some((number, aggregate))) => self.older.insert(ctx, number, aggregate).map(|()| true),
            Added::Not(value) => self.add_to_older(ctx, pane, value),
        }
    }

    /// Adds a value to a pane before the newest one.
    fn add_to_older(&self, ctx: &mut Context<'_>, pane: i64, value: A::Input) -> Result<bool, Error> {
        if self.older.is_used(ctx, pane)? {
            self.older.change(ctx, pane, |aggregate| aggregate.add(value))?;
            return Ok(false);
        }
        self.older.insert(ctx, pane, A::create(value))?;
        Ok(true)
    }

    /// Adds a value whose event time the watermark has passed already.
    #[cold]
    fn add_behind(
        &self,
        ctx: &mut Context<'_>,
        record: &Record<'_>,
        pane: i64,
        value: A::Input,
    ) -> Result<bool, Error> {
        let watermark = ctx.watermark();
        let last_complete = self.geometry.last_complete(pane);
        if last_complete.saturating_add(self.late.allowed_ms) <= watermark {
            self.late.give_up(ctx, record);
            return Ok(false);
        }
        let new = self.add_to(ctx, pane, value)?;
        if let Some(stacks) = self.stacks() {
            stacks.back.remove(ctx)?;
        }
        if new {
            self.schedule(ctx, pane)?;
        }
        // Those that are complete and not over yet are given out again, with the next watermark.
        let mut start = self.geometry.last_start(pane);
        let first = self.geometry.first_start(pane);
        while start >= first && self.geometry.last(start).saturating_add(self.late.allowed_ms) > watermark {
            let last = self.geometry.last(start);
            if last <= watermark {
                self.timers.set_event_time(ctx, last, self.again)?;
            }
            start -= self.geometry.slide;
        }
        Ok(true)
    }

    /// Sets the timers of a new pane.
    fn schedule(&self, ctx: &mut Context<'_>, pane: i64) -> Result<(), Error> {
        let watermark = ctx.watermark();
        let start = self.geometry.first_start(pane).max(self.geometry.first_open_start(watermark));
        if start <= self.geometry.last_start(pane) {
            match &self.overlap {
                Some(overlap) if overlap.next.get(ctx)?.is_some_and(|next| next <= start) => {}
                Some(overlap) => self.set_next(ctx, overlap, start)?,
                None => self.timers.set_event_time(ctx, self.geometry.last(start), self.complete)?,
            }
        }
        if self.late.allowed_ms > 0 {
            let over = self.geometry.last_complete(pane).saturating_add(self.late.allowed_ms);
            self.timers.set_event_time(ctx, over, self.over)?;
        }
        Ok(())
    }

    fn set_next(&self, ctx: &mut Context<'_>, overlap: &Overlap<A>, start: i64) -> Result<(), Error> {
        overlap.next.set(ctx, start)?;
        self.timers.set_event_time(ctx, self.geometry.last(start), self.complete)
    }

    /// Does what a timer is for, if it is one of these windows'; says whether it is.
    pub(super) fn fire(
        &self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        mut emit: impl FnMut(&mut Context<'_>, Window, A::Output) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let time = timer.time();
        if timer.tag() == self.over {
            // The panes before the first window that isn't over yet. At the end of time all are.
            let complete = if time == i64::MAX { time } else { time.saturating_sub(self.late.allowed_ms) };
            let start = self.geometry.first_open_start(complete);
            let mut newest = self.newest_number(ctx)?;
            self.drop_before(ctx, &mut newest, piece(start, self.geometry.pane))?;
            return Ok(true);
        }
        let is_again = timer.tag() == self.again;
        if !is_again && timer.tag() != self.complete {
            return Ok(false);
        }
        let start = time - (self.geometry.size - 1);
        let window = Window { start, end: time + 1 };
        match &self.overlap {
            Some(overlap) if !is_again => self.give_out(ctx, overlap, start, emit)?,
            Some(_) => {
                let newest = self.newest_number(ctx)?;
                let panes = self.panes_of(ctx, newest, start)?;
                if let Some(aggregate) = self.merged(ctx, newest, &panes)? {
                    emit(ctx, window, aggregate.finish())?;
                }
            }
            None => {
                let pane = piece(start, self.geometry.pane);
                let aggregate = if self.late.allowed_ms > 0 { self.find(ctx, pane)? } else { self.take(ctx, pane)? };
                if let Some(aggregate) = aggregate {
                    emit(ctx, window, aggregate.finish())?;
                }
            }
        }
        Ok(true)
    }

    /// Gives out the window from `start` on, and those after it that are complete, as far as one call should.
    ///
    /// They can't all wait for timers of their own: those that one call sets fire after all that are due together with
    /// it.
    fn give_out(
        &self,
        ctx: &mut Context<'_>,
        overlap: &Overlap<A>,
        mut start: i64,
        mut emit: impl FnMut(&mut Context<'_>, Window, A::Output) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if overlap.next.get(ctx)? != Some(start) {
            // The timer was set before there was an earlier record.
            return Ok(());
        }
        let watermark = ctx.watermark();
        let mut newest = self.newest_number(ctx)?;
        let windows_max = WINDOWS_PER_CALL_MAX / ctx.rows().len().max(1);
        for _ in 0..windows_max.max(WINDOWS_PER_TIMER_MIN) {
            if let Some(aggregate) = self.combined(ctx, newest, start)? {
                let last = self.geometry.last(start);
                ctx.set_timestamp(last);
                emit(ctx, Window { start, end: last + 1 }, aggregate.finish())?;
            }
            let following = start + self.geometry.slide;
            let from = piece(following, self.geometry.pane);
            let older = if self.late.allowed_ms == 0 {
                self.drop_before(ctx, &mut newest, from)?
            } else {
                self.older.used(ctx, |used| used.first_from(from))?
            };
            match older.or(newest.filter(|&number| number >= from)) {
                Some(pane) => start = self.geometry.first_start(pane).max(following),
                None => return overlap.next.remove(ctx),
            }
            if self.geometry.last(start) > watermark {
                break;
            }
        }
        self.set_next(ctx, overlap, start)
    }

    /// The panes of the window from `start` on, in ascending order.
    fn panes_of(&self, ctx: &mut Context<'_>, newest: Option<i64>, start: i64) -> Result<Vec<i64>, Error> {
        let (from, to) = self.geometry.panes(start);
        let mut panes = self.older.used(ctx, |used| used.between(from, to).collect::<Vec<_>>())?;
        panes.extend(newest.filter(|number| (from..to).contains(number)));
        Ok(panes)
    }

    /// What is in the window from `start` on.
    fn combined(&self, ctx: &mut Context<'_>, newest: Option<i64>, start: i64) -> Result<Option<A>, Error> {
        if let Some(stacks) = self.stacks() {
            let (from, to) = self.geometry.panes(start);
            let (first, older) = self.older.used(ctx, |used| {
                let mut panes = used.between(from, to);
                let count = panes.len() as i64;
                (panes.next(), count)
            })?;
            match first {
                Some(first) if older > DIRECT_PANES_MAX => {
                    return self.stacked(ctx, stacks, first, newest, start).map(Some);
                }
                Some(_) | None => {}
            }
        }
        let panes = self.panes_of(ctx, newest, start)?;
        self.merged(ctx, newest, &panes)
    }

    /// The window from `start` on, whose first pane is `first`, put together from the two stacks.
    fn stacked(
        &self,
        ctx: &mut Context<'_>,
        stacks: &Overlap<A>,
        first: i64,
        newest: Option<i64>,
        start: i64,
    ) -> Result<A, Error> {
        let (_, to) = self.geometry.panes(start);
        let back = stacks.back.take(ctx)?;
        // Windows that have left `front` behind have no pane in it.
        let is_used_up = back.as_ref().is_some_and(|back| back.middle <= first);
        let Some(mut back) = back.filter(|back| first < back.middle && back.until <= to) else {
            let panes = self.panes_of(ctx, newest, start)?;
            let mut front: Vec<(i64, A)> = Vec::with_capacity(panes.len());
            for &number in panes.iter().rev() {
                let mut aggregate = self.pane(ctx, newest, number)?;
                if let Some((_, behind)) = front.last() {
                    aggregate.merge(behind);
                }
                front.push((number, aggregate));
            }
            let window = front.last().map(|(_, window)| window.clone());
            for (number, aggregate) in front.into_iter().rev() {
                if is_used_up {
                    stacks.front.add(ctx, number, aggregate)?;
                } else {
                    stacks.front.set(ctx, number, aggregate)?;
                }
            }
            stacks.back.set(ctx, Back { middle: to, until: to, merged: None })?;
            return window.ok_or_else(lost);
        };
        while back.until < to {
            let older = self.older.used(ctx, |used| used.first_from(back.until))?;
            let Some(number) = older.or(newest.filter(|&number| number >= back.until)).filter(|&number| number < to)
            else {
                break;
            };
            let aggregate = self.pane(ctx, newest, number)?;
            match &mut back.merged {
                Some(merged) => merged.merge(&aggregate),
                None => back.merged = Some(aggregate),
            }
            back.until = number + 1;
        }
        back.until = to;
        let mut window = stacks.front.read(ctx, first, A::clone)?.ok_or_else(lost)?;
        if let Some(merged) = &back.merged {
            window.merge(merged);
        }
        stacks.back.set(ctx, back)?;
        Ok(window)
    }

    fn merged(&self, ctx: &mut Context<'_>, newest: Option<i64>, panes: &[i64]) -> Result<Option<A>, Error> {
        let mut window: Option<A> = None;
        for &number in panes {
            let aggregate = self.pane(ctx, newest, number)?;
            match &mut window {
                Some(window) => window.merge(&aggregate),
                None => window = Some(aggregate),
            }
        }
        Ok(window)
    }

    /// Removes all panes before one. Gives the first of the older ones that is left.
    fn drop_before(
        &self,
        ctx: &mut Context<'_>,
        newest: &mut Option<i64>,
        first_kept: i64,
    ) -> Result<Option<i64>, Error> {
        let mut first = self.older.used(ctx, |used| used.first())?;
        while let Some(number) = first.filter(|&number| number < first_kept) {
            first = self.older.remove(ctx, number)?;
            self.forget(ctx, number)?;
        }
        if let Some(number) = newest.take_if(|number| *number < first_kept) {
            self.newest.remove(ctx)?;
            self.forget(ctx, number)?;
            if let Some(stacks) = self.stacks() {
                stacks.back.remove(ctx)?;
            }
        }
        Ok(first)
    }

    /// The stacks, where windows have enough panes to need them.
    fn stacks(&self) -> Option<&Overlap<A>> {
        self.overlap.as_ref().filter(|_| self.geometry.panes_per_window() > DIRECT_PANES_MAX)
    }

    /// Removes a pane from the stacks.
    fn forget(&self, ctx: &mut Context<'_>, number: i64) -> Result<(), Error> {
        self.stacks().map_or(Ok(()), |stacks| stacks.front.remove(ctx, number))
    }

    fn newest_number(&self, ctx: &mut Context<'_>) -> Result<Option<i64>, Error> {
        self.newest.read(ctx, |newest| newest.and_then(|newest| newest.0.as_ref()).map(|(number, _)| *number))
    }

    /// A copy of the aggregate of a pane that there is.
    fn pane(&self, ctx: &mut Context<'_>, newest: Option<i64>, number: i64) -> Result<A, Error> {
        if newest != Some(number) {
            return self.older.read(ctx, number, A::clone);
        }
        let aggregate = self.newest.read(ctx, |newest| Some(newest?.0.as_ref()?.1.clone()))?;
        aggregate.ok_or_else(lost)
    }

    /// A copy of the aggregate of a pane, if there is one.
    fn find(&self, ctx: &mut Context<'_>, number: i64) -> Result<Option<A>, Error> {
        let newest = self.newest_number(ctx)?;
        if newest != Some(number) && !self.older.is_used(ctx, number)? {
            return Ok(None);
        }
        self.pane(ctx, newest, number).map(Some)
    }

    /// Takes a pane out.
    fn take(&self, ctx: &mut Context<'_>, number: i64) -> Result<Option<A>, Error> {
        if self.newest_number(ctx)? == Some(number) {
            let newest = self.newest.take(ctx)?;
            return Ok(newest.and_then(|newest| newest.0).map(|(_, aggregate)| aggregate));
        }
        self.older.take(ctx, number)
    }
}

#[cold]
fn lost() -> Error {
    Error::fatal("a pane that is listed is missing")
}
