//! The thread that moves sealed segments from memory into RocksDB, and captures bases in between.
//!
//! Invariant: only this thread changes the database, segment by segment in the order in which they were sealed. So an image that
//! is captured right after a segment holds that one and those before it, and nothing else: what is sealed meanwhile waits. A
//! segment leaves memory only when the database has it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::base::{Base, Captured};
use super::error::StateError;
use super::merge::Merged;
use super::rocks::{BlockCache, Rocks};
use super::segment::Segment;
use crate::crash;
use crate::id::SubtaskId;

/// Segments in memory above which they are merged: each is looked into for every key that isn't found before.
const SEGMENTS_MAX: usize = 16;
/// How often a database that is behind with compaction is asked again.
const BEHIND_POLL: Duration = Duration::from_millis(5);

pub struct Flusher {
    subtask: SubtaskId,
    work_dir: PathBuf,
    cache: BlockCache,
    /// Sealed bytes above which segments are moved to disk.
    flush_bytes: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Opened when it is first needed.
    rocks: OnceLock<Rocks>,
}

#[derive(Default)]
struct Queue {
    /// Oldest first.
    sealed: VecDeque<Sealed>,
    sealed_bytes: usize,
    /// Somebody waits for memory.
    urgent: bool,
    stop: bool,
    failure: Option<Arc<StateError>>,
}

struct Sealed {
    segment: Arc<Segment>,
    capture: Option<Arc<Base>>,
}

impl Sealed {
    /// A base that only the queue holds is one that no snapshot asks for any more.
    fn is_capture_wanted(&self) -> bool {
        self.capture.as_ref().is_some_and(|base| Arc::strong_count(base) > 1)
    }
}

impl Flusher {
    /// `rocks` is the database if there is one already.
    pub fn new(
        subtask: SubtaskId,
        work_dir: PathBuf,
        cache: BlockCache,
        flush_bytes: usize,
        rocks: Option<Rocks>,
    ) -> Arc<Flusher> {
        let rocks = rocks.map(OnceLock::from).unwrap_or_default();
        let (queue, changed) = Default::default();
        Arc::new(Flusher { subtask, work_dir, cache, flush_bytes, queue, changed, rocks })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic under this lock")
    }

    /// # Errors
    /// If work in the background has failed.
    pub fn check(&self) -> Result<(), StateError> {
        self.check_queue(&self.lock())
    }

    fn check_queue(&self, queue: &Queue) -> Result<(), StateError> {
        match &queue.failure {
            Some(source) => Err(StateError::Background { subtask: self.subtask.clone(), source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    /// Hands over a segment. `capture`: a base to be captured behind it.
    ///
    /// # Errors
    /// If work in the background has failed.
    pub fn push(&self, segment: Arc<Segment>, capture: Option<Arc<Base>>) -> Result<(), StateError> {
        let mut queue = self.lock();
        self.check_queue(&queue)?;
        queue.sealed_bytes += segment.bytes();
        queue.sealed.push_back(Sealed { segment, capture });
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until at most so many bytes of sealed segments are in memory.
    ///
    /// # Errors
    /// If work in the background has failed.
    pub fn wait_for_memory(&self, sealed_bytes_max: usize) -> Result<(), StateError> {
        let mut queue = self.lock();
        while queue.sealed_bytes > sealed_bytes_max {
            self.check_queue(&queue)?;
            queue.urgent = true;
            self.changed.notify_all();
            queue = self.changed.wait(queue).expect("no panic under this lock");
        }
        queue.urgent = false;
        self.check_queue(&queue)
    }

    /// The sealed segments that are in memory, newest first. Whatever isn't among them is in [`rocks`](Self::rocks), if that
    /// is asked for afterwards.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.lock().sealed.iter().rev().map(|sealed| Arc::clone(&sealed.segment)).collect()
    }

    /// The database; `None` while nothing is in it.
    pub fn rocks(&self) -> Option<&Rocks> {
        self.rocks.get()
    }

    /// Ends the thread. Images that a snapshot still waits for are captured first.
    pub fn stop(&self) {
        self.lock().stop = true;
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
        while let Some((segments, capture)) = self.next_work() {
            self.flush(&segments)?;
            if let Some(base) = capture {
                self.capture(&base)?;
            }
            self.release(segments.len());
            self.wait_for_compaction();
        }
        Ok(())
    }

    /// Waits for work: segments, oldest first, up to the first behind which an image is to be captured.
    fn next_work(&self) -> Option<(Vec<Arc<Segment>>, Option<Arc<Base>>)> {
        let mut queue = self.lock();
        while !self.is_due(&queue) {
            if queue.stop {
                return None;
            }
            queue = self.changed.wait(queue).expect("no panic under this lock");
        }
        let captured = queue.sealed.iter().position(|sealed| sealed.capture.is_some());
        let count = captured.map_or(queue.sealed.len(), |index| index + 1);
        let segments = queue.sealed.iter().take(count).map(|sealed| Arc::clone(&sealed.segment)).collect();
        // It stays in the queue as well, to be told if this thread fails.
        let capture = captured.filter(|&index| queue.sealed[index].is_capture_wanted());
        let capture = capture.and_then(|index| queue.sealed[index].capture.clone());
        Some((segments, capture))
    }

    fn is_due(&self, queue: &Queue) -> bool {
        if queue.sealed.iter().any(Sealed::is_capture_wanted) {
            return true;
        }
        let full = queue.sealed_bytes >= self.flush_bytes || queue.sealed.len() >= SEGMENTS_MAX;
        !queue.stop && !queue.sealed.is_empty() && (queue.urgent || full)
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

    /// The oldest segments are in the database.
    fn release(&self, count: usize) {
        let mut queue = self.lock();
        let released: Vec<_> = queue.sealed.drain(..count).collect();
        queue.sealed_bytes -= released.iter().map(|sealed| sealed.segment.bytes()).sum::<usize>();
        self.changed.notify_all();
        drop(queue);
        // Freeing them takes time: not under the lock.
        drop(released);
    }

    fn wait_for_compaction(&self) {
        let mut queue = self.lock();
        while !queue.stop && self.rocks.get().is_some_and(Rocks::is_behind) {
            queue = self.changed.wait_timeout(queue, BEHIND_POLL).expect("no panic under this lock").0;
        }
    }

    /// Tells everybody who waits, and whoever comes, that no more work will be done.
    fn fail(&self, error: StateError) {
        let error = Arc::new(error);
        let mut queue = self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for base in queue.sealed.iter_mut().filter_map(|sealed| sealed.capture.take()) {
            base.failed(Arc::clone(&error));
        }
        queue.failure = Some(error);
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
