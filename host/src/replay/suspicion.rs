//! What the next attempt is to look out for, when a call has failed and couldn't be made to fail again.
//!
//! Whoever fails takes what it has in memory with it, so that the state is only known as of the last snapshot. If the record doesn't
//! fail in that, it does in a state that is no more. The next attempt comes to it again: it processes the records one by one, and so
//! learns which it is, if the operator hasn't said so; the one after that stops before that record, and makes the capsule there.
//! As for isolation this is from one attempt to the next, but attempts may be those of different processes: a job whose policy is
//! to fail may well end with it.
//!
//! Invariant: a suspicion costs speed for a bounded number of records only, and is gone then.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::capsule::Outcome;
use crate::element::Batch;
use crate::protocol::isolation::Fingerprint;

/// The next attempt starts from one of the last so many snapshots, or gives up too early.
const SNAPSHOTS: usize = 4;

/// What is known of a failure that couldn't be brought about again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// It is among so many records from the start on.
    pub rows: u64,
    /// `None`: it isn't known which one it is.
    pub row: Option<Suspected>,
}

/// A record that is known to fail where it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspected {
    /// By what it is known again, in hexadecimal digits.
    fingerprint: String,
    /// How many records are before it, for each place from which the next attempt may start. Others may be like it.
    places: Vec<u64>,
    seen: Outcome,
}

/// What an attempt does with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Processes these rows in one call.
    Rows(Range<u32>),
    /// Makes a capsule of this row, which comes next.
    Suspect(u32, Outcome),
}

/// The suspicion of one attempt, and what is needed for that of the next one.
#[derive(Debug)]
pub struct Search {
    suspicion: Option<Suspicion>,
    rows: u64,
    /// How many of them were before the batch at hand.
    before: u64,
    /// How many rows had come before each of the last snapshots; the first is that of the start.
    cuts: VecDeque<u64>,
}

impl Search {
    pub fn new(suspicion: Option<Suspicion>) -> Search {
        Search { suspicion, rows: 0, before: 0, cuts: VecDeque::from([0]) }
    }

    /// A barrier passes.
    pub fn cut(&mut self) {
        self.cuts.push_back(self.rows);
        if self.cuts.len() > SNAPSHOTS {
            self.cuts.pop_front();
        }
    }

    /// How a batch is to be processed. Rows of it count as having come.
    pub fn steps(&mut self, port: u32, batch: &Batch) -> Vec<Step> {
        self.before = self.rows;
        self.rows += u64::from(batch.rows);
        let before = self.before;
        let Some(suspicion) = self.suspicion.as_ref().filter(|suspicion| before < suspicion.rows) else {
            return vec![Step::Rows(0..batch.rows)];
        };
        let Some(Suspected { fingerprint, places, seen }) = &suspicion.row else {
            return (0..batch.rows).map(|row| Step::Rows(row..row + 1)).collect();
        };
        let last = places.iter().max().copied().unwrap_or_default();
        let is_it = |row: &u32| {
            let place = before + u64::from(*row);
            // Behind all places it has come another way.
            (places.contains(&place) || place > last)
                && digits(Fingerprint::of(port, batch, *row as usize)) == *fingerprint
        };
        match (0..batch.rows).find(is_it) {
            Some(row) => {
                let steps = [Step::Rows(0..row), Step::Suspect(row, seen.clone()), Step::Rows(row..batch.rows)];
                self.suspicion = None;
                steps.into_iter().filter(|step| *step != Step::Rows(0..0)).collect()
            }
            None => vec![Step::Rows(0..batch.rows)],
        }
    }

    /// Whether what was suspected can't come any more, or has come; once.
    pub fn is_over(&mut self) -> bool {
        self.suspicion.take_if(|suspicion| self.rows >= suspicion.rows).is_some()
    }

