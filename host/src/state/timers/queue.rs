//! The timers of one subtask, in the order in which they are due.
//!
//! Invariant: between two calls the head of the key group that comes first in `order` isn't empty, so that the next timer is
//! known without reading; and a call that fails leaves everything as it was.

use std::collections::BTreeSet;

use super::head::Head;
use super::{Clock, key};
use crate::id::KeyGroup;
use crate::protocol::KeyGroupRange;
use crate::state::error::StateError;
use crate::state::scan::Page;

/// What the heads of one clock take together, if they are full.
const HEADS_BYTES_MAX: usize = 8 << 20;
/// Less would be read on for every few timers.
const HEAD_BYTES_MIN: usize = 2 << 10;

/// Reads the timers' entries of a key group whose user key is greater than a given one, about so many bytes of them.
pub type Read<'a> = dyn Fn(KeyGroup, &[u8], usize) -> Result<Page, StateError> + 'a;

/// A timer that was taken: its key group and user key.
pub type Taken = (KeyGroup, Box<[u8]>);

#[derive(Debug)]
pub struct TimerQueue {
    key_groups: KeyGroupRange,
    /// Of one head.
    bytes_max: usize,
    clocks: [ClockQueue; 2],
    /// What the running call has set and (`false`) deleted.
    changes: Vec<(Clock, KeyGroup, Box<[u8]>, bool)>,
    /// Whether it has deleted any.
    deletes: bool,
    /// What was taken for the running call.
    taken: Vec<(Clock, Taken)>,
}

/// The timers of one clock.
#[derive(Debug)]
struct ClockQueue {
    heads: Vec<Head>,
    /// The groups that have timers, by the earliest time that one of them may have.
    order: BTreeSet<(i64, u16)>,
}

impl TimerQueue {
    /// `restored`: whether timers may be in the state already; then [`settle`](Self::settle) must follow.
    pub fn new(key_groups: KeyGroupRange, restored: bool) -> TimerQueue {
        let groups = key_groups.first.0..=key_groups.last.0;
        let clock = |clock| {
            let head = |_| if restored { Head::unread(key::before_all(clock)) } else { Head::default() };
            let heads = groups.clone().map(head).collect::<Vec<_>>();
            let order =
                if restored { groups.clone().map(|group| (i64::MIN, group)).collect() } else { BTreeSet::new() };
            ClockQueue { heads, order }
        };
        let clocks = [clock(Clock::EventTime), clock(Clock::ProcessingTime)];
        let bytes_max = (HEADS_BYTES_MAX / groups.len()).max(HEAD_BYTES_MIN);
        TimerQueue { key_groups, bytes_max, clocks, changes: Vec::new(), deletes: false, taken: Vec::new() }
    }

    /// How many timers are in memory.
    pub fn in_memory(&self) -> usize {
        let heads = self.clocks.iter().flat_map(|clock| &clock.heads).map(Head::len).sum::<usize>();
        heads + self.changes.len() + self.taken.len()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.clocks.iter().all(|clock| clock.order.is_empty())
    }

    /// The time of the earliest timer.
    pub fn next_ms(&self, clock: Clock) -> Option<i64> {
        self.clocks[clock.index()].order.first().map(|&(time_ms, _)| time_ms)
    }

    /// Notes what the running call sets or deletes; says whether that may change anything.
    pub fn change(&mut self, clock: Clock, group: KeyGroup, user_key: &[u8], set: bool) -> bool {
        let known = !self.deletes && self.head(clock, group).contains(user_key);
        if known && set {
            return false;
        }
        self.deletes |= !set;
        self.changes.push((clock, group, user_key.into(), set));
        true
    }

    /// Takes the earliest timer if it is due. The caller deletes it from the state.
    ///
    /// # Errors
    /// If the state can't be read.
    pub fn take(&mut self, clock: Clock, up_to_ms: i64, read: &Read<'_>) -> Result<Option<Taken>, StateError> {
        self.read_on(clock, read)?;
        let Some(&(time_ms, group)) = self.clocks[clock.index()].order.first() else { return Ok(None) };
        if time_ms > up_to_ms {
            return Ok(None);
        }
        let group = KeyGroup(group);
        let first = self.with_head(clock, group, Head::pop).expect("the first head isn't empty");
        self.taken.push((clock, (group, first.clone())));
        Ok(Some((group, first)))
    }

    /// The call succeeded.
    ///
    /// # Errors
    /// If the state can't be read.
    pub fn settle(&mut self, read: &Read<'_>) -> Result<(), StateError> {
        self.taken.clear();
        self.deletes = false;
        let bytes_max = self.bytes_max;
        for (clock, group, user_key, set) in std::mem::take(&mut self.changes) {
            self.with_head(
                clock,
                group,
                |head| {
                    if set { head.insert(user_key, bytes_max) } else { head.remove(&user_key) }
                },
            );
        }
        self.read_on(Clock::EventTime, read)?;
        self.read_on(Clock::ProcessingTime, read)
    }

    /// The call failed.
    pub fn discard(&mut self) {
        self.changes.clear();
        self.deletes = false;
        let bytes_max = self.bytes_max;
        for (clock, (group, user_key)) in std::mem::take(&mut self.taken) {
            self.with_head(clock, group, |head| head.insert(user_key, bytes_max));
        }
    }

    /// Reads on in the group that comes first until its head isn't empty.
    fn read_on(&mut self, clock: Clock, read: &Read<'_>) -> Result<(), StateError> {
        while let Some(&(_, group)) = self.clocks[clock.index()].order.first() {
            let group = KeyGroup(group);
            let Some(after) = self.head(clock, group).must_read_after() else { return Ok(()) };
            let page = read(group, after, self.bytes_max / 2)?;
            let rows = page.user_keys.rows();
            // Behind the timers of one clock are those of the other.
            let own = (0..rows).take_while(|&row| key::is_of(clock, page.user_keys.get(row))).count();
            let user_keys = (0..own).map(|row| page.user_keys.get(row));
            self.with_head(clock, group, |head| head.read_on(user_keys, page.more && own == rows));
        }
        Ok(())
    }

    fn head(&self, clock: Clock, group: KeyGroup) -> &Head {
        &self.clocks[clock.index()].heads[usize::from(group.0 - self.key_groups.first.0)]
    }

    /// Changes a head, and its place in the order with it.
    fn with_head<R>(&mut self, clock: Clock, group: KeyGroup, change: impl FnOnce(&mut Head) -> R) -> R {
        let ClockQueue { heads, order } = &mut self.clocks[clock.index()];
        let head = &mut heads[usize::from(group.0 - self.key_groups.first.0)];
        let before = head.earliest_ms();
        let result = change(head);
        let after = head.earliest_ms();
        if before != after {
            if let Some(time_ms) = before {
                order.remove(&(time_ms, group.0));
            }
            if let Some(time_ms) = after {
                order.insert((time_ms, group.0));
            }
        }
        result
    }
}
