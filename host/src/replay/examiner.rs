//! Makes capsules of one subtask's failures.
//!
//! Invariant: whatever goes wrong with a capsule, the job is as it would be without; it is told in the log and nowhere else. A
//! subtask makes at most as many trials in an attempt as its operator may have capsules.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::capsule::{Capsule, Component, Identity, Outcome, ReadFrom, StateOf, TableOf, named_limits};
use super::folder::{Capsules, Wanted};
use super::suspicion::{Search, Suspicion};
use crate::element::{Batch, Origin};
use crate::guest::{Again, ErrorKind, Facts, Failure, Instance, Made, OperatorError, TrialCall};
use crate::id::{Epoch, SubtaskId};
use crate::protocol::MaxParallelism;

/// For so long rows are looked at one by one, to find the one at which a call has failed.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the capsules of one subtask in one attempt.
#[derive(Clone)]
pub struct Examiner {
    capsules: Arc<Capsules>,
    /// Of the operator.
    files_max: u32,
    trials_left: u32,
    max_parallelism: MaxParallelism,
    state_memory_bytes_max: usize,
}

/// A call that has failed.
#[derive(Clone, Debug)]
pub struct FailedCall {
    pub epoch: Epoch,
    pub call: TrialCall,
    /// The row that it was, where that is known.
    pub certain: Option<u32>,
}

/// What came of looking at a call that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// There is a capsule of it.
    Kept(PathBuf),
    /// It doesn't fail again in the state that is left.
    NotAgain(Outcome),
    /// There is no room for a capsule, or it is no matter of a record.
    Unwanted,
}

/// The row at which an operator says that it has failed.
pub fn said_row(error: &OperatorError) -> Option<u32> {
    match &*error.failure {
        Failure::Refused { row, .. } => *row,
        Failure::Deadline { .. }
        | Failure::Memory { .. }
        | Failure::Output { .. }
        | Failure::Panic { .. }
        | Failure::Stack { .. }
        | Failure::Tables { .. }
        | Failure::Instances { .. }
        | Failure::StateSize { .. }
        | Failure::Migration(_)
        | Failure::Trap { .. }
        | Failure::Misuse(_)
        | Failure::Unfit { .. }
        | Failure::State(_) => None,
    }
}

/// A row that was rejected, or is known to fail.
pub struct Suspect<'a> {
    pub epoch: Epoch,
    /// With this row alone.
    pub call: TrialCall,
    pub seen: Outcome,
    pub origin: Option<Origin<'a>>,
}

impl Suspect<'_> {
    /// A record of input `port` that was rejected or is known to fail.
    pub fn record(port: u32, batch: &Batch, row: u32, epoch: Epoch, seen: Outcome) -> Suspect<'_> {
        let origin = batch.provenance.as_ref().map(|provenance| provenance.of(row));
        Suspect { epoch, call: TrialCall::Process { port, rows: alone(batch, row) }, seen, origin }
    }
}

/// One row as a batch, of nowhere.
fn alone(batch: &Batch, row: u32) -> Batch {
    let mut alone = Batch::with_capacity(1, 0);
    alone.push_from(batch, row as usize);
    alone.provenance = None;
    alone
}

impl Examiner {
    pub fn new(
        capsules: Arc<Capsules>,
        files_max: u32,
        max_parallelism: MaxParallelism,
        state_memory_bytes_max: usize,
    ) -> Examiner {
        Examiner { capsules, files_max, trials_left: files_max, max_parallelism, state_memory_bytes_max }
    }

