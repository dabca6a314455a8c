//! The inputs of a task: takes from whichever has something, in turn, and can hold each back alone.
//!
//! Invariant: a held input is never taken from, so that its sender feels backpressure instead of memory growing.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::link::{Receiver, Taken};
use crate::element::{Barrier, Batch, Element};
use crate::id::Epoch;

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
    /// This barrier is in the input's queue. It comes as an element, too, unless it overtakes.
    Announced(usize, Barrier),
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

    /// Begins to record, on every input, what comes before the barrier of `epoch`.
    pub fn record(&mut self, epoch: Epoch) {
        self.inputs.iter_mut().for_each(|input| input.receiver.record(epoch));
    }

    /// What was recorded, of the inputs that have anything of it.
    pub fn recorded(&mut self) -> Vec<(usize, Vec<Arc<Batch>>)> {
        let all = self.inputs.iter_mut().enumerate().map(|(number, input)| (number, input.receiver.recorded()));
        all.filter(|(_, batches)| !batches.is_empty()).collect()
    }

    /// Takes and drops everything until every input has ended or lost its sender, so that no sender finds its receiver gone.
    pub async fn drain(&mut self) {
        self.release_all();
        while self.inputs.iter().any(|input| !input.done) {
            std::future::poll_fn(|context| self.poll_recv(context, true)).await;
        }
    }

    /// What there is without waiting for it, announcements alone unless `elements` are wanted.
    pub fn try_recv(&mut self, elements: bool) -> Option<Received> {
        match self.poll_recv(&mut Context::from_waker(Waker::noop()), elements) {
            Poll::Ready(received) => Some(received),
            Poll::Pending => None,
        }
    }

    /// What comes next: an announcement of any input first; then, if `elements` are wanted, an element of any that isn't held.
    pub fn poll_recv(&mut self, context: &mut Context<'_>, elements: bool) -> Poll<Received> {
        let announced = self.inputs.iter().position(|input| !input.done && input.receiver.has_announced());
        if let Some(index) = announced
            && let Poll::Ready(received) = self.poll_input(index, context, false)
        {
            return Poll::Ready(received);
        }
        let count = self.inputs.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            if self.inputs[index].done {
                continue;
            }
            let wanted = elements && !self.inputs[index].held;
            if let Poll::Ready(received) = self.poll_input(index, context, wanted) {
                self.next = (index + 1) % count;
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    fn poll_input(&mut self, index: usize, context: &Context<'_>, elements: bool) -> Poll<Received> {
        let input = &mut self.inputs[index];
        input.receiver.poll_take(context, elements).map(|taken| match taken {
            Taken::Element(element) => {
                input.done = matches!(element, Element::End);
                Received::Element(index, element)
            }
            Taken::Announced(barrier) => Received::Announced(index, barrier),
            Taken::Gone => {
                input.done = true;
                Received::Lost(index)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::{Announce, Capacity, Sender, link};
    use super::*;
    use crate::element::{Purpose, Row};

    fn two(announce: Announce) -> (Sender, Sender, Vec<Receiver>) {
        let (to_a, a) = link(Capacity::default(), announce);
        let (to_b, b) = link(Capacity::default(), announce);
        (to_a, to_b, vec![a, b])
    }

    fn batch(timestamp: i64) -> Arc<Batch> {
        let mut batch = Batch::default();
        batch.push(Row { key: None, value: None, timestamp });
        Arc::new(batch)
    }

    /// The input and the time of the batch that comes next.
    fn next(inputs: &mut Inputs) -> Option<(usize, i64)> {
        match inputs.try_recv(true) {
            Some(Received::Element(input, Element::Batch(batch))) => Some((input, batch.timestamp(0))),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[test]
    fn a_held_input_keeps_its_elements_until_it_is_released() {
        let (to_a, to_b, receivers) = two(Announce::Never);
        let mut inputs = Inputs::new(receivers);
        for time in 0..3 {
            to_a.push(Element::Batch(batch(time))).expect("open");
        }
        to_b.push(Element::Batch(batch(100))).expect("open");
        inputs.hold(0);
        assert_eq!(next(&mut inputs), Some((1, 100)));
        assert_eq!(next(&mut inputs), None);
        inputs.release_all();
        for time in 0..3 {
            assert_eq!(next(&mut inputs), Some((0, time)));
        }
    }

    #[test]
    fn a_busy_input_does_not_starve_another() {
        let (to_a, to_b, receivers) = two(Announce::Never);
        let mut inputs = Inputs::new(receivers);
        for time in 0..4 {
            to_a.push(Element::Batch(batch(time))).expect("open");
            to_b.push(Element::Batch(batch(time))).expect("open");
        }
        let order = (0..8).filter_map(|_| next(&mut inputs)).map(|(input, _)| input).collect::<Vec<_>>();
        assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_sender_that_goes_without_an_end_is_reported_once() {
        let (to_a, to_b, receivers) = two(Announce::Never);
        let mut inputs = Inputs::new(receivers);
        drop(to_a);
        assert!(matches!(inputs.try_recv(true), Some(Received::Lost(0))));
        to_b.push(Element::End).expect("open");
        assert!(matches!(inputs.try_recv(true), Some(Received::Element(1, Element::End))));
        assert!(inputs.try_recv(true).is_none());
    }

    #[test]
    fn a_recording_has_what_comes_before_the_barrier_on_each_input() {
        let (to_a, to_b, receivers) = two(Announce::Barriers);
        let mut inputs = Inputs::new(receivers);
        let barrier = Element::Barrier(Barrier { epoch: Epoch(1), purpose: Purpose::Continue });
        to_a.push(Element::Batch(batch(1))).expect("open");
        to_b.push(Element::Batch(batch(2))).expect("open");
        to_b.push(barrier.clone()).expect("open");
        assert!(matches!(inputs.try_recv(true), Some(Received::Announced(1, _))), "a barrier goes ahead on any input");
        inputs.record(Epoch(1));
        to_b.push(Element::Batch(batch(3))).expect("open");
        to_a.push(Element::Batch(batch(4))).expect("open");
        to_a.push(barrier).expect("open");
        assert!(matches!(inputs.try_recv(true), Some(Received::Announced(0, _))));
        let times = |batches: Vec<Arc<Batch>>| batches.iter().map(|batch| batch.timestamp(0)).collect::<Vec<_>>();
        let recorded = inputs.recorded().into_iter().map(|(input, batches)| (input, times(batches)));
        assert_eq!(recorded.collect::<Vec<_>>(), [(0, vec![1, 4]), (1, vec![2])]);
        assert_eq!((next(&mut inputs), next(&mut inputs)), (Some((0, 1)), Some((1, 2))));
    }
}
