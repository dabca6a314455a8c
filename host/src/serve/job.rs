//! One job of the daemon in memory: what its folder says of it, and its run, if there is one.
//!
//! Invariant: what is in memory of the specification is on the disk, but for an outcome that couldn't be written, which the next
//! start finds out again. A job has one run at a time.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::watch;

use super::checked::Shape;
use super::durable::now_ms;
use super::error::ServeError;
use super::folder::DataFolder;
use super::info::FailureInfo;
use super::run::{Ending, Run, Wish};
use super::spec::{JobSpec, Outcome, Wanted};
use crate::id::{Name, PluginHash};
use crate::runtime::JobHandle;
use crate::telemetry::{JobCounters, PendingRestart};

pub struct JobEntry {
    pub name: Name,
    /// Held by a request that changes what the job is or has.
    pub changing: tokio::sync::Mutex<()>,
    folder: Arc<DataFolder>,
    /// Held while the specification is changed, so that writes come in the order of the changes.
    saving: Mutex<()>,
    state: Mutex<State>,
}

pub(super) struct State {
    /// `None` if it can't be read: see `trouble`.
    pub spec: Option<JobSpec>,
    /// As it was checked last.
    pub shape: Option<Shape>,
    pub run: Option<Run>,
    /// Why the job can't be started, though it is to run. Not kept: the next start tries again.
    pub trouble: Option<FailureInfo>,
    deleted: bool,
}

impl JobEntry {
    pub fn new(folder: Arc<DataFolder>, name: Name, spec: Result<JobSpec, ServeError>) -> JobEntry {
        let (spec, trouble) = match spec {
            Ok(spec) => (Some(spec), None),
            Err(error) => (None, Some(FailureInfo::of(&error, error.help()))),
        };
        let state = Mutex::new(State { spec, shape: None, run: None, trouble, deleted: false });
        JobEntry { name, changing: tokio::sync::Mutex::default(), folder, saving: Mutex::default(), state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has set whole fields or none.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the folder says of the job.
    ///
    /// # Errors
    /// If it can't be read, or the job was deleted.
    pub fn spec(&self) -> Result<JobSpec, ServeError> {
        let state = self.state();
        match &state.spec {
            _ if state.deleted => Err(ServeError::NoJob { job: self.name.clone() }),
            Some(spec) => Ok(spec.clone()),
            None => Err(ServeError::Damaged {
                path: super::folder::spec_in(&self.folder.job(&self.name)),
                problem: "the job can only be deleted, or restarted with a job file".to_owned(),
            }),
        }
    }

    /// Changes the specification, durably. May block.
    ///
    /// # Errors
    /// If there is none, or it can't be written; then nothing has changed.
    pub fn change(&self, change: impl FnOnce(&mut JobSpec)) -> Result<(), ServeError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.spec()?;
        let mut spec = old.clone();
        change(&mut spec);
        if spec != old {
            spec.save(&self.folder)?;
            self.state().spec = Some(spec);
        }
        Ok(())
    }

    /// Gives the job another specification, durably. May block.
    ///
    /// # Errors
    /// If it can't be written; then nothing has changed.
    pub fn replace(&self, spec: JobSpec) -> Result<(), ServeError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state().deleted {
            return Err(ServeError::NoJob { job: self.name.clone() });
        }
        spec.save(&self.folder)?;
        if let Err(error) = spec.copy_job_file(&self.folder) {
            tracing::warn!(job = %self.name, %error, "the copy of the job file is an old one");
        }
        self.state().spec = Some(spec);
        Ok(())
    }

    /// Nothing of it is on the disk any more.
    pub fn deleted(&self) {
        self.state().deleted = true;
    }

    pub fn names(&self, hash: &PluginHash) -> bool {
        let state = self.state();
        state.spec.iter().flat_map(JobSpec::named_plugins).any(|named| named == hash)
    }

    pub fn is_live(&self) -> bool {
        self.state().live().is_some()
    }

    /// How many checkpoints are retained, if the job file could be read.
    pub fn retain(&self) -> Option<NonZeroU32> {
        self.state().shape.as_ref().map(|shape| shape.retain)
    }

    /// Notes that a run begins. What it is asked from here on it does.
    ///
    /// # Errors
    /// If there is one already, or the job isn't to run (any more).
    pub fn begin(&self) -> Result<(), ServeError> {
        let mut state = self.state();
        let job = self.name.clone();
        if state.deleted {
            return Err(ServeError::NoJob { job });
        }
        if state.live().is_some() {
            return Err(ServeError::WrongStatus { job, status: "running", help: "stop it first" });
        }
        if state.spec.as_ref().is_none_or(|spec| spec.wanted == Wanted::Stopped) {
            return Err(ServeError::StoppedMeanwhile { job });
        }
        state.trouble = None;
        state.run = Some(Run::new(now_ms()));
        Ok(())
    }

