//! The greatest values of each key, at any time.

use super::aggregate::Top;
use super::name::part;
use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::operator::Declaration;
use crate::state::Value;

/// Keeps the `N` greatest values that each key has ever had, the greatest first. Values that are equal count each.
///
/// For the top of each window, see [`Top`] in [`TumblingWindows`](super::TumblingWindows) or
/// [`SlidingWindows`](super::SlidingWindows).
///
/// ```
/// use lockgate::blocks::Ranking;
/// use lockgate::prelude::*;
///
/// /// The two best results of each player, each time that they change.
/// struct Best {
///     best: Ranking<u32, 2>,
/// }
///
/// impl Operator for Best {
///     fn new(declare: &mut Declaration) -> Best {
///         Best { best: Ranking::declare(declare, "best") }
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         if let Some(best) = self.best.offer(ctx, record.value_str()?.parse()?)? {
///             ctx.emit_fmt(record.key(), format_args!("{best:?}"));
///         }
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let mut harness = lockgate::testing::Harness::<Best>::open()?;
/// harness.process([("ann", "7"), ("ann", "5"), ("ann", "3"), ("ann", "9")])?;
/// assert_eq!(harness.take_output(), [("ann", "[7]"), ("ann", "[7, 5]"), ("ann", "[9, 7]")]);
/// # Ok(())
/// # }
/// ```
pub struct Ranking<T, const N: usize> {
    top: Value<Top<T, N>>,
}

impl<T: Data + Ord + Clone, const N: usize> Ranking<T, N> {
    /// Declares a ranking. The name is that of its state.
    pub fn declare(declare: &mut Declaration, name: &'static str) -> Ranking<T, N> {
        Ranking { top: declare.value(part(name, "top")) }
    }

    /// Adds a value of the current key; gives the greatest ones if it is among them.
    ///
    /// # Errors
    /// If there is no key, or state can't be read.
    pub fn offer(&self, ctx: &mut Context<'_>, value: T) -> Result<Option<Vec<T>>, Error> {
        self.top.modify(ctx, |top| top.offer(value).then(|| top.values().to_vec()))
    }

    /// The greatest values of the current key.
    ///
    /// # Errors
    /// If there is no key, or state can't be read.
    pub fn get(&self, ctx: &mut Context<'_>) -> Result<Vec<T>, Error> {
        self.top.read(ctx, |top| top.map_or_else(Vec::new, |top| top.values().to_vec()))
    }

    /// Starts anew for the current key.
    ///
    /// # Errors
    /// If there is no key.
    pub fn clear(&self, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.top.remove(ctx)
    }
}
