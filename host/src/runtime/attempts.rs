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

use super::guards::Guards;
use super::pump::{Asked, Ended};
use super::recover::{Locks, Recovered, recover};
use super::requests::{Requests, Wish};
use super::upgrade::Upgrades;
use super::{Finished, Job, RunError, pump, recover, wire};
use crate::crash;
use crate::id::Epoch;
use crate::protocol::Coordinator;
use crate::protocol::isolation::Isolation;
use crate::protocol::restart::{RestartDecision, Restarts};
use crate::task::SwapBoard;
use crate::telemetry::{AttemptFailed, JobCounters, JobFinished, JobStarted, NextAttempt, PendingRestart};

/// Runs a job until its input ends, it is asked to end, or it fails for good.
///
/// What is asked of it meanwhile comes through `requests`, and `counters` can be read by others.
///
/// # Errors
/// [`RunError`]; the process may go on.
pub async fn run(job: Job, counters: Arc<JobCounters>, requests: Requests) -> Result<Finished, RunError> {
    let attempts = Attempts {
        restarts: Restarts::new(job.restart),
        isolation: Isolation::default(),
        locks: Locks::default(),
        first_cause: String::new(),
        made: 0,
        resumed_from: None,
        upgrades: Upgrades::default(),
        job,
        counters,
        requests,
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
    /// While an upgrade was on trial, whose fault it may have been.
    OnTrial(RunError),
}

struct Attempts {
    job: Job,
    isolation: Isolation,
    counters: Arc<JobCounters>,
    requests: Requests,
    upgrades: Upgrades,
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
                Err(_) if self.requests.wish_now() == Wish::Cancel => return Ok(self.finished(Ended::Cancelled)),
                Err(Failed::OnTrial(error)) => {
                    self.requests.attempt_failed();
                    self.announce(&error, NextAttempt::Revert);
                    crash::point("upgrade.reverting");
                }
                Err(failed) => {
                    self.requests.attempt_failed();
                    let delay = self.bear(failed, began.elapsed())?;
                    if let Some(ended) = self.ended_within(delay).await {
                        return Ok(self.finished(ended));
                    }
                    self.counters.restarted();
                }
            }
        }
    }

    /// Makes one attempt.
    async fn attempt(&mut self) -> Result<Ended, Failed> {
        let recovered = recover(&self.job, &mut self.locks).await.map_err(Failed::Setup)?;
        self.upgrades.settle(&mut self.job, recovered.manifest.as_ref());
        self.requests.in_force(self.upgrades.components(&self.job));
        let restored = recovered.manifest.as_ref().map(|manifest| manifest.epoch);
        if self.made == 1 {
            self.resumed_from = restored;
            restored.into_iter().for_each(|epoch| self.counters.resumed(epoch));
        } else if let Some(epoch) =
            restored.filter(|_| restored > self.resumed_from.max(self.counters.committed_epoch()))
        {
            // The attempt before has published it and died before it knew that it was committed.
            self.counters.committed(epoch);
        }
        let too_much = |source| Failed::Running(RunError::Poison { job: self.job.name.clone(), source });
        self.isolation.restored(restored).map_err(too_much)?;
        let guards = Arc::new(Guards::new(&self.job, &self.isolation));
        let board = SwapBoard::default();
        let (requests, upgrades) = (&mut self.requests, &mut self.upgrades);
        let asked = Asked { job: &self.job, requests, upgrades, board: board.clone() };
        let outcome = run_tasks(asked, &recovered, &self.counters, Arc::clone(&guards)).await;
        recovered.close().await;
        self.isolation.ended(guards.watches(self.upgrades.on_trial()));
        let was_on_trial = self.upgrades.on_trial().is_some();
        let failure = outcome.as_ref().err().map(|failed| with_causes(failed.error()));
        self.upgrades.attempt_ended(&mut self.job, failure.as_deref(), board.figures());
        outcome.map_err(|failed| match failed {
            Failed::Running(error) if was_on_trial => Failed::OnTrial(error),
            Failed::Running(error) if guards.isolates(&error) => Failed::Trapped(error),
            Failed::Running(_) | Failed::Setup(_) | Failed::Trapped(_) | Failed::OnTrial(_) => failed,
        })
    }

    fn finished(&self, how: Ended) -> Finished {
        let epoch = self.counters.committed_epoch();
        let (ended, cancelled) = match how {
            Ended::Input => (true, false),
            Ended::Stopped => (false, false),
            Ended::Cancelled => (false, true),
        };
        JobFinished { job: &self.job.name, ended, epoch }.emit();
        let between_attempts = self.counters.pending_restart().is_some();
        Finished { ended, cancelled, between_attempts, resumed_from: self.resumed_from, epoch }
    }

    /// How long to wait before the next attempt.
    ///
    /// # Errors
    /// The failure, if there is to be none.
    fn bear(&mut self, failed: Failed, ran_for: Duration) -> Result<Duration, RunError> {
        let stopping = self.requests.wish_now() != Wish::GoOn;
        let error = match failed {
            Failed::Trapped(error) if !stopping => {
                let cause = self.announce(&error, NextAttempt::Isolation);
                self.wait_for(cause, Duration::ZERO);
                return Ok(Duration::ZERO);
            }
            // Nothing has run yet in this process: whoever started it is there and wants to know. A cluster that is only slow, as one is
            // that has just come up, is waited for all the same.
            Failed::Setup(error) if self.made == 1 && !error.is_silence() => return Err(error),
            Failed::Setup(error) | Failed::Running(error) | Failed::Trapped(error) | Failed::OnTrial(error) => error,
        };
        if stopping || !error.is_worth_another_attempt() {
            return Err(error);
        }
        match self.restarts.failed(ran_for, chance()) {
            RestartDecision::Again { delay, restart, of } => {
                let cause = self.announce(&error, NextAttempt::Restart { restart, of, delay });
                if restart == 1 {
                    self.first_cause.clone_from(&cause);
                }
                self.wait_for(cause, delay);
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
    fn announce(&self, error: &RunError, next: NextAttempt) -> String {
        let cause = with_causes(error);
        AttemptFailed { job: &self.job.name, cause: &cause, next }.emit();
        cause
    }

    /// Lets others see that there is a restart to come.
    fn wait_for(&self, cause: String, delay: Duration) {
        self.counters.restart_pending(PendingRestart { cause, due: Instant::now() + delay });
    }

    /// Waits, but not once the job is to end. Between attempts there is nothing to be saved.
    async fn ended_within(&self, delay: Duration) -> Option<Ended> {
        let mut wish = self.requests.wish();
        let wished = async { wish.wait_for(|wish| *wish != Wish::GoOn).await.map(|wish| *wish) };
        match tokio::time::timeout(delay, wished).await {
            Ok(Ok(Wish::Cancel)) => Some(Ended::Cancelled),
            Ok(Ok(Wish::Stop | Wish::GoOn)) => Some(Ended::Stopped),
            // Whoever could ask is gone, so nobody will.
            Ok(Err(_)) => {
                tokio::time::sleep(delay).await;
                None
            }
            Err(_elapsed) => None,
        }
    }
}

impl Failed {
    fn error(&self) -> &RunError {
        match self {
            Failed::Setup(error) | Failed::Running(error) | Failed::Trapped(error) | Failed::OnTrial(error) => error,
        }
    }
}

/// Wires a recovered job and runs it.
async fn run_tasks(
    asked: Asked<'_>,
    recovered: &Recovered,
    counters: &Arc<JobCounters>,
    guards: Arc<Guards>,
) -> Result<Ended, Failed> {
    let job = asked.job;
    let restored = recovered.manifest.as_ref().map(|manifest| manifest.epoch);
    let started = Instant::now();
    let running = wire::start(job, recovered, counters, &guards, &asked.board).map_err(Failed::Setup)?;
    let tasks = running.statuses.keys().copied().collect::<BTreeSet<_>>();
    counters.attempt_began(Instant::now());
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
    pump::Pump::new(attempted, asked, coordinator, running, started).run().await.map_err(Failed::Running)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_run_as_a_task_of_its_own() {
        fn is_send<F: Future + Send>(_: fn(Job, Arc<JobCounters>, Requests) -> F) {}
        is_send(run);
    }
}
