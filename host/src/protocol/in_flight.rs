//! Which subtask takes up a record that was in flight at a checkpoint, also when the parallelism has changed since.
//!
//! It follows the state: a record goes where the state is that it would have met. What is dealt by key goes to the owner of the key
//! group. What one subtask was to get as it came goes with that subtask's own state, from old subtask `j` to new subtask `j` modulo
//! the parallelism. What every subtask was to get is in as many copies as there were subtasks, each as far as that subtask was:
//! new subtask `k` takes that of old subtask `k` modulo the old parallelism, and with it the state of that one.
//!
//! Invariant: where an edge deals as it did, every record that was in flight is taken up: by one subtask, or by each if all were to
//! get it.

use std::sync::Arc;

use super::MaxParallelism;
use crate::element::Batch;

/// How an edge deals records to the subtasks of its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealing {
    ByKey,
    /// Batch by batch to one of them.
    ToOne,
    ToAll,
}

/// One of the subtasks of an operator or sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub index: u32,
    pub parallelism: u32,
}

/// What `new` takes up of a batch that was in flight to `old`; `None` if nothing. `was` and `is`: how the edge dealt then, and
/// deals now.
///
/// # Panics
/// If a parallelism isn't in `1 ..= max_parallelism`, or an index not below it.
pub fn take_up(
    batch: &Arc<Batch>,
    (was, old): (Dealing, Place),
    (is, new): (Dealing, Place),
    max_parallelism: MaxParallelism,
) -> Option<Arc<Batch>> {
    assert!(old.index < old.parallelism && new.index < new.parallelism, "{old:?} to {new:?}");
    if was == Dealing::ToAll && is != Dealing::ToAll && old.index > 0 {
        // Another copy of the same.
        return None;
    }
    let whole = |mine: bool| mine.then(|| Arc::clone(batch));
    match (was, is) {
        (Dealing::ByKey, Dealing::ByKey) if old == new => whole(true),
        (_, Dealing::ByKey) => rows_of(batch, old, new, max_parallelism),
        (_, Dealing::ToOne) => whole(old.index % new.parallelism == new.index),
        (Dealing::ToAll, Dealing::ToAll) => whole(new.index % old.parallelism == old.index),
        (Dealing::ByKey | Dealing::ToOne, Dealing::ToAll) => whole(true),
    }
}

