//! The guards of a job's operators in one attempt, and what they have seen when it has ended.
//!
//! Invariant: an operator has a guard if, and only if, its policy isn't to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Job, RunError};
use crate::guest::OperatorInstance;
use crate::id::{Attempt, Epoch, SubtaskId};
use crate::protocol::OnError;
use crate::protocol::isolation::{Isolation, Watch};
use crate::task::{CommittedEpoch, Counters, DeadLetters, Guarded, SharedWatch, TaskError};

/// The guards of one attempt.
pub struct Guards {
    watches: BTreeMap<SubtaskId, SharedWatch>,
    committed: CommittedEpoch,
}

/// What guards one subtask.
pub struct Guard {
    subtask: SubtaskId,
    letters: Option<DeadLetters>,
    watch: SharedWatch,
    committed: CommittedEpoch,
    counters: Counters,
}

impl Guards {
    pub fn new(job: &Job, isolation: &Isolation) -> Guards {
        let guarded = |name| match job.operators[name].on_error {
            OnError::Fail => false,
            OnError::Skip | OnError::DeadLetter => true,
        };
        let nodes = job.plan.nodes.iter().filter(|node| job.operators.contains_key(&node.name) && guarded(&node.name));
        let subtasks =
            nodes.flat_map(|node| (0..node.parallelism).map(|index| SubtaskId { operator: node.name.clone(), index }));
        let watched = subtasks.map(|subtask| {
            let watch = Arc::new(Mutex::new(isolation.watch(&subtask)));
            (subtask, watch)
        });
        Guards { watches: watched.collect(), committed: CommittedEpoch::default() }
    }

    /// That of a subtask, if its operator has one.
    pub fn guard(&self, job: &Job, attempt: Attempt, subtask: &SubtaskId, counters: &Counters) -> Option<Guard> {
        let watch = Arc::clone(self.watches.get(subtask)?);
        let descriptor = job.operators[&subtask.operator].factory.descriptor();
        let inputs = || descriptor.inputs.iter().map(|input| input.name.clone()).collect();
        let letters = match job.operators[&subtask.operator].on_error {
            // The output behind the operator's own ones.
            OnError::DeadLetter => Some(DeadLetters::new(descriptor.outputs.len() as u32, attempt, inputs())),
            OnError::Fail | OnError::Skip => None,
        };
        let (subtask, committed, counters) = (subtask.clone(), self.committed.clone(), Arc::clone(counters));
        Some(Guard { subtask, letters, watch, committed, counters })
    }

    /// A checkpoint is committed.
    pub fn committed(&self, epoch: Epoch) {
        self.committed.set(epoch);
    }

    /// Whether a failure is a trap that going back to the last checkpoint can isolate.
    pub fn isolates(&self, error: &RunError) -> bool {
        let RunError::Task { source, .. } = error else { return false };
        let TaskError::Operator(error) = &**source else { return false };
        self.watches.get(&error.subtask).is_some_and(|watch| look(watch).has_trapped())
    }

    /// What they have seen, when no task runs any more.
    pub fn watches(&self) -> Vec<(SubtaskId, Watch)> {
        self.watches.iter().map(|(subtask, watch)| (subtask.clone(), look(watch))).collect()
    }
}

fn look(watch: &SharedWatch) -> Watch {
    watch.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Guard {
    /// Puts an operator under its policy.
    pub fn around(self, instance: Box<dyn OperatorInstance>) -> Box<dyn OperatorInstance> {
        let Guard { subtask, letters, watch, committed, counters } = self;
        Box::new(Guarded::new(instance, subtask, letters, watch, committed, counters))
    }
}
