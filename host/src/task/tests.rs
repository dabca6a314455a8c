//! Whole tasks over channels, with a source and a sink that only count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::channel::{Announce, Capacity, Inputs, Receiver, Sender, link};
use crate::connector::{Polled, SinkWriter, SourceReader};
use crate::element::{Element, Purpose, Row};
use crate::graph::Exchange as Dealt;
use crate::id::SplitId;
use crate::protocol::{Aligner, Alignment, WatermarkOptions};

const CAPACITY: Capacity = Capacity { elements_max: 4, bytes_max: 1 << 20 };

fn subtask(name: &str) -> SubtaskId {
    SubtaskId { operator: Name::new(name).expect("a name"), index: 0 }
}

fn batch(time: i64) -> Batch {
    let mut batch = Batch::default();
    batch.push(Row { key: None, value: Some(b"value"), timestamp: time });
    batch
}

fn barrier(epoch: u64, purpose: Purpose) -> Barrier {
    Barrier { epoch: Epoch(epoch), purpose }
}

/// Never ends, and counts the batches that it has given.
struct Endless(Arc<AtomicUsize>);

impl SourceReader for Endless {
    fn restore(&mut self, _: &[SplitState]) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        let given = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Polled::Batch { split: SplitId::new("all"), first_offset: 0, batch: batch(given as i64) })
    }

    fn snapshot(&self) -> Vec<SplitState> {
        Vec::new()
    }
}

/// Keeps the times of the records that it was given.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<i64>>>);

impl Seen {
    fn times(&self) -> Vec<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SinkWriter for Seen {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(batch.iter().map(|row| row.timestamp));
        Ok(())
    }

    fn prepare(&mut self, _: Epoch) -> Result<Prepare, ConnectorError> {
        Ok(Box::new(|| Ok(Vec::new())))
    }
}

struct Outside {
    events: mpsc::UnboundedReceiver<TaskEvent>,
    barriers: mpsc::Sender<Barrier>,
}

impl Outside {
    async fn snapshot(&mut self) -> (Epoch, bool, Vec<PendingPart>) {
        match self.events.recv().await {
            Some(TaskEvent::Snapshot { epoch, changed, parts, .. }) => (epoch, changed, parts),
            Some(TaskEvent::SourceEnded(_)) | None => panic!("the task takes a snapshot"),
        }
    }
}

fn wires(labels: &[Arc<InputLabel>]) -> (Wires, Outside) {
    let (events_in, events) = mpsc::unbounded_channel();
    let (barriers, barriers_out) = mpsc::channel(1);
    let status = Arc::new(TaskStatus::new("task[0]".to_owned(), labels.to_vec()));
    (Wires { events: events_in, barriers: barriers_out, status }, Outside { events, barriers })
}

fn source(to: Sender) -> (Task, Outside, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    let (wires, outside) = wires(&[]);
    let reader: Box<dyn SourceReader> = Box::new(Endless(Arc::clone(&polls)));
    let time = SourceTime::new(WatermarkOptions::default(), &*reader);
    let head = Head::Source { subtask: subtask("text"), reader, time, counters: Counters::default() };
    let outlet = Outlet::new(0, Name::new("out").expect("a name"), Exchange::Forward, vec![to]);
    let chain = Chain::new(Vec::new(), Tail::Outlets(vec![outlet]), Vec::new());
    (Task { id: TaskId(0), head, chain, wires }, outside, polls)
}

fn label(from: &str) -> Arc<InputLabel> {
    let (name, output, exchange) = ("0".to_owned(), String::new(), Dealt::Forward);
    Arc::new(InputLabel { port: 0, name, from: subtask(from), output, exchange })
}

/// A sink behind two inputs.
fn sink(alignment: Alignment, from: Vec<Receiver>, restored: Vec<Restored>) -> (Task, Outside, Seen) {
    let seen = Seen::default();
    let labels = vec![label("a"), label("b")];
    let (wires, outside) = wires(&labels);
    let aligner = Aligner::new(alignment, from.len(), 1);
    let head = Head::Inputs { inputs: Inputs::new(from), labels, aligner };
    let writer = Box::new(seen.clone());
    let tail = Tail::Sink { subtask: subtask("out"), writer, counters: Counters::default() };
    (Task { id: TaskId(1), head, chain: Chain::new(Vec::new(), tail, restored), wires }, outside, seen)
}

fn push(to: &Sender, elements: impl IntoIterator<Item = Element>) {
    elements.into_iter().for_each(|element| to.push(element).expect("the task is there"));
}

fn record(time: i64) -> Element {
    Element::Batch(Arc::new(batch(time)))
}

fn in_flight(parts: &[PendingPart]) -> Vec<(String, Vec<i64>)> {
    let times = |in_flight: &InFlight| in_flight.batches.iter().map(|batch| batch.timestamp(0)).collect();
    let all = parts.iter().flat_map(|part| &part.in_flight);
    all.map(|in_flight| (in_flight.label.from.operator.to_string(), times(in_flight))).collect()
}

#[tokio::test]
async fn behind_a_slow_reader_a_source_reads_no_more_than_the_channel_holds() {
    let (to, mut from) = link(CAPACITY, Announce::Never);
    let (task, _outside, polls) = source(to);
    let running = tokio::spawn(task.run());
    for taken in 0..100 {
        tokio::task::yield_now().await;
        let read = polls.load(Ordering::Relaxed);
        assert!(read <= taken + CAPACITY.elements_max, "{read} batches are read, {taken} taken");
        let took = from.poll_take(&Context::from_waker(Waker::noop()), true);
        assert!(took.is_ready(), "the source goes on when there is room");
    }
    running.abort();
}

