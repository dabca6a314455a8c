//! State of one key in numbered places, each with any number of elements in the order in which they came.
//!
//! Elements are kept in small chunks, so that one more costs the same however many there are.
//!
//! Invariant: the counts say what the chunks hold: all but the last one of a place are full.

use serde::{Deserialize, Serialize};

use super::name::part;
use crate::context::Context;
use crate::encoding::Data;
use crate::error::Error;
use crate::operator::Declaration;
use crate::state::{Map, Value};

const CHUNK_ELEMENTS: u32 = 16;

/// The places in use in ascending order, and how many elements each has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counts(Vec<(i64, u32)>);

impl Counts {
    fn find(&self, place: i64) -> Result<usize, usize> {
        match self.0.last() {
            Some(&(last, _)) if last == place => Ok(self.0.len() - 1),
            Some(&(last, _)) if last < place => Err(self.0.len()),
            Some(_) | None => self.0.binary_search_by_key(&place, |&(number, _)| number),
        }
    }

    fn get(&self, place: i64) -> u32 {
        self.find(place).map_or(0, |at| self.0[at].1)
    }
}

/// Elements by place.
pub(super) struct Runs<T> {
    counts: Value<Counts>,
    /// By place and number of the chunk.
    chunks: Map<(i64, u32), Vec<T>>,
}

impl<T: Data + Clone> Runs<T> {
    pub(super) fn declare(declare: &mut Declaration, block: &str, what: &str) -> Runs<T> {
        Runs { counts: declare.value(part(block, &format!("{what}-counts"))), chunks: declare.map(part(block, what)) }
    }

    /// How many elements a place has.
    pub(super) fn len(&self, ctx: &mut Context<'_>, place: i64) -> Result<u32, Error> {
        self.counts.read(ctx, |counts| counts.map_or(0, |counts| counts.get(place)))
    }

    /// Appends an element; says whether it is the first of its place.
    pub(super) fn push(&self, ctx: &mut Context<'_>, place: i64, element: T) -> Result<bool, Error> {
        let count = self.len(ctx, place)?;
        let next =
            count.checked_add(1).ok_or_else(|| Error::fatal("more than four billion elements of one key at a time"))?;
        let chunk = (place, count / CHUNK_ELEMENTS);
        if count.is_multiple_of(CHUNK_ELEMENTS) {
            self.chunks.insert(ctx, &chunk, vec![element])?;
        } else {
            let pushed = self.chunks.modify_existing(ctx, &chunk, |elements| elements.push(element))?;
            pushed.ok_or_else(|| lost(chunk))?;
        }
        self.counts.modify(ctx, |counts| match counts.find(place) {
            Ok(at) => counts.0[at].1 = next,
            Err(at) => counts.0.insert(at, (place, next)),
        })?;
        Ok(count == 0)
    }

    /// Looks at all elements of a place in order.
    pub(super) fn each(&self, ctx: &mut Context<'_>, place: i64, mut look: impl FnMut(&T)) -> Result<(), Error> {
        for chunk in self.chunks_of(ctx, place)? {
            let looked = self
                .chunks
                .read(ctx, &chunk, |elements| elements.map(|elements| elements.iter().for_each(&mut look)))?;
            looked.ok_or_else(|| lost(chunk))?;
        }
        Ok(())
    }

    /// Goes through all elements of a place in order, and may change those that `change` says it has.
    pub(super) fn each_mut(
        &self,
        ctx: &mut Context<'_>,
        place: i64,
        matches: impl Fn(&T) -> bool,
        mut change: impl FnMut(&mut T),
    ) -> Result<(), Error> {
        for chunk in self.chunks_of(ctx, place)? {
            let any =
                self.chunks.read(ctx, &chunk, |elements| elements.map(|elements| elements.iter().any(&matches)))?;
            if any.ok_or_else(|| lost(chunk))? {
                self.chunks.modify_existing(ctx, &chunk, |elements| {
                    elements.iter_mut().filter(|element| matches(element)).for_each(&mut change);
                })?;
            }
        }
        Ok(())
    }

    /// The places in use, up to the first that isn't wanted.
    pub(super) fn places_until(&self, ctx: &mut Context<'_>, wanted: impl Fn(i64) -> bool) -> Result<Vec<i64>, Error> {
        self.counts.read(ctx, |counts| {
            let places = counts.into_iter().flat_map(|counts| &counts.0).map(|&(place, _)| place);
            places.take_while(|&place| wanted(place)).collect()
        })
    }

    /// Takes all elements of a place out.
    pub(super) fn take(&self, ctx: &mut Context<'_>, place: i64) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        self.each(ctx, place, |element| all.push(element.clone()))?;
        self.remove(ctx, place)?;
        Ok(all)
    }

    /// Removes all elements of a place without looking at them.
    pub(super) fn remove(&self, ctx: &mut Context<'_>, place: i64) -> Result<(), Error> {
        for chunk in self.chunks_of(ctx, place)? {
            self.chunks.remove(ctx, &chunk)?;
        }
        if self.counts.read(ctx, |counts| counts.is_none())? {
            return Ok(());
        }
        let left = self.counts.modify(ctx, |counts| {
            counts.0.retain(|&(number, _)| number != place);
            !counts.0.is_empty()
        })?;
        if left { Ok(()) } else { self.counts.remove(ctx) }
    }

    fn chunks_of(&self, ctx: &mut Context<'_>, place: i64) -> Result<impl Iterator<Item = (i64, u32)> + use<T>, Error> {
        let count = self.len(ctx, place)?;
        Ok((0..count.div_ceil(CHUNK_ELEMENTS)).map(move |chunk| (place, chunk)))
    }
}

#[cold]
fn lost((place, chunk): (i64, u32)) -> Error {
    Error::fatal(format_args!("chunk {chunk} of place {place} is missing, though it is counted"))
}
