//! What may be asked of a job that runs: to stop, to end at once, a checkpoint, another component for an operator.
//!
//! Invariant: every request that is taken has one answer. To stop is never taken back, and to end at once goes before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::upgrade::{UpgradeFailed, UpgradeRequest, Upgraded};
use crate::id::{Epoch, Name};

/// How many requests may wait to be taken. A running job takes them at once; only between two attempts they wait.
const REQUESTS_MAX: usize = 16;
/// So many attempts may fail while a checkpoint is awaited. A record at which an operator traps takes two.
const FAILURES_MAX: u64 = 5;

/// The component of each operator, by its hash, as far as it has one.
pub type Components = BTreeMap<Name, String>;

/// The two ends of a job's requests: what asks, and what [`run`](super::run) is given.
pub fn requests() -> (JobHandle, Requests) {
    let (wish_in, wish) = watch::channel(Wish::GoOn);
    let (queue_in, queue) = mpsc::channel(REQUESTS_MAX);
    let (components, components_out) = watch::channel(None);
    let (failures, failures_out) = watch::channel(0);
    let handle =
        JobHandle { wish: Arc::new(wish_in), queue: queue_in, components: components_out, failures: failures_out };
    (handle, Requests { wish, queue, checkpoints: Vec::new(), components, failures })
}

/// How the job is wished to go on. Later ones go before earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    GoOn,
    /// To end with a last checkpoint.
    Stop,
    /// To end without one.
    Cancel,
}

pub(super) enum Request {
    Checkpoint(oneshot::Sender<Epoch>),
    Upgrade(UpgradeRequest, oneshot::Sender<Result<Upgraded, UpgradeFailed>>),
}

/// A request that wasn't taken, or can't be answered any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestRefused {
    #[error("the job has ended")]
    Ended,
    #[error("{REQUESTS_MAX} requests to the job are waiting already")]
    Busy,
    #[error("{FAILURES_MAX} attempts of the job have failed meanwhile")]
    Failing,
}

impl RequestRefused {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            RequestRefused::Ended => "start it again, and ask then".to_owned(),
            RequestRefused::Failing => "find out why it fails, and ask again when it runs".to_owned(),
            RequestRefused::Busy => "wait until its next attempt has begun, which takes them, and ask again".to_owned(),
        }
    }
}

/// Asks a job. When it has ended, or was never run, nothing is refused but what wants an answer.
#[derive(Clone)]
pub struct JobHandle {
    wish: Arc<watch::Sender<Wish>>,
    queue: mpsc::Sender<Request>,
    components: watch::Receiver<Option<Components>>,
    /// How many attempts have failed.
    failures: watch::Receiver<u64>,
}

impl JobHandle {
    /// Lets it take a last checkpoint and end in order.
    pub fn stop(&self) {
        self.wishes(Wish::Stop);
    }

    /// Lets it end now, without a checkpoint. What has been read since the last one is read again by the next run, as after a crash.
    pub fn cancel(&self) {
        self.wishes(Wish::Cancel);
    }

    fn wishes(&self, wish: Wish) {
        self.wish.send_if_modified(|before| {
            let goes_before = wish > *before;
            if goes_before {
                *before = wish;
            }
            goes_before
        });
    }

    /// Takes a checkpoint as soon as may be, also if nothing has changed, and gives its epoch when it is committed. If the attempt
    /// fails meanwhile, the next one takes it. While an upgrade is on probation, it comes when that is over.
    ///
    /// # Errors
    /// If the job has ended, ends before, or fails again and again.
    pub async fn checkpoint(&self) -> Result<Epoch, RequestRefused> {
        let (reply, answer) = oneshot::channel();
        let mut failures = self.failures.clone();
        let failures_max = failures.borrow().saturating_add(FAILURES_MAX);
        self.ask(Request::Checkpoint(reply))?;
        tokio::select! {
            biased;
            epoch = answer => epoch.map_err(|_| RequestRefused::Ended),
            failing = failures.wait_for(|failures| *failures >= failures_max) => {
                Err(if failing.is_ok() { RequestRefused::Failing } else { RequestRefused::Ended })
            }
        }
    }

