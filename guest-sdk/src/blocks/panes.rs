//! Windows of one length at equal distances, from panes.
//!
//! A pane is a piece of time that lies wholly inside or outside of every window: as long as the greatest common divisor
//! of the windows' length and distance. A record is added to the one pane that it is in, whatever the number of windows
//! it belongs to, and a window is put together from its panes when it is complete.
//!
//! *State.* The newest pane of a key, to which nearly all records go, is a `Value`; older ones are entries of a map. So
//! a checkpoint takes the panes that have changed, not whole windows.
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
use super::name::{part, tag};
use super::places::Places;
use super::time::{Late, Window, clamped, event_time, out_of_time, piece};
use crate::context::Context;
use crate::error::Error;
use crate::operator::Declaration;
use crate::record::Record;
use crate::state::{Map, Value};
use crate::timers::{Timer, Timers};

/// Windows of no more panes than this are merged from them.
const DIRECT_PANES_MAX: i64 = 8;
/// About so many windows are given out in one call, however far the watermark goes, so that its output stays small ...
const WINDOWS_PER_CALL_MAX: usize = 1 << 16;
/// ... but so many for each timer of the call.
const WINDOWS_PER_TIMER_MIN: usize = 64;

/// Where windows and panes lie, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    size: i64,
    slide: i64,
    pane: i64,
    /// The panes of which all windows are within time.
    panes_min: i64,
    panes_max: i64,
}

impl Geometry {
    /// Windows of `size` that begin at each multiple of `slide`, which is at most `size`.
    pub(super) fn new(size: i64, slide: i64) -> Geometry {
        let pane = greatest_common_divisor(size, slide);
        // The first window of a pane begins up to `size` before it, and the last one ends up to `size` after it.
        let panes_min = piece(i64::MIN + size, pane) + 1;
        let panes_max = piece(i64::MAX - size, pane) - 1;
        Geometry { size, slide, pane, panes_min, panes_max }
    }

    fn panes_per_window(self) -> i64 {
        self.size / self.pane
    }

    /// The start of the last window that has a pane.
    fn last_start(self, pane: i64) -> i64 {
        piece(pane * self.pane, self.slide) * self.slide
    }

    /// The start of the first window that has a pane.
    fn first_start(self, pane: i64) -> i64 {
        // The smallest multiple of the slide from which a window reaches beyond the pane's start.
        (piece(pane * self.pane - self.size, self.slide) + 1) * self.slide
    }

    /// The start of the first window that isn't complete at a watermark.
    fn first_open_start(self, watermark: i64) -> i64 {
        let before = (i128::from(watermark) - i128::from(self.size) + 1).div_euclid(self.slide.into());
        clamped((before + 1) * i128::from(self.slide))
    }

    /// The last millisecond of the window from `start` on.
    fn last(self, start: i64) -> i64 {
        start + (self.size - 1)
    }

