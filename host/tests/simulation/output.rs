//! What one sink has made visible, and what must be true of it.
//!
//! Invariant: what is visible never changes.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::protocol::in_flight::Dealing;

use crate::oracle::Violation;
use crate::scenario::Scenario;
use crate::world::{Key, Record, Row};

#[derive(Debug, Default)]
pub struct Output {
    /// The first record that it gets the effect of.
    begins: u64,
    records: BTreeSet<u64>,
    /// The counts that were given out for each key of a side.
    counts: BTreeMap<(usize, Key), BTreeSet<u64>>,
    /// The newest count of a key of a side, in each lane in which they come in order.
    newest: BTreeMap<(usize, Key, u64), u64>,
    totals: BTreeSet<(Key, [u64; 2])>,
    /// In the order of the rounds.
    totals_expected: Vec<(Key, [u64; 2])>,
    /// What counters have told of the stream that goes to all of them, since input was added.
    seen: BTreeSet<(u32, u64)>,
    /// An at-least-once job may put out the same thing more than once.
    may_repeat: bool,
}

impl Output {
    pub fn new(may_repeat: bool, begins: u64) -> Output {
        Output { may_repeat, begins, ..Output::default() }
    }

    /// The same before anything is visible.
    pub fn emptied(&self) -> Output {
        let totals_expected = self.totals_expected.clone();
        Output { totals_expected, ..Output::new(self.may_repeat, self.begins) }
    }

    /// Says what comes a second time by it.
    pub fn row_became_visible(&mut self, row: Row) -> Result<(), Violation> {
        let twice = match row {
            Row::Counted { record, count, .. } => {
                let is_first = self.records.insert(record.id);
                // Looked at even if the record came before: at least once, it may be counted higher the second time.
                let is_new = self.counts.entry((record.side, record.key)).or_default().insert(count);
                match (is_first, is_new) {
                    (true, true) => return Ok(()),
                    (false, _) => format!("record {} has its effect twice", record.id),
                    (true, false) => format!("key {} was counted to {count} twice", record.key),
                }
            }
            Row::Total { key, counts } => {
                if self.totals.insert((key, counts)) {
                    return Ok(());
                }
                format!("the total {counts:?} of key {key} is there twice")
            }
            Row::Seen { counter, count } => {
                self.seen.insert((counter, count));
                return Ok(());
            }
        };
        if self.may_repeat { Ok(()) } else { Err(Violation(twice)) }
    }

    /// The counts of a key come in order; if there is only one lane, none is left out.
    pub fn check_order(&mut self, row: Row, lane: Option<u64>) -> Result<(), Violation> {
        let Row::Counted { record, count, .. } = row else { return Ok(()) };
        let newest = self.newest.insert((record.side, record.key, lane.unwrap_or_default()), count);
        let in_order = match (newest, lane) {
            (None, _) => true,
            (Some(newest), None) => count == newest + 1,
            (Some(newest), Some(_)) => count > newest,
        };
        let wrong = || Violation(format!("{count} of key {} comes after {newest:?}", record.key));
        in_order.then_some(()).ok_or_else(wrong)
    }

    /// A checkpoint with these records behind it is all that is visible.
    pub fn check_reflects(&self, counted: &BTreeSet<u64>) -> Result<(), Violation> {
        let counted = || counted.range(self.begins..);
        if !self.may_repeat && !counted().eq(&self.records) {
            let missing = counted().filter(|id| !self.records.contains(id)).collect::<Vec<_>>();
            let more = self.records.iter().filter(|id| !counted().any(|of| of == *id)).collect::<Vec<_>>();
            return Err(Violation(format!(
                "records {missing:?} are missing from the output and {more:?} are too many"
            )));
        }
        Ok(())
    }

    /// A round of input was added; `input` is all there is now.
    pub fn input_grew(&mut self, added: &[Record], input: &[Vec<Record>], scenario: &Scenario) {
        self.seen.clear();
        let keys = added.iter().filter(|added| is_counted(added, scenario)).map(|added| added.key);
        for key in keys.collect::<BTreeSet<_>>() {
            let of = |side| counted(input, scenario).filter(|record| record.key == key && record.side == side).count();
            self.totals_expected.push((key, [of(0) as u64, of(1) as u64]));
        }
    }

    /// The job says that all of `input` is in the output.
    pub fn input_ended(&self, input: &[Vec<Record>], scenario: &Scenario) -> Result<(), Violation> {
        let all = counted(input, scenario).map(|record| record.id).filter(|id| *id >= self.begins);
        if let Some(id) = all.collect::<BTreeSet<_>>().difference(&self.records).next() {
            return Err(Violation(format!("the effect of record {id} isn't in the output")));
        }
        let to_all = input.iter().flatten().filter(|record| !is_counted(record, scenario)).count() as u64;
        if self.may_repeat {
            return self.check_enough(input, scenario, to_all);
        }
        for ((side, key), counts) in &self.counts {
            let of = |record: &&Record| record.key == *key && record.side == *side;
            let expected = counted(input, scenario).filter(of).count() as u64;
            let before = counted(input, scenario).filter(of).filter(|record| record.id < self.begins).count() as u64;
            if !counts.iter().copied().eq(before + 1..=expected) {
                return Err(Violation(format!(
                    "key {key} was counted {counts:?} and not {} to {expected}",
                    before + 1
                )));
            }
        }
        let expected = self.totals_expected.iter().copied().collect::<BTreeSet<_>>();
        if self.totals != expected {
            return Err(Violation(format!("the totals are {:?} and not {expected:?}", self.totals)));
        }
        match self.seen.iter().find(|(_, count)| *count != to_all) {
            Some((counter, count)) => Err(Violation(format!("counter {counter} has seen {count} of {to_all} records"))),
            None => Ok(()),
        }
    }

    /// Nothing is lost, though some may be there more than once.
    fn check_enough(&self, input: &[Vec<Record>], scenario: &Scenario, to_all: u64) -> Result<(), Violation> {
        for (side, key) in self.counts.keys() {
            let of = |record: &&Record| record.key == *key && record.side == *side;
            let least = counted(input, scenario).filter(of).count() as u64;
            if self.counts[&(*side, *key)].last() < Some(&least) {
                return Err(Violation(format!(
                    "key {key} was counted {:?} and not to {least}",
                    self.counts[&(*side, *key)]
                )));
            }
        }
        for (key, least) in &self.totals_expected {
            let enough = |(of, counts): &(Key, [u64; 2])| of == key && counts[0] >= least[0] && counts[1] >= least[1];
            if !self.totals.iter().any(enough) {
                return Err(Violation(format!("the totals are {:?} without {least:?} of key {key}", self.totals)));
            }
        }
        match self.seen.iter().find(|(_, count)| *count < to_all) {
            Some((counter, count)) => Err(Violation(format!("counter {counter} has seen {count} of {to_all} records"))),
            None => Ok(()),
        }
    }
}

/// Whether a record goes to the one counter of its key.
pub fn is_counted(record: &Record, scenario: &Scenario) -> bool {
    scenario.dealing[record.side] != Dealing::ToAll
}

fn counted<'a>(input: &'a [Vec<Record>], scenario: &'a Scenario) -> impl Iterator<Item = &'a Record> {
    input.iter().flatten().filter(|record| is_counted(record, scenario))
}