    /// Gives an operator another component, without stopping the stream, and says what came of it when it is adopted.
    ///
    /// # Errors
    /// [`UpgradeFailed`]; the old component goes on, or stays in force for the next run.
    pub async fn upgrade(&self, upgrade: UpgradeRequest) -> Result<Upgraded, UpgradeFailed> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Upgrade(upgrade, reply)).map_err(|refused| match refused {
            RequestRefused::Ended => UpgradeFailed::Stopped,
            RequestRefused::Busy | RequestRefused::Failing => UpgradeFailed::Refused { why: refused.to_string() },
        })?;
        answer.await.unwrap_or(Err(UpgradeFailed::Stopped))
    }

    /// [`components`](Self::components), as soon as they are known. `None` if the job has ended before.
    pub async fn recovered(&self) -> Option<Components> {
        let mut components = self.components.clone();
        components.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn ask(&self, request: Request) -> Result<(), RequestRefused> {
        self.queue.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RequestRefused::Busy,
            mpsc::error::TrySendError::Closed(_) => RequestRefused::Ended,
        })
    }

    /// The component that is in force of each operator; `None` until the job has found out where it goes on. One that is on trial
    /// isn't in force.
    pub fn components(&self) -> Option<Components> {
        self.components.borrow().clone()
    }
}

/// What is asked of one job. For [`run`](super::run).
pub struct Requests {
    /// Of which nothing is ever seen here, but by copies of it.
    wish: watch::Receiver<Wish>,
    queue: mpsc::Receiver<Request>,
    checkpoints: Vec<Awaited>,
    components: watch::Sender<Option<Components>>,
    failures: watch::Sender<u64>,
}

/// A checkpoint that somebody waits for.
struct Awaited {
    /// `None` until its barrier is injected.
    epoch: Option<Epoch>,
    reply: oneshot::Sender<Epoch>,
}

impl Requests {
    /// Says how the job is wished to go on now, and whenever that changes, but for [`Wish::GoOn`].
    pub(super) fn wish(&self) -> watch::Receiver<Wish> {
        self.wish.clone()
    }

    pub(super) fn wish_now(&self) -> Wish {
        *self.wish.borrow()
    }

    /// The next request. `None` when nobody can ask any more.
    pub(super) async fn next(&mut self) -> Option<Request> {
        self.queue.recv().await
    }

    /// A new attempt has begun: what was injected in the one before counts no more. Tells whether a checkpoint is awaited.
    pub(super) fn begin_attempt(&mut self) -> bool {
        self.checkpoints.iter_mut().for_each(|awaited| awaited.epoch = None);
        !self.checkpoints.is_empty()
    }

    /// An attempt has failed, and there may be another one.
    pub(super) fn attempt_failed(&self) {
        self.failures.send_modify(|failures| *failures += 1);
    }

    pub(super) fn await_checkpoint(&mut self, reply: oneshot::Sender<Epoch>) {
        // Those who have given up are taken off, so that there aren't more and more of them.
        self.checkpoints.retain(|awaited| !awaited.reply.is_closed());
        self.checkpoints.push(Awaited { epoch: None, reply });
    }

    /// A barrier is injected: its checkpoint is what all have waited for so far.
    pub(super) fn injected(&mut self, epoch: Epoch) {
        self.checkpoints.iter_mut().for_each(|awaited| awaited.epoch = awaited.epoch.or(Some(epoch)));
    }

    /// A checkpoint is committed.
    pub(super) fn committed(&mut self, epoch: Epoch) {
        let is_over = |awaited: &mut Awaited| awaited.epoch.is_some_and(|awaited| awaited <= epoch);
        for awaited in self.checkpoints.extract_if(.., is_over) {
            // Who doesn't wait any more needs no answer.
            let _ = awaited.reply.send(epoch);
        }
    }

