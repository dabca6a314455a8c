//! Knows what must be true of the output, whatever happens.
//!
//! Invariant: of an exactly-once job each sink's output holds the effect of each record at most once at any time, and exactly once
//! when the job says that its input has ended; of an at-least-once job, at least once then.

use std::collections::BTreeSet;

use lockgate_host::id::Epoch;
use lockgate_host::protocol::Alignment;

use crate::output::Output;
use crate::scenario::Scenario;
use crate::world::{Part, Record};

/// What must never happen has happened.
#[derive(Clone, Debug)]
pub struct Violation(pub String);

#[derive(Debug, Default)]
pub struct Oracle {
    /// The names of the visible parts. There is no way to take one out or to change it.
    visible: BTreeSet<String>,
    may_repeat: bool,
    /// Of the two-phase sink, if there is one.
    pub files: Option<Output>,
    /// Of the deciding sink, if there is one.
    pub log: Option<Output>,
    // How much happened, to show that the seeds reach everything.
    pub published: u64,
    pub files_deleted: u64,
    pub overtaken: u64,
    pub rescaled: u64,
    pub rescaled_in_flight: u64,
    pub decided: u64,
    pub adopted: u64,
    pub withdrawn: u64,
    /// Commits without a certain answer.
    pub unknown: u64,
    /// What a dead process still asked for, in vain.
    pub shut_out: u64,
    pub timed_out: u64,
    pub upgraded: u64,
    /// Upgrades that a process found decided, and those that it didn't.
    pub upgraded_late: u64,
    pub reverted: u64,
    /// Interrupted upgrades of which the store alone says what became, and those of which only a recovery does.
    pub told_by_store: u64,
    pub told_at_recovery: u64,
}

impl Oracle {
    pub fn new(alignment: Alignment) -> Oracle {
        Oracle { may_repeat: alignment == Alignment::AtLeastOnce, ..Oracle::default() }
    }

    /// From this record on the job has these sinks.
    pub fn watch(&mut self, files: bool, log: bool, next_record: u64) {
        let may_repeat = self.may_repeat;
        let new = || Output::new(may_repeat, next_record);
        if files {
            self.files.get_or_insert_with(new);
        }
        if log {
            self.log.get_or_insert_with(new);
        }
    }

    pub fn is_visible(&self, part: &str) -> bool {
        self.visible.contains(part)
    }

    pub fn part_became_visible(&mut self, epoch: Epoch, name: &str, part: Part) -> Result<(), Violation> {
        let violation = |what: String| Violation(format!("part {name} of epoch {epoch}: {what}"));
        if !self.visible.insert(name.to_owned()) {
            return Err(violation("a part of that name was visible before".to_owned()));
        }
        if !part.complete {
            return Err(violation("it wasn't prepared".to_owned()));
        }
        let output = self.files.as_mut().expect("only a job with such a sink has parts");
        part.rows.into_iter().try_for_each(|row| output.row_became_visible(row)).map_err(|twice| violation(twice.0))
    }

    fn outputs(&self) -> impl Iterator<Item = &Output> {
        self.files.iter().chain(&self.log)
    }

    /// A round of input was added; `input` is all there is now.
    pub fn input_grew(&mut self, added: &[Record], input: &[Vec<Record>], scenario: &Scenario) {
        for output in self.files.iter_mut().chain(&mut self.log) {
            output.input_grew(added, input, scenario);
        }
    }

    /// The job says that all of `input` is in the output.
    pub fn input_ended(&self, input: &[Vec<Record>], scenario: &Scenario) -> Result<(), Violation> {
        self.outputs().try_for_each(|output| output.input_ended(input, scenario))
    }
}