#[tokio::test]
async fn a_source_without_room_takes_its_barrier_nevertheless() {
    let (to, from) = link(CAPACITY, Announce::Barriers);
    let (task, mut outside, _polls) = source(to);
    let running = tokio::spawn(task.run());
    tokio::task::yield_now().await;
    outside.barriers.send(barrier(1, Purpose::Continue)).await.expect("the task is there");
    let (epoch, changed, _) = outside.snapshot().await;
    assert_eq!((epoch, changed), (Epoch(1), true));
    assert!(from.has_announced(), "it is passed on though the channel is full");
    running.abort();
}

#[tokio::test]
async fn a_barrier_overtakes_what_is_queued_and_that_is_in_the_snapshot_and_processed_once() {
    let (to_a, a) = link(CAPACITY, Announce::Barriers);
    let (to_b, b) = link(CAPACITY, Announce::Barriers);
    let at_once = Alignment::Unaligned { after: Duration::ZERO };
    let (task, mut outside, seen) = sink(at_once, vec![a, b], Vec::new());
    let goes_on = Element::Barrier(barrier(1, Purpose::Continue));
    push(&to_a, [record(1), record(2), goes_on.clone(), record(3)]);
    push(&to_b, [record(4)]);
    let running = tokio::spawn(task.run());
    tokio::task::yield_now().await;
    assert_eq!(seen.times().len(), 4, "nothing waits for the barrier of the other input");
    push(&to_b, [record(5), goes_on, record(6)]);
    let (epoch, _, parts) = outside.snapshot().await;
    assert_eq!(epoch, Epoch(1));
    assert_eq!(in_flight(&parts), [("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![4, 5])]);
    for to in [&to_a, &to_b] {
        push(to, [Element::Barrier(barrier(2, Purpose::Last)), Element::End]);
    }
    let (epoch, changed, parts) = outside.snapshot().await;
    assert_eq!((epoch, changed, in_flight(&parts)), (Epoch(2), true, Vec::new()));
    running.await.expect("no panic").expect("it ends well");
    let mut times = seen.times();
    times.sort_unstable();
    assert_eq!(times, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn after_the_time_to_align_a_barrier_overtakes_without_anything_else_happening() {
    let (to_a, a) = link(CAPACITY, Announce::Barriers);
    let (to_b, b) = link(CAPACITY, Announce::Barriers);
    let patient = Alignment::Unaligned { after: Duration::from_millis(20) };
    let (task, mut outside, seen) = sink(patient, vec![a, b], Vec::new());
    let goes_on = Element::Barrier(barrier(1, Purpose::Continue));
    push(&to_a, [record(1), goes_on.clone(), record(2)]);
    let running = tokio::spawn(task.run());
    tokio::task::yield_now().await;
    assert_eq!(seen.times(), [1], "the input is held");
    while seen.times().len() < 2 {
        tokio::task::yield_now().await;
    }
    push(&to_b, [record(3), goes_on]);
    let (_, _, parts) = outside.snapshot().await;
    assert_eq!(in_flight(&parts), [("b".to_owned(), vec![3])]);
    running.abort();
}

#[tokio::test]
async fn what_was_in_flight_is_taken_up_first_and_is_in_flight_again_until_it_is() {
    let (to_a, a) = link(CAPACITY, Announce::Barriers);
    let (to_b, b) = link(CAPACITY, Announce::Barriers);
    let of_a = label("a");
    let restored = [7, 8].map(|time| Restored { place: 0, label: Arc::clone(&of_a), batch: Arc::new(batch(time)) });
    let at_once = Alignment::Unaligned { after: Duration::ZERO };
    let (task, mut outside, seen) = sink(at_once, vec![a, b], restored.into());
    for to in [&to_a, &to_b] {
        push(to, [record(1), Element::Barrier(barrier(1, Purpose::Continue))]);
    }
    let running = tokio::spawn(task.run());
    let (_, changed, parts) = outside.snapshot().await;
    assert!(!changed, "nothing was processed before the barrier");
    let expected = [("a".to_owned(), vec![7, 8]), ("a".to_owned(), vec![1]), ("b".to_owned(), vec![1])];
    assert_eq!(in_flight(&parts), expected);
    tokio::task::yield_now().await;
    assert_eq!(seen.times(), [7, 8, 1, 1]);
    running.abort();
}

#[tokio::test]
async fn a_held_input_fills_up_and_its_sender_finds_no_room() {
    let (to_a, a) = link(CAPACITY, Announce::Never);
    let (to_b, b) = link(CAPACITY, Announce::Never);
    let (task, mut outside, seen) = sink(Alignment::Aligned, vec![a, b], Vec::new());
    let goes_on = Element::Barrier(barrier(1, Purpose::Continue));
    push(&to_a, [record(1), goes_on.clone()]);
    let running = tokio::spawn(task.run());
    tokio::task::yield_now().await;
    let pushed = (2..).take_while(|&time| {
        let room = to_a.has_room();
        room.then(|| push(&to_a, [record(time)]));
        room
    });
    assert_eq!(pushed.count(), CAPACITY.elements_max);
    assert_eq!(seen.times(), [1]);
    push(&to_b, [goes_on]);
    let (epoch, _, _) = outside.snapshot().await;
    assert_eq!(epoch, Epoch(1));
    running.abort();
}
