//! The thread that merges sealed segments, moves them from memory into RocksDB, and captures bases in between.
//!
//! Invariant: only this thread changes the database, segment by segment in the order in which they were sealed. So an image that
//! is captured right after a segment holds that one and those before it, and nothing else: what is sealed meanwhile waits. A
//! segment leaves memory only when the database, or another segment in its place, has what it held.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::base::{Base, Captured};
use super::error::StateError;
use super::merge::{self, Merged};
use super::queue::{Covers, Queue, Sealed, Work};
use super::rocks::{BlockCache, Rocks};
use super::segment::Segment;
use super::spares::Spares;
use crate::crash;
use crate::id::SubtaskId;

/// How often a database that is behind with compaction is asked again, and how many times: one that doesn't get on may have
/// failed, which the next file tells.
const BEHIND_POLL: Duration = Duration::from_millis(5);
const BEHIND_POLLS_MAX: u32 = 2000;

/// Deltas as one segment that is at most half as large.
pub struct Consolidated {
    pub covers: Covers,
    pub segment: Arc<Segment>,
}

pub struct Flusher {
    subtask: SubtaskId,
    work_dir: PathBuf,
    cache: BlockCache,
    /// Sealed bytes above which segments are moved to disk.
    flush_bytes: usize,
    spares: Spares,
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Opened when it is first needed.
    rocks: OnceLock<Rocks>,
}

#[derive(Default)]
struct Shared {
    queue: Queue,
    consolidated: Vec<Consolidated>,
    failure: Option<Arc<StateError>>,
}

impl Flusher {
    /// `rocks` is the database if there is one already.
    pub fn new(
        subtask: SubtaskId,
        work_dir: PathBuf,
        cache: BlockCache,
        flush_bytes: usize,
        spares: Spares,
        rocks: Option<Rocks>,
    ) -> Arc<Flusher> {
        let rocks = rocks.map(OnceLock::from).unwrap_or_default();
        let (shared, changed) = Default::default();
        Arc::new(Flusher { subtask, work_dir, cache, flush_bytes, spares, shared, changed, rocks })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no panic under this lock")
    }

    /// # Errors
    /// If work in the background has failed.
    pub fn check(&self) -> Result<(), StateError> {
        self.check_shared(&self.lock())
    }