    pub(super) fn in_force(&self, components: Components) {
        self.components.send_replace(Some(components));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_checkpoint_is_the_first_whose_barrier_comes_after_the_request() {
        let (handle, mut requests) = requests();
        let asked = tokio::spawn(async move { handle.checkpoint().await });
        let Some(Request::Checkpoint(reply)) = requests.next().await else { panic!("a checkpoint is asked for") };
        requests.await_checkpoint(reply);
        requests.committed(Epoch(4));
        requests.injected(Epoch(5));
        requests.injected(Epoch(6));
        requests.committed(Epoch(5));
        assert_eq!(asked.await.expect("no panic"), Ok(Epoch(5)));
        assert!(!requests.begin_attempt(), "nobody waits any more");
    }

    #[tokio::test]
    async fn a_checkpoint_that_failed_is_taken_by_the_next_attempt() {
        let (handle, mut requests) = requests();
        let asked = tokio::spawn(async move { handle.checkpoint().await });
        let Some(Request::Checkpoint(reply)) = requests.next().await else { panic!("a checkpoint is asked for") };
        requests.await_checkpoint(reply);
        requests.injected(Epoch(5));
        assert!(requests.begin_attempt(), "it is still awaited");
        requests.committed(Epoch(5));
        requests.injected(Epoch(6));
        requests.committed(Epoch(6));
        assert_eq!(asked.await.expect("no panic"), Ok(Epoch(6)));
    }

    #[tokio::test]
    async fn a_checkpoint_of_a_job_that_only_fails_is_refused() {
        let (handle, mut requests) = requests();
        requests.attempt_failed();
        let asks = || {
            let handle = handle.clone();
            tokio::spawn(async move { handle.checkpoint().await })
        };
        // One of them is taken and one is not.
        let (taken, waiting) = (asks(), asks());
        let Some(Request::Checkpoint(reply)) = requests.next().await else { panic!("a checkpoint is asked for") };
        requests.await_checkpoint(reply);
        while handle.queue.capacity() == REQUESTS_MAX {
            tokio::task::yield_now().await;
        }
        for _ in 1..FAILURES_MAX {
            requests.attempt_failed();
        }
        tokio::task::yield_now().await;
        assert!(!taken.is_finished() && !waiting.is_finished(), "it may still come");
        requests.attempt_failed();
        assert_eq!(taken.await.expect("no panic"), Err(RequestRefused::Failing));
        assert_eq!(waiting.await.expect("no panic"), Err(RequestRefused::Failing));
        let (reply, _answer) = oneshot::channel();
        requests.await_checkpoint(reply);
        assert_eq!(requests.checkpoints.len(), 1, "who has given up isn't kept");
    }

    #[tokio::test]
    async fn what_ends_refuses_and_more_than_may_wait_are_refused() {
        let (handle, mut requests) = requests();
        let waiting = (0..REQUESTS_MAX).map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.checkpoint().await })
        });
        let waiting = waiting.collect::<Vec<_>>();
        while handle.queue.capacity() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(handle.checkpoint().await, Err(RequestRefused::Busy));
        let Some(Request::Checkpoint(taken)) = requests.next().await else { panic!("a checkpoint is asked for") };
        requests.await_checkpoint(taken);
        drop(requests);
        for asked in waiting {
            assert_eq!(asked.await.expect("no panic"), Err(RequestRefused::Ended));
        }
        assert_eq!(handle.checkpoint().await, Err(RequestRefused::Ended));
    }

    #[tokio::test]
    async fn who_waits_for_the_components_gets_them_or_learns_that_the_job_has_ended() {
        let (handle, requests) = requests();
        assert_eq!(handle.components(), None);
        let components = Components::from([(Name::new("op").expect("a name"), "component".to_owned())]);
        let waiting = tokio::spawn({
            let handle = handle.clone();
            async move { handle.recovered().await }
        });
        requests.in_force(components.clone());
        assert_eq!(waiting.await.expect("no panic"), Some(components.clone()));
        drop(requests);
        assert_eq!(handle.recovered().await, Some(components), "it was known before it ended");
        let (never, requests) = super::requests();
        drop(requests);
        assert_eq!(never.recovered().await, None);
    }

    #[test]
    fn to_end_at_once_goes_before_to_stop_and_is_not_taken_back() {
        let (handle, requests) = requests();
        assert_eq!(requests.wish_now(), Wish::GoOn);
        handle.stop();
        assert_eq!(requests.wish_now(), Wish::Stop);
        handle.cancel();
        handle.stop();
        assert_eq!(requests.wish_now(), Wish::Cancel);
        let seen = requests.wish();
        assert!(seen.has_changed().expect("the handle is there"), "a copy has seen nothing of it");
    }
}
