//! Runs one job in a thread and a runtime of its own, and starts it again as long as it couldn't be started at all.
//!
//! A runtime of its own, because the tasks of a job occupy its blocking threads for as long as it runs: shared, a few large jobs
//! would leave none for the rest.
//!
//! Invariant: whatever becomes of the thread, the entry is told, and then nothing of the run is left.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::span::EnteredSpan;

use super::checked::Checked;
use super::error::{ServeError, with_causes};
use super::info::FailureInfo;
use super::job::JobEntry;
use super::run::{Ending, Wish};
use super::settle;
use crate::id::SubtaskId;
use crate::protocol::restart::{Backoff, RestartBudget, RestartDecision, RestartStrategy, Restarts};
use crate::runtime::{Finished, RunError};
use crate::task::TaskError;
use crate::telemetry::{JobCounters, PendingRestart, SubtaskCounters};

/// Coordination of one job needs little.
const WORKERS: usize = 1;
/// Beside one for each task: uploads, commits and what waits for others.
const BLOCKING_THREADS_SPARE: usize = 256;

/// Starts the run of an entry that has begun.
///
/// # Errors
/// If there can be no thread. The entry is told.
pub fn start(entry: &Arc<JobEntry>, checked: Checked) -> Result<(), ServeError> {
    entry.shaped(checked.shape());
    let own = Arc::clone(entry);
    let thread = std::thread::Builder::new().name(format!("job-{}", entry.name)).spawn(move || {
        let ending = catch_unwind(AssertUnwindSafe(|| run(&own, checked)));
        own.finish(ending.unwrap_or_else(|panic| Ending::Failed(bug(&*panic))));
    });
    match thread {
        Ok(thread) => {
            entry.has_thread(thread);
            Ok(())
        }
        Err(source) => {
            let error = ServeError::Thread { source };
            entry.cannot_start(&error);
            Err(error)
        }
    }
}

thread_local! {
    /// Lets whatever this thread logs say which job it is about.
    static IN_THE_LOG: Cell<Option<EnteredSpan>> = const { Cell::new(None) };
}

fn run(entry: &Arc<JobEntry>, checked: Checked) -> Ending {
    let threads_max = checked.plan.tasks().len() + BLOCKING_THREADS_SPARE;
    let span = tracing::error_span!("job", name = %entry.name);
    let _in_the_log = span.clone().entered();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(threads_max)
        .thread_name(format!("job-{}", entry.name))
        .on_thread_start(move || IN_THE_LOG.set(Some(span.clone().entered())))
        .on_thread_stop(|| IN_THE_LOG.set(None))
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(run_to_the_end(entry, &checked)),
        Err(error) => Ending::Failed(FailureInfo::of(&ServeError::Thread { source: error }, None)),
    }
}

fn bug(panic: &(dyn std::any::Any + Send)) -> FailureInfo {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let message = said.unwrap_or("it doesn't say why").to_owned();
    let error = RunError::Panicked { message };
    FailureInfo::of(&error, error.help())
}

async fn run_to_the_end(entry: &Arc<JobEntry>, checked: &Checked) -> Ending {
    let Some(mut wishes) = entry.wishes() else { return Ending::Stopped { epoch: None } };
    let mut starts = Restarts::new(STARTS);
    let counters = entry.counters();
    loop {
        if *wishes.borrow() > Wish::GoOn {
            return Ending::Stopped { epoch: None };
        }
        let (handle, requests) = crate::runtime::requests();
        // Before anybody can ask this run for another one.
        let upgrading = entry.spec().ok().and_then(|spec| spec.upgrading);
        entry.installed(handle.clone());
        let mut run = pin!(crate::runtime::run(checked.job(), Arc::clone(&counters), requests));
        let outcome = tokio::select! {
            outcome = &mut run => outcome,
            () = settle::by_run(entry, upgrading, &handle) => run.await,
        };
        let asked = *wishes.borrow() > Wish::GoOn;
        let cause = match judge(outcome, has_progressed(&counters), asked) {
            Judgement::Over(ending) => return ending,
            Judgement::NotStarted { cause } => cause,
        };
        let RestartDecision::Again { delay, .. } = starts.failed(Duration::ZERO, chance()) else {
            unreachable!("no start is the last one");
        };
        tracing::warn!(job = %entry.name, "the job can't be started yet; trying again in {} s: {cause}", delay.as_secs());
        entry.retrying(PendingRestart { cause, due: Instant::now() + delay });
        wished_within(&mut wishes, delay).await;
    }
}

/// A number in 0 .. 1, so that jobs that lack the same thing don't come back together.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(());
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// How a job is started that can't be started: what it needs may come any time, so for ever.
const STARTS: RestartStrategy = RestartStrategy::ExponentialBackoff(Backoff {
    initial_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(60),
    multiplier: 2.0,
    jitter: 0.1,
    budget: RestartBudget { attempts: u32::MAX, reset_after: Duration::MAX },
});

