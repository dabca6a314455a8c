//! One bounded, ordered link from a task to another.
//!
//! Invariant: a permit for a batch's bytes lives exactly as long as the batch is queued.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::element::Element;

/// How much may be queued on a link.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub elements_max: usize,
    pub bytes_max: u32,
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

struct Envelope {
    element: Element,
    /// Given back when the element is taken out.
    _bytes: Option<OwnedSemaphorePermit>,
}

/// The upstream end.
pub struct Sender {
    queue: mpsc::Sender<Envelope>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
}

/// The downstream end.
pub struct Receiver {
    queue: mpsc::Receiver<Envelope>,
}

/// Makes a link.
pub fn link(capacity: Capacity) -> (Sender, Receiver) {
    let (to, from) = mpsc::channel(capacity.elements_max);
    let bytes = Arc::new(Semaphore::new(capacity.bytes_max as usize));
    (Sender { queue: to, bytes, bytes_max: capacity.bytes_max }, Receiver { queue: from })
}

impl Sender {
    /// Queues an element, waiting for room: this is where backpressure is felt.
    ///
    /// # Errors
    /// [`Closed`] if nobody will take it.
    pub async fn send(&self, element: Element) -> Result<(), Closed> {
        let permit = match &element {
            Element::Batch(batch) => {
                let bytes = u32::try_from(batch.bytes()).unwrap_or(u32::MAX).min(self.bytes_max);
                // Waits for room in bytes, or for the receiver to go away: a closed queue never frees permits again.
                let acquire = Arc::clone(&self.bytes).acquire_many_owned(bytes);
                tokio::select! {
                    permit = acquire => Some(permit.expect("the semaphore is never closed")),
                    () = self.queue.closed() => return Err(Closed),
                }
            }
            Element::Watermark(_) | Element::Barrier(_) | Element::Idle | Element::Active | Element::End => None,
        };
        self.queue.send(Envelope { element, _bytes: permit }).await.map_err(|_| Closed)
    }
}

impl Receiver {
    /// The next element; `None` when the sender is gone and the queue is empty.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Element>> {
        self.queue.poll_recv(context).map(|envelope| envelope.map(|envelope| envelope.element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Batch, Row};

    fn batch(bytes: usize) -> Element {
        let mut batch = Batch::with_capacity(1, bytes);
        batch.push(Row { key: None, value: Some(&vec![0; bytes]), timestamp: 0 });
        Element::Batch(Arc::new(batch))
    }

    async fn recv(receiver: &mut Receiver) -> Option<Element> {
        std::future::poll_fn(|context| receiver.poll_recv(context)).await
    }

    fn ready<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        let waker = std::task::Waker::noop();
        future.poll(&mut Context::from_waker(waker)).is_ready()
    }

    #[tokio::test]
    async fn a_full_link_makes_the_sender_wait_until_bytes_are_taken_out() {
        let (to, mut from) = link(Capacity { elements_max: 10, bytes_max: 1000 });
        to.send(batch(700)).await.expect("room");
        let mut second = Box::pin(to.send(batch(700)));
        assert!(!ready(second.as_mut()), "700 + 700 bytes are more than 1000");
        assert!(recv(&mut from).await.is_some());
        second.await.expect("room again");
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_link_passes_alone() {
        let (to, mut from) = link(Capacity { elements_max: 10, bytes_max: 1000 });
        to.send(batch(5000)).await.expect("it is alone");
        let mut second = Box::pin(to.send(batch(1)));
        assert!(!ready(second.as_mut()));
        assert!(recv(&mut from).await.is_some());
        second.await.expect("room again");
    }

    #[tokio::test]
    async fn a_waiting_sender_is_told_when_the_receiver_goes() {
        let (to, from) = link(Capacity { elements_max: 10, bytes_max: 1000 });
        to.send(batch(900)).await.expect("room");
        let mut second = Box::pin(to.send(batch(900)));
        assert!(!ready(second.as_mut()));
        drop(from);
        assert!(second.await.is_err());
    }
}
