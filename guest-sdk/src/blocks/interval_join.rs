//! Pairs of records of two streams whose event times are near each other.
//!
//! Both sides are kept in buckets as long as the interval, so that a record's partners are in at most two buckets of
//! the other side.
//!
//! Invariant: a record is kept, at least, until the watermark says that no partner of it can come; a timer then removes
//! its bucket.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::name::tag;
use super::runs::Runs;
use super::time::{Late, clamped, event_time, piece, piece_last};
use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::operator::{Declaration, Output};
use crate::record::Record;
use crate::timers::{Timer, Timers};

/// Buckets are no shorter, so that records at the same times don't each have one.
const BUCKET_MIN_MS: i128 = 1_000;

/// Joins two streams by key and event time: a left record at time *t* with all right records from *t* + `lower` to *t*
/// + `upper`.
///
/// Each side is given its records with [`add_left`](Self::add_left) and [`add_right`](Self::add_right), as they come
/// and from whichever input; pairs are given out at once. What can't get a partner any more is removed by timers. A
/// record at or before the watermark is late.
///
/// ```
/// use lockgate::blocks::IntervalJoin;
/// use lockgate::prelude::*;
///
/// /// Payments, each with the order of at most ten minutes before.
/// struct Paid {
///     payments: Input,
///     join: IntervalJoin<String, String>,
/// }
///
/// impl Operator for Paid {
///     fn new(declare: &mut Declaration) -> Paid {
///         declare.input("orders");
///         let payments = declare.input("payments");
///         Paid { payments, join: IntervalJoin::declare(declare, "paid", 0..=600_000) }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         let text = record.value_str()?.to_owned();
///         if ctx.input() == self.payments {
///             self.join.add_right(ctx, &record, text, |ctx, pair| {
///                 ctx.emit_fmt(record.key(), format_args!("{} paid by {}", pair.left, pair.right));
///                 Ok(())
///             })?;
///         } else {
///             self.join.add_left(ctx, &record, text, |ctx, pair| {
///                 ctx.emit_fmt(record.key(), format_args!("{} paid by {}", pair.left, pair.right));
///                 Ok(())
///             })?;
///         }
///         Ok(())
///     }
///
///     fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         self.join.fire(ctx, &timer, |_, _, _| Ok(()))?;
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Paid>::open()?;
/// harness.process_from("orders", [("7", "tea", 0), ("8", "rice", 0)])?;
/// harness.process_from("payments", [("7", "card", 600_000), ("8", "cash", 600_001)])?;
/// assert_eq!(harness.take_output(), [("7", "tea paid by card", 600_000)]);
/// # Ok(())
/// # }
/// ```
pub struct IntervalJoin<L, R> {
    lower: i64,
    upper: i64,
    bucket: i64,
    left: Runs<Held<L>>,
    right: Runs<Held<R>>,
    keeps_unmatched: bool,
    late: Late,
    timers: Timers,
    left_tag: &'static [u8],
    right_tag: &'static [u8],
}

/// A record that waits for partners.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Held<T> {
    time: i64,
    /// Only kept for left records, where those without a partner are given out.
    matched: bool,
    value: T,
}

/// Two records that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a, L, R> {
    pub left: &'a L,
    pub right: &'a R,
    /// Their event times.
    pub left_time: i64,
    pub right_time: i64,
}

impl<L, R> Pair<'_, L, R> {
    /// The later of the two event times; that of a pair, mostly.
    pub fn time(&self) -> i64 {
        self.left_time.max(self.right_time)
    }
}

impl<L: Data + Clone, R: Data + Clone> IntervalJoin<L, R> {
    /// Declares a join of left records with the right ones that are `interval` milliseconds later (earlier, where it is
    /// negative). The name is that of its state, and the operator's own for it.
    ///
    /// # Panics
    /// If the interval is empty or longer than time.
    pub fn declare(declare: &mut Declaration, name: &'static str, interval: RangeInclusive<i64>) -> IntervalJoin<L, R> {
        let (lower, upper) = (*interval.start(), *interval.end());
        assert!(lower <= upper, "the interval from {lower} to {upper} ms is empty");
        let length = (i128::from(upper) - i128::from(lower) + 1).max(BUCKET_MIN_MS);
        assert!(length <= i128::from(i64::MAX), "the interval from {lower} to {upper} ms is longer than time");
        IntervalJoin {
            lower,
            upper,
            bucket: clamped(length),
            left: Runs::declare(declare, name, "left"),
            right: Runs::declare(declare, name, "right"),
            keeps_unmatched: false,
            late: Late::default(),
            timers: declare.timers(),
            left_tag: tag(name, "left-over"),
            right_tag: tag(name, "right-over"),
        }
    }

    /// Makes it a left join: [`fire`](Self::fire) gives out the left records that had no partner.
    #[must_use]
    pub fn keep_unmatched_left(mut self) -> IntervalJoin<L, R> {
        self.keeps_unmatched = true;
        self
    }

    /// Late records go to an output, as they came.
    #[must_use]
    pub fn late_to(mut self, output: Output) -> IntervalJoin<L, R> {
        self.late.output = Some(output);
        self
    }

