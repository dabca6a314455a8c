//! What a link owes its two ends.

use std::future::poll_fn;

use super::*;
use crate::element::{Purpose, Row};

fn batch(bytes: usize) -> Element {
    let mut batch = Batch::with_capacity(1, bytes);
    batch.push(Row { key: None, value: Some(&vec![0; bytes]), timestamp: 0 });
    Element::Batch(Arc::new(batch))
}

fn barrier(epoch: u64) -> Element {
    Element::Barrier(Barrier { epoch: Epoch(epoch), purpose: Purpose::Continue })
}

fn small(announce: Announce) -> (Sender, Receiver) {
    link(Capacity { elements_max: 10, bytes_max: 1000 }, announce)
}

fn take(receiver: &mut Receiver) -> Poll<Taken> {
    receiver.poll_take(&Context::from_waker(Waker::noop()), true)
}

fn taken_batch(receiver: &mut Receiver) -> bool {
    matches!(take(receiver), Poll::Ready(Taken::Element(Element::Batch(_))))
}

async fn room(sender: &Sender) -> Result<(), Closed> {
    poll_fn(|context| sender.poll_room(context)).await
}

fn ready<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test]
async fn a_full_link_has_no_room_until_bytes_are_taken_out() {
    let (to, mut from) = small(Announce::Never);
    to.push(batch(1700)).expect("open");
    assert!(!to.has_room());
    let mut waiting = Box::pin(room(&to));
    assert!(!ready(waiting.as_mut()));
    assert!(taken_batch(&mut from));
    assert!(to.has_room());
    waiting.await.expect("room again");
}

#[tokio::test]
async fn elements_without_bytes_fill_a_link_too() {
    let (to, mut from) = small(Announce::Never);
    for time in 0..10 {
        assert!(to.has_room());
        to.push(Element::Watermark(time)).expect("open");
    }
    assert!(!to.has_room());
    assert!(take(&mut from).is_ready());
    assert!(to.has_room());
}

#[tokio::test]
async fn a_sender_that_waits_is_told_when_the_receiver_goes() {
    let (to, from) = small(Announce::Never);
    to.push(batch(1900)).expect("open");
    let mut waiting = Box::pin(room(&to));
    assert!(!ready(waiting.as_mut()));
    drop(from);
    assert!(waiting.await.is_err());
    assert!(to.push(batch(1)).is_err());
}

#[tokio::test]
async fn a_receiver_that_waits_is_woken_by_an_element_and_by_the_sender_that_goes() {
    let (to, mut from) = small(Announce::Never);
    let receiving = tokio::spawn(async move {
        let element = poll_fn(|context| from.poll_take(context, true)).await;
        let gone = poll_fn(|context| from.poll_take(context, true)).await;
        matches!((element, gone), (Taken::Element(Element::Watermark(7)), Taken::Gone))
    });
    tokio::task::yield_now().await;
    to.push(Element::Watermark(7)).expect("open");
    tokio::task::yield_now().await;
    drop(to);
    assert!(receiving.await.expect("no panic"));
}

#[test]
fn a_barrier_is_announced_ahead_of_what_is_queued_and_taken_in_its_turn() {
    let (to, mut from) = small(Announce::Barriers);
    to.push(batch(10)).expect("open");
    to.push(barrier(4)).expect("open");
    assert!(from.has_announced());
    assert!(matches!(take(&mut from), Poll::Ready(Taken::Announced(barrier)) if barrier.epoch == Epoch(4)));
    assert!(!from.has_announced());
    assert!(taken_batch(&mut from));
    assert!(matches!(take(&mut from), Poll::Ready(Taken::Element(Element::Barrier(_)))));
}

#[test]
fn an_announcement_comes_also_to_a_receiver_that_wants_no_elements() {
    let (to, mut from) = small(Announce::Barriers);
    to.push(batch(10)).expect("open");
    let context = Context::from_waker(Waker::noop());
    assert!(from.poll_take(&context, false).is_pending());
    to.push(barrier(4)).expect("open");
    assert!(matches!(from.poll_take(&context, false), Poll::Ready(Taken::Announced(_))));
    assert!(from.poll_take(&context, false).is_pending());
}

#[test]
fn a_recording_has_what_is_queued_and_what_comes_before_the_barrier_and_no_more() {
    let (to, mut from) = small(Announce::Never);
    to.push(batch(1)).expect("open");
    assert!(taken_batch(&mut from));
    to.push(batch(2)).expect("open");
    to.push(barrier(3)).expect("open");
    to.push(batch(4)).expect("open");
    from.record(Epoch(5));
    assert!(taken_batch(&mut from), "recorded elements are processed nevertheless");
    to.push(batch(6)).expect("open");
    to.push(barrier(5)).expect("open");
    to.push(batch(8)).expect("open");
    let sizes = |batches: Vec<Arc<Batch>>| batches.iter().map(|batch| batch.values.data.len()).collect::<Vec<_>>();
    assert_eq!(sizes(from.recorded()), [2, 4, 6]);
    assert_eq!(sizes(from.recorded()), [] as [usize; 0], "it is given out once");
    assert!(
        matches!(take(&mut from), Poll::Ready(Taken::Element(Element::Barrier(barrier))) if barrier.epoch == Epoch(3))
    );
    assert!(
        taken_batch(&mut from) && taken_batch(&mut from) && taken_batch(&mut from),
        "the barrier has overtaken them"
    );
    assert!(take(&mut from).is_pending());
}

#[test]
fn a_recording_whose_barrier_is_queued_has_what_is_before_it() {
    let (to, mut from) = small(Announce::Never);
    to.push(batch(1)).expect("open");
    to.push(barrier(5)).expect("open");
    to.push(batch(2)).expect("open");
    from.record(Epoch(5));
    to.push(batch(3)).expect("open");
    assert_eq!(from.recorded().len(), 1);
    assert!(taken_batch(&mut from) && taken_batch(&mut from) && taken_batch(&mut from), "the barrier has overtaken");
    to.push(barrier(6)).expect("open");
    to.push(batch(4)).expect("open");
    assert!(take(&mut from).is_ready());
    from.record(Epoch(6));
    assert_eq!(from.recorded().len(), 0, "the barrier was taken: all that is queued is behind it");
}

#[test]
fn a_recording_stops_its_input_when_it_is_as_large_as_a_queue_may_be() {
    let (to, mut from) = small(Announce::Barriers);
    from.record(Epoch(5));
    to.push(batch(600)).expect("open");
    assert!(taken_batch(&mut from));
    to.push(batch(600)).expect("open");
    assert!(take(&mut from).is_pending(), "1,200 bytes are recorded, and more could come");
    to.push(barrier(5)).expect("open");
    assert!(matches!(take(&mut from), Poll::Ready(Taken::Announced(_))));
    assert!(taken_batch(&mut from), "the barrier has ended the recording");
}
