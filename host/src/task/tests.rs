//! Whole tasks over channels, with a source and a sink that only count.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::channel::{Announce, Capacity, Inputs, Received, Receiver, Sender, link};
use crate::connector::{Polled, SinkWriter, SourceReader};
use crate::element::{Element, Purpose, Row, WATERMARK_END};
use crate::graph::Exchange as Dealt;
use crate::guest::{Call, Clock, Emitted, Failure, Fired, OperatorInstance, Rejection};
use crate::id::SplitId;
use crate::protocol::{Aligner, Alignment, WatermarkOptions};
use crate::state::KeyedState;

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

/// Has no records. Where it begins is certain at its third poll, and it is one farther at each from then on, up to 2.
#[derive(Default)]
struct Silent {
    polls: u64,
}

impl SourceReader for Silent {
    fn restore(&mut self, _: &[SplitState]) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        self.polls += 1;
        Ok(Polled::Idle(Duration::from_millis(1)))
    }

    fn snapshot(&self) -> Vec<SplitState> {
        vec![SplitState { split: "s".to_owned(), position: self.polls.saturating_sub(3).min(2).into() }]
    }

    fn is_ahead(&self) -> bool {
        self.polls < 3
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
    let (task, outside) = source_of(Box::new(Endless(Arc::clone(&polls))), to);
    (task, outside, polls)
}

