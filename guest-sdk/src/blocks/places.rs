//! State of one key in numbered places, of which few are in use: which ones is known without asking for each.
//!
//! Invariant: a place is in the list exactly if the table has it. So a new place is written without a read, and an
//! absent one never asked for.

use std::collections::VecDeque;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::name::part;
use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::operator::Declaration;
use crate::state::{Series, Value};

/// Numbers in ascending order. Encoded as a sequence: the first number (i64), then the differences of each to the one
/// before it (u64), so that neighbours take a byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers(VecDeque<i64>);

impl Numbers {
    pub(super) fn first(&self) -> Option<i64> {
        self.0.front().copied()
    }

    /// The first from `from` on.
    pub(super) fn first_from(&self, from: i64) -> Option<i64> {
        self.0.get(self.0.partition_point(|&number| number < from)).copied()
    }

    /// Those from `from` on, up to but not including `to`.
    pub(super) fn between(&self, from: i64, to: i64) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        let start = self.0.partition_point(|&number| number < from);
        let end = self.0.partition_point(|&number| number < to);
        self.0.range(start..end.max(start)).copied()
    }

    /// Says whether it is new.
    fn insert(&mut self, number: i64) -> bool {
        match self.0.back() {
            Some(&last) if last >= number => match self.0.binary_search(&number) {
                Ok(_) => return false,
                Err(place) => self.0.insert(place, number),
            },
            Some(_) | None => self.0.push_back(number),
        }
        true
    }

    /// Says whether it was there.
    fn remove(&mut self, number: i64) -> bool {
        let place = self.0.binary_search(&number);
        place.is_ok_and(|place| self.0.remove(place).is_some())
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        let mut before = None;
        for &number in &self.0 {
            match before.replace(number) {
                None => sequence.serialize_element(&number)?,
                Some(before) => sequence.serialize_element(&(number.wrapping_sub(before) as u64))?,
            }
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Numbers, D::Error> {
        struct Differences;

        impl<'de> Visitor<'de> for Differences {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number and differences")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Numbers, A::Error> {
                let mut numbers = VecDeque::new();
                let Some(mut number) = sequence.next_element::<i64>()? else { return Ok(Numbers(numbers)) };
                numbers.push_back(number);
                while let Some(difference) = sequence.next_element::<u64>()? {
                    number = number.wrapping_add(difference as i64);
                    numbers.push_back(number);
                }
                Ok(Numbers(numbers))
            }
        }

        deserializer.deserialize_seq(Differences)
    }
}

/// One `T` in each place in use.
pub(super) struct Places<T> {
    used: Value<Numbers>,
    entries: Series<T>,
}

impl<T: Data + Clone> Places<T> {
    pub(super) fn declare(declare: &mut Declaration, block: &str, what: &str) -> Places<T> {
        Places { used: declare.value(part(block, &format!("{what}-used"))), entries: declare.series(part(block, what)) }
    }

    /// The places in use.
    pub(super) fn used<R>(&self, ctx: &mut Context<'_>, look: impl FnOnce(&Numbers) -> R) -> Result<R, Error> {
        const NONE: &Numbers = &Numbers(VecDeque::new());
        self.used.read(ctx, |used| look(used.unwrap_or(NONE)))
    }

    pub(super) fn is_used(&self, ctx: &mut Context<'_>, place: i64) -> Result<bool, Error> {
        self.used(ctx, |used| used.0.binary_search(&place).is_ok())
    }

    /// Puts something into a place that isn't in use.
    pub(super) fn insert(&self, ctx: &mut Context<'_>, place: i64, value: T) -> Result<(), Error> {
        let new = self.used.modify(ctx, |used| used.insert(place))?;
        debug_assert!(new, "the place is free");
        self.entries.add(ctx, place, value)
    }

    /// Changes what is in a place; `None` if it isn't in use.
    pub(super) fn change<R>(
        &self,
        ctx: &mut Context<'_>,
        place: i64,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Error> {
        if !self.is_used(ctx, place)? {
            return Ok(None);
        }
        self.entries.change(ctx, place, change)?.ok_or_else(|| lost(place)).map(Some)
    }

    /// Looks at what is in a place that is in use.
    pub(super) fn read<R>(&self, ctx: &mut Context<'_>, place: i64, look: impl FnOnce(&T) -> R) -> Result<R, Error> {
        self.entries.read(ctx, place, look)?.ok_or_else(|| lost(place))
    }

    /// Frees a place; gives what was in it, if it was in use.
    pub(super) fn take(&self, ctx: &mut Context<'_>, place: i64) -> Result<Option<T>, Error> {
        if !self.is_used(ctx, place)? {
            return Ok(None);
        }
        let value = self.read(ctx, place, T::clone)?;
        self.remove(ctx, place)?;
        Ok(Some(value))
    }

    /// Frees a place in use without looking at it. Gives the first one that is left.
    pub(super) fn remove(&self, ctx: &mut Context<'_>, place: i64) -> Result<Option<i64>, Error> {
        self.entries.remove(ctx, place)?;
        let first = self.used.modify(ctx, |used| {
            used.remove(place);
            used.first()
        })?;
        if first.is_none() {
            self.used.remove(ctx)?;
        }
        Ok(first)
    }
}

#[cold]
fn lost(place: i64) -> Error {
    Error::fatal(format_args!("the state of place {place} is missing, though it is listed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{decode, encode};

    fn numbers(of: &[i64]) -> Numbers {
        let mut numbers = Numbers::default();
        of.iter().for_each(|&number| assert!(numbers.insert(number)));
        numbers
    }

    #[test]
    fn numbers_are_sorted_and_neighbours_take_a_byte() -> Result<(), Error> {
        let extremes = numbers(&[7, i64::MAX, 6, i64::MIN, 0]);
        assert_eq!(extremes.0, [i64::MIN, 0, 6, 7, i64::MAX]);
        assert_eq!(decode::<Numbers>(&encode(&extremes)?)?, extremes);
        assert_eq!(encode(&numbers(&[1_000_000, 1_000_001, 1_000_003]))?, [3, 0x80, 0x89, 0x7a, 1, 2]);
        assert_eq!(decode::<Numbers>(&encode(&Numbers::default())?)?, Numbers::default());
        Ok(())
    }

    #[test]
    fn numbers_are_found_by_range_and_removed() {
        let mut numbers = numbers(&[1, 3, 5]);
        assert!(!numbers.insert(3) && !numbers.insert(5));
        assert_eq!(numbers.between(2, 5).collect::<Vec<_>>(), [3]);
        assert_eq!(numbers.between(6, 0).count(), 0);
        assert!(numbers.remove(3) && !numbers.remove(3));
        assert_eq!(numbers.0, [1, 5]);
    }
}