    /// When the last window of a pane is complete.
    fn last_complete(self, pane: i64) -> i64 {
        self.last(self.last_start(pane))
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The newest pane of a key and its number; none before the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Newest<A>(Option<(i64, A)>);

impl<A> Default for Newest<A> {
    fn default() -> Newest<A> {
        Newest(None)
    }
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
    front: Map<i64, A>,
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
            front: declare.map(part(name, "front")),
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
        let left = self.newest.modify(ctx, |newest| match &mut newest.0 {
            Some((number, aggregate)) if *number == pane => {
                aggregate.add(value);
                None
            }
            Some(_) | None => Some(value),
        })?;
        let Some(value) = left else { return Ok(false) };
        self.add_beside(ctx, pane, value)
    }

    /// Adds a value to a pane that isn't the newest one, or is from now on.
    fn add_beside(&self, ctx: &mut Context<'_>, pane: i64, value: A::Input) -> Result<bool, Error> {
        let newest =
            self.newest.read(ctx, |newest| newest.and_then(|newest| newest.0.as_ref()).map(|(number, _)| *number))?;
        if newest.is_none_or(|number| number < pane) {
            let fresh = Newest(Some((pane, A::create(value))));
            let before = self.newest.modify(ctx, |newest| std::mem::replace(newest, fresh))?;
            if let Some((number, aggregate)) = before.0 {
                self.older.insert(ctx, number, aggregate)?;
            }
            return Ok(true);
        }
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
            self.drop_before(ctx, piece(start, self.geometry.pane))?;
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
                let panes = self.panes_of(ctx, start)?;
                if let Some(aggregate) = self.merged(ctx, &panes)? {
                    emit(ctx, window, aggregate.finish())?;
                }
            }
            None => {
                let pane = piece(start, self.geometry.pane);
                let aggregate = if self.late.allowed_ms > 0 { self.pane(ctx, pane)? } else { self.take(ctx, pane)? };
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
        let windows_max = WINDOWS_PER_CALL_MAX / ctx.rows().len().max(1);
        for _ in 0..windows_max.max(WINDOWS_PER_TIMER_MIN) {
            let panes = self.panes_of(ctx, start)?;
            if let Some(aggregate) = self.combined(ctx, &panes, start)? {
                let last = self.geometry.last(start);
                ctx.set_timestamp(last);
                emit(ctx, Window { start, end: last + 1 }, aggregate.finish())?;
            }
            let following = start + self.geometry.slide;
            if self.late.allowed_ms == 0 {
                self.drop_before(ctx, piece(following, self.geometry.pane))?;
            }
            match self.first_start_from(ctx, following)? {
                Some(next) => start = next,
                None => return overlap.next.remove(ctx),
            }
            if self.geometry.last(start) > watermark {
                break;
            }
        }
        self.set_next(ctx, overlap, start)
    }

    /// The start of the first window at or after `start` that has a record.
    fn first_start_from(&self, ctx: &mut Context<'_>, start: i64) -> Result<Option<i64>, Error> {
        let from = piece(start, self.geometry.pane);
        let older = self.older.used(ctx, |used| used.between(from, i64::MAX).next())?;
        let pane = match older {
            Some(pane) => Some(pane),
            None => self.newest_number(ctx)?.filter(|&number| number >= from),
        };
        Ok(pane.map(|pane| self.geometry.first_start(pane).max(start)))
    }

    /// The panes of the window from `start` on, in ascending order.
    fn panes_of(&self, ctx: &mut Context<'_>, start: i64) -> Result<Vec<i64>, Error> {
        let from = piece(start, self.geometry.pane);
        let to = from + self.geometry.panes_per_window();
        let mut panes = self.older.used(ctx, |used| used.between(from, to).collect::<Vec<_>>())?;
        panes.extend(self.newest_number(ctx)?.filter(|number| (from..to).contains(number)));
        Ok(panes)
    }

    /// What is in the window from `start` on, which has these panes.
    fn combined(&self, ctx: &mut Context<'_>, panes: &[i64], start: i64) -> Result<Option<A>, Error> {
        match self.stacks() {
            Some(stacks) if panes.len() as i64 > DIRECT_PANES_MAX => {
                let to = piece(start, self.geometry.pane) + self.geometry.panes_per_window();
                self.stacked(ctx, stacks, panes, to).map(Some)
            }
            Some(_) | None => self.merged(ctx, panes),
        }
    }

    /// The panes of a window up to `to`, put together from the two stacks.
    fn stacked(&self, ctx: &mut Context<'_>, stacks: &Overlap<A>, panes: &[i64], to: i64) -> Result<A, Error> {
        let first = panes[0];
        let back = stacks.back.take(ctx)?.filter(|back| first < back.middle && back.until <= to);
        let Some(mut back) = back else {
            let mut suffix: Option<A> = None;
            for &number in panes.iter().rev() {
                let mut aggregate = self.pane(ctx, number)?.ok_or_else(lost)?;
                if let Some(suffix) = &suffix {
                    aggregate.merge(suffix);
                }
                stacks.front.insert(ctx, &number, aggregate.clone())?;
                suffix = Some(aggregate);
            }
            stacks.back.set(ctx, Back { middle: to, until: to, merged: None })?;
            return suffix.ok_or_else(lost);
        };
        for &number in &panes[panes.partition_point(|&number| number < back.until)..] {
            let aggregate = self.pane(ctx, number)?.ok_or_else(lost)?;
            match &mut back.merged {
                Some(merged) => merged.merge(&aggregate),
                None => back.merged = Some(aggregate),
            }
        }
        back.until = to;
        let mut window = stacks.front.get(ctx, &first)?.ok_or_else(lost)?;
        if let Some(merged) = &back.merged {
            window.merge(merged);
        }
        stacks.back.set(ctx, back)?;
        Ok(window)
    }

    fn merged(&self, ctx: &mut Context<'_>, panes: &[i64]) -> Result<Option<A>, Error> {
        let mut window: Option<A> = None;
        for &number in panes {
            let aggregate = self.pane(ctx, number)?.ok_or_else(lost)?;
            match &mut window {
                Some(window) => window.merge(&aggregate),
                None => window = Some(aggregate),
            }
        }
        Ok(window)
    }

    /// Removes all panes before one.
    fn drop_before(&self, ctx: &mut Context<'_>, first_kept: i64) -> Result<(), Error> {
        while let Some(number) = self.older.used(ctx, |used| used.first())?.filter(|&number| number < first_kept) {
            self.older.remove(ctx, number)?;
            self.forget(ctx, number)?;
        }
        if let Some(number) = self.newest_number(ctx)?.filter(|&number| number < first_kept) {
            self.newest.remove(ctx)?;
            self.forget(ctx, number)?;
            if let Some(stacks) = self.stacks() {
                stacks.back.remove(ctx)?;
            }
        }
        Ok(())
    }

    /// The stacks, where windows have enough panes to need them.
    fn stacks(&self) -> Option<&Overlap<A>> {
        self.overlap.as_ref().filter(|_| self.geometry.panes_per_window() > DIRECT_PANES_MAX)
    }

    /// Removes a pane from the stacks.
    fn forget(&self, ctx: &mut Context<'_>, number: i64) -> Result<(), Error> {
        self.stacks().map_or(Ok(()), |stacks| stacks.front.remove(ctx, &number))
    }

    fn newest_number(&self, ctx: &mut Context<'_>) -> Result<Option<i64>, Error> {
        self.newest.read(ctx, |newest| newest.and_then(|newest| newest.0.as_ref()).map(|(number, _)| *number))
    }

    /// A copy of a pane's aggregate.
    fn pane(&self, ctx: &mut Context<'_>, number: i64) -> Result<Option<A>, Error> {
        let newest = self.newest.read(ctx, |newest| match newest.and_then(|newest| newest.0.as_ref()) {
            Some((newest, aggregate)) if *newest == number => Some(aggregate.clone()),
            Some(_) | None => None,
        })?;
        match newest {
            Some(aggregate) => Ok(Some(aggregate)),
            None if self.older.is_used(ctx, number)? => self.older.read(ctx, number, A::clone).map(Some),
            None => Ok(None),
        }
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