fn source_of(reader: Box<dyn SourceReader>, to: Sender) -> (Task, Outside) {
    let (wires, outside) = wires(&[]);
    let time = SourceTime::new(WatermarkOptions::default(), &*reader);
    let head = Head::Source { subtask: subtask("text"), reader, time, counters: Counters::default() };
    let outlet = Outlet::new(0, Name::new("out").expect("a name"), Exchange::Forward, vec![to]);
    let chain = Chain::new(Vec::new(), Tail::Outlets(vec![outlet]), Vec::new());
    (Task { id: TaskId(0), head, chain, wires }, outside)
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
async fn positions_that_move_without_a_record_are_a_change_and_wait_until_they_are_certain() {
    let (to, mut from) = link(CAPACITY, Announce::Never);
    let (task, mut outside) = source_of(Box::new(Silent::default()), to);
    let running = tokio::spawn(task.run());
    let (mut moved, mut at) = (Vec::new(), 0);
    for epoch in 1.. {
        outside.barriers.send(barrier(epoch, Purpose::Continue)).await.expect("the task runs");
        let (_, changed, parts) = outside.snapshot().await;
        poll_fn(|context| from.poll_take(context, true)).await;
        let position = parts.iter().flat_map(|part| &part.splits).next().and_then(|split| split.position.as_u64());
        let now = position.expect("a position");
        assert_eq!(changed, now != at, "from {at} to {now}");
        moved.push(changed);
        at = now;
        if moved.len() > 1 && moved.ends_with(&[false, false]) && at == 2 {
            break;
        }
    }
    assert!(moved.contains(&true), "it has come from 0 to 2");
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

#[tokio::test]
async fn the_watermark_that_an_ended_input_had_come_to_goes_out_before_the_task_is_idle() {
    let (to_a, a) = link(CAPACITY, Announce::Never);
    let (to_b, b) = link(CAPACITY, Announce::Never);
    let (to, from) = link(CAPACITY, Announce::Never);
    let labels = vec![label("a"), label("b")];
    let (wires, _outside) = wires(&labels);
    let aligner = Aligner::new(Alignment::Aligned, 2, 1);
    let head = Head::Inputs { inputs: Inputs::new(vec![a, b]), labels, aligner };
    let outlet = Outlet::new(0, Name::new("out").expect("a name"), Exchange::Forward, vec![to]);
    let chain = Chain::new(Vec::new(), Tail::Outlets(vec![outlet]), Vec::new());
    push(&to_a, [Element::Watermark(100), Element::Watermark(WATERMARK_END), Element::End]);
    push(&to_b, [Element::Watermark(50)]);
    let running = tokio::spawn(Task { id: TaskId(1), head, chain, wires }.run());
    let mut reader = Inputs::new(vec![from]);
    let mut next = async || loop {
        match reader.try_recv(true) {
            Some(Received::Element(_, element)) => break element,
            Some(other) => panic!("{other:?}"),
            None => tokio::task::yield_now().await,
        }
    };
    assert!(matches!(next().await, Element::Watermark(50)), "the slower input holds it back");
    push(&to_b, [Element::Idle]);
    let (first, second) = (next().await, next().await);
    assert!(matches!((&first, &second), (Element::Watermark(100), Element::Idle)), "{first:?}, {second:?}");
    running.abort();
}

/// Passes records on with values of another size, and panics when it is closed.
#[derive(Clone, Default)]
struct BadLoser {
    value_bytes: usize,
    /// How many rows each call had.
    calls: Arc<Mutex<Vec<u32>>>,
}

impl BadLoser {
    fn slot(&self, limits: &crate::guest::Limits) -> OperatorSlot {
        OperatorSlot {
            subtask: subtask("bad-loser"),
            instance: Box::new(self.clone()),
            chained_input: 0,
            chained_port: 0,
            operator_state: Vec::new(),
            counters: Counters::default(),
            swaps: Swaps { board: SwapBoard::default(), reopen: Box::new(|_, _| panic!("nobody has ordered a swap")) },
            pace: Pace::new(limits),
        }
    }

    fn calls(&self) -> Vec<u32> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl OperatorInstance for BadLoser {
    fn restore(&mut self, _: &[Vec<u8>]) -> Result<(), OperatorError> {
        Ok(())
    }

    fn process(&mut self, _: u32, batch: &Batch, emitted: &mut Emitted) -> Result<Vec<Rejection>, OperatorError> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(batch.rows);
        let value = vec![0; self.value_bytes];
        let mut out = Batch::default();
        for row in 0..batch.rows as usize {
            out.push(Row { value: Some(&value), ..batch.row(row) });
        }
        emitted.push((0, out));
        Ok(Vec::new())
    }

    fn fire_timers(&mut self, _: Clock, _: i64, _: &mut Emitted) -> Result<Fired, OperatorError> {
        Ok(Fired::default())
    }

    fn next_timer(&self, _: Clock) -> Option<i64> {
        None
    }

    fn set_now(&mut self, _: i64) {}

    fn watermark(&mut self, _: i64, _: &mut Emitted) -> Result<(), OperatorError> {
        Ok(())
    }

    fn snapshot(&mut self, _: Epoch) -> Result<Vec<u8>, OperatorError> {
        Ok(Vec::new())
    }

    fn close(&mut self) -> Result<(), OperatorError> {
        let failure = Failure::Panic { message: "it wanted to go on".to_owned() };
        Err(OperatorError::new(subtask("bad-loser"), Call::Close, failure))
    }

    fn keyed_state(&mut self) -> Option<&mut KeyedState> {
        None
    }

    fn into_state(self: Box<Self>) -> Option<KeyedState> {
        None
    }
}

#[tokio::test]
async fn an_operator_that_fails_when_it_is_closed_keeps_no_job_from_its_end() {
    let (to_a, a) = link(CAPACITY, Announce::Never);
    let (to_b, b) = link(CAPACITY, Announce::Never);
    let (mut task, mut outside, seen) = sink(Alignment::Aligned, vec![a, b], Vec::new());
    let slot = BadLoser::default().slot(&crate::guest::Limits::default());
    let tail = Tail::Sink { subtask: subtask("out"), writer: Box::new(seen.clone()), counters: Counters::default() };
    task.chain = Chain::new(vec![slot], tail, Vec::new());
    for (to, time) in [(&to_a, 1), (&to_b, 2)] {
        push(to, [record(time), Element::Barrier(barrier(1, Purpose::Last)), Element::End]);
    }
    task.run().await.expect("the job is over all the same");
    assert_eq!(outside.snapshot().await.0, Epoch(1));
    assert_eq!(seen.times(), [1, 2]);
}

fn rows(times: std::ops::RangeInclusive<i64>) -> Arc<Batch> {
    let mut batch = Batch::default();
    times.for_each(|timestamp| batch.push(Row { key: None, value: Some(b"value"), timestamp }));
    batch.into()
}

#[test]
fn rows_that_put_out_much_are_given_one_by_one_and_what_is_left_at_a_barrier_is_in_flight() {
    let limits = crate::guest::Limits { output_bytes_max: 8 << 10, ..crate::guest::Limits::default() };
    let (operator, seen, from) =
        (BadLoser { value_bytes: 4 << 10, ..BadLoser::default() }, Seen::default(), label("a"));
    let tail = Tail::Sink { subtask: subtask("out"), writer: Box::new(seen.clone()), counters: Counters::default() };
    let mut chain = Chain::new(vec![operator.slot(&limits)], tail, Vec::new());
    chain.batch(0, Some(&from), rows(1..=1)).expect("processed");
    chain.batch(0, Some(&from), rows(2..=5)).expect("processed");
    assert_eq!((seen.times(), chain.has_work(), chain.is_in_own_batch()), (vec![1, 2], true, false));
    chain.work().expect("processed");
    let (parts, _) = chain.snapshot(Epoch(1)).expect("cut");
    let [InFlight { label, batches }] = &parts[0].in_flight[..] else { panic!("one input has something in flight") };
    assert!(Arc::ptr_eq(label, &from));
    assert_eq!(batches[..], [rows(4..=5)]);
    while chain.has_work() {
        chain.work().expect("processed");
    }
    assert_eq!((seen.times(), operator.calls()), ((1..=5).collect(), vec![1; 5]));
    assert!(chain.snapshot(Epoch(2)).expect("cut").0[0].in_flight.is_empty());
}

#[test]
fn rows_that_put_out_little_are_soon_given_all_at_once() {
    let (operator, seen) = (BadLoser::default(), Seen::default());
    let tail = Tail::Sink { subtask: subtask("out"), writer: Box::new(seen.clone()), counters: Counters::default() };
    let mut chain = Chain::new(vec![operator.slot(&crate::guest::Limits::default())], tail, Vec::new());
    for first in [1, 21, 41] {
        chain.batch(0, None, rows(first..=first + 19)).expect("processed");
        while chain.has_work() {
            assert!(chain.is_in_own_batch(), "no barrier may cut it");
            chain.work().expect("processed");
        }
    }
    assert_eq!((seen.times(), operator.calls()), ((1..=60).collect(), vec![16, 4, 20, 20]));
}