/// The rows whose key groups `new` owns. A row without a key has no state to go to, and goes where its old subtask's went.
fn rows_of(batch: &Arc<Batch>, old: Place, new: Place, max_parallelism: MaxParallelism) -> Option<Arc<Batch>> {
    let mine = |row: usize| match batch.key(row) {
        Some(key) => max_parallelism.subtask(max_parallelism.key_group(key), new.parallelism) == new.index,
        None => old.index % new.parallelism == new.index,
    };
    let rows = (0..batch.rows as usize).filter(|&row| mine(row)).collect::<Vec<_>>();
    if rows.len() == batch.rows as usize {
        return Some(Arc::clone(batch));
    }
    let mut own = Batch::with_capacity(rows.len(), batch.bytes());
    rows.into_iter().for_each(|row| own.push_from(batch, row));
    (!own.is_empty()).then(|| Arc::new(own))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::element::{Header, Row};

    const GROUPS: u32 = 16;

    fn max() -> MaxParallelism {
        MaxParallelism::new(GROUPS).expect("in range")
    }

    /// Two batches of records to each of `parallelism` subtasks, as the edge deals them; a record's time is its number.
    fn in_flight(dealing: Dealing, parallelism: u32) -> Vec<(Place, Arc<Batch>)> {
        let mut batches = Vec::new();
        for index in 0..parallelism {
            for half in 0..2 {
                let mut batch = Batch::default();
                for number in (0..60u32).filter(|number| number % 2 == half) {
                    let key = number.to_le_bytes();
                    let mine = match dealing {
                        Dealing::ByKey => max().subtask(max().key_group(&key), parallelism) == index,
                        Dealing::ToOne => number / 2 % parallelism == index,
                        Dealing::ToAll => true,
                    };
                    if mine {
                        batch.push(Row { key: Some(&key), value: None, timestamp: i64::from(number) });
                        batch.push_header(Header { name: "number", value: Some(&key) });
                    }
                }
                batches.push((Place { index, parallelism }, Arc::new(batch)));
            }
        }
        batches
    }

    /// The number of a record, which its time and its header say.
    fn number(batch: &Batch, row: usize) -> i64 {
        let number = batch.timestamp(row);
        let expected = [Header { name: "number", value: Some(&(number as u32).to_le_bytes()) }];
        assert_eq!(batch.headers(row).collect::<Vec<_>>(), expected, "record {number}");
        number
    }

    /// The numbers of the records that each new subtask takes up.
    fn taken_up(was: Dealing, from: u32, is: Dealing, to: u32) -> BTreeMap<u32, Vec<i64>> {
        let mut taken = BTreeMap::new();
        for index in 0..to {
            let new = Place { index, parallelism: to };
            let batches = in_flight(was, from);
            let batches = batches.iter().filter_map(|(old, batch)| take_up(batch, (was, *old), (is, new), max()));
            let numbers =
                batches.flat_map(|batch| (0..batch.rows as usize).map(|row| number(&batch, row)).collect::<Vec<_>>());
            taken.insert(index, numbers.collect());
        }
        taken
    }

    fn sorted(numbers: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut numbers = numbers.into_iter().collect::<Vec<_>>();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn at_any_change_of_parallelism_every_record_is_taken_up_once_or_by_all() {
        let all = (0..60).collect::<Vec<_>>();
        for (from, to) in (1..=5).flat_map(|from| (1..=5).map(move |to| (from, to))) {
            for dealing in [Dealing::ByKey, Dealing::ToOne] {
                let taken = taken_up(dealing, from, dealing, to);
                assert_eq!(sorted(taken.into_values().flatten()), all, "{dealing:?} {from} to {to}");
            }
            for (index, numbers) in taken_up(Dealing::ToAll, from, Dealing::ToAll, to) {
                assert_eq!(sorted(numbers), all, "subtask {index}, {from} to {to}");
            }
        }
    }

    #[test]
    fn a_record_follows_its_key_group_and_keeps_its_order() {
        for (index, (old, batch)) in
            (0..3).flat_map(|index| in_flight(Dealing::ByKey, 2).into_iter().map(move |b| (index, b)))
        {
            let new = Place { index, parallelism: 3 };
            let Some(taken) = take_up(&batch, (Dealing::ByKey, old), (Dealing::ByKey, new), max()) else { continue };
            let numbers = taken.iter().map(|row| row.timestamp).collect::<Vec<_>>();
            let owner = |number: &i64| max().subtask(max().key_group(&(*number as u32).to_le_bytes()), 3);
            assert!(numbers.iter().all(|number| owner(number) == index), "{numbers:?}");
            assert!(numbers.is_sorted(), "{numbers:?}");
        }
    }

    #[test]
    fn a_copy_goes_with_the_state_of_the_subtask_that_it_was_for() {
        let batch = Arc::new(Batch::default());
        let takes = |old: u32, new: u32| {
            let (old, new) = (Place { index: old, parallelism: 2 }, Place { index: new, parallelism: 3 });
            take_up(&batch, (Dealing::ToAll, old), (Dealing::ToAll, new), max()).is_some()
        };
        let pairs = (0..2).flat_map(|old| (0..3).map(move |new| (old, new))).filter(|&(old, new)| takes(old, new));
        assert_eq!(pairs.collect::<Vec<_>>(), [(0, 0), (0, 2), (1, 1)]);
    }

    #[test]
    fn when_the_edge_deals_in_another_way_nothing_is_lost_and_no_copy_is_taken_twice() {
        let all = (0..60).collect::<Vec<_>>();
        for was in [Dealing::ByKey, Dealing::ToOne, Dealing::ToAll] {
            for is in [Dealing::ByKey, Dealing::ToOne] {
                assert_eq!(sorted(taken_up(was, 3, is, 2).into_values().flatten()), all, "{was:?} to {is:?}");
            }
            for numbers in taken_up(was, 3, Dealing::ToAll, 2).into_values() {
                assert_eq!(sorted(numbers), all, "{was:?}");
            }
        }
    }

    #[test]
    fn rows_without_a_key_go_with_their_old_subtask() {
        let mut batch = Batch::default();
        batch.push(Row { key: None, value: None, timestamp: 1 });
        let batch = Arc::new(batch);
        let takes = |new: u32| {
            let (old, new) = (Place { index: 2, parallelism: 3 }, Place { index: new, parallelism: 2 });
            take_up(&batch, (Dealing::ByKey, old), (Dealing::ByKey, new), max()).is_some()
        };
        assert!(takes(0) && !takes(1));
    }
}
