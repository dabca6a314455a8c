//! Makes attempts at a job, one after the other, until it ends, is asked to stop, or has failed too often.
//!
//! Each attempt starts as a new process would: it claims a number, finishes what the newest checkpoint decided, discards
//! leftovers and restores.
//!
//! Invariant: an attempt begins only when nothing of the one before runs any more, no publish and no commit either.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::error::Error;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::guards::Guards;
use super::recover::{Locks, Recovered, recover};
use super::{Finished, Job, RunError, pump, recover, wire};
use crate::id::Epoch;
use crate::protocol::Coordinator;
use crate::protocol::isolation::Isolation;
use crate::protocol::restart::{RestartDecision, Restarts};
use crate::telemetry::{AttemptFailed, JobCounters, JobFinished, JobStarted, NextAttempt, PendingRestart};

/// Runs a job until its input ends, it is asked to stop, or it fails for good.
///
/// `stop` turning true asks for a last checkpoint and an orderly end. `counters` can be read by others meanwhile.
///
/// # Errors
/// [`RunError`]; the process may go on.
pub async fn run(job: Job, counters: Arc<JobCounters>, stop: watch::Receiver<bool>) -> Result<Finished, RunError> {
    let attempts = Attempts {
        restarts: Restarts::new(job.restart),
        isolation: Isolation::default(),
        locks: Locks::default(),
        first_cause: String::new(),
        made: 0,
        resumed_from: None,
        job,
        counters,
        stop,
    };
    attempts.run().await
}

/// An attempt that has failed. Nothing of it runs any more.
enum Failed {
    /// Before any task ran.
    Setup(RunError),
    Running(RunError),
    /// By a trap at a record that the next attempts find and leave out.
    Trapped(RunError),
}

struct Attempts {
    job: Job,
    isolation: Isolation,
    counters: Arc<JobCounters>,
    stop: watch::Receiver<bool>,
    restarts: Restarts,
    locks: Locks,
    /// Of the failures in a row that are counted, the first.
    first_cause: String,
    made: u64,
    /// What the first attempt started from.
    resumed_from: Option<Epoch>,
}

impl Attempts {
    async fn run(mut self) -> Result<Finished, RunError> {
        loop {
            let began = Instant::now();
            self.made += 1;
            match self.attempt().await {
                Ok(ended) => return Ok(self.finished(ended)),
                Err(failed) => {
                    let delay = self.bear(failed, began.elapsed())?;
                    if self.stopped_within(delay).await {
                        return Ok(self.finished(false));
                    }
                    self.counters.restarted();
                }
            }
        }
    }

    /// Makes one attempt. Tells whether the input has ended; otherwise it was asked to stop.
    async fn attempt(&mut self) -> Result<bool, Failed> {
        let recovered = recover(&self.job, &mut self.locks).await.map_err(Failed::Setup)?;
        let restored = recovered.manifest.as_ref().map(|manifest| manifest.epoch);
        if self.made == 1 {
            self.resumed_from = restored;
        } else if let Some(epoch) =
            restored.filter(|_| restored > self.resumed_from.max(self.counters.committed_epoch()))
        {
            // The attempt before has published it and died before it knew that it was committed.
            self.counters.committed(epoch);
        }
        let too_much = |source| Failed::Running(RunError::Poison { job: self.job.name.clone(), source });
        self.isolation.restored(restored).map_err(too_much)?;
        let guards = Arc::new(Guards::new(&self.job, &self.isolation));
        // A copy has seen of the request to stop what the original has, which is nothing.
        let stop = self.stop.clone();
        let outcome = run_tasks(&self.job, &recovered, &self.counters, Arc::clone(&guards), stop).await;
        recovered.close().await;
        self.isolation.ended(guards.watches());
        outcome.map_err(|failed| match failed {
            Failed::Running(error) if guards.isolates(&error) => Failed::Trapped(error),
            Failed::Running(_) | Failed::Setup(_) | Failed::Trapped(_) => failed,
        })
    }