    /// What the run that has begun consists of.
    pub fn shaped(&self, shape: Shape) {
        self.state().shape = Some(shape);
    }

    pub fn has_thread(&self, thread: JoinHandle<()>) {
        if let Some(run) = &mut self.state().run {
            run.thread = Some(thread);
        }
    }

    /// Waits for the thread of a run that is over, or will be. Blocks.
    pub fn join(&self) {
        let thread = self.state().run.as_mut().and_then(|run| run.thread.take());
        if let Some(thread) = thread {
            // It has told of a panic itself.
            let _ = thread.join();
        }
    }

    /// The runtime's run can be asked from here on; a wish that has come before is passed on.
    pub fn installed(&self, handle: JobHandle) {
        let mut state = self.state();
        if let Some(run) = state.live_mut() {
            run.install(handle);
        }
    }

    /// The run couldn't be started, and is tried again.
    pub fn retrying(&self, retry: PendingRestart) {
        if let Some(run) = self.state().live_mut() {
            run.retry(retry);
        }
    }

    /// Asks the run, if there is one, to stop. Asked for less than before, nothing changes.
    pub fn wish(&self, wish: Wish) {
        if let Some(run) = self.state().live() {
            run.wish(wish);
        }
    }

    /// What the run is asked, now and from here on.
    pub fn wishes(&self) -> Option<watch::Receiver<Wish>> {
        self.state().live().map(|run| run.wishes())
    }

    pub fn counters(&self) -> Arc<JobCounters> {
        self.state().run.as_ref().map(|run| Arc::clone(&run.counters)).unwrap_or_default()
    }

    /// Waits until the run is over. `None` if there was none.
    pub async fn ended(&self) -> Option<Ending> {
        let mut ending = self.state().run.as_ref()?.endings();
        let ending = ending.wait_for(Option::is_some).await;
        ending.ok().and_then(|ending| ending.clone())
    }

    /// Nothing of the run runs any more. Its outcome is noted, unless the job goes on with the next start. May block.
    pub fn finish(&self, ending: Ending) {
        let asked = self.wishes().is_some_and(|wishes| *wishes.borrow() > Wish::GoOn);
        let outcome = |wanted: Wanted| match (&ending, wanted) {
            // It is to go on, and does, from its last checkpoint.
            (_, Wanted::Running) if asked => None,
            (Ending::Stopped { .. }, Wanted::Running) => None,
            (Ending::Stopped { .. }, Wanted::Stopped) => Some(Outcome::Stopped),
            (Ending::Ended { .. }, _) => Some(Outcome::Ended),
            (Ending::Failed(failure), _) => Some(Outcome::Failed(failure.clone())),
        };
        self.note(outcome);
        let state = self.state();
        if let Some(run) = &state.run {
            run.over(ending);
        }
    }

    fn note(&self, outcome: impl Fn(Wanted) -> Option<Outcome>) {
        let set = |spec: &mut JobSpec| {
            if let Some(outcome) = outcome(spec.wanted) {
                spec.wanted = Wanted::Stopped;
                spec.outcome = Some(outcome);
            }
        };
        if let Err(error) = self.change(set) {
            tracing::warn!(job = %self.name, %error, "what became of the job can't be written down; its next start finds it out");
            if let Some(spec) = &mut self.state().spec {
                set(spec);
            }
        }
    }

    /// The job can't be started. It is tried again with the daemon.
    pub fn cannot_start(&self, error: &ServeError) {
        let failure = FailureInfo::of(error, error.help());
        tracing::error!(job = %self.name, error = %failure.error, "the job can't be started");
        let mut state = self.state();
        state.trouble = Some(failure.clone());
        if let Some(run) = &state.run {
            run.over(Ending::Failed(failure));
        }
    }

    /// What asks the runtime's run, if there is one.
    pub fn handle(&self) -> Option<JobHandle> {
        self.state().live()?.handle.clone()
    }

    /// Nobody wants the job to run any more: that it couldn't be started is no trouble.
    pub fn rests(&self) {
        let mut state = self.state();
        if state.spec.is_some() {
            state.trouble = None;
        }
    }

    /// Reads the counters, for rates.
    pub fn sample(&self, now: Instant) {
        let mut state = self.state();
        let Some(parts) = state.shape.as_ref().map(|shape| shape.parts.keys().cloned().collect::<Vec<_>>()) else {
            return;
        };
        if let Some(run) = state.live_mut() {
            let totals = parts.into_iter().map(|name| (name.clone(), run.counters.totals_of(&name))).collect();
            run.rates.read(now, totals);
        }
    }
}

impl State {
    pub fn live(&self) -> Option<&Run> {
        self.run.as_ref().filter(|run| run.is_live())
    }

    fn live_mut(&mut self) -> Option<&mut Run> {
        self.run.as_mut().filter(|run| run.is_live())
    }
}
