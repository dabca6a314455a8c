//! Knows what must be true of the output, whatever happens.
//!
//! Invariant: what is visible never changes, holds the effect of each record at most once at any time, and exactly once when
//! the job says that its input has ended.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::Epoch;

use crate::world::{Key, Part, Record, Row};

/// What must never happen has happened.
#[derive(Clone, Debug)]
pub struct Violation(pub String);

#[derive(Debug, Default)]
pub struct Oracle {
    /// The names of the visible parts. There is no way to take one out or to change it.
    visible: BTreeSet<String>,
    records: BTreeSet<u64>,
    /// The counts that were given out for each key.
    counts: BTreeMap<Key, BTreeSet<u64>>,
    totals: BTreeSet<(Key, u64)>,
    totals_expected: BTreeSet<(Key, u64)>,
    // How much happened, to show that the seeds reach everything.
    pub published: u64,
    pub files_deleted: u64,
}

impl Oracle {
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
            match row {
                Row::Counted { record, count } => {
                    if !self.records.insert(record.id) {
                        return violation(format!("record {} has its effect twice", record.id));
                    }
                    if !self.counts.entry(record.key).or_default().insert(count) {
                        return violation(format!("key {} was counted to {count} twice", record.key));
                    }
                }
                Row::Total { key, count } => {
                    if !self.totals.insert((key, count)) {
                        return violation(format!("the total {count} of key {key} is there twice"));
                    }
                }
            }
        }
        Ok(())
    }

    /// A round of input was added; `input` is all there is now.
    pub fn input_grew(&mut self, added: &[Record], input: &[Vec<Record>]) {
        for added in added {
            let count = input.iter().flatten().filter(|record| record.key == added.key).count();
            self.totals_expected.insert((added.key, count as u64));
        }
    }

    /// The job says that all of `input` is in the output.
    pub fn input_ended(&self, input: &[Vec<Record>]) -> Result<(), Violation> {
        let all = input.iter().flatten().map(|record| record.id).collect::<BTreeSet<_>>();
        if let Some(id) = all.difference(&self.records).next() {
            return Err(Violation(format!("the effect of record {id} isn't in the output")));
        }
        for (key, counts) in &self.counts {
            let expected = input.iter().flatten().filter(|record| record.key == *key).count() as u64;
            if !counts.iter().copied().eq(1..=expected) {
                return Err(Violation(format!("key {key} was counted {counts:?} and not 1 to {expected}")));
            }
        }
        if self.totals != self.totals_expected {
            return Err(Violation(format!("the totals are {:?} and not {:?}", self.totals, self.totals_expected)));
        }
        Ok(())
    }
}