    /// Takes a left record, and gives out its pairs with the right ones that have come: by bucket of time, then in the
    /// order in which they came. Says whether it counts; if not, it was late.
    ///
    /// # Errors
    /// If the record has no key or no event time, state can't be read, or `emit` fails.
    pub fn add_left(
        &self,
        ctx: &mut Context<'_>,
        record: &Record<'_>,
        left: L,
        mut emit: impl FnMut(&mut Context<'_>, Pair<'_, L, R>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let time = event_time(record)?;
        if time <= ctx.watermark() {
            self.late.give_up(ctx, record);
            return Ok(false);
        }
        let partners = range(time, self.lower.into(), self.upper.into());
        let rights = self.find(ctx, &self.right, partners)?;
        for (right_time, right) in &rights {
            emit(ctx, Pair { left: &left, right, left_time: time, right_time: *right_time })?;
        }
        let held = Held { time, matched: !rights.is_empty(), value: left };
        self.keep(ctx, &self.left, held, self.upper, self.left_tag)
    }

    /// Takes a right record, as [`add_left`](Self::add_left).
    ///
    /// # Errors
    /// As `add_left`.
    pub fn add_right(
        &self,
        ctx: &mut Context<'_>,
        record: &Record<'_>,
        right: R,
        mut emit: impl FnMut(&mut Context<'_>, Pair<'_, L, R>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let time = event_time(record)?;
        if time <= ctx.watermark() {
            self.late.give_up(ctx, record);
            return Ok(false);
        }
        let partners = range(time, -i128::from(self.upper), -i128::from(self.lower));
        for (left_time, left) in &self.find(ctx, &self.left, partners.clone())? {
            emit(ctx, Pair { left, right: &right, left_time: *left_time, right_time: time })?;
        }
        if self.keeps_unmatched {
            let newly = |held: &Held<L>| !held.matched && partners.contains(&held.time);
            for place in self.buckets(&partners) {
                self.left.each_mut(ctx, place, newly, |held| held.matched = true)?;
            }
        }
        let held = Held { time, matched: false, value: right };
        // A left record is `lower` to `upper` before its partners.
        self.keep(ctx, &self.right, held, self.lower.saturating_neg(), self.right_tag)
    }

    /// Removes what can't get a partner any more, if the timer is this join's; says whether it is. Left records that
    /// had none are given to `unmatched`, with their event times, if they [are kept](Self::keep_unmatched_left).
    ///
    /// # Errors
    /// If state can't be read, or `unmatched` fails.
    pub fn fire(
        &self,
        ctx: &mut Context<'_>,
        timer: &Timer<'_>,
        mut unmatched: impl FnMut(&mut Context<'_>, i64, L) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if timer.tag() == self.right_tag {
            self.drop_right(ctx, timer.time())?;
            return Ok(true);
        }
        if timer.tag() != self.left_tag {
            return Ok(false);
        }
        for place in self.left.places_until(ctx, |place| self.over(place, self.upper) <= timer.time())? {
            if !self.keeps_unmatched {
                self.left.remove(ctx, place)?;
                continue;
            }
            let mut alone = self.left.take(ctx, place)?;
            alone.retain(|held| !held.matched);
            alone.sort_by_key(|held| held.time);
            for held in alone {
                unmatched(ctx, held.time, held.value)?;
            }
        }
        Ok(true)
    }

    fn drop_right(&self, ctx: &mut Context<'_>, now: i64) -> Result<(), Error> {
        let reach = self.lower.saturating_neg();
        for place in self.right.places_until(ctx, |place| self.over(place, reach) <= now)? {
            self.right.remove(ctx, place)?;
        }
        Ok(())
    }

    /// When no partner of any record of a bucket can come, if partners are at most `reach` later.
    fn over(&self, place: i64, reach: i64) -> i64 {
        piece_last(place, self.bucket).saturating_add(reach)
    }

    /// Keeps a record until the watermark has passed all its partners.
    fn keep<T: Data + Clone>(
        &self,
        ctx: &mut Context<'_>,
        side: &Runs<Held<T>>,
        held: Held<T>,
        reach: i64,
        tag: &'static [u8],
    ) -> Result<bool, Error> {
        let waits_for = held.time.saturating_add(reach);
        let place = piece(held.time, self.bucket);
        // Without partners to come, only a left record that had none is of use, until it is given out.
        let of_use = waits_for > ctx.watermark() || (self.keeps_unmatched && tag == self.left_tag);
        if of_use && side.push(ctx, place, held)? {
            self.timers.set_event_time(ctx, self.over(place, reach), tag)?;
        }
        Ok(true)
    }

    /// The records of one side in a range of time, with their times.
    fn find<T: Data + Clone>(
        &self,
        ctx: &mut Context<'_>,
        side: &Runs<Held<T>>,
        range: RangeInclusive<i64>,
    ) -> Result<Vec<(i64, T)>, Error> {
        let mut found = Vec::new();
        for place in self.buckets(&range) {
            side.each(ctx, place, |held| {
                if range.contains(&held.time) {
                    found.push((held.time, held.value.clone()));
                }
            })?;
        }
        Ok(found)
    }

    fn buckets(&self, range: &RangeInclusive<i64>) -> RangeInclusive<i64> {
        piece(*range.start(), self.bucket)..=piece(*range.end(), self.bucket)
    }
}

/// The times from `time + from` to `time + to`, as far as there are such times.
fn range(time: i64, from: i128, to: i128) -> RangeInclusive<i64> {
    let (first, last) = (i128::from(time) + from, i128::from(time) + to);
    if first > i64::MAX.into() || last < i64::MIN.into() {
        return RangeInclusive::new(1, 0);
    }
    clamped(first)..=clamped(last)
}
