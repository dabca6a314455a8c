//! Knows what must be true of the output, whatever happens.
//!
//! Invariant: what is visible never changes. Of an exactly-once job it holds the effect of each record at most once at any time,
//! and exactly once when the job says that its input has ended; of an at-least-once job, at least once then.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::Epoch;
use lockgate_host::protocol::Alignment;
use lockgate_host::protocol::in_flight::Dealing;

use crate::scenario::Scenario;
use crate::world::{Key, Part, Record, Row};

/// What must never happen has happened.
#[derive(Clone, Debug)]
pub struct Violation(pub String);

#[derive(Debug, Default)]
pub struct Oracle {
    /// The names of the visible parts. There is no way to take one out or to change it.
    visible: BTreeSet<String>,
    records: BTreeSet<u64>,
    /// The counts that were given out for each key of a side.
    counts: BTreeMap<(usize, Key), BTreeSet<u64>>,
    totals: BTreeSet<(Key, [u64; 2])>,
    /// In the order of the rounds.
    totals_expected: Vec<(Key, [u64; 2])>,
    /// What counters have told of the stream that goes to all of them, since input was added.
    seen: BTreeSet<(u32, u64)>,
    /// An at-least-once job may put out the same thing more than once.
    may_repeat: bool,
    // How much happened, to show that the seeds reach everything.
    pub published: u64,
    pub files_deleted: u64,
    pub overtaken: u64,
    pub rescaled: u64,
    pub rescaled_in_flight: u64,
}

impl Oracle {
    pub fn new(alignment: Alignment) -> Oracle {
        Oracle { may_repeat: alignment == Alignment::AtLeastOnce, ..Oracle::default() }
    }

    pub fn is_visible(&self, part: &str) -> bool {
        self.visible.contains(part)
    }

    pub fn part_became_visible(&mut self, epoch: Epoch, name: &str, part: Part) -> Result<(), Violation> {
        let violation = |what: String| Err(Violation(format!("part {name} of epoch {epoch}: {what}")));
        if !self.visible.insert(name.to_owned()) {
            return violation("a part of that name was visible before".to_owned());
        }
        if !part.complete {
            return violation("it wasn't prepared".to_owned());
        }
        for row in part.rows {
            if let Some(twice) = self.row_became_visible(row).filter(|_| !self.may_repeat) {
                return violation(twice);
            }
        }
        Ok(())
    }

    /// Says what comes a second time by it.
    fn row_became_visible(&mut self, row: Row) -> Option<String> {
        match row {
            Row::Counted { record, count } => {
                let is_first = self.records.insert(record.id);
                // Looked at even if the record came before: at least once, it may be counted higher the second time.
                let is_new = self.counts.entry((record.side, record.key)).or_default().insert(count);
                match (is_first, is_new) {
                    (true, true) => None,
                    (false, _) => Some(format!("record {} has its effect twice", record.id)),
                    (true, false) => Some(format!("key {} was counted to {count} twice", record.key)),
                }
            }
            Row::Total { key, counts } => {
                let first = self.totals.insert((key, counts));
                (!first).then(|| format!("the total {counts:?} of key {key} is there twice"))
            }
            Row::Seen { counter, count } => {
                self.seen.insert((counter, count));
                None
            }
        }
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
        let all = counted(input, scenario).map(|record| record.id).collect::<BTreeSet<_>>();
        if let Some(id) = all.difference(&self.records).next() {
            return Err(Violation(format!("the effect of record {id} isn't in the output")));
        }
        let to_all = input.iter().flatten().filter(|record| !is_counted(record, scenario)).count() as u64;
        if self.may_repeat {
            return self.check_enough(input, scenario, to_all);
        }
        for ((side, key), counts) in &self.counts {
            let of = |record: &&Record| record.key == *key && record.side == *side;
            let expected = counted(input, scenario).filter(of).count() as u64;
            if !counts.iter().copied().eq(1..=expected) {
                return Err(Violation(format!("key {key} was counted {counts:?} and not 1 to {expected}")));
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
fn is_counted(record: &Record, scenario: &Scenario) -> bool {
    scenario.dealing[record.side] != Dealing::ToAll
}

fn counted<'a>(input: &'a [Vec<Record>], scenario: &'a Scenario) -> impl Iterator<Item = &'a Record> {
    input.iter().flatten().filter(|record| is_counted(record, scenario))
}
