//! Opens the instances of one subtask: the first one, and that of another component after an upgrade.
//!
//! Invariant: every instance of a subtask in one attempt is given the same, but for its state.

use super::guards::Guard;
use crate::guest::{self, InstanceContext, Limits, OperatorFactory, OperatorInstance};
use crate::id::{Name, SubtaskId};
use crate::replay::Examiner;
use crate::state::KeyedState;
use crate::task::{Counters, Examined, Reopened, SharedEpoch, TaskError};

/// What the instances of a subtask are given.
pub struct Opener {
    pub job: Name,
    pub subtask: SubtaskId,
    pub parallelism: u32,
    pub config_json: String,
    pub limits: Limits,
    /// If its policy isn't to fail.
    pub guard: Option<Guard>,
    /// If capsules of its failures are kept.
    pub examiner: Option<Examiner>,
    /// Of what the instances are given now, if its policy is to fail.
    pub epoch: SharedEpoch,
    pub counters: Counters,
}

impl Opener {
    pub fn context(&self, state: Option<KeyedState>) -> InstanceContext {
        InstanceContext {
            job: self.job.clone(),
            subtask: self.subtask.clone(),
            parallelism: self.parallelism,
            config_json: self.config_json.clone(),
            limits: self.limits,
            rejections: self.guard.is_some(),
            state,
            counters: guest::Counters::clone(self.counters.guest()),
        }
    }

    /// Puts an instance under the operator's policy.
    pub fn guarded(&self, instance: Box<dyn OperatorInstance>) -> Box<dyn OperatorInstance> {
        match (&self.guard, self.examiner.clone()) {
            (Some(guard), examiner) => guard.around(instance, examiner),
            (None, Some(examiner)) => {
                Box::new(Examined::new(instance, self.subtask.clone(), examiner, self.epoch.clone()))
            }
            (None, None) => instance,
        }
    }

    /// Opens an instance of another component over the state of the one before.
    ///
    /// # Errors
    /// If the state can't be that component's, or it can't be opened.
    pub fn reopen(&self, factory: &dyn OperatorFactory, state: Option<KeyedState>) -> Result<Reopened, TaskError> {
        let handed_over = state.map(|mut state| {
            state.hand_over(&factory.descriptor().stored_tables())?;
            Ok(state)
        });
        let failed = |source| TaskError::State { subtask: self.subtask.clone(), source };
        let instance = factory.open(self.context(handed_over.transpose().map_err(failed)?))?;
        let migrated_entries = instance.migrated_entries();
        Ok(Reopened { instance: self.guarded(instance), migrated_entries })
    }
}