    /// A call has failed, with the rows from `first` on of the batch at hand; `certain`: which of them, where it is known.
    pub fn failed(&self, port: u32, rows: &Batch, first: u32, certain: Option<u32>, seen: Outcome) -> Suspicion {
        let row = certain.or((rows.rows == 1).then_some(0)).filter(|row| *row < rows.rows);
        let suspected = |row: u32| {
            let place = self.before + u64::from(first) + u64::from(row);
            Suspected {
                fingerprint: digits(Fingerprint::of(port, rows, row as usize)),
                places: self.cuts.iter().map(|cut| place - cut).collect(),
                seen,
            }
        };
        Suspicion { rows: self.rows - self.cuts[0], row: row.map(suspected) }
    }
}

fn digits(fingerprint: Fingerprint) -> String {
    format!("{:032x}", fingerprint.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Row;

    fn batch(values: &[&str]) -> Batch {
        let mut batch = Batch::default();
        for value in values {
            batch.push(Row { key: None, value: Some(value.as_bytes()), timestamp: 0 });
        }
        batch
    }

    #[test]
    fn without_a_suspicion_batches_stay_whole() {
        let mut search = Search::new(None);
        assert_eq!(search.steps(0, &batch(&["a", "b"])), [Step::Rows(0..2)]);
        assert!(!search.is_over());
    }

    #[test]
    fn an_unknown_record_is_looked_for_one_by_one_and_a_known_one_is_stopped_before() {
        let rows = batch(&["a", "b", "c"]);
        let mut first = Search::new(None);
        first.steps(0, &rows);
        let unknown = first.failed(0, &rows, 0, None, Outcome::Passed);
        assert_eq!((unknown.rows, &unknown.row), (3, &None));
        let mut second = Search::new(Some(unknown));
        assert_eq!(second.steps(0, &rows), [Step::Rows(0..1), Step::Rows(1..2), Step::Rows(2..3)]);
        let known = second.failed(0, &batch(&["b"]), 1, None, Outcome::Passed);
        let mut third = Search::new(Some(known));
        let steps = [Step::Rows(0..1), Step::Suspect(1, Outcome::Passed), Step::Rows(1..3)];
        assert_eq!(third.steps(0, &rows), steps);
        assert_eq!(third.steps(0, &rows), [Step::Rows(0..3)], "once");
    }

    #[test]
    fn a_record_that_does_not_come_again_is_forgotten() {
        let mut search = Search::new(Some(Suspicion { rows: 3, row: None }));
        assert_eq!(search.steps(0, &batch(&["a", "b"])).len(), 2);
        assert!(!search.is_over());
        assert_eq!(search.steps(0, &batch(&["a", "b"])).len(), 2);
        assert!(search.is_over() && !search.is_over());
        assert_eq!(search.steps(0, &batch(&["a", "b"])).len(), 1);
    }

    #[test]
    fn what_the_next_attempt_does_not_come_to_again_does_not_count() {
        let mut search = Search::new(None);
        for _ in 0..10 {
            search.steps(0, &batch(&["a"]));
            search.cut();
        }
        search.steps(0, &batch(&["a"]));
        let suspicion = search.failed(0, &batch(&["a"]), 0, None, Outcome::Passed);
        assert_eq!(suspicion.rows, SNAPSHOTS as u64);
        assert_eq!(suspicion.row.expect("the only one").places, [3, 2, 1, 0]);
    }

    #[test]
    fn of_equal_records_it_is_the_one_at_the_place_where_it_failed() {
        let rows = batch(&["a", "b", "a", "a"]);
        let mut first = Search::new(None);
        first.steps(0, &batch(&["a"]));
        first.cut();
        first.steps(0, &rows);
        let suspicion = first.failed(0, &rows, 0, Some(2), Outcome::Passed);
        let mut from_the_start = Search::new(Some(suspicion.clone()));
        assert_eq!(from_the_start.steps(0, &batch(&["a"])), [Step::Rows(0..1)]);
        assert_eq!(from_the_start.steps(0, &rows)[1], Step::Suspect(2, Outcome::Passed));
        let mut from_the_snapshot = Search::new(Some(suspicion.clone()));
        assert_eq!(from_the_snapshot.steps(0, &rows)[1], Step::Suspect(2, Outcome::Passed));
        let mut another_way = Search::new(Some(suspicion));
        assert_eq!(another_way.steps(0, &batch(&["c", "c", "c", "c", "a"]))[1], Step::Suspect(4, Outcome::Passed));
    }
}
