//! The inputs of a task: takes from whichever has something, in turn, and can hold each back alone.
//!
//! Invariant: a held input is never taken from, so that its sender feels backpressure instead of memory growing.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::link::Receiver;
use crate::element::Element;

struct Input {
    receiver: Receiver,
    held: bool,
    /// After `End` or a lost sender there is nothing to wait for.
    done: bool,
}

/// The inputs of a task, numbered from 0.
pub struct Inputs {
    inputs: Vec<Input>,
    /// Where the next search starts, so that a busy input can't starve another.
    next: usize,
}

/// What came.
#[derive(Debug)]
pub enum Received {
    Element(usize, Element),
    /// The sender is gone without `End`: its task failed.
    Lost(usize),
}

impl Inputs {
    pub fn new(receivers: Vec<Receiver>) -> Inputs {
        let inputs = receivers.into_iter().map(|receiver| Input { receiver, held: false, done: false });
        Inputs { inputs: inputs.collect(), next: 0 }
    }

    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Takes nothing more from this input until [`release_all`](Self::release_all).
    pub fn hold(&mut self, input: usize) {
        self.inputs[input].held = true;
    }

    pub fn release_all(&mut self) {
        for input in &mut self.inputs {
            input.held = false;
        }
    }

    /// Takes and drops everything until every input has ended or lost its sender, so that no sender finds its receiver gone.
    pub async fn drain(&mut self) {
        self.release_all();
        while self.inputs.iter().any(|input| !input.done) {
            self.recv().await;
        }
    }

    /// The next element of any input that isn't held. Cancel-safe.
    ///
    /// # Panics
    /// If every input is held or done: then nothing could ever come, which is a bug of the caller.
    pub async fn recv(&mut self) -> Received {
        assert!(self.inputs.iter().any(|input| !input.held && !input.done), "an input to wait for");
        poll_fn(|context| self.poll_recv(context)).await
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        let count = self.inputs.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let input = &mut self.inputs[index];
            if input.held || input.done {
                continue;
            }
            match input.receiver.poll_recv(context) {
                Poll::Pending => {}
                Poll::Ready(received) => {
                    self.next = (index + 1) % count;
                    input.done = matches!(received, None | Some(Element::End));
                    return Poll::Ready(match received {
                        Some(element) => Received::Element(index, element),
                        None => Received::Lost(index),
                    });
                }
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::{Capacity, link};
    use super::*;

    #[tokio::test]
    async fn a_held_input_keeps_its_elements_until_it_is_released() {
        let (to_a, a) = link(Capacity::default());
        let (to_b, b) = link(Capacity::default());
        let mut inputs = Inputs::new(vec![a, b]);
        for i in 0..3 {
            to_a.send(Element::Watermark(i)).await.expect("open");
        }
        to_b.send(Element::Watermark(100)).await.expect("open");
        inputs.hold(0);
        assert!(matches!(inputs.recv().await, Received::Element(1, Element::Watermark(100))));
        inputs.release_all();
        for i in 0..3 {
            let got = inputs.recv().await;
            assert!(matches!(got, Received::Element(0, Element::Watermark(w)) if w == i), "{got:?}");
        }
    }

    #[tokio::test]
    async fn a_busy_input_does_not_starve_another() {
        let (to_a, a) = link(Capacity::default());
        let (to_b, b) = link(Capacity::default());
        let mut inputs = Inputs::new(vec![a, b]);
        for i in 0..4 {
            to_a.send(Element::Watermark(i)).await.expect("open");
            to_b.send(Element::Watermark(i)).await.expect("open");
        }
        let mut order = Vec::new();
        for _ in 0..8 {
            match inputs.recv().await {
                Received::Element(input, _) => order.push(input),
                Received::Lost(input) => panic!("input {input} is there"),
            }
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[tokio::test]
    async fn a_sender_that_goes_without_an_end_is_reported_once() {
        let (to_a, a) = link(Capacity::default());
        let (to_b, b) = link(Capacity::default());
        let mut inputs = Inputs::new(vec![a, b]);
        drop(to_a);
        assert!(matches!(inputs.recv().await, Received::Lost(0)));
        to_b.send(Element::End).await.expect("open");
        assert!(matches!(inputs.recv().await, Received::Element(1, Element::End)));
    }
}
