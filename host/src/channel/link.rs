//! One ordered link from a task to another. Sending never waits; a sender asks for room before it takes on more work.
//!
//! A link can also record: what is queued ahead of a barrier, and what still comes before it, for a snapshot that doesn't wait
//! until all of that is processed.
//!
//! Invariant: a sender that begins an element only while there is room keeps the queue within its [`Capacity`] and what that one
//! element became. A recording holds no more than that either.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::element::{Barrier, Batch, Element};
use crate::id::Epoch;

/// From how much on a link has no room.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub elements_max: usize,
    pub bytes_max: usize,
}

impl Default for Capacity {
    /// 16 elements, 4 MiB.
    fn default() -> Capacity {
        Capacity { elements_max: 16, bytes_max: 4 << 20 }
    }
}

/// The other end is gone: its task has failed or was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("the task at the other end of a channel is gone")]
pub struct Closed;

/// Whether the receiver hears of a barrier while elements are still queued before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    Never,
    Barriers,
}

/// The upstream end.
pub struct Sender {
    shared: Arc<Shared>,
}

/// The downstream end.
pub struct Receiver {
    shared: Arc<Shared>,
}

/// What a receiver takes.
#[derive(Debug)]
pub enum Taken {
    Element(Element),
    /// This barrier has come into the queue. It is taken in its turn, unless it overtakes.
    Announced(Barrier),
    /// The sender is gone and the queue is empty.
    Gone,
}

struct Shared {
    capacity: Capacity,
    announce: Announce,
    queue: Mutex<Queue>,
    /// Copies of what the queue says, to be asked without its lock.
    full: AtomicBool,
    announced: AtomicBool,
}

#[derive(Default)]
struct Queue {
    elements: VecDeque<Element>,
    bytes: usize,
    newest_barrier: Option<Epoch>,
    /// Not told to the receiver yet.
    announced: Option<Barrier>,
    recording: Option<Recording>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// What comes before the barrier of an epoch.
struct Recording {
    epoch: Epoch,
    batches: Vec<Arc<Batch>>,
    bytes: usize,
    /// Whether more may come.
    open: bool,
}

/// Makes a link.
pub fn link(capacity: Capacity, announce: Announce) -> (Sender, Receiver) {
    let (full, announced) = (AtomicBool::new(false), AtomicBool::new(false));
    let shared = Arc::new(Shared { capacity, announce, queue: Mutex::default(), full, announced });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self, queue: &Queue) -> bool {
        queue.elements.len() >= self.capacity.elements_max || queue.bytes >= self.capacity.bytes_max
    }
}

impl Sender {
    /// Queues an element, whether there is room or not.
    ///
    /// # Errors
    /// [`Closed`] if nobody will take it.
    pub fn push(&self, element: Element) -> Result<(), Closed> {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return Err(Closed);
        }
        let is_overtaking = queue.record(&element);
        if let Element::Barrier(barrier) = &element {
            queue.newest_barrier = Some(barrier.epoch);
            if self.shared.announce == Announce::Barriers {
                queue.announced = Some(*barrier);
                self.shared.announced.store(true, Ordering::Release);
            }
        }
        if !is_overtaking {
            queue.bytes += bytes(&element);
            queue.elements.push_back(element);
        }
        self.shared.full.store(self.shared.is_full(&queue), Ordering::Release);
        wake_after(queue, |queue| queue.reader.take());
        Ok(())
    }

    /// Whether the queue is under its capacity. This is where backpressure is felt.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.shared.full.load(Ordering::Acquire)
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// [`Closed`] if there will never be, since nobody takes anything any more.
    pub fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return Poll::Ready(Err(Closed));
        }
        if !self.shared.is_full(&queue) {
            return Poll::Ready(Ok(()));
        }
        remember(&mut queue.writer, context);
        Poll::Pending
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.sender_gone = true;
        wake_after(queue, |queue| queue.reader.take());
    }
}

impl Receiver {
    /// Whether a barrier was announced that [`poll_take`](Self::poll_take) hasn't told of.
    #[inline]
    pub fn has_announced(&self) -> bool {
        self.shared.announced.load(Ordering::Acquire)
    }

