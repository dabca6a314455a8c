//! The guards of a job's operators in one attempt, and what they have seen when it has ended.
//!
//! Invariant: an operator has a guard if, and only if, its policy isn't to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Job, Operator, RunError};
use crate::guest::OperatorInstance;
use crate::id::{Attempt, Epoch, Name, SubtaskId};
use crate::protocol::isolation::{Isolation, Watch};
use crate::protocol::{Guarantee, OnError};
use crate::replay::{Capsules, Examiner};
use crate::task::{CommittedEpoch, Counters, DeadLetters, Guarded, SharedWatch, TaskError};

/// The guards of one attempt.
pub struct Guards {
    watches: BTreeMap<SubtaskId, SharedWatch>,
    committed: CommittedEpoch,
    capsules: Arc<Capsules>,
}

/// What guards one subtask.
#[derive(Clone)]
pub struct Guard {
    subtask: SubtaskId,
    letters: Option<DeadLetters>,
    watch: SharedWatch,
    committed: CommittedEpoch,
    counters: Counters,
    /// Whether what was processed since the last checkpoint comes again in the next attempt.
    is_replayed: bool,
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
        let capsules = Arc::new(Capsules::open(job.state_dir.join("capsules")));
        Guards { watches: watched.collect(), committed: CommittedEpoch::default(), capsules }
    }

    /// What makes capsules of a subtask's failures, if its operator may have any.
    pub fn examiner(&self, job: &Job, subtask: &SubtaskId) -> Option<Examiner> {
        let Operator { capsules_max, state_memory_bytes_max, .. } = job.operators[&subtask.operator];
        let capsules = Arc::clone(&self.capsules);
        let examiner = || Examiner::new(capsules, capsules_max, job.max_parallelism, state_memory_bytes_max);
        (capsules_max > 0).then(examiner)
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
        let is_replayed = job.guarantee != Guarantee::AtMostOnce;
        Some(Guard { subtask, letters, watch, committed, counters, is_replayed })
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

    /// What they have seen, when no task runs any more. `tried`: the operator whose new component was on trial, and at which epoch it
    /// was swapped. Where that one has trapped, the old one may not.
    pub fn watches(&self, tried: Option<(&Name, Epoch)>) -> Vec<(SubtaskId, Watch)> {
        let seen = |(subtask, watch): (&SubtaskId, &SharedWatch)| {
            let mut seen = look(watch);
            if tried.is_some_and(|(operator, swap)| subtask.operator == *operator && seen.epoch() > swap) {
                seen.forget_trap();
            }
            (subtask.clone(), seen)
        };
        self.watches.iter().map(seen).collect()
    }
}

fn look(watch: &SharedWatch) -> Watch {
    watch.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Guard {
    /// Puts an operator under its policy; one that takes the place of another goes on with what was seen of that one.
    pub fn around(&self, instance: Box<dyn OperatorInstance>, examiner: Option<Examiner>) -> Box<dyn OperatorInstance> {
        let Guard { subtask, letters, watch, committed, counters, is_replayed } = self.clone();
        let guarded = Guarded::new(instance, subtask, letters, watch, committed, counters);
        Box::new(guarded.with_examiner(examiner, is_replayed))
    }
}