    fn check_shared(&self, shared: &Shared) -> Result<(), StateError> {
        match &shared.failure {
            Some(source) => Err(StateError::Background { subtask: self.subtask.clone(), source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    /// Hands over a segment.
    ///
    /// # Errors
    /// If work in the background has failed.
    pub fn push(&self, sealed: Sealed) -> Result<(), StateError> {
        let mut shared = self.lock();
        self.check_shared(&shared)?;
        shared.queue.push(sealed);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until at most so many bytes of sealed segments are in memory.
    ///
    /// # Errors
    /// If work in the background has failed.
    pub fn wait_for_memory(&self, sealed_bytes_max: usize) -> Result<(), StateError> {
        let mut shared = self.lock();
        while shared.queue.bytes() > sealed_bytes_max {
            self.check_shared(&shared)?;
            shared.queue.urgent = true;
            self.changed.notify_all();
            shared = self.changed.wait(shared).expect("no panic under this lock");
        }
        shared.queue.urgent = false;
        self.check_shared(&shared)
    }

    /// The sealed segments that are in memory, newest first. Whatever isn't among them is in [`rocks`](Self::rocks), if that
    /// is asked for afterwards.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.lock().queue.segments().cloned().collect()
    }

    /// What was merged since the last time, in order.
    pub fn take_consolidated(&self) -> Vec<Consolidated> {
        std::mem::take(&mut self.lock().consolidated)
    }

    /// The database; `None` while nothing is in it.
    pub fn rocks(&self) -> Option<&Rocks> {
        self.rocks.get()
    }

    /// Ends the thread. Images that a snapshot still waits for are captured first.
    pub fn stop(&self) {
        self.lock().queue.stop = true;
        self.changed.notify_all();
    }

    /// The thread's work, until [`stop`](Self::stop) or a failure.
    pub fn run(&self) {
        let guard = FailOnPanic(self);
        let outcome = self.run_until_stopped();
        std::mem::forget(guard);
        let error = outcome.err().unwrap_or_else(|| StateError::Stopped { subtask: self.subtask.clone() });
        self.fail(error);
    }

    fn run_until_stopped(&self) -> Result<(), StateError> {
        loop {
            match self.next_work() {
                Work::Wait => {}
                Work::Merge(segments, covers) => self.merge(&segments, covers),
                Work::Flush(segments, capture) => {
                    self.flush(&segments)?;
                    if let Some(base) = capture {
                        self.capture(&base)?;
                    }
                    self.release(|shared| shared.queue.remove(segments.len()));
                    self.wait_for_compaction();
                }
                Work::Stop => return Ok(()),
            }
        }
    }

    /// Waits for something to do.
    fn next_work(&self) -> Work {
        let mut shared = self.lock();
        loop {
            match shared.queue.next_work(self.flush_bytes) {
                Work::Wait => shared = self.changed.wait(shared).expect("no panic under this lock"),
                work @ (Work::Merge(..) | Work::Flush(..) | Work::Stop) => return work,
            }
        }
    }

    fn merge(&self, segments: &[Arc<Segment>], covers: Option<Covers>) {
        let bytes: usize = segments.iter().map(|segment| segment.bytes()).sum();
        let bytes_max = (bytes / 2).min(self.flush_bytes / 2);
        let Some(segment) = merge::in_memory(segments, bytes_max, &self.spares) else {
            self.lock().queue.set_unmergeable(segments.len());
            return;
        };
        let segment = Arc::new(segment);
        self.release(|shared| {
            let consolidated = covers.map(|covers| Consolidated { covers, segment: Arc::clone(&segment) });
            shared.consolidated.extend(consolidated);
            shared.queue.replace(segments.len(), Sealed { segment, covers, capture: None })
        });
    }

    fn flush(&self, segments: &[Arc<Segment>]) -> Result<(), StateError> {
        let (rocks, is_new) = match self.rocks.get() {
            Some(rocks) => (rocks, false),
            None => {
                let rocks = Rocks::open(&self.subtask, &self.work_dir.join("db"), &self.cache)?;
                (self.rocks.get_or_init(|| rocks), true)
            }
        };
        let merged = Merged::of(segments);
        crash::point("state.ingest.before");
        // A tombstone is kept only for what it may have to hide.
        rocks.ingest(merged.entries().filter(|e| e.value.is_some() || !is_new && rocks.may_hold(e.key)))?;
        crash::point("state.ingest.after");
        Ok(())
    }

    fn capture(&self, base: &Base) -> Result<(), StateError> {
        let dir = self.work_dir.join(format!("base-{}", base.last.0));
        let rocks = self.rocks.get().expect("a flush has opened the database");
        crash::point("state.capture.before");
        rocks.capture(&dir)?;
        crash::point("state.capture.after");
        base.captured(Captured::list(&self.subtask, dir)?);
        Ok(())
    }

    /// Takes segments out of memory.
    fn release(&self, take: impl FnOnce(&mut Shared) -> Vec<Sealed>) {
        let mut shared = self.lock();
        let released = take(&mut shared);
        self.changed.notify_all();
        drop(shared);
        // Freeing them takes time: not under the lock.
        drop(released);
    }

    fn wait_for_compaction(&self) {
        let mut shared = self.lock();
        for _ in 0..BEHIND_POLLS_MAX {
            if shared.queue.stop || !self.rocks.get().is_some_and(Rocks::is_behind) {
                return;
            }
            shared = self.changed.wait_timeout(shared, BEHIND_POLL).expect("no panic under this lock").0;
        }
    }

    /// Tells everybody who waits, and whoever comes, that no more work will be done.
    fn fail(&self, error: StateError) {
        let error = Arc::new(error);
        let mut shared = self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for base in shared.queue.captures() {
            base.failed(Arc::clone(&error));
        }
        shared.failure = Some(error);
        self.changed.notify_all();
    }
}

/// A thread that panics must not leave others waiting.
struct FailOnPanic<'a>(&'a Flusher);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(StateError::Stopped { subtask: self.0.subtask.clone() });
    }
}