    /// What there is: an announcement first, then, if `elements` are wanted, the next of them. An element isn't given out while a
    /// recording is as large as the queue may be: then only the barrier that ends it can come.
    pub fn poll_take(&mut self, context: &Context<'_>, elements: bool) -> Poll<Taken> {
        let mut queue = self.shared.lock();
        if let Some(barrier) = queue.announced.take() {
            self.shared.announced.store(false, Ordering::Release);
            return Poll::Ready(Taken::Announced(barrier));
        }
        let bytes_max = self.shared.capacity.bytes_max;
        let waits = queue.recording.as_ref().is_some_and(|recording| recording.open && recording.bytes >= bytes_max);
        if elements && !waits {
            if let Some(element) = queue.elements.pop_front() {
                queue.bytes -= bytes(&element);
                let full = self.shared.is_full(&queue);
                self.shared.full.store(full, Ordering::Release);
                wake_after(queue, |queue| if full { None } else { queue.writer.take() });
                return Poll::Ready(Taken::Element(element));
            }
            if queue.sender_gone {
                return Poll::Ready(Taken::Gone);
            }
        }
        remember(&mut queue.reader, context);
        Poll::Pending
    }

    /// Begins to record the batches that come before the barrier of `epoch`: those that are queued, and those that are still to
    /// come. If that barrier was taken already there are none. It has overtaken what is queued, and so it isn't taken in its turn
    /// any more. What was recorded before is forgotten.
    pub fn record(&mut self, epoch: Epoch) {
        let mut queue = self.shared.lock();
        let is_barrier = |element: &Element| matches!(element, Element::Barrier(barrier) if barrier.epoch == epoch);
        let came = queue.newest_barrier.is_some_and(|newest| newest >= epoch);
        let place = queue.elements.iter().position(is_barrier);
        let ahead = place.unwrap_or(if came { 0 } else { queue.elements.len() });
        let open = !came && !queue.elements.iter().any(|element| matches!(element, Element::End));
        let mut recording = Recording { epoch, batches: Vec::new(), bytes: 0, open };
        queue.elements.iter().take(ahead).for_each(|element| recording.add(element));
        queue.recording = Some(recording);
        if let Some(place) = place {
            queue.elements.remove(place);
        }
        let full = self.shared.is_full(&queue);
        self.shared.full.store(full, Ordering::Release);
        wake_after(queue, |queue| if full { None } else { queue.writer.take() });
    }

    /// What was recorded; none if nothing is.
    pub fn recorded(&mut self) -> Vec<Arc<Batch>> {
        self.shared.lock().recording.take().map(|recording| recording.batches).unwrap_or_default()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.receiver_gone = true;
        let unread = std::mem::take(&mut queue.elements);
        wake_after(queue, |queue| queue.writer.take());
        drop(unread);
    }
}

impl Queue {
    /// Adds an element to the recording, if there is one. Says whether it is the barrier that is recorded up to, which has
    /// overtaken all that is queued.
    fn record(&mut self, element: &Element) -> bool {
        let Some(recording) = self.recording.as_mut().filter(|recording| recording.open) else { return false };
        match element {
            Element::Batch(_) => recording.add(element),
            Element::Barrier(barrier) => {
                recording.open = barrier.epoch < recording.epoch;
                return barrier.epoch == recording.epoch;
            }
            Element::End => recording.open = false,
            Element::Watermark(_) | Element::Idle | Element::Active => {}
        }
        false
    }
}

impl Recording {
    fn add(&mut self, element: &Element) {
        if let Element::Batch(batch) = element {
            self.bytes += batch.bytes();
            self.batches.push(Arc::clone(batch));
        }
    }
}

fn bytes(element: &Element) -> usize {
    match element {
        Element::Batch(batch) => batch.bytes(),
        Element::Watermark(_) | Element::Barrier(_) | Element::Idle | Element::Active | Element::End => 0,
    }
}

fn remember(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(context.waker()) => {}
        Some(_) | None => *place = Some(context.waker().clone()),
    }
}

/// Lets go of the lock before it wakes, so that who wakes up doesn't wait for it.
fn wake_after(mut queue: MutexGuard<'_, Queue>, whom: impl FnOnce(&mut Queue) -> Option<Waker>) {
    let waker = whom(&mut queue);
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