    /// Makes a capsule of a row that has no effect, with an instance that is in the state before it. Gives its file, or that of
    /// one that is there already.
    ///
    /// # Errors
    /// If the instance itself fails. Then it is only dropped.
    pub fn row(&mut self, instance: &mut Instance, suspect: Suspect<'_>) -> Result<Option<PathBuf>, OperatorError> {
        let Facts { plugin, place, .. } = instance.facts();
        let identity = Identity::of(plugin.hash(), &suspect.call, &suspect.seen);
        match self.capsules.wants(&place.subtask.operator, identity, self.files_max) {
            Wanted::Kept(path) => return Ok(Some(path)),
            Wanted::Full => return Ok(None),
            Wanted::Yes if self.trials_left == 0 => return Ok(None),
            Wanted::Yes => self.trials_left -= 1,
        }
        let made = match suspect.seen {
            Outcome::Rejected { .. } => Made::Last,
            Outcome::Passed | Outcome::Failed { .. } => Made::NotYet,
        };
        let again = instance.again(suspect.epoch, suspect.call, made)?;
        let Suspect { epoch, seen, origin, .. } = suspect;
        Ok(self.keep(&instance.facts(), Found { epoch, seen, origin, again, state_of: StateOf::Call }))
    }

    /// Makes a capsule of the row at which a call has failed, if it can be found. The instance has failed in it.
    pub fn failed(&mut self, instance: &mut Instance, failed: &FailedCall, error: &OperatorError) -> Looked {
        let FailedCall { epoch, call, certain } = failed;
        // It is the world's fault, or no row's.
        if matches!(*error.failure, Failure::Refused { kind: ErrorKind::Transient, .. } | Failure::Unfit { .. }) {
            return Looked::Unwanted;
        }
        let seen = Outcome::of_error(error);
        let Facts { plugin, place, .. } = instance.facts();
        let rows = call.rows().map_or(0, |rows| rows.rows);
        for row in 0..rows.max(1) {
            let identity = Identity::of(plugin.hash(), &with_row(call, row), &seen);
            match self.capsules.wants(&place.subtask.operator, identity, self.files_max) {
                Wanted::Kept(path) => return Looked::Kept(path),
                Wanted::Full => return Looked::Unwanted,
                Wanted::Yes => {}
            }
        }
        let Some(left) = self.trials_left.checked_sub(1) else { return Looked::Unwanted };
        self.trials_left = left;
        let again = instance.look_back(call, *certain, Instant::now() + SEARCH_TIMEOUT);
        let Some(again) = again else {
            tracing::info!(
                operator = %error.subtask,
                "no capsule was written yet: in the state of the last snapshot the call doesn't fail"
            );
            return Looked::NotAgain(seen);
        };
        let origin = origin_in(call, &again.trial.call);
        let found = Found { epoch: *epoch, seen, origin, again, state_of: StateOf::Snapshot };
        self.keep(&instance.facts(), found).map_or(Looked::Unwanted, Looked::Kept)
    }

    /// What is to be looked out for in this attempt.
    pub fn search(&self, subtask: &SubtaskId) -> Search {
        Search::new(self.capsules.suspicion(subtask))
    }

    /// Remembers what the next attempt is to look out for.
    pub fn suspect(&self, subtask: &SubtaskId, suspicion: Option<&Suspicion>) {
        if let Err(error) = self.capsules.suspect(subtask, suspicion) {
            tracing::warn!(operator = %subtask, %error, "it can't be remembered what the next attempt is to look out for");
        }
    }

    /// Writes the capsule of a trial, if the trial has failed as the call had.
    fn keep(&self, facts: &Facts<'_>, found: Found<'_>) -> Option<PathBuf> {
        let operator = &facts.place.subtask;
        let tried = Outcome::of(&found.again.tried.outcome);
        if tried == Outcome::Passed {
            tracing::info!(
                %operator,
                "no capsule was written: a fresh instance in the same state doesn't fail ({}), so that the operator keeps \
                 something that is neither in its tables nor in its snapshots",
                found.seen
            );
            return None;
        }
        if found.again.tried.recorded.too_much {
            tracing::info!(%operator, "no capsule was written: the call reads more state than a capsule holds");
            return None;
        }
        let capsule = self.capsule(facts, found, tried);
        match capsule.and_then(|capsule| Ok(self.capsules.keep(&capsule)?)) {
            Ok(Some(path)) => {
                tell(operator, &path);
                Some(path)
            }
            Ok(None) => {
                tracing::info!(%operator, "no capsule was written: the folder of capsules is full");
                None
            }
            Err(error) => {
                let error = crate::telemetry::printable(&with_cause(&*error), 4096);
                tracing::warn!(%operator, error, "no capsule could be written");
                None
            }
        }
    }