/// Waits, or until the job is to stop.
async fn wished_within(wishes: &mut watch::Receiver<Wish>, delay: Duration) {
    let wished = wishes.wait_for(|wish| *wish > Wish::GoOn);
    if let Ok(Err(_)) = tokio::time::timeout(delay, wished).await {
        // Nobody is there any more who could.
        tokio::time::sleep(delay).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    Over(Ending),
    /// The job hasn't got anywhere yet, and what it lacks may come.
    NotStarted {
        cause: String,
    },
}

/// Whether there is anything that somebody could miss.
fn has_progressed(counters: &JobCounters) -> bool {
    let gave = |(_, counters): &(SubtaskId, Arc<SubtaskCounters>)| counters.totals().records_out > 0;
    counters.checkpoints() > 0 || counters.subtasks().iter().any(gave)
}

/// Whether it is what surrounds the job that it lacks, such as a broker or room on a disk; its own restarts may be used up by that.
fn lacks_surroundings(error: &RunError) -> bool {
    let may_pass = error.is_worth_another_attempt();
    match error {
        RunError::Store { .. }
        | RunError::WorkFolder { .. }
        | RunError::Connector { .. }
        | RunError::Commit { .. }
        | RunError::Publish { .. }
        | RunError::Snapshot { .. } => may_pass,
        RunError::Task { source, .. } => match &**source {
            TaskError::Connector(_) | TaskError::State { .. } | TaskError::Restore { .. } => may_pass,
            // The next one fails as well, unless somebody changes the operator.
            TaskError::Operator(_) | TaskError::MissingKey { .. } | TaskError::InFlight { .. } => false,
            TaskError::Cancelled => may_pass,
        },
        RunError::GivenUp { last, .. } => lacks_surroundings(last),
        RunError::Refused { .. }
        | RunError::CheckpointMissing { .. }
        | RunError::Undecided { .. }
        | RunError::Panicked { .. }
        | RunError::Stuck { .. }
        | RunError::Attempt(_)
        | RunError::Poison { .. } => false,
    }
}

/// What to make of the outcome of the runtime's run. It has made its own attempts; but a job that has not got anywhere yet was never
/// started, for those who wait for it.
fn judge(outcome: Result<Finished, RunError>, has_progressed: bool, asked: bool) -> Judgement {
    match outcome {
        Ok(finished) => {
            let epoch = finished.epoch.or(finished.resumed_from);
            Judgement::Over(if finished.ended { Ending::Ended { epoch } } else { Ending::Stopped { epoch } })
        }
        // Nothing was read that has to be read again.
        Err(_) if !has_progressed && asked => Judgement::Over(Ending::Stopped { epoch: None }),
        Err(error) if !has_progressed && lacks_surroundings(&error) => {
            Judgement::NotStarted { cause: with_causes(&error) }
        }
        Err(error) => Judgement::Over(Ending::Failed(FailureInfo::of(&error, error.help()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, Name};
    use crate::store::StoreError;

    fn failure(kind: std::io::ErrorKind) -> RunError {
        let (action, path) = ("write", "x".into());
        RunError::WorkFolder { action, path, source: kind.into() }
    }

    fn lasting() -> RunError {
        let job = Name::new("words").expect("a name");
        let source = StoreError::NoIdentity { folder: "x".into() };
        RunError::Store { job, source }
    }

    #[test]
    fn only_what_has_not_got_anywhere_and_may_pass_is_tried_again() {
        let passing = || failure(std::io::ErrorKind::StorageFull);
        assert!(matches!(judge(Err(passing()), false, false), Judgement::NotStarted { .. }));
        assert!(matches!(judge(Err(passing()), true, false), Judgement::Over(Ending::Failed(_))));
        assert!(matches!(judge(Err(lasting()), false, false), Judgement::Over(Ending::Failed(_))));
        let given_up = |last: RunError| {
            let (job, first, last) = (Name::new("words").expect("a name"), String::new(), Box::new(last));
            RunError::GivenUp { job, failures: 6, attempts: 6, first, last }
        };
        assert!(matches!(judge(Err(given_up(passing())), false, false), Judgement::NotStarted { .. }));
        assert!(matches!(judge(Err(given_up(passing())), true, false), Judgement::Over(Ending::Failed(_))));
        let bug = || RunError::Panicked { message: "it broke".to_owned() };
        assert!(matches!(judge(Err(given_up(bug())), false, false), Judgement::Over(Ending::Failed(_))));
    }

    #[test]
    fn a_job_that_never_ran_stops_when_it_is_asked_to_whatever_it_lacks() {
        let stopped = Judgement::Over(Ending::Stopped { epoch: None });
        assert_eq!(judge(Err(lasting()), false, true), stopped);
        assert!(matches!(judge(Err(lasting()), true, true), Judgement::Over(Ending::Failed(_))), "its last checkpoint");
    }

    #[test]
    fn a_run_that_took_no_checkpoint_ends_with_the_one_it_started_from() {
        let finished = Finished {
            ended: false,
            cancelled: false,
            between_attempts: false,
            resumed_from: Some(Epoch(4)),
            epoch: None,
        };
        assert_eq!(judge(Ok(finished), true, true), Judgement::Over(Ending::Stopped { epoch: Some(Epoch(4)) }));
        let ended = Finished { ended: true, epoch: Some(Epoch(9)), ..finished };
        assert_eq!(judge(Ok(ended), true, false), Judgement::Over(Ending::Ended { epoch: Some(Epoch(9)) }));
    }
}
