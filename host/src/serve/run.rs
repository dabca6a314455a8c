//! One run of a job: what it is asked, what it counts, how it has ended.
//!
//! Invariant: a wish only grows, and whatever it is asked of, at whatever moment, it arrives; an ending is never taken back.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::info::FailureInfo;
use crate::id::Epoch;
use crate::runtime::JobHandle;
use crate::telemetry::{JobCounters, PendingRestart, Rates};

/// A run of a job, from its start until nothing of it runs any more.
pub struct Run {
    wish: watch::Sender<Wish>,
    /// Of the runtime's run; `None` before there is one.
    pub handle: Option<JobHandle>,
    pub counters: Arc<JobCounters>,
    pub rates: Rates,
    pub started_at_ms: u64,
    /// It couldn't be started and is tried again.
    pub retries: Option<PendingRestart>,
    /// What came of it; `None` while it lives.
    ending: watch::Sender<Option<Ending>>,
    pub thread: Option<JoinHandle<()>>,
}

/// What a run is asked. Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    #[default]
    GoOn,
    /// To stop with a last checkpoint.
    Stop,
    /// To stop at once.
    Cancel,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its input has ended.
    Ended {
        epoch: Option<Epoch>,
    },
    /// As it was asked.
    Stopped {
        epoch: Option<Epoch>,
    },
    Failed(FailureInfo),
}

impl Run {
    pub fn new(started_at_ms: u64) -> Run {
        Run {
            wish: watch::Sender::default(),
            handle: None,
            counters: Arc::default(),
            rates: Rates::default(),
            started_at_ms,
            retries: None,
            ending: watch::Sender::default(),
            thread: None,
        }
    }

    /// Of what it is asked nothing has been seen yet.
    pub fn wishes(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    pub fn wished(&self) -> Wish {
        *self.wish.borrow()
    }

    /// Asked for less than before, nothing changes.
    pub fn wish(&self, wish: Wish) {
        let grows = self.wish.send_if_modified(|wished| {
            let grows = wish > *wished;
            *wished = wish.max(*wished);
            grows
        });
        if let Some(handle) = self.handle.as_ref().filter(|_| grows) {
            pass_on(handle, wish);
        }
    }

    /// The runtime's run can be asked from here on; a wish that has come before is passed on.
    pub fn install(&mut self, handle: JobHandle) {
        pass_on(&handle, self.wished());
        self.handle = Some(handle);
        self.retries = None;
    }

    /// It couldn't be started, and is tried again.
    pub fn retry(&mut self, retry: PendingRestart) {
        self.retries = Some(retry);
        self.handle = None;
    }

    pub fn is_live(&self) -> bool {
        self.ending.borrow().is_none()
    }

    pub fn endings(&self) -> watch::Receiver<Option<Ending>> {
        self.ending.subscribe()
    }

    pub fn over(&self, ending: Ending) {
        self.ending.send_replace(Some(ending));
    }
}

fn pass_on(handle: &JobHandle, wish: Wish) {
    match wish {
        Wish::GoOn => {}
        Wish::Stop => handle.stop(),
        Wish::Cancel => handle.cancel(),
    }
}