    fn capsule(
        &self,
        facts: &Facts<'_>,
        found: Found<'_>,
        tried: Outcome,
    ) -> Result<Capsule, Box<dyn std::error::Error>> {
        let Facts { plugin, place, limits } = facts;
        let descriptor = plugin.descriptor();
        let Found { epoch, seen, origin, again, state_of } = found;
        let recorded = again.tried.recorded;
        let table = |table: &crate::guest::Table| TableOf { name: table.name.clone(), version: table.version };
        Ok(Capsule {
            host_version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            epoch,
            place: (*place).clone(),
            max_parallelism: self.max_parallelism,
            limits: named_limits(limits, self.state_memory_bytes_max),
            inputs: descriptor.inputs.iter().map(|input| input.name.clone()).collect(),
            tables: descriptor.tables.iter().map(table).collect(),
            component: Component {
                name: descriptor.name.clone(),
                version: descriptor.version.clone(),
                sha256: plugin.hash().to_owned(),
                bytes: plugin.component_bytes()?,
            },
            trial: again.trial,
            origin: origin.map(|Origin { split, offset, record }| ReadFrom {
                split: split.as_str().to_owned(),
                offset,
                record,
            }),
            state_of,
            reads: recorded.reads,
            entries: recorded.entries,
            seen,
            tried,
            effects: recorded.effects,
            draws: Some(again.draws),
        })
    }
}

/// A failure that was brought about again.
struct Found<'a> {
    epoch: Epoch,
    seen: Outcome,
    origin: Option<Origin<'a>>,
    again: Again,
    state_of: StateOf,
}

fn with_row(call: &TrialCall, row: u32) -> TrialCall {
    match call {
        TrialCall::Process { port, rows } => TrialCall::Process { port: *port, rows: alone(rows, row) },
        TrialCall::Timers { clock, rows } => TrialCall::Timers { clock: *clock, rows: alone(rows, row) },
        TrialCall::Watermark { timestamp } => TrialCall::Watermark { timestamp: *timestamp },
    }
}

/// Where the row was read that a call was narrowed down to.
fn origin_in<'a>(call: &'a TrialCall, narrow: &TrialCall) -> Option<Origin<'a>> {
    let (TrialCall::Process { rows, .. }, TrialCall::Process { rows: narrow, .. }) = (call, narrow) else {
        return None;
    };
    let provenance = rows.provenance.as_ref()?;
    let is_it = |row: &u32| {
        let index = *row as usize;
        rows.row(index) == narrow.row(0) && rows.headers(index).bytes() == narrow.headers(0).bytes()
    };
    (0..rows.rows).find(is_it).map(|row| provenance.of(row))
}

fn tell(operator: &SubtaskId, path: &std::path::Path) {
    let path = path.display();
    tracing::info!(%operator, "a capsule was written; to see the failure again: lockgate replay {path}");
}

fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Provenance, Row};
    use crate::id::SplitId;

    #[test]
    fn a_row_that_was_found_is_known_by_where_it_was_read() {
        let mut rows = Batch::default();
        for value in ["a", "b", "b"] {
            rows.push(Row { key: None, value: Some(value.as_bytes()), timestamp: 3 });
        }
        rows.provenance = Some(Arc::new(Provenance::of_source(SplitId::new("file"), 40)));
        let call = TrialCall::Process { port: 0, rows };
        let origin = origin_in(&call, &with_row(&call, 2)).expect("it was read somewhere");
        assert_eq!((origin.offset, origin.record), (40, 1), "of equal ones, the first");
        assert!(with_row(&call, 1).rows().expect("a row").provenance.is_none());
    }
}