    fn finished(&self, ended: bool) -> Finished {
        let epoch = self.counters.committed_epoch();
        JobFinished { job: &self.job.name, ended, epoch }.emit();
        let between_attempts = self.counters.pending_restart().is_some();
        Finished { ended, between_attempts, resumed_from: self.resumed_from, epoch }
    }

    /// How long to wait before the next attempt.
    ///
    /// # Errors
    /// The failure, if there is to be none.
    fn bear(&mut self, failed: Failed, ran_for: Duration) -> Result<Duration, RunError> {
        let stopping = *self.stop.borrow();
        let error = match failed {
            Failed::Trapped(error) if !stopping => {
                self.announce(&error, NextAttempt::Isolation, Duration::ZERO);
                return Ok(Duration::ZERO);
            }
            // Nothing has run yet in this process: whoever started it is there and wants to know.
            Failed::Setup(error) if self.made == 1 => return Err(error),
            Failed::Setup(error) | Failed::Running(error) | Failed::Trapped(error) => error,
        };
        if stopping || !error.is_worth_another_attempt() {
            return Err(error);
        }
        match self.restarts.failed(ran_for, chance()) {
            RestartDecision::Again { delay, restart, of } => {
                let cause = self.announce(&error, NextAttempt::Restart { restart, of, delay }, delay);
                if restart == 1 {
                    self.first_cause = cause;
                }
                Ok(delay)
            }
            // There never was another attempt to speak of.
            RestartDecision::GiveUp { failures: 1 } => Err(error),
            RestartDecision::GiveUp { failures } => Err(RunError::GivenUp {
                job: self.job.name.clone(),
                failures,
                attempts: self.made,
                first: std::mem::take(&mut self.first_cause),
                last: Box::new(error),
            }),
        }
    }

    /// Tells of a failure and of the attempt that follows. Gives the failure's text.
    fn announce(&self, error: &RunError, next: NextAttempt, delay: Duration) -> String {
        let cause = with_causes(error);
        AttemptFailed { job: &self.job.name, cause: &cause, next }.emit();
        self.counters.restart_pending(PendingRestart { cause: cause.clone(), due: Instant::now() + delay });
        cause
    }

    /// Waits; `true` as soon as the job is to stop. Between attempts there is nothing to be saved.
    async fn stopped_within(&mut self, delay: Duration) -> bool {
        let stopped = self.stop.wait_for(|stop| *stop);
        match tokio::time::timeout(delay, stopped).await {
            Ok(Ok(_)) => true,
            // Whoever could ask is gone, so nobody will.
            Ok(Err(_)) => {
                tokio::time::sleep(delay).await;
                false
            }
            Err(_elapsed) => false,
        }
    }
}

/// Wires a recovered job and runs it. Tells whether the input has ended.
async fn run_tasks(
    job: &Job,
    recovered: &Recovered,
    counters: &Arc<JobCounters>,
    guards: Arc<Guards>,
    stop: watch::Receiver<bool>,
) -> Result<bool, Failed> {
    let restored = recovered.manifest.as_ref().map(|manifest| manifest.epoch);
    let started = Instant::now();
    let running = wire::start(job, recovered, counters, &guards).map_err(Failed::Setup)?;
    let tasks = running.statuses.keys().copied().collect::<BTreeSet<_>>();
    JobStarted { job: &job.name, attempt: recovered.attempt, resumed_from: restored, tasks: tasks.len() }.emit();
    let coordinator =
        Coordinator::new(job.checkpoints, tasks, running.sources.clone(), recovered.newest_epoch, started.elapsed());
    let attempted = pump::Attempted {
        job: job.name.clone(),
        store: recovered.store.clone(),
        attempt: recovered.attempt,
        slot: recover::SLOT,
        max_parallelism: job.max_parallelism,
        retain: job.retain,
        committers: recovered.committers.clone(),
        counters: Arc::clone(counters),
        guards,
    };
    pump::Pump::new(attempted, coordinator, running, started, stop).run().await.map_err(Failed::Running)
}

/// An error and all that caused it, each said once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// A number in 0 .. 1 that differs between processes that failed together.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(());
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
